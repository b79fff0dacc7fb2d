"""Accuracy of the predictions: one small recording against a sweep of other prompts, every model side by side.

    python -m benchmarks.accuracy                              # about an hour of one core; an interrupted run goes on
    python -m benchmarks.accuracy --sweep-prompts 20 --repeat 5    # coarser

Tokens per round do not depend on the clock. Throughput is told twice: as clocked, which on a busy machine measures the
machine, and by one clock, see `one_clock`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from numpy.typing import NDArray
from scipy import stats

from profiler import calibrate, sweep
from profiler.cli import guarded
from profiler.recording import read_requests
from profiler.store import read_journal
from profiler.summary import MODELS, repeats, table
from theory.acceptance import Rule, parse_rule
from theory.assumptions import lift_assumptions, split_error
from theory.calibration import Calibration
from theory.calibration import calibrate as calibrate_rounds
from theory.comparison import Comparison, compare
from theory.measurements import Measurements, Requests, measure, repeat_spread
from theory.models import LENIENCIES, best_model, predict_best, predict_by_all
from theory.prediction import Model, Prediction
from theory.rounds import Rounds

BUDGETS = "0.1,0.25,0.5,1,2,4"
ASKED: dict[Model, tuple[float, float]] = {"replay": (0.04, 0.12), "anchored": (0.02, 0.08)}
"""Median and maximum error of tokens per round that the models must stay below on the embedded pair."""


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
    recorded, measured = Rounds.read(recording / "rounds.parquet"), Rounds.read(swept / "rounds.parquet")
    measurements = Measurements.read(swept / "measurements.parquet")
    rules = [parse_rule(label) for label in dict.fromkeys(measurements.rule[measurements.effort > 0].tolist())]
    predictions = predict_by_all(calibration, recorded, rules)
    best = predictions[best_model(recorded)]
    slower, steady = one_clock(best, measurements, measured)
    compared = {name: compare(each, steady) for name, each in predictions.items()}
    linear = np.char.startswith(measurements.rule, "linear:")
    requests = read_requests(read_journal(swept))
    spread = repeat_spread(measured, requests)
    parts = [
        f"\nAccuracy of {recording} against {swept}, {int(measurements.prompts.max())} other prompts",
        "Linear rules:",
        _models(predictions, measurements.select(linear), steady.select(linear)),
        "All rules:",
        _models({name: each for name, each in predictions.items() if name != "iid"}, measurements, steady),
        f"  (rounds of the sweep took {slower:.2f} times as long as those of the recording)",
        _own_spread(compared[best.model]),
        _halves(best, measured, requests),
        _without_other_prompts(calibration, recorded, measured, measurements, rules),
        *(
            [repeats(spread, np.unique(requests.prompt[requests.replica == 1]).size)]
            if spread["tokens_per_round"].size
            else []
        ),
        f"\nErrors of tokens per round in % ({MODELS[best.model]}):",
        _cells(compared[best.model]),
        "\nErrors of tokens per round as the assumptions of Eq. 7 are lifted (linear rules):",
        _assumptions(calibration, recorded, steady, best),
        _forwards(recorded, measured),
    ]
    return "\n".join(parts)


def one_clock(prediction: Prediction, measurements: Measurements, rounds: Rounds) -> tuple[float, Measurements]:
    """Throughput as if the machine had been alike at all times, and how much slower than predicted it was.

    The cells of one prompt are decoded within the same minutes. Each prompt's rounds are divided by the factor by which
    they took longer than predicted, in their median; a cell's throughput is its tokens per round over the median of
    the times that are left, which pauses of the machine spare, and the median of the factors is told.
    """
    first = rounds.select(rounds.replica == 0)
    seconds = first.draft_seconds + first.verify_seconds + first.overhead_seconds
    expected = dict(zip(_keys(prediction), prediction.tokens_per_round / prediction.tokens_per_second, strict=True))
    cells = list(zip(first.effort.tolist(), first.rule.tolist(), strict=True))
    factor = seconds / np.array([expected.get(cell, np.nan) for cell in cells])
    for prompt in np.unique(first.prompt):
        rows = first.prompt == prompt
        seconds[rows] /= np.nanmedian(factor[rows])
    medians = {
        cell: float(np.median(seconds[(first.effort == cell[0]) & (first.rule == cell[1])])) for cell in set(cells)
    }
    speed = [
        tokens / medians[cell] if cell in medians else np.nan
        for cell, tokens in zip(_keys(measurements), measurements.tokens_per_round, strict=True)
    ]
    return float(np.nanmedian(factor)), dataclasses.replace(measurements, tokens_per_second=np.array(speed))


def forwards(rounds: Rounds) -> int:
    """Forward passes of both models in recorded rounds: the drafter's, one of the verifier each, and the prefills."""
    return int(rounds.passes.sum()) + len(rounds) + int((rounds.round == 0).sum())


def _models(predictions: Mapping[Model, Prediction], clocked: Measurements, steady: Measurements) -> str:
    rows = []
    for name, prediction in predictions.items():
        each, raw = compare(prediction, steady), compare(prediction, clocked).tokens_per_second
        asked = " / ".join(_percent(limit) for limit in ASKED.get(name, ())) or "-"
        tokens, speed = each.tokens_per_round, each.tokens_per_second
        rows.append(
            (
                MODELS[name],
                str(len(each)),
                _pair(tokens.median, tokens.maximum),
                asked,
                f"{np.nanmean(tokens.inside):.0%}",
                f"{np.mean(tokens.within_spread):.0%}",
                _pair(raw.median, raw.maximum),
                _pair(speed.median, speed.maximum),
                f"{speed.kendall_tau:.3f}",
                _percent(max((one.regret for one in each.regrets), default=np.nan)),
            )
        )
    header = ("model", "cells", "tok/round", "asked", "inside", "in spread")
    return table((*header, "tok/s as clocked", "by one clock", "Kendall tau", "regret"), rows)


def _own_spread(result: Comparison) -> str:
    spread = result.tokens_per_round.spread
    return f"\nThe measurement itself is known to {_pair(np.median(spread), np.max(spread))} at 95 % (tokens per round)"


def _halves(prediction: Prediction, rounds: Rounds, requests: Requests) -> str:
    """How far one half of the prompts predicts the other: what the best prediction could reach against such a half."""
    prompts = np.unique(requests.prompt)
    halves = []
    for part in (prompts[::2], prompts[1::2]):
        chosen = rounds.select(np.isin(rounds.prompt, part) & (rounds.replica == 0))
        cells = measure(chosen, requests.select(np.isin(requests.prompt, part) & (requests.effort > 0)))
        halves.append(one_clock(prediction, cells, chosen)[1])
    tokens, speed = ([getattr(half, name) for half in halves] for name in ("tokens_per_round", "tokens_per_second"))
    differ = [np.abs(second / first - 1) for first, second in (tokens, speed)]
    parts = [f"{words} {_pair(np.median(d), d.max())}" for words, d in zip(("tok/round", "tok/s"), differ, strict=True)]
    tau = float(stats.kendalltau(*speed).statistic)
    return f"Two halves of its prompts differ (median / maximum): {', '.join(parts)}; Kendall tau {tau:.3f}"


def _without_other_prompts(
    calibration: Calibration, recorded: Rounds, measured: Rounds, measurements: Measurements, rules: Sequence[Rule]
) -> str:
    """The error that is left if the recording has the prompts of the sweep, and that no choice of prompts explains."""
    own = measured.select(np.isin(measured.rule, recorded.rule) & (measured.replica == 0))
    again = calibrate_rounds(
        own,
        block_size=calibration.block_size,
        token_limit=calibration.token_limit,
        identity={},
        exactness=calibration.exactness,
    )
    errors = compare(predict_best(again, own, rules, resamples=1), measurements).tokens_per_round
    rules_recorded = " and ".join(np.unique(own.rule))
    return f"Predicted from the sweep's own rounds at {rules_recorded}: {_pair(errors.median, errors.maximum)}"


def _cells(result: Comparison) -> str:
    rules = list(dict.fromkeys(result.rule.tolist()))
    errors = dict(
        zip(
            zip(result.effort.tolist(), result.rule.tolist(), strict=True),
            result.tokens_per_round.relative,
            strict=True,
        )
    )
    efforts = sorted(set(result.effort.tolist()))
    rows = [(rule, *(f"{100 * errors[effort, rule]:+.1f}" for effort in efforts)) for rule in rules]
    return table(("rule", *(f"K = {effort}" for effort in efforts)), rows)


def _assumptions(calibration: Calibration, rounds: Rounds, measurements: Measurements, best: Prediction) -> str:
    rules = [parse_rule(label) for label in dict.fromkeys(best.rule.tolist())]
    steps = lift_assumptions(calibration, rounds, rules, anchored=best.model == "anchored")
    split = split_error(steps, measurements, quantity="tokens_per_round")
    rows = [
        (name, _percent(median), _percent(maximum), "-" if i == 0 else f"{split.share[i - 1]:.0%}")
        for i, (name, median, maximum) in enumerate(zip(steps, split.median, split.maximum, strict=True))
    ]
    return table(("lifted", "median", "maximum", "share"), rows)


def _forwards(recorded: Rounds, measured: Rounds) -> str:
    few, many = forwards(recorded), forwards(measured.select(measured.replica == 0))
    return (
        f"\nForward passes: {few} to record, anchor included, {many} in the sweep: 1 for {many / few:.1f} (asked: 20)"
    )


def _keys(cells: Prediction | Measurements) -> list[tuple[int, str]]:
    return list(zip(cells.effort.tolist(), cells.rule.tolist(), strict=True))


def _pair(median: float | NDArray[np.float64], maximum: float) -> str:
    return f"{_percent(float(median))} / {_percent(maximum)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    sys.exit(guarded(main))
