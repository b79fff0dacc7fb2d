"""How far the prediction is from measurement, which assumption costs what, and what trusting it would cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from figures import error_split
from figures.report.page import MODELS, Section, Table, drawing, number, percent, table, words
from theory.acceptance import Rule
from theory.assumptions import lift_assumptions, split_error
from theory.calibration import Calibration
from theory.comparison import Comparison, compare
from theory.measurements import Measurements
from theory.prediction import Prediction
from theory.rounds import Rounds


def errors(
    calibration: Calibration,
    rounds: Rounds,
    rules: Sequence[Rule],
    prediction: Prediction,
    measured: Measurements | None,
    repeated: Measurements | None,
) -> Section:
    """How far the prediction is from a sweep, and which assumption of Eq. 7 costs what."""
    title = "Prediction against measurement"
    if measured is None:
        text = "No sweep of this pair was found with these weights on this device; measure one with profiler.sweep."
        return Section(title=title, paragraphs=[text])
    steps = lift_assumptions(calibration, rounds, rules, anchored=prediction.model == "anchored")
    timed = not np.isnan(prediction.tokens_per_second).any()
    split = split_error(steps, measured, quantity="tokens_per_round")
    result = compare(prediction, measured, runs=None if repeated is None else (measured, repeated))
    figures = [
        drawing(
            error_split.draw(split),
            "Relative error of predicted tokens per round as the assumptions of Eq. 7 are lifted in turn: a grey line "
            "for each setting, the median of the absolute errors as bars, the measurement's own spread shaded.",
        )
    ]
    speeds = split_error(steps, measured) if timed else None
    rows = []
    for i, name in enumerate(steps):
        cells = [words(name if i == 0 else f"without: {name}"), percent(split.median[i]), percent(split.maximum[i])]
        cells += [percent(None if i == 0 else split.share[i - 1], 0)]
        if speeds is not None:
            cells += [percent(speeds.median[i]), percent(speeds.maximum[i])]
            cells += [percent(None if i == 0 else speeds.share[i - 1], 0)]
        rows.append(cells)
    left = [words("left"), *[percent(None)] * 2, percent(split.share_left, 0)]
    if speeds is not None:
        left += [*[percent(None)] * 2, percent(speeds.share_left, 0)]
    columns = ["assumption<", "tokens/round: median", "maximum", "share"]
    columns += ["tokens/s: median", "maximum", "share"] if speeds is not None else []
    paragraphs = [
        f"Against {int(measured.prompts.max())} prompts. A share is the part of the error of Eq. 7 that "
        "lifting an assumption takes away; with what is left they add up to 100 %. A negative share means that the "
        "assumption hid another error."
    ]
    if speeds is not None:
        paragraphs.append(
            f"Of the throughput's error, {speeds.share_left_tokens:.0%} is left in tokens per round and "
            f"{speeds.share_left_seconds:.0%} in the times of a round, which drift between two recordings."
        )
    return Section(
        title=title,
        paragraphs=paragraphs,
        figures=figures,
        tables=[table("Errors by assumption", columns, [*rows, left]), *_compared(result)],
    )


def _compared(result: Comparison) -> list[Table]:
    """Cell by cell, and the regret at each floor."""
    tokens, speed = result.tokens_per_round, result.tokens_per_second
    rows = [
        [
            number(result.effort[i]),
            words(result.rule[i]),
            number(tokens.predicted[i], 2),
            number(tokens.measured[i], 2),
            percent(tokens.relative[i], sign=True),
            percent(tokens.spread[i]),
            number(speed.predicted[i]),
            number(speed.measured[i]),
            percent(speed.relative[i], sign=True),
            percent(speed.spread[i]),
            words(_verdict(tokens.within_spread[i], tokens.inside[i])),
        ]
        for i in range(len(result))
    ]
    caption = (
        f"Setting by setting ({MODELS[result.model]}): median {tokens.median:.1%} and maximum {tokens.maximum:.1%} in "
        f"tokens per round, Kendall's τ {tokens.kendall_tau:.2f}; spread: of the measurement itself"
    )
    columns = (
        "K", "rule<", "tokens/round", "measured", "error", "spread", "tokens/s", "measured", "error", "spread",
        "error in tokens/round<",
    )  # fmt: skip
    tables: list[Table] = [table(caption, columns, rows)]
    if result.regrets:
        regrets = [
            [
                number(each.floor, 2),
                words(f"K = {each.recommended.effort}, {each.recommended.rule}"),
                number(each.recommended.tokens_per_second),
                words(f"K = {each.best.effort}, {each.best.rule}"),
                number(each.best.tokens_per_second),
                percent(each.regret),
                number(each.shortfall, 3),
            ]
            for each in result.regrets
        ]
        names = ("agreement at least", "chosen by the estimates<", "measured tokens/s", "best measured<",
                 "measured tokens/s", "regret", "misses the floor by")  # fmt: skip
        tables.append(table("Regret: the throughput lost by trusting the prediction", names, regrets))
    return tables


def _verdict(within_spread: bool, inside: float) -> str:
    if within_spread:
        return "below the spread"
    if np.isnan(inside):
        return ""
    return "inside the interval" if inside else "outside"
