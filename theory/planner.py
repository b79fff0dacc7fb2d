"""Planner: the setting to run under a floor on quality or a ceiling on time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from theory.estimates import bootstrap_interval
from theory.frontier import pareto_frontier
from theory.measurements import Measurements
from theory.prediction import Prediction

VISIBLE_GAIN = 0.005
"""What is less is not worth a word: it rounds to 0 %."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A configuration with its predicted agreement, throughput and seconds per request (NaN: not predicted)."""

    effort: int
    rule: str
    agreement: float
    tokens_per_second: float
    seconds_per_request: float


@dataclass(frozen=True, kw_only=True)
class Recommendation(Choice):
    """The best configuration within the limits, the best of any other effort (None if there is none), and why.

    ``uncertainty_penalty`` is the throughput that certainty could gain: the fastest configuration whose estimates keep
    the limits over the estimate of this one, minus 1. Record more prompts to lower it. ``completion_seconds`` adds the
    prompt's own forward to the seconds of a request (NaN: not measured).
    """

    runner_up: Choice | None
    uncertainty_penalty: float
    completion_seconds: float
    reason: str


def recommend(
    prediction: Prediction,
    *,
    minimum_agreement: float | None = None,
    maximum_seconds: float | None = None,
    minimum_accuracy: float | None = None,
    measurements: Measurements | None = None,
    caution: float = 1.0,
) -> Recommendation:
    """Return the highest throughput within the limits; among equals the better agreement, then the smaller effort.

    Configurations are equal to the fastest where resampling the prompts, the same ones for both, does not tell their
    throughput apart; the interval of each alone would be far wider. What is recommended is always on the frontier of
    agreement and throughput of the configurations that keep the limits.

    Parameters
    ----------
    prediction
        What can be chosen: nothing is interpolated between its cells, and rules that lead to stranger texts than an
        anchor's are left out. Without an anchor, the reason says so of a lenient rule.
    minimum_agreement
        Floor on 1 - TV(p, emitted law), in [0, 1]; 1 asks for lossless text.
    maximum_seconds
        Ceiling on seconds per request, the prompt's own forward included where it was measured.
    minimum_accuracy
        Floor on task accuracy, in [0, 1]. It is not predicted: cells that ``measurements`` did not score are left out.
    measurements
        Where the accuracy of cells was measured.
    caution
        How far to distrust estimates: 0 takes them as they are, 1 keeps each limit at the worse end of the 95 %
        interval and tells throughput apart at 95 %. Where there is no interval (one prompt) the estimate has to do.

    Raises
    ------
    ValueError
        A limit is not a possible value or out of reach (the message has the best available), throughput was not
        predicted, all rules lie beyond the anchor, or accuracy is asked for without measurements.
    """
    everything = prediction
    prediction = usable(prediction, caution, minimum_agreement=minimum_agreement, minimum_accuracy=minimum_accuracy)
    if minimum_accuracy is not None and measurements is None:
        msg = f"`measurements` must be given with `minimum_accuracy` {minimum_accuracy}, got None; accuracy is "
        raise ValueError(msg + "measured (python -m profiler.sweep), not predicted")
    limits = {
        "minimum_agreement": minimum_agreement,
        "maximum_seconds": maximum_seconds,
        "minimum_accuracy": minimum_accuracy,
    }
    asked = {name: limit for name, limit in limits.items() if limit is not None}
    values = _limited(worse_ends(prediction, caution), _accuracy(prediction, measurements, caution))
    estimates = _limited(worse_ends(prediction, 0), _accuracy(prediction, measurements, 0))
    allowed, hoped_for = _within(values, asked), _within(estimates, asked)
    if not allowed.any():
        raise ValueError(_out_of_reach(prediction, values, asked))
    row = _best(prediction, allowed, caution)
    best, others = choice(prediction, row), allowed & (prediction.effort != prediction.effort[row])
    runner_up = choice(prediction, _best(prediction, others, caution)) if others.any() else None
    penalty = float(prediction.tokens_per_second[hoped_for | allowed].max()) / best.tokens_per_second - 1
    return Recommendation(
        **vars(best),
        runner_up=runner_up,
        uncertainty_penalty=penalty,
        completion_seconds=float(prediction.completion_seconds[row]),
        reason=_reason(best, runner_up, prediction.tokens_per_second[allowed], asked, penalty)
        + _beyond(bool(prediction.extrapolated[row]), len(everything) - len(prediction)),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Ends:
    """What a limit may speak of, of M cells, moved towards the worse end of its interval."""

    agreement: NDArray[np.float64]
    completion_seconds: NDArray[np.float64]


def worse_ends(prediction: Prediction, caution: float) -> Ends:
    """Return what is left of each estimate at this much caution; the estimate itself where there is no interval."""

    def end(name: str, side: str) -> NDArray[np.float64]:
        estimate, far = getattr(prediction, name), getattr(prediction, f"{name}_{side}")
        return np.asarray(estimate + caution * np.where(np.isnan(far), 0, far - estimate))

    return Ends(
        agreement=end("agreement", "low"),
        completion_seconds=end("seconds_per_request", "high") + np.nan_to_num(prediction.prefill_seconds),
    )


def usable(prediction: Prediction, caution: float, **floors: float | None) -> Prediction:
    """Return the cells that may be recommended: none that leads to stranger texts than its anchor.

    Raises
    ------
    ValueError
        A floor or a caution lies outside [0, 1], throughput was not predicted, or no cell is left.
    """
    for name, value in {**floors, "caution": caution}.items():
        if value is not None and not 0 <= value <= 1:
            remedy = {"minimum_agreement": "1 asks for lossless text", "caution": "0 takes estimates as they are"}
            raise ValueError(f"`{name}` must lie in [0, 1], got {value}; {remedy.get(name, 'it is a share')}")
    unknown = np.isnan(prediction.tokens_per_second)
    if unknown.all():
        raise ValueError("`prediction` must have throughput, got NaN: latency was not measured; calibrate with timing")
    if unknown.any():
        rules = ", ".join(dict.fromkeys(prediction.rule[unknown].tolist()))
        msg = f"`prediction` must have throughput, got NaN for {rules}: the time of such rules was not measured"
        raise ValueError(f"{msg}; calibrate anew, or predict other rules")
    if prediction.model != "anchored":
        return prediction
    within = np.flatnonzero(~prediction.extrapolated)
    if not within.size:
        msg = "`prediction` must have a rule within the anchor, got none; "
        raise ValueError(msg + "record one with --anchor-leniency 1, or predict milder rules")
    return prediction.select(within)


def choice(prediction: Prediction, row: int) -> Choice:
    """Return one cell of a prediction."""
    return Choice(
        effort=int(prediction.effort[row]),
        rule=str(prediction.rule[row]),
        agreement=float(prediction.agreement[row]),
        tokens_per_second=float(prediction.tokens_per_second[row]),
        seconds_per_request=float(prediction.seconds_per_request[row]),
    )


def _best(prediction: Prediction, allowed: NDArray[np.bool_], caution: float) -> int:
    """Of the allowed cells that no other beats and that are as fast as the fastest, the row of best agreement."""
    rows = np.flatnonzero(allowed)
    rows = rows[pareto_frontier(prediction.tokens_per_second[rows], prediction.agreement[rows]).index]
    rows = rows[_as_fast(prediction.select(rows), caution)]
    return int(rows[np.lexsort((prediction.effort[rows], -prediction.agreement[rows]))[0]])


def _as_fast(prediction: Prediction, caution: float) -> NDArray[np.bool_]:
    """Which cells are not told apart from the fastest: the low end of its lead over them is not above 0."""
    speed = prediction.tokens_per_second
    first, lead = np.argmax(speed), speed.max() - speed
    low = lead
    if prediction.draws:
        drawn = prediction.draws["tokens_per_second"]
        low, _ = bootstrap_interval(np.concatenate([lead[None], drawn[:, [first]] - drawn]), prediction.prompts.min())
    return np.asarray(lead + caution * np.where(np.isnan(low), 0, low - lead) <= 0)


def _accuracy(prediction: Prediction, measurements: Measurements | None, caution: float) -> NDArray[np.float64]:
    """Measured accuracy of each predicted cell, moved towards the low end of its interval; NaN where not scored."""
    if measurements is None:
        return np.full(len(prediction), math.nan)
    low = measurements.accuracy + caution * (measurements.accuracy_low - measurements.accuracy)
    measured = dict(zip(zip(measurements.effort.tolist(), measurements.rule.tolist(), strict=True), low, strict=True))
    cells = zip(prediction.effort.tolist(), prediction.rule.tolist(), strict=True)
    return np.array([measured.get(cell, math.nan) for cell in cells])


def _limited(ends: Ends, accuracy: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """What each limit speaks of, turned so that more is better."""
    return {
        "minimum_agreement": ends.agreement,
        "maximum_seconds": -ends.completion_seconds,
        "minimum_accuracy": accuracy,
    }


def _within(values: Mapping[str, NDArray[np.float64]], asked: Mapping[str, float]) -> NDArray[np.bool_]:
    """Which cells keep all limits; NaN keeps none."""
    kept = [values[name] >= (-limit if name == "maximum_seconds" else limit) for name, limit in asked.items()]
    return np.logical_and.reduce(kept) if kept else np.ones(len(values["minimum_agreement"]), dtype=bool)


def _out_of_reach(prediction: Prediction, values: Mapping[str, NDArray[np.float64]], asked: Mapping[str, float]) -> str:
    """The best available for the first limit that no cell keeps, or a word on limits that exclude each other."""
    for name, limit in asked.items():
        if np.isnan(values[name]).all():
            return f"`{name}` must be about something known, got {limit}: no cell has it; record or measure it"
        if not _within(values, {name: limit}).any():
            row = int(np.nanargmax(values[name]))
            best = f"{abs(values[name][row]):.3f} at effort {prediction.effort[row]}, {prediction.rule[row]}"
            return f"`{name}` must be within reach, got {limit}; the best available is {best}"
    limits = " and ".join(f"`{name}` {limit:g}" for name, limit in asked.items())
    return f"{limits} must be within reach together, got none that keeps all; loosen one of them"


def _reason(
    best: Choice, runner_up: Choice | None, speeds: NDArray[np.float64], asked: Mapping[str, float], penalty: float
) -> str:
    words = {
        "minimum_agreement": "agreement of at least {:g}",
        "maximum_seconds": "at most {:g} s per request",
        "minimum_accuracy": "measured accuracy of at least {:g}",
    }
    limits = ", ".join(words[name].format(limit) for name, limit in asked.items())
    reason = f"fastest of {len(speeds)} configurations" + (f" with {limits}" if limits else "")
    if best.tokens_per_second < speeds.max():
        reason += ", or not told apart from the fastest and of better agreement"
    if runner_up is not None:
        gain = best.tokens_per_second / runner_up.tokens_per_second - 1
        than = f"{abs(gain):.0%} {'faster' if gain >= 0 else 'slower'} than the best"
        reason += f"; {than} at effort {runner_up.effort} ({runner_up.rule})"
    if penalty >= VISIBLE_GAIN:
        reason += f"; certainty about the estimates would allow {penalty:.0%} more"
    return reason


def _beyond(extrapolated: bool, left_out: int) -> str:
    """A sentence on rules that lead to texts which were not recorded."""
    if extrapolated:
        return "; d_K may shift on the texts that it leads to, of which none was recorded (--anchor-leniency 1 does)"
    return f"; left out: {left_out} beyond the anchor, whose texts were not recorded" if left_out else ""
