"""Where linear acceptance and Cactus spend their deviation, and which gets more tokens for it, from recorded rounds.

At one prefix the two rules trade acceptance for deviation at the same rate, one for one (`theory.theorem1`), so they
differ only in the slots and prefixes at which they spend. Linear acceptance spends λ TV(p, q), most where the laws are
far apart; Cactus spends nothing on a token that the verifier rules out, as its top-p or top-k does, so that not even an
unlimited budget buys it all acceptance.

All is replayed from recorded scalars (`theory.replay`). Of Cactus's deviation the drafted token tells without bias
where the draft is jointly exact, as for left-to-right commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import optimize

from figures import style
from theory.acceptance import CactusAcceptance, LinearAcceptance, Rule
from theory.estimates import NORMAL_QUANTILE, clustered_ratio
from theory.replay import Replay, deviation, replay
from theory.rounds import Rounds

TV_BINS = 8
SLOT_BINS = 16
"""Most groups of slots that are told apart; shorter blocks have each slot of their own."""
GRID = 25
"""Settings of a rule along a line of tokens against deviation."""
LINES = {"linear": "solid", "Cactus": "dashed"}
Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What share of a rule's deviation goes where, with standard errors clustered by prompt; NaN if it has none.

    Attributes
    ----------
    by_slot, by_slot_se : (G,)
        Shares of the slots of the block, in up to SLOT_BINS groups of equal size.
    by_tv, by_tv_se : (TV_BINS,)
        Shares of the prefixes with TV(p, q) in bins of equal width from 0 to 1.
    """

    by_slot: Numbers
    by_slot_se: Numbers
    by_tv: Numbers
    by_tv_se: Numbers


def spending(rounds: Rounds, rule: Rule) -> Spending:
    """Replay a rule and say where its deviation goes."""
    tested = rounds.before_stop
    reached = replay(rounds, rule).survival[:, :-1]
    spent = np.where(tested, reached * deviation(rounds, rule), 0.0)

    def shares(place: NDArray[Any], count: int) -> tuple[Numbers, Numbers]:
        parts = [np.where(place == number, spent, 0).sum(axis=1) for number in range(count)]
        values = np.array([clustered_ratio(part, spent.sum(axis=1), rounds.prompt) for part in parts])
        return values[:, 0], values[:, 1]

    groups = min(spent.shape[1], SLOT_BINS)
    by_slot, by_slot_se = shares(rounds.slot * groups // spent.shape[1], groups)
    by_tv, by_tv_se = shares(np.minimum(np.floor(rounds.divergence * TV_BINS), TV_BINS - 1), TV_BINS)
    return Spending(by_slot=by_slot, by_slot_se=by_slot_se, by_tv=by_tv, by_tv_se=by_tv_se)


def matching_leniency(rounds: Rounds, wanted: float) -> LinearAcceptance:
    """Return linear acceptance with a given mean deviation of reached slots, or leniency 1 where no more is spent."""

    def excess(leniency: float) -> float:
        return _deviation(replay(rounds, LinearAcceptance(leniency=leniency))) - wanted

    return LinearAcceptance(leniency=1.0 if excess(1.0) <= 0 else float(optimize.brentq(excess, 0, 1)))


def gain(rounds: Rounds, cactus: CactusAcceptance) -> tuple[float, float]:
    """Return how many more tokens a round of Cactus has than one of linear acceptance that deviates as much.

    Returns
    -------
    tuple of float
        The difference, and its standard error clustered by prompt. The error is that of the linearised estimate: it
        includes that both deviations are estimated, and what tokens a deviation buys.
    """
    leniency = matching_leniency(rounds, _deviation(replay(rounds, cactus))).leniency
    nearby = [min(max(leniency + step, 0.0), 1.0) for step in (-0.01, 0.01)]
    low, high = (replay(rounds, LinearAcceptance(leniency=value)) for value in nearby)
    spread = _deviation(high) - _deviation(low)
    price = (high.emitted.mean() - low.emitted.mean()) / spread if spread > 0 else 0.0
    influence = np.zeros(len(rounds))
    for sign, rule in ((1, cactus), (-1, LinearAcceptance(leniency=leniency))):
        played = replay(rounds, rule)
        off = (played.spent - _deviation(played) * played.reached) / played.reached.mean()
        influence += sign * (played.emitted - price * off)
    return clustered_ratio(influence, np.ones(len(rounds)), rounds.prompt)


def gain_lines(rounds: Rounds, *, budget: float = 1.0) -> str:
    """Say `gain` for each effort in a line, with the half-width of its 95 % interval; arguments as of `draw`."""
    cactus, lines = CactusAcceptance(budget=budget), []
    for effort, cell in _cells(rounds).items():
        difference, error = gain(cell, cactus)
        lines.append(f"K = {effort}: {difference:+.3f} +- {NORMAL_QUANTILE * error:.3f} tokens per round")
    return "\n".join([f"{cactus.label} minus linear acceptance of the same deviation:", *lines])


def draw(rounds: Rounds, *, budget: float = 1.0) -> Figure:
    """Six panels: shares of deviation by slot and by TV(p, q) at the least and the most effort, and what it buys.

    Parameters
    ----------
    rounds
        Recorded at some efforts; rounds of a cell that was run again to measure noise are left out.
    budget
        δ of Cactus. Linear acceptance gets the leniency with which it deviates as much on average.
    """
    figure, axes = style.new_figure(2, 3, width=4.4, height=3.3)
    cells = _cells(rounds)
    colours, markers = style.effort_colours(cells), style.effort_markers(cells)
    cactus = CactusAcceptance(budget=budget)
    for panels, effort in ((axes[:2], min(cells)), (axes[3:5], max(cells))):
        _shares(panels, cells[effort], cactus)
        panels[0].set_title(f"deviation by slot, K = {effort}")
        panels[1].set_title(f"deviation by distance, K = {effort}")
    for effort, cell in cells.items():
        _tokens(axes[2], cell, colours[effort])
        axes[2].plot([], [], color=colours[effort], label=f"K = {effort}")
        difference, error = gain(cell, cactus)
        reach = NORMAL_QUANTILE * error
        axes[5].errorbar(effort, difference, reach, color=colours[effort], marker=markers[effort], capsize=3)
    for name, line in LINES.items():
        axes[2].plot([], [], color="black", linestyle=line, label=name)
    axes[2].set(title="what it buys", xlabel="mean deviation of reached slots", ylabel="tokens per round gained")
    axes[2].locator_params(axis="x", nbins=5)
    axes[2].legend()
    axes[5].axhline(0, color=style.MUTED, linewidth=1)
    axes[5].set(title="Cactus minus linear, equal deviation", xlabel="effort K", ylabel="tokens per round")
    axes[5].set_xticks(list(cells))
    style.letter(axes)
    return figure


def _cells(rounds: Rounds) -> dict[int, Rounds]:
    """The rounds of each effort, but for those that were run again."""
    rounds = rounds.select(rounds.replica == 0)
    return {effort: rounds.select(rounds.effort == effort) for effort in sorted(set(rounds.effort.tolist()))}


def _shares(panels: list[Axes], rounds: Rounds, cactus: CactusAcceptance) -> None:
    """Bars of both rules side by side, over slots and over TV(p, q)."""
    linear = matching_leniency(rounds, _deviation(replay(rounds, cactus)))
    labels: dict[str, Rule] = {f"linear, λ = {linear.leniency:.2g}": linear, f"Cactus, δ = {cactus.budget:g}": cactus}
    colours = style.effort_colours(range(len(labels)))
    for number, (label, rule) in enumerate(labels.items()):
        found = spending(rounds, rule)
        for panel, end, share, error in (
            (panels[0], rounds.slot.size, found.by_slot, found.by_slot_se),
            (panels[1], 1, found.by_tv, found.by_tv_se),
        ):
            width = end / share.size
            places = width * (np.arange(share.size) + 0.3 + 0.4 * number)
            bars: dict[str, Any] = {"ecolor": style.MUTED, "capsize": 2, "color": colours[number], "label": label}
            panel.bar(places, share, 0.4 * width, yerr=NORMAL_QUANTILE * error, **bars)
    for panel, label in zip(panels, ("place in the block", "TV(p, q)"), strict=True):
        panel.set(xlabel=label, ylabel="share of the deviation")
        panel.set_axisbelow(True)
    panels[1].legend()


def _tokens(axis: Axes, rounds: Rounds, colour: Any) -> None:
    """What tokens both rules gain over the lossless one, as far as Cactus can deviate."""
    cactus = [replay(rounds, CactusAcceptance(budget=value)) for value in (0, *np.geomspace(1e-4, 20, GRID))]
    most = matching_leniency(rounds, 1.2 * _deviation(cactus[-1])).leniency
    linear = [replay(rounds, LinearAcceptance(leniency=value)) for value in np.linspace(0, most, GRID)]
    for name, replays in (("linear", linear), ("Cactus", cactus)):
        gained = [played.emitted.mean() - cactus[0].emitted.mean() for played in replays]
        axis.plot([_deviation(played) for played in replays], gained, color=colour, linestyle=LINES[name])


def _deviation(played: Replay) -> float:
    """Mean deviation of a reached slot."""
    return float(played.spent.sum() / played.reached.sum())
