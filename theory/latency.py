"""Latency: the line a + bK of draft times, overhead, prefill, noise of the clock, and rounds of a request (Eq. 7)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.estimates import clustered_median, nonnegative_fit, significant, weighted_fit
from theory.rounds import Rounds
from theory.verifier_time import VerifierTime, fit_verifier

_TERMS = ("intercept", "slope")


@dataclass(frozen=True, kw_only=True)
class DraftLine:
    """Draft time against effort, ``c_d(K) = a + bK``, fitted to the median of each effort; J efforts.

    ``flags`` says what to know before using it: ``negative_intercept`` or ``negative_slope`` (a time cannot be
    negative: the coefficient was fixed at 0 and the other refitted, so its own standard error is None),
    ``intercept_not_significant`` or ``slope_not_significant`` (its 95 % interval holds 0), ``two_efforts`` (no standard
    errors, no fit quality), ``one_effort`` (no line: coefficients are None, and the time is known at that effort only).
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
class LatencyFit(VerifierTime, DraftLine):
    """All times of a round, in seconds: medians over rounds with their standard errors, clustered by prompt.

    None stands for what was not measured, or cannot be told from one round. ``overhead_seconds`` is what a round spends
    outside both forwards, which Eq. 7 leaves out; ``prefill_seconds`` the prompt's own forward, once a request.
    ``noise_floor`` is the relative difference of draft plus verify time between a cell and its duplicate: smaller
    differences mean nothing on this machine.
    """

    overhead_seconds: float | None
    overhead_seconds_se: float | None
    prefill_seconds: float | None
    prefill_seconds_se: float | None
    noise_floor: float | None

    def round_seconds(
        self, effort: float, *, block: float | None = None, context: float | None = None, overhead: bool = False
    ) -> float:
        """Return ``c_d(K) + c_v``, and what a round spends outside both forwards if asked for.

        Eq. 7 takes the verifier's time as one number. With a block and a context it is `VerifierTime.verify_seconds_at`
        them; being linear, it may be asked for their means over rounds.

        Raises
        ------
        ValueError
            Overhead was not measured.
        """
        if overhead and self.overhead_seconds is None:
            raise ValueError("`overhead` must be False where it was not measured; record with timing")
        verify = self.verify_seconds
        if block is not None and context is not None:
            verify = self.verify_seconds_at(block, context)
        return self.draft_seconds(effort) + verify + (self.overhead_seconds or 0.0 if overhead else 0.0)


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
    verify = _measured(first.verify_seconds, "verify_seconds")
    overhead, overhead_se = _median_if_measured(first, "overhead_seconds")
    prefill, prefill_se = _median_if_measured(first.select(~np.isnan(first.prefill_seconds)), "prefill_seconds")
    return LatencyFit(
        **vars(fit_line(first.effort, first.draft_seconds)),
        **vars(fit_verifier(verify, first.drafted, first.prefix_length, first.prompt)),
        overhead_seconds=overhead,
        overhead_seconds_se=overhead_se,
        prefill_seconds=prefill,
        prefill_seconds_se=prefill_se,
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

    if efforts.size == 1:
        unknown = np.full(2, math.nan)
        return _draft_line(efforts, counts, medians, unknown, unknown, ["one_effort"])
    design = np.stack([np.ones(efforts.size), efforts], axis=1)
    coefficients, errors = nonnegative_fit(design, medians, counts)
    free, _ = weighted_fit(design, medians, counts)
    flags = [f"negative_{name}" for name, value in zip(_TERMS, free, strict=True) if value < 0]
    if efforts.size == 2:
        return _draft_line(efforts, counts, medians, coefficients, np.full(2, math.nan), [*flags, "two_efforts"])
    freedom = efforts.size - int(np.isfinite(errors).sum())
    for name, value, error in zip(_TERMS, coefficients, errors, strict=True):
        if not math.isnan(error) and not significant(value, error, freedom):
            flags.append(f"{name}_not_significant")
    return _draft_line(efforts, counts, medians, coefficients, errors, flags)


def tokens_per_second(tokens: ArrayLike, seconds: ArrayLike) -> NDArray[np.float64]:
    """Return ``tokens / seconds`` elementwise; NaN where no time was measured or it is below the clock's resolution.

    A time of 0 says that the work was shorter than a tick, not that it was infinitely fast.
    """
    seconds = np.asarray(seconds, dtype=float)
    measured = seconds > 0
    rate = np.where(measured, np.asarray(tokens, dtype=float) / np.where(measured, seconds, 1), math.nan)
    return rate[()]


def rounds_per_request(token_law: ArrayLike, lengths: ArrayLike) -> NDArray[np.float64]:
    """Return how many rounds a text takes on average, its last round cut by the end of the text, ``(..., T) -> (...)``.

    Rounds are independent and alike, as in Eq. 7; what Eq. 7 leaves out is that a text ends within a round. With P(k)
    the chance that a whole round adds k tokens, a text that lacks n tokens takes m(n) = 1 + Σ_k P(k) m(n - k) more
    rounds, and m(n) = 0 for n <= 0. By Wald's identity it lies between n / μ and (n + B) / μ, with μ = Σ_k k P(k).

    Parameters
    ----------
    token_law : (..., T)
        Probability that a round adds 1, ..., T = B + 1 tokens.
    lengths : (M,)
        Lengths of texts in tokens, at least 1 each; the mean is taken over them.
    """
    law, lengths = np.asarray(token_law, dtype=float), np.asarray(lengths)
    if not lengths.size or lengths.min() < 1:
        raise ValueError(f"`lengths` must be at least 1, got {lengths.tolist() or 'none'}; count the stop token")
    size = law.shape[-1]
    rounds = np.zeros((int(lengths.max()) + size, *law.shape[:-1]))  # entry n + size - 1 holds m(n)
    latest_first = np.moveaxis(law, -1, 0)[::-1]
    for n in range(size, len(rounds)):
        rounds[n] = 1 + (latest_first * rounds[n - size : n]).sum(axis=0)
    return np.asarray(rounds[lengths + size - 1].mean(axis=0))


def _draft_line(
    efforts: NDArray[np.int64],
    counts: NDArray[np.int64],
    medians: NDArray[np.float64],
    coefficients: NDArray[np.float64],
    errors: NDArray[np.float64],
    flags: list[str],
) -> DraftLine:
    residuals = medians - (coefficients[0] + coefficients[1] * efforts)
    scatter = counts @ (medians - np.average(medians, weights=counts)) ** 2
    explains = efforts.size > 2 and scatter > 0
    return DraftLine(
        efforts=tuple(efforts.tolist()),
        rounds_per_effort=tuple(counts.tolist()),
        draft_median_seconds=tuple(medians.tolist()),
        draft_intercept_seconds=_known(float(coefficients[0])),
        draft_intercept_seconds_se=_known(float(errors[0])),
        draft_slope_seconds=_known(float(coefficients[1])),
        draft_slope_seconds_se=_known(float(errors[1])),
        residuals=tuple(residuals.tolist()) if efforts.size > 1 else (),
        r_squared=1 - float(counts @ residuals**2 / scatter) if explains else None,
        flags=tuple(flags),
    )


def _noise_floor(rounds: Rounds) -> float | None:
    """Largest relative difference of median draft plus verify time between a cell and its duplicate, same prompts."""
    rounds = rounds.select(np.isin(rounds.prompt, rounds.prompt[rounds.replica > 0]))
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


def _median_if_measured(rounds: Rounds, name: str) -> tuple[float | None, float | None]:
    seconds = getattr(rounds, name)
    if np.isnan(seconds).all():
        return None, None
    median, error = clustered_median(_measured(seconds, name), rounds.prompt)
    return median, _known(error)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
