"""Proofs for all distributions of a small vocabulary, by the SMT solver z3: Theorem 1 and the one line of all rules.

A theorem is proved by showing that its negation cannot be satisfied, in exact real arithmetic. Each proof can drop the
hypothesis that it needs; then the negation has a solution, so the proof is not empty. Distributions are unknowns, not
samples, and nothing is shared with the array code that `theory.theorem1` computes with.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeAlias

import z3
from z3 import z3util

Term: TypeAlias = Any
"""An expression or a formula of z3."""


class Answer(StrEnum):
    """What the solver says of a statement. It may run out of time, which says nothing."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The solver's answer, and where the statement fails if it is refuted.

    Attributes
    ----------
    answer
        Proved for all distributions of that size, refuted by one, or neither within the time.
    counterexample
        Values of p, q and the other unknowns, such as ``{"p0": Fraction(1, 2), ...}``; an irrational value is rounded
        to twenty digits.
    """

    answer: Answer
    counterexample: dict[str, Fraction]


def no_target_beats_the_bound(size: int, *, within_deviation: bool = True, seconds: float = 60) -> Proof:
    """Prove that a target within deviation ε of p accepts at most ``1 - TV(p, q) + ε`` (Theorem 1).

    Linear real arithmetic, hence decidable.

    Parameters
    ----------
    size
        V, tokens of the vocabulary.
    within_deviation
        False drops the constraint on the target, which makes the statement false.
    seconds
        Time after which the answer is undecided.
    """
    p, q, target = (_unknowns(name, size) for name in ("p", "q", "t"))
    deviation = z3.Real("ε")
    hypotheses = [*_simplex(p), *_simplex(q), *_simplex(target), deviation >= 0, deviation <= _distance(p, q)]
    if within_deviation:
        hypotheses.append(_distance(target, p) <= deviation)
    return _prove(hypotheses, 1 - _distance(target, q) <= 1 - _distance(p, q) + deviation, seconds)


def optimal_target_reaches_the_bound(size: int, *, mixed: bool = True, seconds: float = 60) -> Proof:
    """Prove that the target of Eq. 5 deviates by exactly ``ε = λ TV(p, q)`` and accepts ``1 - TV(p, q) + ε``.

    Parameters
    ----------
    size, seconds
        As above.
    mixed
        False lets the target be any distribution that deviates by ε, which makes the statement false.
    """
    p, q, target = (_unknowns(name, size) for name in ("p", "q", "t"))
    leniency = z3.Real("λ")
    deviation = leniency * _distance(p, q)
    hypotheses = [*_simplex(p), *_simplex(q), *_simplex(target), leniency >= 0, leniency <= 1]
    if mixed:
        hypotheses += [t == (1 - leniency) * a + leniency * b for t, a, b in zip(target, p, q, strict=True)]
    else:
        hypotheses.append(_distance(target, p) == deviation)
    attained = 1 - _distance(target, q) == 1 - _distance(p, q) + deviation
    return _prove(hypotheses, z3.And(_distance(target, p) == deviation, attained), seconds)


def residual_covers_the_excess(size: int, *, raised: bool = True, seconds: float = 60) -> Proof:
    """Prove that a rejected token's residual mass ``Z = TV(target, q)`` is at least ``R = sum [q - γ]_+``.

    The first inequality behind the one line of all raise-and-rescale rules. Nonlinear real arithmetic: decidable, but
    at a cost that grows fast with the size.

    Parameters
    ----------
    size, seconds
        As above.
    raised
        False lets γ lie below p, which makes the statement false.
    """
    rule = _RaiseAndRescale.unknown(size)
    first, excess = rule.q[0] > rule.gamma[0], _sum_of_positive(rule.q, rule.gamma)
    return _prove([*rule.hypotheses(raised=raised), first], rule.residual_mass(0) >= excess, seconds)


def emitted_law_lies_between(size: int, *, raised: bool = True, seconds: float = 60) -> Proof:
    """Prove that a raise-and-rescale rule emits a law that lies between p and q at every token.

    The second inequality. The tokens are interchangeable, so it is stated for the first one.

    Parameters
    ----------
    size, raised, seconds
        As above.
    """
    rule = _RaiseAndRescale.unknown(size)
    low, high = _least(rule.p[0], rule.q[0]), _largest(rule.p[0], rule.q[0])
    between = z3.And(low <= rule.emitted(0), rule.emitted(0) <= high)
    return _prove([*rule.hypotheses(raised=raised), *rule.weights()], between, seconds)


def acceptance_lies_on_the_line(size: int, *, raised: bool = True, seconds: float = 60) -> Proof:
    """Prove that a raise-and-rescale rule accepts ``1 - TV(p, q) + TV(e, p)``, with e the law that it emits.

    The theorem itself, which the two inequalities give for every size.

    Parameters
    ----------
    size, raised, seconds
        As above.
    """
    rule = _RaiseAndRescale.unknown(size)
    emitted = _unknowns("e", size)
    laws = [e == rule.emitted(token) for token, e in enumerate(emitted)]
    accepted = z3.Sum([_least(q, gamma) for q, gamma in zip(rule.q, rule.gamma, strict=True)])
    line = accepted == 1 - _distance(rule.p, rule.q) + _distance(emitted, rule.p)
    return _prove([*rule.hypotheses(raised=raised), *rule.weights(), *laws], line, seconds)


@dataclass(frozen=True, kw_only=True)
class _RaiseAndRescale:
    """A pair with the raised probability γ of each token and the scale s of the rest, all unknown."""

    p: list[Term]
    q: list[Term]
    gamma: list[Term]
    scale: list[Term]

    @classmethod
    def unknown(cls, size: int) -> "_RaiseAndRescale":
        p, q, gamma, scale = (_unknowns(name, size) for name in ("p", "q", "γ", "s"))
        return cls(p=p, q=q, gamma=gamma, scale=scale)

    def hypotheses(self, *, raised: bool) -> list[Term]:
        """The pair is on the simplex, ``p <= γ <= 1``, and the scale makes every target one."""
        each = list(zip(self.p, self.gamma, self.scale, strict=True))
        formulas = [*_simplex(self.p), *_simplex(self.q)]
        formulas += [z3.And(gamma >= 0, gamma <= 1, s >= 0, s * (1 - p) == 1 - gamma) for p, gamma, s in each]
        return [*formulas, *(gamma >= p for p, gamma, _ in each)] if raised else formulas

    def target(self, drafted: int) -> list[Term]:
        rescaled = [self.scale[drafted] * p for p in self.p]
        return [*rescaled[:drafted], self.gamma[drafted], *rescaled[drafted + 1 :]]

    def residual_mass(self, drafted: int) -> Term:
        return _sum_of_positive(self.target(drafted), self.q)

    def weights(self) -> list[Term]:
        """Definitions of ``w = (q - γ) / Z``, by which a rejected draft's residual enters the emitted law."""
        each = enumerate(zip(_unknowns("w", len(self.p)), self.q, self.gamma, strict=True))
        return [z3.If(q > gamma, w * self.residual_mass(y) == q - gamma, w == 0) for y, (w, q, gamma) in each]

    def emitted(self, token: int) -> Term:
        """Chance that a token is emitted: accepted, or the replacement of one that was rejected."""
        excess = [_positive(self.target(drafted)[token] - self.q[token]) for drafted in range(len(self.p))]
        replaced = [w * mass for w, mass in zip(_unknowns("w", len(self.p)), excess, strict=True)]
        return z3.Sum([_least(self.q[token], self.gamma[token]), *replaced])


def _prove(hypotheses: list[Term], conclusion: Term, seconds: float) -> Proof:
    """Ask whether the hypotheses allow the conclusion to be false."""
    solver = z3.Solver()
    solver.set(timeout=max(1, round(1000 * seconds)))
    negation = z3.And(*hypotheses, z3.Not(conclusion))
    solver.add(negation)
    result = solver.check()
    if result == z3.unsat:
        return Proof(answer=Answer.PROVED, counterexample={})
    if result == z3.unknown:
        return Proof(answer=Answer.UNDECIDED, counterexample={})
    model = solver.model()
    values = {str(name): model.evaluate(name, model_completion=True) for name in z3util.get_vars(negation)}
    return Proof(answer=Answer.REFUTED, counterexample={name: _fraction(value) for name, value in values.items()})


def _fraction(value: Term) -> Fraction:
    """A real number of z3, which may be the root of a polynomial."""
    rational = value if z3.is_rational_value(value) else value.approx(20)
    return Fraction(rational.numerator_as_long(), rational.denominator_as_long())


def _unknowns(name: str, size: int) -> list[Term]:
    return [z3.Real(f"{name}{index}") for index in range(size)]


def _simplex(law: list[Term]) -> list[Term]:
    return [*(mass >= 0 for mass in law), z3.Sum(law) == 1]


def _distance(one: list[Term], other: list[Term]) -> Term:
    """Total variation (Eq. 2)."""
    return z3.Sum([_largest(a - b, b - a) for a, b in zip(one, other, strict=True)]) / 2


def _sum_of_positive(one: list[Term], other: list[Term]) -> Term:
    return z3.Sum([_positive(a - b) for a, b in zip(one, other, strict=True)])


def _positive(value: Term) -> Term:
    return _largest(value, z3.RealVal(0))


def _least(one: Term, other: Term) -> Term:
    return z3.If(one <= other, one, other)


def _largest(one: Term, other: Term) -> Term:
    return z3.If(one >= other, one, other)
