"""Raising a probability within a budget of any f-divergence: what Cactus (Appendix E) does with relative entropy.

An f-divergence of a target from the verifier is ``sum p f(target / p)`` with f convex and f(1) = 0. If the drafted
token is raised from p to γ = p + r and the rest is rescaled, only two ratios occur, and the divergence is that of two
coins: moving a probability p by r costs ``p f(1 + r / p)``, and moving the rest by -r costs the same of 1 - p. A
divergence is given by that cost, in a form that keeps its digits where r is far smaller than p or p far below 1.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

from array_api_compat import array_namespace

from theory.distances import Array

Cost: TypeAlias = Callable[[Array, Array], Array]
"""``(r, p) -> p f(1 + r / p)`` for 0 < p < 1 and r >= -p, elementwise; it may be infinite at r = -p."""

GEOMETRIC_STEPS, ARITHMETIC_STEPS = 12, 54
"""Halvings of the bracket: in its logarithm, until its ends are within a factor of two, and then down to rounding."""


def kullback_leibler(rise: Array, p: Array, /) -> Array:
    """Relative entropy of the target with respect to the verifier, f(t) = t log t: the budget of Cactus."""
    return (p + rise) * _log_ratio(rise, p, 0.0)


def reverse_kullback_leibler(rise: Array, p: Array, /) -> Array:
    """Relative entropy of the verifier with respect to the target, f(t) = -log t; no budget buys γ = 1."""
    return -p * _log_ratio(rise, p, -math.inf)


def chi_square(rise: Array, p: Array, /) -> Array:
    """Pearson's χ², f(t) = (t - 1)²; budget 2 δ raises as Cactus's Taylor variant does with budget δ."""
    return rise * (rise / p)


def squared_hellinger(rise: Array, p: Array, /) -> Array:
    """Half the squared distance between the roots, f(t) = (√t - 1)² / 2; at most 1 in sum."""
    xp = array_namespace(rise, p)
    root = rise / (xp.sqrt(p + rise) + xp.sqrt(p))
    return root * root / 2


def total_variation(rise: Array, p: Array, /) -> Array:
    """Total variation (Eq. 2), f(t) = |t - 1| / 2; budget δ raises by δ."""
    xp = array_namespace(rise, p)
    return xp.abs(rise) / 2


def raise_within(p: Array, budget: Array | float, cost: Cost = kullback_leibler) -> Array:
    """Return the largest γ >= p whose divergence from ``p`` is within the budget, elementwise.

    The divergence is convex in γ and 0 at p, hence it never falls, and bisection finds where it leaves the budget for
    every f: a fixed number of steps, without control flow that depends on the data. `theory.acceptance` solves relative
    entropy in an eighth of the steps, by Newton's method, and is what decodes.

    Parameters
    ----------
    p
        Verifier's probability of the drafted token, any real floating dtype; the work is done in float64. A subnormal
        one, below 2.2e-308, counts as 0, and so small a rise is none.
    budget
        δ >= 0 in units of the divergence, broadcast against ``p``.
    cost
        The divergence, as what it costs to move one probability: ``p f(1 + r / p)`` for a convex f with f(1) = 0.

    Returns
    -------
    array
        γ in [p, 1], in the dtype of ``p``: p at budget 0, 1 where that is within the budget, and 0 where p = 0.
    """
    xp = array_namespace(p, budget)
    wide = xp.astype(p, xp.float64)
    limits = xp.finfo(xp.float64)
    inside = (wide >= limits.smallest_normal) & (wide < 1)
    start = xp.where(inside, wide, 0.5)
    least, rest = xp.clip(start * (limits.eps / 8), limits.smallest_normal), 1 - start

    def within(rise: Array) -> Array:
        return cost(rise, start) + cost(-rise, 1 - start) <= budget

    low, high = least, rest
    for step in range(GEOMETRIC_STEPS + ARITHMETIC_STEPS):
        middle = xp.sqrt(low) * xp.sqrt(high) if step < GEOMETRIC_STEPS else (low + high) / 2
        enough = within(middle)
        low, high = xp.where(enough, middle, low), xp.where(enough, high, middle)
    gamma = xp.where(within(rest), 1.0, xp.clip(start + low, None, 1 - limits.eps / 2))
    return xp.astype(xp.where(inside & (budget > 0) & within(least), gamma, wide), p.dtype)


def _log_ratio(rise: Array, p: Array, at_zero: float) -> Array:
    """``log(1 + rise / p)``, or what stands in for it where nothing is left."""
    xp = array_namespace(rise, p)
    left = p + rise > 0
    return xp.where(left, xp.log1p(xp.where(left, rise / p, 0.0)), at_zero)
