"""Where the Taylor variant of Cactus overspends or underspends its budget (Appendix E).

Taylor's parabola matches Φ at γ = p to second order, so it is right for small budgets. Φ curves by ``1 / (γ (1 - γ))``:
less than at its start while γ lies between p and 1 - p, more beyond. Hence the variant underspends wherever
``p + γ <= 1``, nearly all of its budget where p is tiny, and overspends from p = 1/2 on, up to twice its budget where p
is close to 1: there it takes γ = 1 once ``2 δ p >= 1 - p``, though that costs ``-log p``.
"""

from __future__ import annotations

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from figures import style
from theory.acceptance import raised_probability, raised_probability_taylor
from theory.distances import binary_kullback_leibler

BUDGETS = (0.01, 0.1, 1.0)
_PROBABILITY = "verifier probability of the drafted token  $p$"


def draw(points: int = 400) -> Figure:
    """Two panels over p: the share of the budget that Taylor spends, and both raised probabilities."""
    figure, axes = style.new_figure(1, 2, width=5.2, height=4)
    log_odds = np.linspace(-np.log(1e6), np.log(1e3), points)
    p = 1 / (1 + np.exp(-log_odds))
    budget = np.geomspace(1e-3, 20, points)
    taylor = raised_probability_taylor(p, budget[:, None])
    share = np.log2(binary_kullback_leibler(taylor, p) / np.minimum(budget[:, None], -np.log(p)))
    mesh = axes[0].pcolormesh(p, budget, share, norm=Normalize(-2, 2), cmap="RdBu_r", rasterized=True)
    bar = figure.colorbar(mesh, ax=axes[0], extend="both", ticks=range(-2, 3))
    bar.ax.set_yticklabels(["1/4", "1/2", "1", "2", "4"])
    axes[0].contour(p, budget, share, [0.0], colors="black", linewidths=1)
    axes[0].contour(p, budget, p + taylor, [1.0], colors="black", linewidths=1, linestyles="dotted")
    axes[0].plot(p, -np.log(p), color="black", linestyle="dashed", linewidth=1, label="δ = -log p")
    axes[0].plot([], [], color="black", linestyle="dotted", linewidth=1, label="p + γ = 1 (Taylor)")
    axes[0].plot([], [], color="black", linewidth=1, label="spends all of it")
    axes[0].legend(loc="lower left", frameon=True)
    axes[0].set(title="what Taylor spends, of what can be spent", yscale="log", ylabel="budget δ (nats)")
    axes[0].set_ylim(budget[0], budget[-1])
    axes[0].grid(visible=False)

    colours = style.effort_colours(range(len(BUDGETS)))
    for place, each in enumerate(BUDGETS):
        axes[1].plot(p, raised_probability(p, each), color=colours[place], label=f"δ = {each:g}")
        axes[1].plot(p, raised_probability_taylor(p, each), color=colours[place], linestyle="dashed")
    axes[1].plot(p, p, color=style.MUTED, linewidth=1, label="δ = 0")
    axes[1].plot([], [], color="black", linestyle="dashed", label="Taylor")
    axes[1].set(title="raised probability γ", yscale="logit")
    axes[1].legend()
    for axis in axes:
        axis.set(xscale="logit", xlabel=_PROBABILITY, xlim=(p[0], p[-1]))
    style.letter(axes)
    return figure
