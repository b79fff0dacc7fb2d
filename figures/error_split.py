"""How the error of Eq. 7 shrinks, or grows, as its assumptions are lifted one after the other."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from figures import style
from theory.assumptions import START, ErrorSplit


def draw(split: ErrorSplit) -> Figure:
    """One panel: a grey line per cell, the median absolute error as bars, the measurement's spread as a band."""
    figure, (axis,) = style.new_figure(1, 1, width=7.5, height=3.8)
    steps = np.arange(len(split.lifted) + 1)
    colour = style.effort_colours([1, 2, 3])[2]
    axis.bar(steps, 100 * split.median, width=0.5, color=colour, alpha=0.3, label="median of absolute errors")
    for errors in 100 * split.relative_error.T:
        axis.plot(steps, errors, color="0.6", linewidth=0.7, marker=".", markersize=3)
    axis.plot([], [], color="0.6", linewidth=0.7, marker=".", markersize=3, label="a setting")
    spread = 100 * np.median(split.spread)
    if np.isfinite(spread):
        axis.axhspan(-spread, spread, color=style.MUTED, alpha=0.15, linewidth=0, label="spread of the measurement")
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set_xticks(steps, [START, *(_wrapped(name) for name in split.lifted)], fontsize="small")
    axis.set(ylabel=f"relative error of {split.quantity.replace('_', ' ')}, %")
    axis.legend(loc="best", fontsize="small")
    return figure


def _wrapped(name: str) -> str:
    """A short line for each few words, so that labels do not run into each other."""
    lines = ["without"]
    for word in name.split():
        if len(lines) == 1 or len(lines[-1]) + len(word) > 14:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)
