"""Theorem 1: the best target within a deviation, a linear program that confirms it, and the bound for every rule.

Relaxing a target may cost agreement with the verifier; Theorem 1 says how much acceptance each unit of deviation can
buy: one unit, and linear acceptance buys it. The price is the same for *every* verification rule once the deviation is
that of the emitted token: an accepted token is the drafted one, so acceptance is at most the overlap of the emitted law
with the drafter, and by the triangle inequality at most ``1 - TV(p, q) + TV(emitted, p)``.
"""

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from theory.acceptance import (
    acceptance_probability,
    drafted_probability,
    mixture,
    raise_and_rescale,
    replacement_law,
)
from theory.distances import Array, overlap, total_variation

SOLVER_TOLERANCE = 1e-10
"""The smallest infeasibility that HiGHS can be asked for, in absolute terms."""
UNIT = 2.0**10
"""Mass of a distribution in the linear program: the solver's tolerance is 1e-13 of it, still above rounding."""


class VerificationRule(Protocol):
    """What the law of an emitted token depends on: the acceptance test, and the replacement of a rejected token."""

    def probability(self, p_drafted: Array, q_drafted: Array, /) -> Array:
        """Return the acceptance probability of drafted tokens, elementwise."""

    def residual(self, p: Array, q: Array, drafted: Array, /) -> Array:
        """Return the distribution that replaces a rejected token, ``(..., V)``."""


def optimal_target(p: Array, q: Array, deviation: Array | float) -> Array:
    """Return the target within a deviation of the verifier that accepts most (Eq. 5), ``(..., V)``.

    Parameters
    ----------
    p, q
        Verifier and drafter, ``(..., V)``.
    deviation
        ε >= 0, the total variation that the target may have with respect to ``p``; broadcast against ``(...)``.

    Returns
    -------
    array
        ``(1 - λ) p + λ q`` with λ = ε / TV(p, q): ``p`` at deviation 0, ``q`` at TV(p, q). A deviation above TV(p, q)
        cannot be spent, so the target stays ``q``. Theorem 1 excludes p = q, where there is nothing to gain: the target
        is ``p`` whatever the deviation.

    Raises
    ------
    ValueError
        If a deviation is negative or NaN.
    """
    xp = array_namespace(p, q)
    deviation = _deviation(deviation, p)
    distance = total_variation(p, q)
    leniency = xp.where(deviation < distance, deviation / xp.where(distance > 0, distance, 1.0), 1.0)
    return mixture(p, q, xp.where(distance > 0, leniency, 0.0)[..., None])


def best_acceptance(p: Array, q: Array, deviation: Array | float) -> Array:
    """Return the largest acceptance rate within a deviation, ``1 - TV(p, q) + ε`` (Theorem 1), ``(..., V) -> (...)``.

    Parameters are those of `optimal_target`. The rate is 1 from deviation TV(p, q) on, hence also where p = q.

    Raises
    ------
    ValueError
        If a deviation is negative or NaN.
    """
    xp = array_namespace(p, q)
    return xp.clip(1 - total_variation(p, q) + _deviation(deviation, p), 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The optimum of Eq. 4 for one pair, between a target that reaches it and a certificate that none does better.

    Attributes
    ----------
    acceptance
        Acceptance rate of the best target, the solver's optimum.
    target : (V,)
        A target that reaches it; there may be others.
    upper_bound
        Value of a feasible point of the dual program. By weak duality no target within the deviation accepts more, and
        evaluating the point needs no trust in the solver.
    """

    acceptance: float
    target: NDArray[np.float64]
    upper_bound: float


def linear_program(p: NDArray[np.float64], q: NDArray[np.float64], deviation: float) -> Optimum:
    """Solve Eq. 4 with HiGHS, without Eq. 5: the oracle of `optimal_target` and `best_acceptance`.

    The variables are the target t, its mass ``m <= min(t, q)`` that is accepted, and its mass ``d >= t - p`` beyond the
    verifier: maximise ``sum m`` subject to ``sum d <= ε`` and ``sum t = 1``. By duality, any multipliers a in [0, 1] of
    ``m <= t`` and ``c >= 0`` of ``t - d <= p`` bound the optimum by ``sum q (1 - a) + sum p c + ε max c + max(a - c)``.

    Parameters
    ----------
    p, q
        Verifier and drafter, ``(V,)``.
    deviation
        ε >= 0.

    Raises
    ------
    ValueError
        If the program has no solution, as where ``deviation`` is negative.
    """
    size = len(p)
    solution = linprog(
        np.repeat([0.0, -1.0, 0.0], size),
        A_ub=_limits(size),
        b_ub=UNIT * np.concatenate([np.zeros(size), p, [deviation]]),
        A_eq=np.repeat([1.0, 0.0, 0.0], size)[None, :],
        b_eq=[UNIT],
        bounds=UNIT * np.stack([np.zeros(3 * size), np.concatenate([np.ones(size), q, np.ones(size)])], axis=1),
        method="highs-ds",
        options={
            "primal_feasibility_tolerance": SOLVER_TOLERANCE,
            "dual_feasibility_tolerance": SOLVER_TOLERANCE,
            "presolve": False,  # it takes limits that are closer than its tolerance for contradictory ones
        },
    )
    if not solution.success:
        msg = f"`p` must be a distribution and `deviation` not negative, got {deviation} and sum {p.sum()}; mend them"
        raise ValueError(msg)
    shared, beyond = np.clip(-solution.ineqlin.marginals[:-1].reshape(2, size), 0, [[1.0], [np.inf]])
    bound = q @ (1 - shared) + p @ beyond + deviation * beyond.max() + (shared - beyond).max()
    return Optimum(acceptance=-solution.fun / UNIT, target=solution.x[:size] / UNIT, upper_bound=float(bound))


@dataclass(frozen=True, kw_only=True, eq=False)
class RaiseAndRescale:
    """Raise the drafted token to any probability that is not below the verifier's and rescale the rest.

    The family of Cactus, and all of it on Theorem 1's line. Unlike the rules that decode, it needs the whole
    distributions in its acceptance test.

    Parameters
    ----------
    raised : (..., V)
        γ(v) in [p(v), 1] for each token v that may be drafted.
    """

    raised: Array

    def probability(self, p: Array, q: Array, /) -> Array:
        """Return the acceptance probability of each token, ``(..., V)``."""
        return acceptance_probability(self.raised, q)

    def residual(self, p: Array, q: Array, drafted: Array, /) -> Array:
        """Return the distribution that replaces a rejected token, ``(..., V)``."""
        target = raise_and_rescale(p, drafted, drafted_probability(self.raised, drafted))
        return replacement_law(target, q)


class ExactMatch:
    """Accept a drafted token where an independent draw from the verifier is the same token; emit that draw.

    Lossless, and off Theorem 1's line: it accepts ``sum p q`` instead of ``sum min(p, q)``.
    """

    def probability(self, p_drafted: Array, q_drafted: Array, /) -> Array:
        """Return the acceptance probability of drafted tokens, elementwise."""
        return p_drafted

    def residual(self, p: Array, q: Array, drafted: Array, /) -> Array:
        """Return the verifier's law of the other tokens, ``(..., V)``."""
        return raise_and_rescale(p, drafted, 0 * drafted_probability(p, drafted))


class VerifierReplacement:
    """Accept as the lossless rule does, but replace a rejected token by any draw from the verifier: a common slip.

    Off Theorem 1's line: the emitted law deviates from the verifier and buys no acceptance with it.
    """

    def probability(self, p_drafted: Array, q_drafted: Array, /) -> Array:
        """Return the acceptance probability of drafted tokens, elementwise."""
        return acceptance_probability(p_drafted, q_drafted)

    def residual(self, p: Array, q: Array, drafted: Array, /) -> Array:
        """Return the verifier, ``(..., V)``, where the excess over the drafter belongs."""
        return p


def acceptance_rate(rule: VerificationRule, p: Array, q: Array) -> Array:
    """Return the chance that a token drafted from ``q`` is accepted, ``(..., V) -> (...)``."""
    xp = array_namespace(p, q)
    return xp.sum(q * rule.probability(p, q), axis=-1)


def emitted_law(rule: VerificationRule, p: Array, q: Array) -> Array:
    """Return the law of the emitted token, accepted or replaced, by enumeration of the drafted one, ``(..., V)``.

    It needs ``V`` times the memory of ``p``.
    """
    xp = array_namespace(p, q)
    leading = max(p.ndim, q.ndim) - 1
    drafted = xp.reshape(xp.arange(p.shape[-1], device=device(p)), (-1, *(1,) * leading))
    accepted = q * rule.probability(p, q)
    rejected = xp.moveaxis(q - accepted, -1, 0)[..., None]
    replacement = xp.where(rejected > 0, rejected * rule.residual(p, q, drafted), 0.0)
    return accepted + xp.sum(replacement, axis=0)


def efficiency(rule: VerificationRule, p: Array, q: Array) -> Array:
    """Return acceptance over the most that any rule can accept at the same deviation of the emitted law, ``(...)``.

    At most 1 for every rule; 1 for linear acceptance, and for every rule that raises the drafted token's probability
    and rescales the rest, hence for Cactus. Where nothing can be accepted the bound is attained, and the efficiency is
    1. Bound and acceptance each err by about eps, so the ratio loses the digits that a bound close to 0 lacks.
    """
    xp = array_namespace(p, q)
    most = overlap(p, q) + total_variation(emitted_law(rule, p, q), p)
    return xp.where(most > 0, acceptance_rate(rule, p, q) / xp.where(most > 0, most, 1.0), 1.0)


@cache
def _limits(size: int) -> sparse.csr_array:
    """Left sides of the inequalities of Eq. 4 in the variables (t, m, d): ``m - t``, ``t - d`` and ``sum d``."""
    one, none = sparse.eye_array(size), sparse.csr_array((size, size))
    accepted, beyond = sparse.hstack([-one, one, none]), sparse.hstack([one, none, -one])
    spent = sparse.csr_array(np.repeat([0.0, 0.0, 1.0], size)[None, :])
    return sparse.csr_array(sparse.vstack([accepted, beyond, spent]))


def _deviation(deviation: Array | float, p: Array) -> Array:
    """The deviation as an array beside ``p``."""
    xp = array_namespace(p)
    values = xp.asarray(deviation, dtype=p.dtype, device=device(p))
    wrong = values[~(values >= 0)]
    if wrong.shape[0]:
        raise ValueError(f"`deviation` must not be negative, got {float(wrong[0])}; 0 is lossless")
    return values
