"""Claims about coupled verification: what sharing the noise keeps, what it costs, and how it must not be done."""

from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from theory import coupled
from theory.claims.claim import Claim, Finding, Method, Verdict, largest
from theory.distances import total_variation

FALSE_ALARM = 1e-6
"""How often the Monte Carlo claim would be refuted although it is true, over the choice of its fixed seed."""
ROUNDING = 1e-12
VISIBLE = 1e-3
"""A bias that no rounding explains."""

Law = NDArray[np.float64]


def _formula(thorough: bool) -> Finding:
    """Agreement of Gumbel races against the formula, pair by pair, with Bonferroni's bound on the smallest p-value."""
    rng = np.random.default_rng(0)
    instances, races = (60, 400_000) if thorough else (12, 100_000)
    p_values = []
    for _ in range(instances):
        p, q = _pair(rng, int(rng.integers(2, 9)))
        noise = rng.gumbel(size=(races, p.size))
        with np.errstate(divide="ignore"):
            agreed = np.argmax(np.log(p) + noise, axis=1) == np.argmax(np.log(q) + noise, axis=1)
        chance = min(max(float(coupled.coupled_acceptance(p, q)), 0.0), 1.0)
        p_values.append(stats.binomtest(int(agreed.sum()), races, chance).pvalue)
    smallest = float(min(1.0, instances * min(p_values)))
    return Finding(
        verdict=Verdict.of(smallest > FALSE_ALARM),
        covered=f"{instances} pairs, V = 2..8, {races:,} races each; false alarm {FALSE_ALARM:g}",
        p_value=smallest,
    )


def _sorted_sums(thorough: bool) -> Finding:
    """The sums along the order of q / p against the printed double sum in fractions."""
    rng = np.random.default_rng(1)
    instances, off = (1000 if thorough else 150), []
    for _ in range(instances):
        p, q = _pair(rng, int(rng.integers(2, 13)))
        off.append(abs(coupled.coupled_acceptance(p, q) - float(_printed(p, q))))
    worst = largest(off)
    return Finding(
        verdict=Verdict.of(worst <= ROUNDING),
        covered=f"{instances:,} pairs, V = 2..12, a third with zeros, in fractions",
        worst_error=worst,
    )


def _bounds(thorough: bool) -> Finding:
    """Both bounds on random pairs, and both reached."""
    rng = np.random.default_rng(2)
    instances, beyond = (20_000 if thorough else 2_000), [0.0]
    for _ in range(instances):
        p, q = _pair(rng, int(rng.integers(2, 33)))
        rate, distance = float(coupled.coupled_acceptance(p, q)), float(total_variation(p, q))
        beyond += [rate - (1 - distance), (1 - distance) / (1 + distance) - rate]
    for d in np.linspace(0, 1, 21):
        coins = np.array([0.0, 1.0]), np.array([d, 1 - d])
        apart = np.array([1 - d, d, 0]), np.array([1 - d, 0, d])
        beyond.append(abs(coupled.coupled_acceptance(*coins) - (1 - d)))
        beyond.append(abs(coupled.coupled_acceptance(*apart) - (1 - d) / (1 + d)))
    worst = largest(beyond)
    return Finding(
        verdict=Verdict.of(worst <= ROUNDING),
        covered=f"{instances:,} pairs, V = 2..32; both bounds reached at TV = 0, .05, ..., 1",
        worst_error=worst,
    )


def _keyed(thorough: bool) -> Finding:
    """The law of two tokens against the verifier's own with the same noise, over every pair of noise vectors."""
    rng = np.random.default_rng(3)
    instances, off = (2000 if thorough else 200), []
    for _ in range(instances):
        size, count = int(rng.integers(2, 6)), int(rng.integers(2, 9))
        verifier, drafter, noise = _laws(rng, size), _laws(rng, size), rng.gumbel(size=(count, size))
        law = coupled.coupled_pair_law(verifier, drafter, noise)
        off.append(total_variation(law.ravel(), _plain(verifier, noise).ravel()))
    worst = largest(off)
    return Finding(
        verdict=Verdict.of(worst <= ROUNDING),
        covered=f"{instances:,} pairs that draft the second token first, V = 2..5, all of up to 8 x 8 noise vectors",
        worst_error=worst,
    )


def _redrawn(thorough: bool) -> Finding:
    """The same with new noise after a rejection, and the example in which equal tokens are favoured."""
    rng = np.random.default_rng(4)
    instances = 2000 if thorough else 200
    biases = []
    for _ in range(instances):
        verifier, drafter = _laws(rng, 2), _laws(rng, 2)
        noise = coupled.coin_noise(40)
        law = coupled.coupled_pair_law(verifier, drafter, noise, redrawn=True)
        biases.append(float(total_variation(law.ravel(), _plain(verifier, noise).ravel())))
    uniform, even = np.full(2, 0.5), np.full((2, 2), 0.5)
    repeating = np.array([[0.95, 0.05], [0.05, 0.95]])
    law = coupled.coupled_pair_law((uniform, even), (uniform, repeating), coupled.coin_noise(20), redrawn=True)
    example = float(total_variation(law.ravel(), even.ravel() / 2))
    return Finding(
        verdict=Verdict.of(not (example > VISIBLE)),
        covered=f"{instances:,} pairs, V = 2, and the example; TV up to {max(biases):.3f}, in the mean "
        f"{np.mean(biases):.3f}",
        worst_error=largest([*biases, example]),
        counterexample="two slots, two symbols, uniform verifier; slot 2 is drafted first, uniformly, and slot 1 "
        f"copies it with probability 19/20: equal symbols come out with {law[0, 0]:.4f} each, unequal ones with "
        f"{law[0, 1]:.4f}, instead of 1/4",
    )


def _pair(rng: np.random.Generator, size: int) -> tuple[Law, Law]:
    """Two distributions, from nearly equal to unrelated, every third time with tokens that one of them rules out."""
    p, other = rng.dirichlet(np.full(size, 0.5)), rng.dirichlet(np.full(size, 0.5))
    share = rng.choice([1.0, 0.3, 1e-6])
    q = (1 - share) * p + share * other
    if rng.random() < 1 / 3:
        p, q = p.copy(), q.copy()
        p[0], q[-1] = 0.0, 0.0
    return p / p.sum(), q / q.sum()


def _laws(rng: np.random.Generator, size: int) -> tuple[Law, Law]:
    """The law of one token, and of another given it."""
    return rng.dirichlet(np.ones(size)), rng.dirichlet(np.full(size, 0.5), size)


def _printed(p: Law, q: Law) -> Fraction:
    """``sum_v 1 / sum_w max(p(w) / p(v), q(w) / q(v))`` as it stands."""
    pairs = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(p, q, strict=True)]
    chances = [1 / sum((max(a / c, b / d) for a, b in pairs), Fraction(0)) for c, d in pairs if c and d]
    return sum(chances, Fraction(0))


def _plain(verifier: tuple[Law, Law], noise: Law) -> Law:
    """What the verifier alone writes with each pair of noise vectors, one token after the other."""
    first, second = verifier
    law = np.zeros_like(second)
    for one, two in product(noise, noise):
        token = int(np.argmax(np.log(first) + one))
        law[token, int(np.argmax(np.log(second[token]) + two))] += 1 / len(noise) ** 2
    return law


CLAIMS = (
    Claim(
        statement="Tokens drawn from p and q with the same Gumbel noise agree with chance "
        "sum_v 1 / sum_w max(p(w)/p(v), q(w)/q(v))",
        source="Daliri, Musco and Suresh, arXiv 2408.07978",
        method=Method.MONTE_CARLO,
        expected=Verdict.HOLDS,
        check=_formula,
    ),
    Claim(
        statement="Its V log V form, sums along the order of q/p, is the same number",
        source="Daliri, Musco and Suresh, arXiv 2408.07978",
        method=Method.EXACT_ARITHMETIC,
        expected=Verdict.HOLDS,
        check=_sorted_sums,
    ),
    Claim(
        statement="The chance lies between (1 - TV)/(1 + TV) and 1 - TV, and both bounds are reached",
        source="Daliri, Musco and Suresh, arXiv 2408.07978",
        method=Method.NUMERICAL,
        expected=Verdict.HOLDS,
        check=_bounds,
    ),
    Claim(
        statement="Coupled verification with noise keyed by position emits what the verifier alone does, "
        "although the later token is drafted first",
        source="Beyond Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.HOLDS,
        check=_keyed,
    ),
    Claim(
        statement="It also does if the noise of later positions is redrawn after a rejection",
        source="Beyond Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.FAILS,
        check=_redrawn,
    ),
)
