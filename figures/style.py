"""One look for every figure: effort is ordinal, so its colours are steps of one map, dark to bright."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_MAP = mpl.colormaps["viridis"]
MUTED = "0.45"
MARKERS = "osD^vP*X"
SETTINGS: Any = {
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.titlesize": "medium",
    "grid.color": "0.9",
    "legend.frameon": False,
    "lines.markersize": 4.5,
}


def effort_colours(efforts: Iterable[int]) -> dict[int, tuple[float, float, float, float]]:
    """A colour per distinct effort."""
    distinct = sorted(set(efforts))
    steps = max(len(distinct) - 1, 1)
    return {effort: _MAP(0.05 + 0.8 * place / steps) for place, effort in enumerate(distinct)}


def effort_markers(efforts: Iterable[int]) -> dict[int, str]:
    """A marker per distinct effort, so that no figure depends on colour alone."""
    return {effort: MARKERS[place % len(MARKERS)] for place, effort in enumerate(sorted(set(efforts)))}


def new_figure(rows: int, columns: int, *, width: float = 4.2, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """A figure of `rows` x `columns` panels and its axes in reading order. Sizes of a panel in inches."""
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width * columns, height * rows))
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def letter(axes: Iterable[Axes]) -> None:
    """Number panels (a), (b), ... before their titles."""
    for name, axis in zip("abcdefgh", axes, strict=False):
        axis.set_title(f"({name}) {axis.get_title()}", loc="left")
        axis.set_title("")


def save(figure: Figure, path: Path) -> Path:
    """Write a figure and give its path back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
