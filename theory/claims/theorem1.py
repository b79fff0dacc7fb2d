"""Claims about Theorem 1: what a deviation buys, that linear acceptance buys it, and the one line of all rules."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from theory import proofs, theorem1
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.claims.claim import Claim, Finding, Method, Verdict, largest
from theory.distances import overlap, total_variation
from theory.proofs import Answer, Proof

PROGRAM_TOLERANCE = 1e-9
"""Agreement with a linear program, whose solver is asked for 1e-10."""
TOLERANCE = 1e-12
"""Rounding of laws that are enumerated over up to 64 drafted tokens."""
NORMS = (1, 2, np.inf)

Law: TypeAlias = NDArray[np.float64]
MakeRule: TypeAlias = Callable[[np.random.Generator, Law], theorem1.VerificationRule]


class _AnyRule:
    """Accepts and replaces each drafted token with any probability, whatever the pair."""

    def __init__(self, rng: np.random.Generator, p: Law) -> None:
        self.accepted = rng.choice([0.0, 0.5, 1.0, rng.random()], p.size)
        self.replacement = rng.dirichlet(np.full(p.size, rng.choice([0.1, 1.0])), p.size)

    def probability(self, p_drafted: Law, q_drafted: Law, /) -> Law:
        return self.accepted

    def residual(self, p: Law, q: Law, drafted: NDArray[np.int64], /) -> Law:
        return np.asarray(self.replacement[drafted])


def _linear(rng: np.random.Generator, p: Law) -> theorem1.VerificationRule:
    return LinearAcceptance(leniency=rng.choice([0.0, 1.0, rng.random()]))


def _cactus(rng: np.random.Generator, p: Law) -> theorem1.VerificationRule:
    return CactusAcceptance(budget=rng.choice([0.0, 10.0, rng.exponential()]), solver=rng.choice(["exact", "taylor"]))


def _raising(rng: np.random.Generator, p: Law) -> theorem1.VerificationRule:
    share = rng.choice([0.0, 1.0, rng.random()], p.size) * rng.random(p.size)
    return theorem1.RaiseAndRescale(raised=np.maximum(p, p + share * (1 - p)))


def _proved(
    thorough: bool, *, prove: Callable[[int], Proof], sizes: tuple[int, ...], more: tuple[int, ...] = ()
) -> Finding:
    """A statement for all distributions of some sizes; false if it is false for one, else undecided if for one."""
    answers = {size: prove(size) for size in (sizes + more if thorough else sizes)}
    refuted = {str(size): proof for size, proof in answers.items() if proof.answer == Answer.REFUTED}
    undecided = [str(size) for size, proof in answers.items() if proof.answer == Answer.UNDECIDED]
    example = next((proof.counterexample for proof in refuted.values()), {})
    verdict = Verdict.FAILS if refuted else Verdict.UNDECIDED if undecided else Verdict.HOLDS
    return Finding(
        verdict=verdict,
        covered=f"all distributions, V = {', '.join(map(str, answers))}"
        + (f"; refuted for V = {', '.join(refuted)}" if refuted else "")
        + (f"; undecided for V = {', '.join(undecided)}" if undecided else ""),
        counterexample=", ".join(f"{name} = {value}" for name, value in sorted(example.items())),
    )


def _program(thorough: bool) -> Finding:
    """Eq. 5 and its bound against the optimum of Eq. 4 and a dual certificate."""
    rng = np.random.default_rng(11)
    instances, errors = (3000 if thorough else 200), []
    for p, q in _pairs(rng, instances):
        deviation = float(rng.choice([0, 1, rng.random(), 1.5]) * total_variation(p, q))
        best = float(theorem1.best_acceptance(p, q, deviation))
        target = theorem1.optimal_target(p, q, deviation)
        optimum = theorem1.linear_program(p, q, deviation)
        beyond = largest([total_variation(target, p) - deviation, 0])
        errors += [optimum.acceptance - best, optimum.upper_bound - best, float(overlap(target, q)) - best, beyond]
    worst = largest(map(abs, errors))
    return Finding(
        verdict=Verdict.of(worst <= PROGRAM_TOLERANCE),
        covered=f"{instances:,} pairs, V = 2..64, a dual certificate for each",
        worst_error=worst,
    )


def _nearest(thorough: bool) -> Finding:
    """By how much a signed measure as near to the verifier comes nearer to the drafter."""
    rng = np.random.default_rng(12)
    instances, nearer = (4000 if thorough else 400), [0.0]
    for p, q in _pairs(rng, instances):
        nearest = theorem1.optimal_target(p, q, rng.random() * total_variation(p, q))
        for norm in NORMS:
            radius, distance = (np.linalg.norm(nearest - law, norm) for law in (p, q))
            moves = nearest - p + rng.normal(size=(8, p.size)) * np.logspace(-4, 0, 8)[:, None] * radius
            lengths = np.linalg.norm(moves, norm, axis=1, keepdims=True)
            rivals = p + moves * np.minimum(1, radius / np.where(lengths > 0, lengths, 1))
            nearer.append((distance - np.linalg.norm(rivals - q, norm, axis=1)).max())
    worst = largest(nearer)
    return Finding(
        verdict=Verdict.of(worst <= TOLERANCE),
        covered=f"{instances:,} pairs, V = 2..64, 8 rivals in each of the norms L1, L2, L-infinity",
        worst_error=worst,
    )


def _bounded(thorough: bool) -> Finding:
    """By how much a rule of any kind accepts more than the line allows."""
    above = [accepted - most for accepted, most in _on_the_line(_AnyRule, thorough)]
    worst = largest([*above, 0.0])
    return Finding(
        verdict=Verdict.of(worst <= TOLERANCE),
        covered=f"{len(above):,} rules with random acceptance and replacement, V = 2..64",
        worst_error=worst,
    )


def _attained(thorough: bool, *, make: MakeRule) -> Finding:
    """How far the acceptance of rules of one kind is from the line."""
    off = [abs(accepted - most) for accepted, most in _on_the_line(make, thorough)]
    worst = largest(off)
    return Finding(
        verdict=Verdict.of(worst <= TOLERANCE),
        covered=f"{len(off):,} pairs and rules, V = 2..64",
        worst_error=worst,
    )


def _attained_by_all(thorough: bool) -> Finding:
    """The efficiency of rules that are off the line."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])
    rules: dict[str, theorem1.VerificationRule] = {
        "exact match (lossless)": theorem1.ExactMatch(),
        "replacement drawn from the verifier": theorem1.VerifierReplacement(),
        "drafted token lowered to p / 2": theorem1.RaiseAndRescale(raised=p / 2),
    }
    scores = {name: float(theorem1.efficiency(rule, p, q)) for name, rule in rules.items()}
    lost = largest(1 - score for score in scores.values())
    listed = ", ".join(f"{name} {score:.4f}" for name, score in scores.items())
    return Finding(
        verdict=Verdict.of(not (lost > TOLERANCE)),
        covered=f"{len(rules)} rules on one pair",
        worst_error=lost,
        counterexample=f"efficiency at p = {p.tolist()}, q = {q.tolist()}: {listed}",
    )


def _on_the_line(make: MakeRule, thorough: bool) -> Iterator[tuple[float, float]]:
    """Acceptance of random rules on random pairs, and the most that their emitted laws allow."""
    rng = np.random.default_rng(13)
    for p, q in _pairs(rng, 3000 if thorough else 300):
        rule = make(rng, p)
        law = theorem1.emitted_law(rule, p, q)
        yield float(theorem1.acceptance_rate(rule, p, q)), float(overlap(p, q) + total_variation(law, p))


def _pairs(rng: np.random.Generator, count: int) -> Iterator[tuple[Law, Law]]:
    """Random pairs: flat and peaked ones, exact zeros, point masses, disjoint supports, equal up to a last digit."""
    for number in range(count):
        size = int(rng.integers(2, 65))
        p, q = rng.dirichlet(np.full(size, rng.choice([0.05, 1.0])), 2)
        kind = number % 6
        if kind == 1:
            q = p * (1 + rng.choice([1e-16, 1e-9]) * np.arange(size))
        elif kind == 2:
            p = np.eye(size)[rng.integers(size)]
        elif kind == 3:
            p, q = np.append(p[1:], p[0]) * (np.arange(size) % 2), q * (np.arange(size) % 2 == 0)
        elif kind == 4:
            p = np.where(rng.random(size) < 0.5, p, 1e-310)
        yield p / p.sum(), q / q.sum()


CLAIMS = (
    Claim(
        statement="No target within deviation ε of p accepts more than 1 - TV(p, q) + ε",
        source="Theorem 1",
        method=Method.SMT,
        expected=Verdict.HOLDS,
        check=partial(_proved, prove=proofs.no_target_beats_the_bound, sizes=(2, 3, 4), more=(5, 6, 8)),
    ),
    Claim(
        statement="The same of any target, its deviation not constrained",
        source="Theorem 1",
        method=Method.SMT,
        expected=Verdict.FAILS,
        check=partial(
            _proved, prove=partial(proofs.no_target_beats_the_bound, within_deviation=False), sizes=(2, 3, 4)
        ),
    ),
    Claim(
        statement="The target (1 - λ) p + λ q deviates by ε = λ TV(p, q) and accepts 1 - TV(p, q) + ε",
        source="Theorem 1",
        method=Method.SMT,
        expected=Verdict.HOLDS,
        check=partial(_proved, prove=proofs.optimal_target_reaches_the_bound, sizes=(2, 3, 4)),
    ),
    Claim(
        statement="The optimum of Eq. 4 is 1 - TV(p, q) + ε, and the target of Eq. 5 reaches it",
        source="Theorem 1",
        method=Method.LINEAR_PROGRAM,
        expected=Verdict.HOLDS,
        check=_program,
    ),
    Claim(
        statement="p + r (q - p) is nearest to q among all signed measures as near to p",
        source="Appendix B",
        method=Method.NUMERICAL,
        expected=Verdict.HOLDS,
        check=_nearest,
    ),
    Claim(
        statement="No rule accepts more than 1 - TV(p, q) + TV(e, p), where e is the law that it emits",
        source="one line",
        method=Method.ENUMERATION,
        expected=Verdict.HOLDS,
        check=_bounded,
    ),
    *(
        Claim(
            statement=f"{name} accepts exactly 1 - TV(p, q) + TV(e, p)",
            source="one line",
            method=Method.ENUMERATION,
            expected=Verdict.HOLDS,
            check=partial(_attained, make=make),
        )
        for name, make in (
            ("Linear acceptance, at every leniency,", _linear),
            ("Cactus, exact or Taylor,", _cactus),
            ("Every rule that raises the drafted token and rescales the rest", _raising),
        )
    ),
    Claim(
        statement="Every rule accepts exactly 1 - TV(p, q) + TV(e, p)",
        source="one line",
        method=Method.ENUMERATION,
        expected=Verdict.FAILS,
        check=_attained_by_all,
    ),
    *(
        Claim(
            statement=f"Raise and rescale: {statement}",
            source="one line",
            method=Method.SMT,
            expected=Verdict.HOLDS,
            check=partial(_proved, prove=prove, sizes=(2, 3), more=more),
        )
        for statement, prove, more in (
            ("the residual mass of a rejected token is at least R", proofs.residual_covers_the_excess, (4,)),
            ("the emitted law lies between p and q", proofs.emitted_law_lies_between, ()),
            ("acceptance is 1 - TV(p, q) + TV(e, p)", proofs.acceptance_lies_on_the_line, ()),
        )
    ),
    Claim(
        statement="Lower and rescale: acceptance is 1 - TV(p, q) + TV(e, p)",
        source="one line",
        method=Method.SMT,
        expected=Verdict.FAILS,
        check=partial(_proved, prove=partial(proofs.acceptance_lies_on_the_line, raised=False), sizes=(2, 3)),
    ),
)
