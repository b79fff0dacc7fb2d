"""Figure 2a: Theorem 1 drawn on the simplex of three tokens, and its bound with rules on it and below it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from numpy.typing import ArrayLike, NDArray

from figures import style
from theory.acceptance import RatioRule
from theory.distances import total_variation
from theory.theorem1 import VerificationRule, acceptance_rate, emitted_law, optimal_target

Numbers = NDArray[np.float64]

_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])


def draw(p: ArrayLike, q: ArrayLike, deviation: float, rules: Iterable[RatioRule] = ()) -> Figure:
    """The verifier p (3,), the drafter q (3,), and the targets within a deviation of p.

    Shades show the acceptance of each possible target, the outline the targets at most `deviation` from the verifier,
    the box those that lie between p and q in every coordinate, where deviation buys acceptance one for one. Each rule
    adds the law of the token that it emits.
    """
    p, q = np.asarray(p, dtype=float), np.asarray(q, dtype=float)
    figure, (axis,) = style.new_figure(1, 1, width=6.4, height=4.8)
    _shade(axis, p, q, deviation)
    _box(axis, p, q)
    _lines(axis, p, q, optimal_target(p, q, deviation))
    for rule, marker in zip(rules, style.MARKERS[1:], strict=False):
        _mark(axis, emitted_law(rule, p, q), marker, f"emitted under {rule.label}")
    axis.legend(loc="upper left", bbox_to_anchor=(-0.2, 1.0), fontsize="small")
    return figure


def draw_bound(p: ArrayLike, q: ArrayLike, rules: Mapping[str, Iterable[VerificationRule]]) -> Figure:
    """What each family of rules accepts, against the deviation of what it emits; no rule is above the line."""
    p, q = np.asarray(p, dtype=float), np.asarray(q, dtype=float)
    distance = float(total_variation(p, q))
    figure, (axis,) = style.new_figure(1, 1, width=6.4, height=3.8)
    axis.plot([0, distance], [1 - distance, 1], color="0.7", linewidth=5, label="bound, 1 - TV(p, q) + deviation")
    for (name, family), marker in zip(rules.items(), style.MARKERS, strict=False):
        points = [(total_variation(emitted_law(rule, p, q), p), acceptance_rate(rule, p, q)) for rule in family]
        axis.plot(*np.array(points).T, marker, label=name, markersize=6, markeredgecolor="white")
    axis.set(xlabel="deviation of the emitted law, TV(emitted, p)", ylabel="acceptance rate", ylim=(0, 1.03))
    axis.legend(loc="lower right", fontsize="small")
    return figure


def _shade(axis: Axes, p: Numbers, q: Numbers, deviation: float) -> None:
    steps = 240
    first, second = np.meshgrid(np.arange(steps + 1), np.arange(steps + 1))
    inside = first + second <= steps
    points = np.stack([first[inside], second[inside], steps - first[inside] - second[inside]], axis=-1) / steps
    x, y = (points @ _CORNERS).T
    shades = axis.tricontourf(x, y, 1 - total_variation(points, q), levels=np.linspace(0, 1, 11), cmap="Greys_r")
    axis.figure.colorbar(shades, ax=axis, label="acceptance rate, 1 - TV(target, q)", shrink=0.8)
    axis.tricontour(x, y, total_variation(points, p), levels=[deviation], colors=["tab:blue"], linewidths=1.5)
    axis.plot([], [], color="tab:blue", label=f"TV(target, p) = {deviation:g}")
    for corner, name, offset in zip(_CORNERS, "123", ((-12, -4), (6, -4), (-3, 6)), strict=True):
        axis.annotate(name, corner, offset, textcoords="offset points")
    axis.set_aspect("equal")
    axis.set_axis_off()


def _box(axis: Axes, p: Numbers, q: Numbers) -> None:
    """The polygon of laws between p and q: its corners take each coordinate but one from p or q."""
    low, high = np.minimum(p, q), np.maximum(p, q)
    corners = []
    for free in range(3):
        for choice in np.ndindex(2, 2):
            corner = np.insert(np.where(choice, np.delete(high, free), np.delete(low, free)), free, 0.0)
            corner[free] = 1 - corner.sum()
            if low[free] - 1e-12 <= corner[free] <= high[free] + 1e-12:
                corners.append(corner @ _CORNERS)
    around = np.array(corners) - np.mean(corners, axis=0)
    order = np.argsort(np.arctan2(around[:, 1], around[:, 0]))
    outline = np.array(corners)[order]
    axis.add_patch(Polygon(outline, facecolor="tab:orange", alpha=0.3, edgecolor="none", label="between p and q"))


def _lines(axis: Axes, p: Numbers, q: Numbers, target: Numbers) -> None:
    ends = np.stack([p, q]) @ _CORNERS
    axis.plot(*ends.T, "--", color="white", linewidth=1.2)
    for law, name, offset in ((p, "p", (-12, -3)), (q, "q", (6, -3))):
        place = law @ _CORNERS
        axis.plot(*place, "o", color="black", markersize=6)
        axis.annotate(name, place, offset, textcoords="offset points", fontweight="bold")
    _mark(axis, target, "o", "optimal target of Theorem 1", colour="tab:red")


def _mark(axis: Axes, law: Numbers, marker: str, label: str, colour: str | None = None) -> None:
    place = law @ _CORNERS
    axis.plot(*place, marker, color=colour, markeredgecolor="white", markersize=8, linestyle="none", label=label)
