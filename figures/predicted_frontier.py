"""The predicted frontier of agreement and throughput, with what was measured laid over it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from figures import style
from theory.estimates import NORMAL_QUANTILE
from theory.frontier import pareto_frontier
from theory.measurements import Measurements
from theory.prediction import Prediction


def draw(prediction: Prediction, measurements: Measurements | None = None) -> Figure:
    """One panel: a thin line per effort, the frontier thick in its owner's colour, measured cells as open markers."""
    figure, (axis,) = style.new_figure(1, 1, width=6.5, height=4.2)
    colours, markers = style.effort_colours(prediction.effort), style.effort_markers(prediction.effort)
    for effort, colour in colours.items():
        rows = np.flatnonzero((prediction.effort == effort) & np.char.startswith(prediction.rule, "linear:"))
        rows = rows[np.argsort(prediction.agreement[rows])]
        agreement, speed = prediction.agreement[rows], prediction.tokens_per_second[rows]
        axis.plot(agreement, speed, color=colour, linewidth=1, label=f"K = {effort}")
        low, high = prediction.tokens_per_second_low[rows], prediction.tokens_per_second_high[rows]
        axis.fill_between(agreement, low, high, color=colour, alpha=0.12, linewidth=0)
    front = pareto_frontier(prediction.tokens_per_second, prediction.agreement, effort=prediction.effort)
    for start, stop in pairwise(front.index):
        points = [start, stop]
        colour = colours[int(prediction.effort[start])]
        axis.plot(
            prediction.agreement[points], prediction.tokens_per_second[points], color=colour, linewidth=5, alpha=0.35
        )
    if measurements is not None:
        drafted = measurements.select(measurements.effort > 0)
        for effort, colour in colours.items():
            cell = drafted.select(drafted.effort == effort)
            error = NORMAL_QUANTILE * cell.tokens_per_second_se
            axis.errorbar(
                cell.agreement, cell.tokens_per_second, yerr=error, linestyle="none", marker=markers[effort],
                markerfacecolor="none", markersize=6, color=colour, elinewidth=0.8, capsize=2,
            )  # fmt: skip
        axis.plot([], [], marker="o", markerfacecolor="none", linestyle="none", color=style.MUTED, label="measured")
    axis.set(xlabel="agreement with the verifier", ylabel="tokens per second")
    axis.legend(loc="best")
    return figure
