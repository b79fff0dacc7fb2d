"""Figure 6: draft latency with its linear fit in K, and the distribution of verifier latencies."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from figures import style
from theory.latency import LatencyFit
from theory.rounds import Rounds


def draw(rounds: Rounds, fit: LatencyFit) -> Figure:
    """Two panels, in milliseconds; the boxes span quartiles, whiskers the 5th to the 95th percentile."""
    figure, axes = style.new_figure(1, 2, width=4.8)
    efforts = sorted(set(rounds.effort.tolist()))
    colours = style.effort_colours(efforts)
    samples = [1e3 * rounds.draft_seconds[rounds.effort == effort] for effort in efforts]
    boxes = axes[0].boxplot(
        samples, positions=efforts, whis=(5, 95), showfliers=False, patch_artist=True, manage_ticks=False
    )
    for box, effort in zip(boxes["boxes"], efforts, strict=True):
        box.set_facecolor(colours[effort])
    for median in boxes["medians"]:
        median.set_color("white")
    if len(efforts) > 1:
        line = np.array([min(efforts) - 0.3, max(efforts) + 0.3])
        line_ms = [1e3 * fit.draft_seconds(effort) for effort in line]
        axes[0].plot(line, line_ms, color=style.MUTED, label="a + bK")
        axes[0].legend(loc="upper left")
    axes[0].set(title="draft latency", xlabel="effort K", ylabel="milliseconds", xticks=efforts)

    verify = 1e3 * rounds.verify_seconds
    shown = verify[verify <= np.quantile(verify, 0.99)]
    mean, spread = verify.mean(), verify.std()
    axes[1].hist(shown, bins=40, color=colours[efforts[0]], alpha=0.7)
    axes[1].axvline(mean, color="black", label=f"mean {mean:.2f} ms")
    axes[1].axvspan(mean - spread, mean + spread, color=style.MUTED, alpha=0.2, label=f"one deviation {spread:.2f} ms")
    axes[1].set(title="verifier latency, up to its 99th percentile", xlabel="milliseconds", ylabel="rounds")
    axes[1].set_xlim(shown.min(), shown.max())
    axes[1].legend()
    style.letter(axes)
    return figure
