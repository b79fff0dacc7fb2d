"""Figure 3: acceptance and throughput against agreement with the verifier, by theory (Eq. 6-7) and measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from figures import style
from theory.estimates import NORMAL_QUANTILE
from theory.measurements import Measurements
from theory.prediction import Prediction

Numbers = NDArray[Any]
_AGREEMENT = "verifier agreement  $1 - \\mathrm{TV}(p, \\tilde p)$"
_ACCEPTANCE = "acceptance rate"
_SPEED = "tokens per second"


def draw(prediction: Prediction, measurements: Measurements, replayed: Prediction | None = None) -> Figure:
    """Four panels: (a, b) acceptance, (c, d) throughput; theory left, linear acceptance as measured right.

    A prediction that replays recorded rounds is drawn through the measured points, as dashed lines.
    """
    figure, axes = style.new_figure(2, 2)
    linear = (measurements.effort > 0) & np.char.startswith(measurements.rule, "linear:")
    measured = measurements.select(linear)
    panels = (
        ("acceptance_rate", _ACCEPTANCE, axes[0], axes[1]),
        ("tokens_per_second", _SPEED, axes[2], axes[3]),
    )
    for name, label, theory_axis, measured_axis in panels:
        _lines(theory_axis, prediction.effort, prediction.agreement, getattr(prediction, name), label)
        error = NORMAL_QUANTILE * getattr(measured, f"{name}_se")
        _lines(measured_axis, measured.effort, measured.agreement, getattr(measured, name), label, error=error)
        if replayed is not None:
            _dashes(measured_axis, replayed, name)
        theory_axis.set_title("theory")
        measured_axis.set_title("measured" if replayed is None else "measured; dashed: replay")
        _share_limits(theory_axis, measured_axis)
    style.letter(axes)
    axes[0].legend(title="effort")
    return figure


def draw_acceptance(prediction: Prediction) -> Figure:
    """Panel (a) alone: Theorem 1's line of each effort."""
    figure, (axis,) = style.new_figure(1, 1, width=5)
    _lines(axis, prediction.effort, prediction.agreement, prediction.acceptance_rate, _ACCEPTANCE)
    axis.legend(title="effort")
    return figure


def draw_throughput(prediction: Prediction, *, bound: str = "") -> Figure:
    """Panel (c) alone: throughput of each effort; `bound` names the device whose roofline gave the times, if one did.

    Times that are lower bounds make it an upper one, and the panel says so.
    """
    figure, (axis,) = style.new_figure(1, 1, width=5)
    label = f"{_SPEED}, upper bound" if bound else _SPEED
    _lines(axis, prediction.effort, prediction.agreement, prediction.tokens_per_second, label)
    if bound:
        axis.set_title(f"bound by the roofline of {bound}, not measured")
    axis.set_yscale("log")
    axis.legend(title="effort")
    return figure


def _lines(axis: Axes, efforts: Numbers, x: Numbers, y: Numbers, label: str, *, error: Numbers | None = None) -> None:
    """One line per effort, in the order of agreement."""
    colours, markers = style.effort_colours(efforts), style.effort_markers(efforts)
    for effort, colour in colours.items():
        rows = np.flatnonzero(efforts == effort)
        rows = rows[np.argsort(x[rows])]
        bars = None if error is None else error[rows]
        axis.errorbar(
            x[rows], y[rows], yerr=bars, color=colour, marker=markers[effort], capsize=2, label=f"K = {effort}"
        )
    axis.set_xlabel(_AGREEMENT)
    axis.set_ylabel(label)


def _dashes(axis: Axes, prediction: Prediction, name: str) -> None:
    """One dashed line per effort, without markers."""
    linear = np.char.startswith(prediction.rule, "linear:")
    for effort, colour in style.effort_colours(prediction.effort).items():
        rows = np.flatnonzero(linear & (prediction.effort == effort))
        rows = rows[np.argsort(prediction.agreement[rows])]
        axis.plot(prediction.agreement[rows], getattr(prediction, name)[rows], "--", color=colour, linewidth=1.2)


def _share_limits(*axes: Axes) -> None:
    """One scale for theory and measurement, so that the eye compares like with like."""
    for get, put in (("get_xlim", "set_xlim"), ("get_ylim", "set_ylim")):
        limits = [getattr(axis, get)() for axis in axes]
        for axis in axes:
            getattr(axis, put)(min(low for low, _ in limits), max(high for _, high in limits))
