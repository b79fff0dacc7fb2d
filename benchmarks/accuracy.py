"""Accuracy of the predictions: one small recording against a sweep of other prompts, every model side by side.

    python -m benchmarks.accuracy                              # about an hour of one core; an interrupted run goes on
    python -m benchmarks.accuracy --sweep-prompts 20 --repeat 5    # coarser

Tokens per round do not depend on the clock. Throughput is told twice: as clocked, which on a busy machine measures the
machine, and by one clock, see `benchmarks.swept.one_clock`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro
from numpy.typing import NDArray

from benchmarks.blends import errors_by_blend
from benchmarks.swept import Sweep, kendall_tau
from profiler import calibrate, sweep
from profiler.cli import guarded
from profiler.summary import MODELS, repeats, table
from theory.acceptance import parse_rule
from theory.assumptions import lift_assumptions, split_error
from theory.calibration import Calibration
from theory.calibration import calibrate as calibrate_rounds
from theory.comparison import Comparison, compare
from theory.measurements import Measurements
from theory.models import LENIENCIES, best_model, predict_best, predict_by_all
from theory.prediction import Model, Prediction
from theory.rounds import Rounds

BUDGETS = "0.1,0.25,0.5,1,2,4"
ASKED: dict[Model, tuple[float, float]] = {"replay": (0.04, 0.12), "anchored": (0.02, 0.08)}
"""Median and maximum error of tokens per round that the models must stay below on the embedded pair."""
ASKED_SPEED, ASKED_TAU, ASKED_REGRET = (0.05, 0.12), 0.95, 0.02
"""The same of throughput, of its rank correlation and of regret, with the anchor."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Record, sweep other prompts, and compare every model of prediction."""

    pair: str = "embedded"
    """A named pair, or the path of a TOML file."""
    prompts: int = 50
    """Prompts to record, at leniency 0 and 1."""
    sweep_prompts: int = 200
    """Other prompts to decode in every cell of the sweep."""
    repeat: int = 50
    """How many of these to decode twice, to see how far two measurements differ."""
    leniency: str = ",".join(f"{leniency:g}" for leniency in LENIENCIES)
    """Leniencies of the sweep."""
    cactus: str = BUDGETS
    """Budgets of Cactus acceptance in the sweep."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    out: Path = Path("results")
    """Where the run folders go, as OUT/PAIR/accuracy-recording and accuracy-sweep."""


def main(argv: list[str] | None = None) -> None:
    """Record, sweep, print."""
    settings = tyro.cli(Settings, args=argv, prog="python -m benchmarks.accuracy", description=__doc__)
    shared = ["--pair", settings.pair, "--out", str(settings.out), "--device", settings.device]
    folder = settings.out / Path(settings.pair).stem
    recording, swept = folder / "accuracy-recording", folder / "accuracy-sweep"
    calibrate.main([*shared, "--prompts", str(settings.prompts), "--seed", "0", "--run", recording.name])
    grid = ["--leniency", settings.leniency, "--cactus", settings.cactus, "--repeat", str(settings.repeat)]
    size = ["--prompts", str(settings.sweep_prompts), "--seed", "1"]
    sweep.main([*shared, *size, *grid, "--run", swept.name, "--calibration", str(recording)])
    print(report(recording, swept))


def report(recording: Path, swept: Path) -> str:
    """The tables for the run folders of a recording and of a sweep."""
    calibration = Calibration.from_json(recording / "calibration.json")
    recorded = Rounds.read(recording / "rounds.parquet")
    measured = Measurements.read(swept / "measurements.parquet")
    rules = [parse_rule(label) for label in dict.fromkeys(measured.rule[measured.effort > 0].tolist())]
    predictions = predict_by_all(calibration, recorded, rules)
    best = predictions[best_model(recorded)]
    found = Sweep.read(swept, best)
    compared = found.compare(best)
    parts = [
        f"\nAccuracy of {recording} against {swept}, {int(measured.prompts.max())} other prompts",
        "Linear rules:",
        _models(predictions, found.linear()),
        "All rules:",
        _models({name: each for name, each in predictions.items() if name != "iid"}, found),
        f"  (asked of the last model: tok/s {_pair(*ASKED_SPEED)}, tau at least {ASKED_TAU}, regret at most "
        f"{_percent(ASKED_REGRET)}; regret: the worst over the floors that are kept)",
        f"  (rounds of the sweep took {found.slower:.2f} times as long as those of the recording)",
        *_without_choice(calibration, recorded, found, best),
        _own_spread(compared),
        _halves(found.halves(best)),
        *([] if found.runs is None else [repeats(*found.runs)]),
        f"\nErrors of tokens per round in % ({MODELS[best.model]}; ~: below the measurement's own spread):",
        _cells(compared),
        *_floors(compared),
        "\nErrors of tokens per round as the assumptions of Eq. 7 are lifted (linear rules):",
        _assumptions(calibration, recorded, found.steady, best),
        *_blends(calibration, recorded, found),
        _forwards(recorded, found.rounds),
    ]
    return "\n".join(parts)


def forwards(rounds: Rounds) -> int:
    """Forward passes of both models in recorded rounds: the drafter's, one of the verifier each, and the prefills."""
    return int(rounds.passes.sum()) + len(rounds) + int((rounds.round == 0).sum())


def _models(predictions: Mapping[Model, Prediction], found: Sweep) -> str:
    rows = []
    for name, prediction in predictions.items():
        each, raw = found.compare(prediction), compare(prediction, found.clocked, floors=()).tokens_per_second
        ranking = found.rank(each)
        tokens, speed = each.tokens_per_round, each.tokens_per_second
        rows.append(
            (
                MODELS[name],
                str(len(each)),
                _pair(tokens.median, tokens.maximum),
                _pair(*ASKED[name]) if name in ASKED else "-",
                f"{np.nanmean(tokens.inside):.0%}",
                f"{np.mean(tokens.within_spread):.0%}",
                _pair(raw.median, raw.maximum),
                _pair(speed.median, speed.maximum),
                _number(ranking.kendall_tau, 3),
                _number(ranking.kendall_tau_resolved, 3),
                _percent(each.worst_regret),
                _number(each.worst_shortfall, 4),
                _number(tokens.kendall_tau, 3),
            )
        )
    header = ("model", "cells", "tok/round", "asked", "inside", "in spread", "tok/s as clocked", "by one clock")
    note = (
        f"  (the measurement tells {ranking.resolved:.0%} of the pairs of cells apart; its tau with itself on "
        f"resampled prompts: {ranking.ceiling:.3f})"
    )
    columns = (*header, "Kendall tau", "told apart", "regret", "misses floor by", "tau, tok/round")
    return "\n".join([table(columns, rows), note])


def _own_spread(result: Comparison) -> str:
    spread = result.tokens_per_round.spread
    return f"\nThe measurement itself is known to {_pair(np.median(spread), np.max(spread))} at 95 % (tokens per round)"


def _floors(result: Comparison) -> list[str]:
    """What is recommended at each floor on agreement, with the caution of the planner, by measured throughput."""
    rows = [
        (
            f"{each.floor:g}",
            f"K = {each.recommended.effort}, {each.recommended.rule}",
            f"K = {each.best.effort}, {each.best.rule}",
            _percent(each.regret),
            f"{each.shortfall:.4f}",
        )
        for each in result.regrets
    ]
    names = ("agreement", "recommended", "best measured", "regret", "misses floor by")
    return [f"\nRegret of the recommendation ({MODELS[result.model]}):", table(names, rows)] if rows else []


def _blends(calibration: Calibration, recorded: Rounds, found: Sweep) -> list[str]:
    """Ways to mix two recordings; with the sweep's own prompts, no difference of prompts is left in the error."""
    if best_model(recorded) != "anchored":
        return []
    first = recorded.select(recorded.replica == 0)
    limit, cells_measured = calibration.token_limit, found.linear().steady
    others, same = (
        errors_by_blend(rounds, cells_measured, token_limit=limit) for rounds in (first, _own_rounds(first, found))
    )
    rows = [(words, *(_pair(np.median(np.abs(each[words])), np.abs(each[words]).max()) for each in (others, same)))
            for words in others]  # fmt: skip
    title = "\nErrors of tokens per round by blend of the recordings at leniency 0 and the anchor (linear rules):"
    return [title, table(("blend", "recorded prompts", "the sweep's own"), rows)]


def _without_choice(calibration: Calibration, recorded: Rounds, found: Sweep, best: Prediction) -> list[str]:
    """What the best model errs by when its rounds are those of the measured prompts, if the sweep has its rules."""
    first = recorded.select(recorded.replica == 0)
    own, labels = _own_rounds(first, found), np.unique(first.rule)
    if not np.array_equal(np.unique(own.rule), labels):
        return []
    same = calibrate_rounds(
        own,
        block_size=calibration.block_size,
        token_limit=calibration.token_limit,
        identity=calibration.identity,
        exactness=calibration.exactness,
    )
    same = replace(same, rule_seconds=calibration.rule_seconds, rule_seconds_se=calibration.rule_seconds_se)
    prediction = predict_best(same, own, [parse_rule(label) for label in dict.fromkeys(best.rule.tolist())])
    compared = found.compare(prediction)
    taus = [each.rank(each.compare(prediction)).kendall_tau for each in (found.linear(), found)]
    tokens, speed = compared.tokens_per_round, compared.tokens_per_second
    return [
        f"\nPredicted from the sweep's own rounds at {' and '.join(labels)}: tok/round "
        f"{_pair(tokens.median, tokens.maximum)}, tok/s by one clock {_pair(speed.median, speed.maximum)}, "
        f"Kendall tau {taus[0]:.3f} (linear rules) and {taus[1]:.3f}"
    ]


def _own_rounds(recorded: Rounds, found: Sweep) -> Rounds:
    """The rounds of the sweep under the rules that were recorded, each cell once."""
    return found.rounds.select((found.rounds.replica == 0) & np.isin(found.rounds.rule, recorded.rule))


def _halves(halves: Sequence[Measurements]) -> str:
    parts = []
    for words, name in (("tok/round", "tokens_per_round"), ("tok/s", "tokens_per_second")):
        differ = np.abs(getattr(halves[1], name) / getattr(halves[0], name) - 1)
        parts.append(f"{words} {_pair(np.median(differ), differ.max())}")
    tau = kendall_tau(halves)
    return f"Two halves of its prompts differ (median / maximum): {', '.join(parts)}; Kendall tau {tau:.3f}"


def _cells(result: Comparison) -> str:
    rules = list(dict.fromkeys(result.rule.tolist()))
    tokens = result.tokens_per_round
    words = [f"{100 * error:+.1f}{'~' if hidden else ' '}"
             for error, hidden in zip(tokens.relative, tokens.within_spread, strict=True)]  # fmt: skip
    errors = dict(zip(zip(result.effort.tolist(), result.rule.tolist(), strict=True), words, strict=True))
    efforts = sorted(set(result.effort.tolist()))
    rows = [(rule, *(errors[effort, rule] for effort in efforts)) for rule in rules]
    return table(("rule", *(f"K = {effort} " for effort in efforts)), rows)


def _assumptions(calibration: Calibration, rounds: Rounds, measurements: Measurements, best: Prediction) -> str:
    rules = [parse_rule(label) for label in dict.fromkeys(best.rule.tolist())]
    steps = lift_assumptions(calibration, rounds, rules, anchored=best.model == "anchored")
    split = split_error(steps, measurements, quantity="tokens_per_round")
    rows = [
        (name, _percent(median), _percent(maximum), "-" if i == 0 else f"{split.share[i - 1]:.0%}")
        for i, (name, median, maximum) in enumerate(zip(steps, split.median, split.maximum, strict=True))
    ]
    return table(("lifted", "median", "maximum", "share"), [*rows, ("left", "-", "-", f"{split.share_left:.0%}")])


def _forwards(recorded: Rounds, measured: Rounds) -> str:
    few, many = forwards(recorded), forwards(measured.select(measured.replica == 0))
    return (
        f"\nForward passes: {few} to record, anchor included, {many} in the sweep: 1 for {many / few:.1f} (asked: 20)"
    )


def _pair(median: float | NDArray[np.float64], maximum: float) -> str:
    return f"{_percent(float(median))} / {_percent(maximum)}"


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{100 * share:.1f} %"


def _number(value: float, digits: int) -> str:
    return "-" if np.isnan(value) else f"{value:.{digits}f}"


if __name__ == "__main__":
    sys.exit(guarded(main))
