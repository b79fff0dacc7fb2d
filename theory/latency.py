"""Latency: the line a + bK through draft times, the verifier's time, overhead, and the noise of the clock (Eq. 7)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.estimates import robust_median
from theory.rounds import Rounds


@dataclass(frozen=True, kw_only=True)
class DraftLine:
    """Draft time against effort, ``c_d(K) = a + bK``, fitted to the median of each effort; J efforts.

    ``flags`` says what to know before using it: ``negative_intercept`` or ``negative_slope`` (a time cannot be
    negative: the coefficient was fixed at 0 and the other refitted, so its own standard error is None), ``two_efforts``
    (no standard errors, no fit quality), ``one_effort`` (no line: coefficients are None, and the time is known at that
    effort only).
    """

    efforts: tuple[int, ...]
    rounds_per_effort: tuple[int, ...]
    draft_median_seconds: tuple[float, ...]
    draft_intercept_seconds: float | None
    draft_intercept_seconds_se: float | None
    draft_slope_seconds: float | None
    draft_slope_seconds_se: float | None
    residuals: tuple[float, ...]
    r_squared: float | None
    flags: tuple[str, ...]

    def draft_seconds(self, effort: float) -> float:
        """Return ``c_d(K)``, always positive. Outside the recorded efforts it extrapolates the line."""
        if not effort > 0:
            raise ValueError(f"`effort` must be positive, got {effort}; it counts denoising steps")
        if self.draft_intercept_seconds is None or self.draft_slope_seconds is None:
            if effort == self.efforts[0]:
                return self.draft_median_seconds[0]
            msg = f"`effort` must be {self.efforts[0]}, the only one recorded, got {effort}; record it to know its time"
            raise ValueError(msg)
        return self.draft_intercept_seconds + self.draft_slope_seconds * effort


@dataclass(frozen=True, kw_only=True)
class LatencyFit(DraftLine):
    """All times of a round, in seconds: medians over rounds with their standard errors.

    None stands for what was not measured, or cannot be told from one round. ``noise_floor`` is the relative difference
    of draft plus verify time between a cell and its duplicate: smaller differences mean nothing on this machine.
    """

    verify_seconds: float
    verify_seconds_se: float | None
    overhead_seconds: float | None
    overhead_seconds_se: float | None
    prefill_seconds: float | None
    noise_floor: float | None


def fit_latency(rounds: Rounds) -> LatencyFit | None:
    """Fit the times of recorded rounds; None if no time was measured.

    Raises
    ------
    ValueError
        Some rounds were timed and others not.
    """
    if np.isnan(rounds.draft_seconds).all() and np.isnan(rounds.verify_seconds).all():
        return None
    first = rounds.select(rounds.replica == 0)
    verify, verify_se = robust_median(_measured(first.verify_seconds, "verify_seconds"))
    overhead, overhead_se = _median_if_measured(first.overhead_seconds, "overhead_seconds")
    prefill = first.prefill_seconds[~np.isnan(first.prefill_seconds)]
    return LatencyFit(
        **vars(fit_line(first.effort, first.draft_seconds)),
        verify_seconds=verify,
        verify_seconds_se=_known(verify_se),
        overhead_seconds=overhead,
        overhead_seconds_se=overhead_se,
        prefill_seconds=float(np.median(prefill)) if prefill.size else None,
        noise_floor=_noise_floor(rounds),
    )


def fit_line(effort: ArrayLike, draft_seconds: ArrayLike) -> DraftLine:
    """Fit ``a + bK`` with a, b >= 0 to the median draft time of each effort, weighted by its number of rounds.

    Medians, since one pause of the machine among hundreds of rounds would turn the slope of a fit to raw times around.
    Standard errors come from the residuals of the medians, with J - 2 degrees of freedom, so they include the misfit of
    the line.

    Parameters
    ----------
    effort, draft_seconds : (N,)
        Denoising steps and draft time of each round.
    """
    seconds = _measured(np.asarray(draft_seconds, dtype=float), "draft_seconds")
    efforts, group = np.unique(effort, return_inverse=True)
    counts = np.bincount(group)
    medians = np.array([np.median(seconds[group == j]) for j in range(efforts.size)])
    if not (medians > 0).all():
        msg = f"`draft_seconds` must have positive medians, got {medians.tolist()}: below the clock's resolution; "
        raise ValueError(msg + "repeat the pass in an inner loop")

    flags: list[str] = []
    if efforts.size == 1:
        return _draft_line(efforts, counts, medians, (math.nan, math.nan), (math.nan, math.nan), ["one_effort"])
    design = np.stack([np.ones(efforts.size), efforts], axis=1)
    coefficients, errors = _weighted_fit(design, medians, counts, [0, 1])
    for free, constrained, flag in ((1, 0, "negative_intercept"), (0, 1, "negative_slope")):
        if coefficients[constrained] < 0:
            coefficients, errors = _weighted_fit(design, medians, counts, [free])
            flags.append(flag)
    if efforts.size == 2:
        errors = (math.nan, math.nan)
        flags.append("two_efforts")
    return _draft_line(efforts, counts, medians, coefficients, errors, flags)


def tokens_per_second(tokens: ArrayLike, seconds: ArrayLike) -> NDArray[np.float64]:
    """Return ``tokens / seconds`` elementwise; NaN where no time was measured or it is below the clock's resolution.

    A time of 0 says that the work was shorter than a tick, not that it was infinitely fast.
    """
    seconds = np.asarray(seconds, dtype=float)
    measured = seconds > 0
    rate = np.where(measured, np.asarray(tokens, dtype=float) / np.where(measured, seconds, 1), math.nan)
    return rate[()]


def _weighted_fit(
    design: NDArray[np.float64], values: NDArray[np.float64], weights: NDArray[np.int64], free: list[int]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Least squares for the ``free`` columns; (intercept, slope) with the others 0, and errors with the others NaN."""
    columns = design[:, free]
    normal = np.linalg.inv((columns.T * weights) @ columns)
    coefficients, errors = np.zeros(2), np.full(2, math.nan)
    coefficients[free] = normal @ (columns.T @ (weights * values))
    residuals = values - design @ coefficients
    freedom = values.size - len(free)
    if freedom:
        errors[free] = np.sqrt(np.diag(normal) * (weights @ residuals**2) / freedom)
    return (float(coefficients[0]), float(coefficients[1])), (float(errors[0]), float(errors[1]))


def _draft_line(
    efforts: NDArray[np.int64],
    counts: NDArray[np.int64],
    medians: NDArray[np.float64],
    coefficients: tuple[float, float],
    errors: tuple[float, float],
    flags: list[str],
) -> DraftLine:
    residuals = medians - (coefficients[0] + coefficients[1] * efforts)
    scatter = counts @ (medians - np.average(medians, weights=counts)) ** 2
    explains = efforts.size > 2 and scatter > 0
    return DraftLine(
        efforts=tuple(efforts.tolist()),
        rounds_per_effort=tuple(counts.tolist()),
        draft_median_seconds=tuple(medians.tolist()),
        draft_intercept_seconds=_known(coefficients[0]),
        draft_intercept_seconds_se=_known(errors[0]),
        draft_slope_seconds=_known(coefficients[1]),
        draft_slope_seconds_se=_known(errors[1]),
        residuals=tuple(residuals.tolist()) if efforts.size > 1 else (),
        r_squared=1 - float(counts @ residuals**2 / scatter) if explains else None,
        flags=tuple(flags),
    )


def _noise_floor(rounds: Rounds) -> float | None:
    """Largest relative difference of median draft plus verify time between a cell and its duplicate."""
    seconds = rounds.draft_seconds + rounds.verify_seconds
    differences = []
    for effort, rule in {(e, r) for e, r in zip(rounds.effort, rounds.rule, strict=True)}:
        cell = (rounds.effort == effort) & (rounds.rule == rule)
        first, again = seconds[cell & (rounds.replica == 0)], seconds[cell & (rounds.replica > 0)]
        if first.size and again.size:
            differences.append(abs(float(np.median(again) / np.median(first)) - 1))
    return max(differences, default=None)


def _measured(seconds: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    missing = int(np.isnan(seconds).sum())
    if missing or not seconds.size:
        msg = f"`{name}` must be measured in every round, got {missing} of {seconds.size} not measured (NaN); "
        raise ValueError(msg + "record all rounds with timing, or none")
    return seconds


def _median_if_measured(seconds: NDArray[np.float64], name: str) -> tuple[float | None, float | None]:
    if np.isnan(seconds).all():
        return None, None
    median, error = robust_median(_measured(seconds, name))
    return median, _known(error)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
