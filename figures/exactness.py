"""Exactness: laws of a small example, the bias of the ratio test by commit order, and the price of coupling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from figures import style
from theory.exactness import Bias, Price, mean_interval

Numbers = NDArray[Any]


def draw_laws(laws: Mapping[str, Numbers]) -> Figure:
    """One panel for each law (V, V) of two tokens, with the probabilities written in the squares."""
    figure, axes = style.new_figure(1, len(laws), width=2.6, height=2.6)
    most = max(float(law.max()) for law in laws.values())
    for axis, (name, law) in zip(axes, laws.items(), strict=True):
        axis.imshow(law, cmap="Blues", vmin=0, vmax=1.5 * most)
        for row, column in np.ndindex(law.shape):
            axis.text(column, row, f"{law[row, column]:.4g}", ha="center", va="center")
        ticks = range(len(law))
        axis.set(title=name, xlabel="second token", ylabel="first token", xticks=ticks, yticks=ticks)
        axis.grid(visible=False)
    return figure


def draw_bias(bias: Bias) -> Figure:
    """Two panels: total variation of the first token and of the first two; faint dots are single prefixes."""
    figure, axes = style.new_figure(1, 2, width=4.6)
    for axis, title, values in ((axes[0], "first token", bias.first), (axes[1], "first two tokens", bias.pair)):
        axis.axhline(0, color=style.MUTED, linewidth=1)
        _by_order(axis, bias.order, bias.effort, values)
        axis.set(title=title, xlabel="effort K", ylabel="total variation from the verifier")
    style.letter(axes)
    axes[0].legend(title="commit order")
    return figure


def draw_price(price: Price) -> Figure:
    """Acceptance of both verifications in one panel for each order: measured points over predicted bars."""
    orders = list(dict.fromkeys(price.order.tolist()))
    figure, axes = style.new_figure(1, len(orders), width=4.6)
    for axis, order in zip(axes, orders, strict=True):
        rows = price.order == order
        place = np.arange(int(rows.sum()))
        ways = (
            ("ratio test", -0.18, price.ratio_predicted, price.ratio, price.ratio_low, price.ratio_high, "0.75"),
            ("coupled", 0.18, price.coupled_predicted, price.coupled, price.coupled_low, price.coupled_high, "C0"),
        )
        for name, shift, predicted, middle, low, high, colour in ways:
            axis.bar(place + shift, predicted[rows], width=0.32, color=colour, alpha=0.6, label=f"{name}, predicted")
            bars = np.abs(np.stack([low[rows], high[rows]]) - middle[rows])
            axis.errorbar(place + shift, middle[rows], yerr=bars, fmt="ko", capsize=3)
        axis.hlines(price.coupled_least[rows], place + 0.02, place + 0.34, color="black", linestyle=":")
        axis.set(title=order, xlabel="effort K", ylabel="acceptance rate", ylim=(0, 1))
        axis.set_xticks(place, [str(effort) for effort in price.effort[rows]])
        axis.grid(visible=False, axis="x")
    axes[0].errorbar([], [], yerr=[], fmt="ko", capsize=3, label="measured")
    axes[0].plot([], [], ":", color="black", label="least possible for coupled")
    style.letter(axes)
    axes[-1].legend(*axes[0].get_legend_handles_labels(), loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _by_order(axis: Axes, orders: Numbers, efforts: Numbers, values: Numbers) -> None:
    """Each prefix (J, M) and the mean with its interval over each effort, the orders side by side."""
    names = list(dict.fromkeys(orders.tolist()))
    place = {effort: number for number, effort in enumerate(sorted(set(efforts.tolist())))}
    for number, name in enumerate(names):
        rows = np.flatnonzero((orders == name) & ~np.isnan(values).any(axis=1))
        if rows.size:
            x = np.array([place[effort] for effort in efforts[rows]]) + 0.2 * (number - (len(names) - 1) / 2)
            mean, low, high = mean_interval(values[rows])
            bars = [mean - low, high - mean]
            colour = f"C{number}"
            axis.plot(x, values[rows], ".", color=colour, alpha=0.25, markersize=4)
            axis.errorbar(x, mean, yerr=bars, fmt=style.MARKERS[number], color=colour, capsize=4, label=name)
    axis.set_xticks(list(place.values()), [str(effort) for effort in place])
