"""Figure 4: task accuracy against throughput and against latency, the frontier coloured by the effort that owns it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from figures import style
from theory.frontier import pareto_frontier
from theory.measurements import Measurements

Numbers = NDArray[Any]


def draw(measurements: Measurements) -> Figure:
    """Two panels; hollow markers are dominated settings, the verifier alone is a cross."""
    figure, axes = style.new_figure(1, 2, width=4.8)
    _panel(axes[0], measurements, measurements.tokens_per_second, "tokens per second")
    _panel(
        axes[1],
        measurements,
        measurements.seconds_per_request,
        "seconds of decoding per request (log)",
        less_is_better=True,
    )
    for axis, title in zip(axes, ("against throughput", "against latency"), strict=True):
        axis.set_title(f"accuracy {title}")
    style.letter(axes)
    axes[0].legend(loc="lower left")
    return figure


def _panel(axis: Axes, measurements: Measurements, cost: Numbers, label: str, *, less_is_better: bool = False) -> None:
    efforts, accuracy = measurements.effort, measurements.accuracy
    drafted = np.flatnonzero(efforts > 0)
    speed = 1 / cost if less_is_better else cost
    front = drafted[pareto_frontier(speed[drafted], accuracy[drafted]).index]
    colours, markers = style.effort_colours(efforts[drafted]), style.effort_markers(efforts[drafted])
    for start, stop in pairwise(front):
        axis.plot(cost[[start, stop]], accuracy[[start, stop]], color=colours[efforts[start]], linewidth=4, alpha=0.5)
    for effort, colour in colours.items():
        rows = drafted[efforts[drafted] == effort]
        for shown, face, name in (
            (np.intersect1d(rows, front), colour, f"K = {effort}"),
            (np.setdiff1d(rows, front), "none", None),
        ):
            axis.plot(
                cost[shown], accuracy[shown], marker=markers[effort], linestyle="none", color=colour,
                markersize=6, markerfacecolor=face, label=name,
            )  # fmt: skip
    alone = efforts == 0
    axis.plot(cost[alone], accuracy[alone], "x", color=style.MUTED, markersize=8, label="verifier alone")
    axis.set_xlabel(label)
    axis.set_ylabel("accuracy")
    if less_is_better:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axis.xaxis.set_major_formatter("{x:.3g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
