"""Claims about the Monte Carlo check of laws: its false-alarm rate, and what it finds."""

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from theory import law_check, mistakes, theorem1
from theory.claims.claim import Claim, Finding, Method, Verdict, largest
from theory.distances import overlap, total_variation
from theory.law_check import FALSE_ALARM, POWER

DRAWS = 20_000
"""Draws of one check: a law at total variation .027 is found, and each known mistake is further away."""
UNIFORM = 1e-4
"""How often the test that p-values are uniform fails although they are, over the choice of its fixed seed."""


def _known_mistakes(thorough: bool) -> Finding:
    """Whether every run of a wrong sampler is found, and how surely by the frequencies of all its runs."""
    rng = np.random.default_rng(11)
    runs = 460 if thorough else 20
    missed, powers, found = [], [], 0
    for mistake in mistakes.known_mistakes():
        counts = _counts(mistake.wrong, mistake.target.size, runs, rng)
        seen = int((law_check.g_test(counts, mistake.target) <= FALSE_ALARM).sum())
        powers.append(law_check.power(counts.sum(axis=0) / counts.sum(), mistake.target, DRAWS))
        found += seen
        if seen < runs or not powers[-1] >= POWER:
            missed.append(f"{mistake.name}: {seen} of {runs} runs found, power {powers[-1]:.3f}")
    least = -largest(-each for each in powers)
    return Finding(
        verdict=Verdict.of(not missed),
        covered=f"{len(powers)} wrong samplers, {DRAWS:,} draws a run, false-alarm rate {FALSE_ALARM:g}: "
        f"{found} of {runs * len(powers)} runs found, least power {least:.6f}",
        counterexample="; ".join(missed),
    )


def _right_samplers(thorough: bool) -> Finding:
    """Whether the p-values of right samplers are uniform, so that every false-alarm rate is the stated one."""
    rng = np.random.default_rng(12)
    runs = 460 if thorough else 20
    listed = mistakes.known_mistakes()
    p_values = np.concatenate(
        [law_check.g_test(_counts(each.right, each.target.size, runs, rng), each.target) for each in listed]
    )
    p_value = float(stats.kstest(p_values, "uniform").pvalue)
    return Finding(
        verdict=Verdict.of(p_value > UNIFORM and p_values.min() > FALSE_ALARM),
        covered=f"{p_values.size:,} runs of {DRAWS:,} draws: none fails, p-values are uniform (Kolmogorov-Smirnov, "
        f"false alarm {UNIFORM:g})",
        p_value=p_value,
    )


def _false_alarms(thorough: bool) -> Finding:
    """The exact chance of a false alarm, over every count of three outcomes."""
    rates, ratios = (0.01, 1e-4, FALSE_ALARM), []
    for draws in (200, 500, 2000) if thorough else (200, 500):
        least = law_check.LEAST_EXPECTED / draws
        for target in ([0.25, 0.35, 0.4], [0.1, 0.1, 0.8], [least, 0.3, 0.7 - least], [least, least, 1 - 2 * least]):
            law, counts = np.array(target), _every_count(draws)
            chance = np.exp(special.gammaln(draws + 1) - special.gammaln(counts + 1).sum(axis=1) + counts @ np.log(law))
            p_values = law_check.g_test(counts, law)
            ratios += [chance[p_values <= rate].sum() / rate for rate in rates]
    return Finding(
        verdict=Verdict.of(0.5 <= min(ratios) <= max(ratios) <= 2),
        covered=f"every count of 3 outcomes, {len(ratios) // len(rates)} laws, rates 1e-2, 1e-4, 1e-6: true over "
        f"stated rate {min(ratios):.2f}..{max(ratios):.2f}",
        worst_error=largest(abs(ratio - 1) for ratio in ratios),
    )


def _at_the_detectable_distance(thorough: bool) -> Finding:
    """How often laws at the stated distance are found, in the direction in which that is hardest and in others."""
    rng = np.random.default_rng(13)
    runs = 20_000 if thorough else 2_000
    found = []
    for target in ([0.5, 0.5], [0.25] * 4, [0.1, 0.2, 0.3, 0.4], [0.05] * 20):
        law = np.array(target)
        distance = law_check.detectable_distance(law, DRAWS)
        half = np.cumsum(law) <= 0.5
        for split in (half, rng.permutation(half)):
            wrong = law + distance * np.where(split, law / law[split].sum(), -law / law[~split].sum())
            found.append((law_check.g_test(rng.multinomial(DRAWS, wrong, runs), law) <= FALSE_ALARM).mean())
    slack = 4 * np.sqrt(POWER * (1 - POWER) / runs)
    return Finding(
        verdict=Verdict.of(min(found) >= POWER - slack),
        covered=f"{len(found)} laws, {runs:,} runs each of {DRAWS:,} draws: found in at least {100 * min(found):.2f} "
        f"%, four standard errors of {runs:,} runs ({100 * slack:.2f} %) allowed",
        worst_error=max(POWER - min(found), 0.0),
    )


def _wrong_tests_show(thorough: bool) -> Finding:
    """Exact-match acceptance (case O05): the law that it emits, and how much it accepts."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])
    rule = mistakes.ExactMatch(leniency=0)
    distance = float(total_variation(theorem1.emitted_law(rule, p, q), p))
    accepted = float(theorem1.acceptance_rate(rule, p, q))
    return Finding(
        verdict=Verdict.of(distance > 1e-12),
        covered="exact-match acceptance at p = (.5, .3, .2), q = (.4, .4, .2)",
        worst_error=distance,
        counterexample="drafts kept where an independent draw of the verifier is the same: the text has the law p, but "
        f"{accepted:.2f} of the drafts are accepted instead of {float(overlap(p, q)):.2f}",
    )


def _counts(sampler: law_check.Sampler, size: int, runs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How often each outcome comes in each run, (runs, V)."""
    return np.stack([np.bincount(sampler(rng, DRAWS), minlength=size) for _ in range(runs)])


def _every_count(draws: int) -> NDArray[np.int64]:
    """Every way in which draws fall on three outcomes, (M, 3)."""
    first, second = np.divmod(np.arange((draws + 1) ** 2), draws + 1)
    possible = first + second <= draws
    return np.stack([first, second, draws - first - second], axis=1)[possible]


CLAIMS = (
    Claim(
        statement="The Monte Carlo check finds each known mistake of verification with probability .99 or more",
        source="Prop. 2, check",
        method=Method.MONTE_CARLO,
        expected=Verdict.HOLDS,
        check=_known_mistakes,
    ),
    Claim(
        statement="It passes the right samplers as often as it says",
        source="Prop. 2, check",
        method=Method.MONTE_CARLO,
        expected=Verdict.HOLDS,
        check=_right_samplers,
    ),
    Claim(
        statement="Its false-alarm rate is the stated one within a factor of two, down to 1e-6",
        source="Prop. 2, check",
        method=Method.ENUMERATION,
        expected=Verdict.HOLDS,
        check=_false_alarms,
    ),
    Claim(
        statement="It finds any law at its detectable distance with probability .99",
        source="Prop. 2, check",
        method=Method.MONTE_CARLO,
        expected=Verdict.HOLDS,
        check=_at_the_detectable_distance,
    ),
    Claim(
        statement="Every wrong acceptance test shows in the law of the text",
        source="Prop. 2, check",
        method=Method.ENUMERATION,
        expected=Verdict.FAILS,
        check=_wrong_tests_show,
    ),
)
