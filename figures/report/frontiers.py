"""Which settings no other beats: predicted in agreement, measured in accuracy, and which effort owns which stretch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from figures import figure4, predicted_frontier
from figures.report.choice import cells
from figures.report.page import MODELS, Cell, Section, Table, drawing, interval, number, percent, table, words
from theory.frontier import Frontier, effort_gain, frontier_probability, pareto_frontier
from theory.measurements import Measurements
from theory.prediction import Prediction


def predicted(prediction: Prediction, measured: Measurements | None) -> Section | None:
    """The predicted frontier of agreement and throughput, how sure each point is, and what was measured there."""
    speed, agreement = prediction.tokens_per_second, prediction.agreement
    if np.isnan(speed).any():
        return None
    front = pareto_frontier(speed, agreement, effort=prediction.effort)
    chance = np.full(len(prediction), np.nan)
    if prediction.draws:
        chance = frontier_probability(prediction.draws["tokens_per_second"], prediction.draws["agreement"])
    rows = [
        [
            number(prediction.effort[row]),
            words(prediction.rule[row]),
            number(agreement[row], 3),
            number(prediction.tokens_per_round[row], 2),
            number(speed[row]),
            interval(prediction.tokens_per_second_low[row], prediction.tokens_per_second_high[row], 0),
            percent(chance[row], 0),
            *_measured_cells(measured, (int(prediction.effort[row]), str(prediction.rule[row]))),
        ]
        for row in front.index
    ]
    columns = ["K", "rule<", "agreement", "tokens/round", "tokens/s", "95 % interval", "on the frontier"]
    columns += [] if measured is None else ["measured agreement", "measured tokens/s", "accuracy"]
    over = "" if measured is None else " Open markers: measured, with 95 % intervals over prompts."
    shown = f"Predicted throughput against agreement, one line for each effort; thick: the frontier.{over}"
    return Section(
        title="Predicted frontier",
        paragraphs=[
            f"Predicted by {MODELS[prediction.model]}. “On the frontier” is the share of resampled prompts, tokens and "
            "times together, in which no other setting beats this one.",
            *_gain(speed, agreement, prediction.effort, float(agreement.min()), "agreement"),
        ],
        figures=[drawing(predicted_frontier.draw(prediction, measured), shown)],
        tables=[_owners(front, "agreement"), table("Settings that no other beats", columns, rows)],
    )


def in_accuracy(measured: Measurements | None) -> Section | None:
    """The measured frontier of task accuracy and throughput; None where it was not measured."""
    if measured is None:
        return None
    drafted = measured.select(measured.effort > 0)
    speed, accuracy = drafted.tokens_per_second, drafted.accuracy
    if not np.isfinite(speed + accuracy).all():
        return None
    front = pareto_frontier(speed, accuracy, effort=drafted.effort)
    rows = [
        [
            number(drafted.effort[row]),
            words(drafted.rule[row]),
            number(accuracy[row], 3),
            interval(drafted.accuracy_low[row], drafted.accuracy_high[row]),
            number(speed[row]),
            number(drafted.seconds_per_request[row], 3),
        ]
        for row in front.index
    ]
    shown = "Measured accuracy against throughput and latency; filled markers: no other setting is better in both."
    return Section(
        title="Measured frontier in accuracy",
        paragraphs=_gain(speed, accuracy, drafted.effort, 0.0, "accuracy"),
        figures=[drawing(figure4.draw(measured), shown)],
        tables=[
            _owners(front, "accuracy"),
            table(
                "Settings that no other beats",
                ("K", "rule<", "accuracy", "95 % interval", "tokens/s", "s/request without prefill"),
                rows,
            ),
        ],
    )


def _owners(front: Frontier, quality: str) -> Table:
    rows = [
        [
            number(stretch.effort),
            number(stretch.best_quality, 3),
            number(stretch.next_quality, 3),
            number(stretch.slowest),
            number(stretch.fastest),
        ]
        for stretch in front.stretches()
    ]
    caption = f"Who owns what: floors on {quality} up to “best” and above “next” are answered by this effort"
    return table(caption, ("K", "best", "next", "slowest tokens/s", "fastest tokens/s"), rows)


def _gain(
    speed: NDArray[np.float64], quality: NDArray[np.float64], effort: NDArray[np.int64], worst: float, name: str
) -> list[str]:
    """What choosing the effort gains over the smallest one; nothing where that one is nowhere above the worst."""
    first = int(effort.min())
    if np.unique(effort).size < 2 or not (quality[effort == first] > worst).any():
        return []
    ratio = effort_gain(speed, quality, effort, reference=(0.0, worst), fixed_effort=first).hypervolume_ratio
    return [
        f"Choosing the effort dominates {ratio:.2f} times the area of the frontier at K = {first} alone (hypervolume "
        f"above no speed and an {name} of {worst:.3f})."
    ]


def _measured_cells(measured: Measurements | None, cell: tuple[int, str]) -> list[Cell]:
    if measured is None:
        return []
    row = {known: place for place, known in enumerate(cells(measured))}.get(cell)
    names = {"agreement": 3, "tokens_per_second": 0, "accuracy": 3}
    return [number(None if row is None else getattr(measured, name)[row], digits) for name, digits in names.items()]
