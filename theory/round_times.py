"""Round times: what a round costs at each effort, in the recording and for resampled prompts (Eq. 7)."""

import math

import numpy as np
from numpy.typing import NDArray

from theory.calibration import Calibration
from theory.estimates import nonnegative_fit, resampled_medians
from theory.recorded import Resampler
from theory.rounds import Rounds


def round_seconds(calibration: Calibration, rounds: Rounds | None, *, overhead: bool) -> NDArray[np.float64]:
    """Return the cost of a round at each effort, at the mean block and context of its rounds if given, (J,).

    NaN without timing.
    """
    latency = calibration.latency
    if latency is None:
        if overhead:
            raise ValueError("`overhead` must be False where it was not measured; record with timing")
        return np.full(len(calibration.efforts), math.nan)
    sloped = latency.verify_slot_seconds is not None or latency.verify_context_seconds is not None
    lengths: dict[int, dict[str, float]] = {effort: {} for effort in calibration.efforts}
    if rounds is not None and sloped:
        for effort in calibration.efforts:
            rows = (rounds.effort == effort) & (rounds.replica == 0)
            block, context = rounds.drafted[rows].mean(), rounds.prefix_length[rows].mean()
            lengths[effort] = {"block": float(block), "context": float(context)}
    return np.array([latency.round_seconds(effort, **lengths[effort], overhead=overhead) for effort in lengths])


def resampled_round_seconds(
    calibration: Calibration, rounds: Rounds, resampler: Resampler, *, overhead: bool
) -> NDArray[np.float64]:
    """Return what a round costs in each resample of the prompts, the recording itself in row 0, (R + 1, J).

    With the overhead it is the median of whole rounds at each effort: that drafts are on a line in K, and that the
    verifier takes as long after one step as after many, is not assumed. Without, the line a + bK is fitted again to the
    medians of each resample, and the level of c_v is their median; the slopes of c_v count as known. Rounds without
    times leave the cost of the calibration.

    Parameters
    ----------
    calibration, overhead
        As in `theory.prediction.predict`.
    rounds
        What the calibration was made from, each cell once.
    resampler
        Of the prompts of these rounds.
    """
    seconds = round_seconds(calibration, rounds, overhead=overhead)[None]
    latency, whole = calibration.latency, rounds.draft_seconds + rounds.verify_seconds
    if overhead:
        whole = whole + rounds.overhead_seconds
    if latency is None or np.isnan(whole).any():
        return np.repeat(seconds, len(resampler.weights), axis=0)
    member = np.searchsorted(resampler.prompts, rounds.prompt)
    of_effort = [rounds.effort == effort for effort in calibration.efforts]

    def medians(values: NDArray[np.float64], rows: NDArray[np.bool_] | slice = slice(None)) -> NDArray[np.float64]:
        return resampled_medians(values[rows], member[rows], resampler.weights)

    if overhead:
        return np.stack([medians(whole, rows) for rows in of_effort], axis=1)
    slots = (latency.verify_slot_seconds or 0.0) * (rounds.drafted + 1)
    level = medians(rounds.verify_seconds - slots - (latency.verify_context_seconds or 0.0) * rounds.prefix_length)
    drafts = np.stack([medians(rounds.draft_seconds, rows) for rows in of_effort], axis=1)
    if len(calibration.efforts) > 1:
        design = np.stack([np.ones(len(calibration.efforts)), calibration.efforts], axis=1)
        counts = np.array([np.count_nonzero(rows) for rows in of_effort])
        drafts = np.array([nonnegative_fit(design, each, counts)[0] for each in drafts]) @ design.T
    times = drafts + level[:, None]
    return np.asarray(seconds + times - times[0])
