"""The short tables that the command lines print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from theory.calibration import Calibration
from theory.comparison import Comparison
from theory.frontier import pareto_frontier
from theory.latency import LatencyFit
from theory.measurements import Measurements
from theory.planner import Recommendation
from theory.prediction import Prediction
from theory.roofline import LatencyBound

MODELS = {
    "iid": "Eq. 6-7",
    "position": "one acceptance rate a slot",
    "replay": "replay of the lossless rounds",
    "anchored": "replay between the two recordings",
}
"""Models of prediction in the words of the tables."""


def calibration(result: Calibration) -> str:
    """d_K with intervals, the latency fit, and whether the forwards were compiled."""
    parts = [_divergence(result)]
    parts += [_latency(result.latency)] if result.latency else ["Latency: not measured."]
    if "compile" in result.identity["settings"]:
        parts += [f"Both forwards were compiled by torch (--compile {result.identity['settings']['compile']})."]
    return "\n".join([*parts, *(f"warning: {warning}" for warning in result.warnings)])


def frontier(prediction: Prediction) -> str:
    """The predicted Pareto set of agreement and throughput."""
    best = pareto_frontier(prediction.tokens_per_second, prediction.agreement, effort=prediction.effort)
    rows = [
        (
            f"{prediction.effort[i]}",
            prediction.rule[i],
            f"{prediction.agreement[i]:.3f}",
            f"{prediction.tokens_per_round[i]:.2f}",
            f"{prediction.tokens_per_second[i]:.0f}",
        )
        for i in best.index
    ]
    header = ("K", "rule", "agreement", "tokens/round", "tokens/s")
    return "\n".join([f"\nPredicted frontier ({MODELS[prediction.model]}):", table(header, rows)])


def precision(prediction: Prediction) -> str:
    """How well the worst tokens per round is known, and what twice as well would take."""
    reach = prediction.precision
    if np.isnan(reach).any():
        return "\nOne prompt shows no spread: record more to know how far the predictions can be trusted."
    worst = int(np.argmax(reach))
    prompts = int(prediction.prompts[worst])
    return (
        f"\nTokens per round are known to +- {_percent(float(reach[worst]))} or better (95 %) from {prompts} prompts, "
        f"worst at K = {prediction.effort[worst]}, {prediction.rule[worst]}; half as much would take {4 * prompts}."
    )


def recommendation(choice: Recommendation) -> str:
    """The recommended setting in words."""
    request = ""
    if not math.isnan(choice.seconds_per_request):
        request = f"\nA request takes {choice.seconds_per_request:.3f} s of decoding"
        total = _number(choice.completion_seconds, 3)
        request += "." if total == "-" else f", {total} s with the forward of its prompt."
    return f"\nRecommended: K = {choice.effort}, {choice.rule}. {choice.reason}.{request}"


def measurements(result: Measurements, prefill_seconds: float) -> str:
    """What was measured in every cell; effort 0 is the verifier alone. Prefill is told apart, NaN: not measured."""
    rows = [
        (
            f"{result.effort[i]}",
            result.rule[i] if result.effort[i] else "verifier alone",
            _number(result.acceptance_rate[i], 3),
            _number(result.agreement[i], 3),
            _number(result.tokens_per_round[i], 2),
            _number(result.tokens_per_second[i], 0),
            _number(result.seconds_per_request[i], 3),
            f"{_number(result.accuracy[i], 3)} {_interval(result.accuracy_low[i], result.accuracy_high[i])}",
        )
        for i in range(len(result.effort))
    ]
    header = ("K", "rule", "acceptance", "agreement", "tokens/round", "tokens/s", "s/request", "accuracy")
    prefill = f"s/request counts the rounds; the forward of a prompt adds {_number(prefill_seconds, 3)} s."
    return "\n".join(["Measured:", table(header, rows), prefill])


def measured_frontier(result: Measurements, fit: LatencyFit) -> str:
    """Which settings no other beats in accuracy and throughput, with every round costed by one latency fit."""
    drafted = result.select(result.effort > 0)
    costs = [
        fit.draft_seconds(effort) + fit.verify_seconds + (fit.overhead_seconds or 0.0) for effort in drafted.effort
    ]
    speed = drafted.tokens_per_round / costs
    best = pareto_frontier(speed, drafted.accuracy)
    rows = [
        (f"{drafted.effort[i]}", drafted.rule[i], f"{drafted.accuracy[i]:.3f}", f"{speed[i]:.0f}") for i in best.index
    ]
    title = (
        "\nMeasured frontier of accuracy and throughput (measured tokens per round, fitted a + bK + c_v + overhead):"
    )
    return "\n".join([title, table(("K", "rule", "accuracy", "tokens/s"), rows)])


def comparison(results: Sequence[Comparison], calibrated: Path) -> str:
    """The last model's prediction beside the measurement, cell by cell, and the first's error; every model; regret."""
    best, plain = results[-1], results[0]
    paper = {cell: i for i, cell in enumerate(zip(plain.effort, plain.rule, strict=True)) if plain.model == "iid"}
    rows = []
    for i, cell in enumerate(zip(best.effort, best.rule, strict=True)):
        tokens, speed, eq7 = best.tokens_per_round, best.tokens_per_second, paper.get(cell)
        rows.append((
            f"{best.effort[i]}",
            best.rule[i],
            f"{tokens.predicted[i]:.2f}",
            f"{tokens.measured[i]:.2f}",
            _error(tokens.relative[i], tokens.within_spread[i]),
            f"{_percent(tokens.spread[i])}",
            _number(speed.predicted[i], 0),
            _number(speed.measured[i], 0),
            _error(speed.relative[i], speed.within_spread[i]),
            "-" if eq7 is None else _error(plain.tokens_per_second.relative[eq7]),
        ))  # fmt: skip
    header = ("K", "rule", "tok/round", "measured", "error", "its spread", "tok/s", "measured", "error", "of Eq. 7")
    return "\n".join([
        f"\nPrediction of {calibrated} against measurement ({MODELS[best.model]}; ~: below its own spread):",
        table(header, rows),
        "\nErrors of each model (median / maximum over cells):",
        models(results),
        *(
            f"Recommended at an agreement of {each.floor:g}: K = {each.recommended.effort}, {each.recommended.rule}, "
            f"{_percent(each.regret)} slower than the best measured"
            + (f", {each.shortfall:.4f} below that agreement." if each.shortfall else ".")
            for each in best.regrets
        ),
    ])  # fmt: skip


def models(results: Sequence[Comparison]) -> str:
    """Errors of each model over its cells, and how much of them the measurement's own spread explains."""
    rows = [
        (
            MODELS[each.model],
            f"{len(each)}",
            f"{_percent(each.tokens_per_round.median)} / {_percent(each.tokens_per_round.maximum)}",
            f"{np.nanmean(each.tokens_per_round.inside):.0%}" if _known(each.tokens_per_round.inside) else "-",
            f"{each.tokens_per_round.within_spread.mean():.0%}",
            f"{_percent(each.tokens_per_second.median)} / {_percent(each.tokens_per_second.maximum)}",
            _number(each.tokens_per_second.kendall_tau, 3),
            _percent(each.worst_regret),
            _number(each.worst_shortfall, 4),
        )
        for each in results
    ]
    header = ("model", "cells", "tok/round", "inside", "within spread", "tok/s", "Kendall tau", "regret")
    return table((*header, "misses floor by"), rows)


def repeats(first: Measurements, again: Measurements) -> str:
    """How far two runs of the same prompts differ."""
    parts = []
    for name, words in (("tokens_per_round", "tokens per round"), ("tokens_per_second", "tokens per second")):
        differ = np.abs(getattr(again, name) / getattr(first, name) - 1)
        parts.append(f"{words} {_percent(float(np.median(differ)))} / {_percent(float(np.max(differ)))}")
    prompts = int(first.prompts.max())
    return f"\nTwo runs of {prompts} prompts differ (median / maximum over cells): {', '.join(parts)}"


def pairs(rows: Sequence[Sequence[str]]) -> str:
    """The named pairs, what they need, and the least that their rounds can take."""
    header = ("pair", "family", "block", "K", "tasks", "memory", "H100: a, b, c_v", "H200: a, b, c_v")
    note = (
        "*: drafts from what the verifier computed, and cannot decode alone.\n"
        "Memory: weights, caches and the distributions of a block. a, b, c_v: lower bounds in ms by the devices' data\n"
        "sheets, 200 tokens before the block; not measured."
    )
    return "\n".join([table(header, rows), "", note])


def bounds(devices: Sequence[LatencyBound]) -> str:
    """What a round of the pair takes at least, on devices that this may not have been."""
    rows = [
        (
            each.device.name,
            *(
                f"{1e3 * seconds:.3g}"
                for seconds in (each.draft_intercept_seconds, each.draft_slope_seconds, each.verify_seconds)
            ),
        )
        for each in devices
    ]
    block, context = devices[0].block_size, devices[0].context
    title = f"\nLower bounds by the devices' data sheets, in ms (block {block} after {context} tokens; not measured):"
    return "\n".join([title, table(("device", "a", "b", "c_v"), rows)])


def files(path: Path) -> str:
    """Where everything was written."""
    written = sorted(each.name for each in path.iterdir())
    return f"\nFiles in {path}: {', '.join(written)}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Right-aligned columns under a header."""
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in (header, *rows)]
    return "\n".join(["  " + line for line in lines])


def _divergence(result: Calibration) -> str:
    columns: dict[str, Sequence[object]] = {"K": result.efforts}
    title = "Divergence d_K: not measured, the weights are random."
    if None not in result.divergence:
        title = "Divergence d_K at the slots that the acceptance test reached:"
        columns |= {
            "d_K": [_number(value, 3) for value in result.divergence],
            "95 % interval": list(map(_interval, result.divergence_low, result.divergence_high)),
            "all slots": [_number(value, 3) for value in result.divergence_all_slots],
            "tokens/round": [_number(value, 2) for value in result.tokens_per_round],
        }
    columns |= {"rounds": result.rounds, "prompts": result.prompts, "exactness": result.exactness}
    rows = [tuple(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join([title, table(tuple(columns), rows)])


def _latency(fit: LatencyFit) -> str:
    lines = [
        "Latency:",
        f"  draft  a + bK = {_milliseconds(fit.draft_intercept_seconds, fit.draft_intercept_seconds_se)}"
        f" + {_milliseconds(fit.draft_slope_seconds, fit.draft_slope_seconds_se)} x K,"
        f" R2 = {_number(fit.r_squared, 4)}",
        f"  verify    c_v = {_milliseconds(fit.verify_seconds, fit.verify_seconds_se)},"
        f" overhead outside both {_milliseconds(fit.overhead_seconds, fit.overhead_seconds_se)} a round",
    ]
    if fit.noise_floor is not None:
        lines.append(f"  noise floor (the same cell recorded twice): {100 * fit.noise_floor:.1f} %")
    return "\n".join([*lines, *(f"  flag: {flag}" for flag in fit.flags)])


def _milliseconds(seconds: float | None, error: float | None) -> str:
    if seconds is None:
        return "not measured"
    spread = "" if error is None else f" +- {1e3 * error:.2f}"
    return f"{1e3 * seconds:.2f}{spread} ms"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def _error(relative: float, within_spread: bool = False) -> str:
    return "-" if math.isnan(relative) else f"{100 * relative:+.1f} %{'~' if within_spread else ' '}"


def _known(values: NDArray[np.float64]) -> bool:
    return not np.isnan(values).all()


def _interval(low: float | None, high: float | None) -> str:
    return f"[{_number(low, 3)}, {_number(high, 3)}]"
