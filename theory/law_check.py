"""Monte Carlo check of a law: a G-test with a stated false-alarm rate, and the distance from which it sees an error."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

FALSE_ALARM = 1e-6
"""How often a check fails although the law is right."""
POWER = 0.99
"""How often a check finds a law at `LawCheck.detectable`."""
LEAST_EXPECTED = 10
"""Outcomes that expect fewer draws are merged: they would spoil the statistic's law, hence the false-alarm rate."""

Sampler: TypeAlias = Callable[[np.random.Generator, int], NDArray[np.int64]]
"""Takes a generator and a number of draws; gives as many outcomes, each an index into the flattened target."""


@dataclass(frozen=True, kw_only=True)
class LawCheck:
    """What a check of a law found.

    Attributes
    ----------
    draws
        Number of independent outcomes.
    p_value
        Chance that a right sampler departs as far; 0 if something impossible happened.
    impossible
        Outcomes to which the target gives no probability.
    detectable
        Total variation from which a wrong law is found with probability at least `POWER`, whatever its shape, once rare
        outcomes are merged.
    false_alarm
        Chance that a right sampler does not pass.
    """

    draws: int
    p_value: float
    impossible: int
    detectable: float
    false_alarm: float

    @property
    def passes(self) -> bool:
        """Whether the sampler may have the target's law."""
        return self.p_value > self.false_alarm


def check_law(
    sampler: Sampler,
    target: ArrayLike,
    *,
    draws: int,
    rng: np.random.Generator,
    false_alarm: float = FALSE_ALARM,
) -> LawCheck:
    """Check whether independent draws follow a law.

    Parameters
    ----------
    sampler
        What is checked.
    target
        Law that it should have, of any shape.
    draws
        How many outcomes to draw.
    rng
        Source of the draws.
    false_alarm
        Chance of a failure although the sampler is right.

    Raises
    ------
    ValueError
        The target is no distribution, the draws are too few to test it, or the sampler gives another number of outcomes
        or outcomes that do not exist.
    """
    law = np.asarray(target, dtype=float).reshape(-1)
    if not (law >= 0).all() or abs(law.sum() - 1) > 1e-6:
        msg = f"`target` must be a distribution, got entries from {law.min()} that sum to {law.sum()}; "
        raise ValueError(msg + "take its probabilities in float64")
    if not 0 < false_alarm < 1:
        raise ValueError(f"`false_alarm` must lie in (0, 1), got {false_alarm}; {FALSE_ALARM} is the usual one")
    detectable = detectable_distance(law, draws, false_alarm=false_alarm)
    outcomes = np.asarray(sampler(rng, draws))
    if outcomes.shape != (draws,):
        msg = f"`sampler` must give {draws} outcomes, got the shape {outcomes.shape}; draw one for each"
        raise ValueError(msg)
    if outcomes.min() < 0 or outcomes.max() >= law.size:
        wrong = outcomes[(outcomes < 0) | (outcomes >= law.size)][0]
        raise ValueError(f"`sampler` must give outcomes in [0, {law.size}), got {wrong}; index the flattened target")
    counts = np.bincount(outcomes, minlength=law.size)
    return LawCheck(
        draws=draws,
        p_value=float(g_test(counts, law)),
        impossible=int(counts[law == 0].sum()),
        detectable=detectable,
        false_alarm=false_alarm,
    )


def g_test(counts: NDArray[np.int64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the p-value of counts under a law, ``(..., V), (V,) -> (...)``; all runs have the same number of draws.

    The statistic ``2 sum O log(O / E)`` with Williams' correction has a chi-square law. Outcomes that expect fewer than
    `LEAST_EXPECTED` draws count as one. Where something impossible happened the p-value is 0.
    """
    draws = int(counts.reshape(-1, target.size)[0].sum())
    cells = _cells(target, draws)
    share, freedom = cells @ target, len(cells) - 1
    observed, expected = counts @ cells.T, draws * share
    correction = 1 + ((1 / share).sum() - 1) / (6 * draws * max(freedom, 1))
    statistic = 2 * special.xlogy(observed, observed / expected).sum(axis=-1) / correction
    impossible = counts[..., target == 0].any(axis=-1)
    return np.where(impossible, 0.0, special.chdtrc(freedom, statistic) if freedom else 1.0)


def detectable_distance(target: NDArray[np.float64], draws: int, *, false_alarm: float = FALSE_ALARM) -> float:
    """Return the total variation from which the G-test finds a wrong law with probability `POWER`, whatever its shape.

    The statistic of a law ``e`` has a noncentral chi-square law with noncentrality ``2 n KL(e | target)``, which is at
    least ``4 n TV²`` (Pinsker). Of a certain outcome every other one is impossible, and one of them is enough.
    """
    freedom = len(_cells(target, draws)) - 1
    if not freedom:
        return float(1 - (1 - POWER) ** (1 / draws))
    return float(np.sqrt(_noncentrality(freedom, false_alarm) / (4 * draws)))


def power(
    law: NDArray[np.float64], target: NDArray[np.float64], draws: int, *, false_alarm: float = FALSE_ALARM
) -> float:
    """Return the probability with which the G-test finds draws from ``law`` instead of ``target``, ``(V,)`` each."""
    seen = 1 - (1 - law[target == 0].sum()) ** draws
    cells = _cells(target, draws)
    if len(cells) == 1:
        return float(seen)
    possible = cells @ law
    divergence = max(special.rel_entr(possible / possible.sum(), cells @ target).sum(), 0.0)
    critical = special.chdtri(len(cells) - 1, false_alarm)
    found = 1 - special.chndtr(critical, len(cells) - 1, 2 * draws * divergence)
    return float(seen + (1 - seen) * found)


def _cells(target: NDArray[np.float64], draws: int) -> NDArray[np.float64]:
    """Which outcomes count together, ``(C, V)`` of zeros and ones; each cell expects `LEAST_EXPECTED` draws or more."""
    expected = draws * target
    common = np.flatnonzero(expected >= LEAST_EXPECTED)
    rare = (expected > 0) & (expected < LEAST_EXPECTED)
    cells = np.eye(target.size)[common]
    if expected[rare].sum() >= LEAST_EXPECTED:
        cells = np.vstack([cells, rare])
    elif len(cells):
        cells[expected[common].argmin()] += rare
    if len(cells) < 2 and (target > 0).sum() > 1:
        needed = math.ceil(LEAST_EXPECTED / min(target.max(), 1 - target.max()))
        msg = f"`draws` must let two outcomes expect {LEAST_EXPECTED} draws each, got {draws}; {needed} are enough"
        raise ValueError(msg)
    return cells


@cache
def _noncentrality(freedom: int, false_alarm: float) -> float:
    """Noncentrality at which a chi-square test of this size has power `POWER`."""
    critical = special.chdtri(freedom, false_alarm)
    return float(
        optimize.brentq(lambda rise: 1 - special.chndtr(critical, freedom, rise) - POWER, 0, 10 * critical + 100)
    )
