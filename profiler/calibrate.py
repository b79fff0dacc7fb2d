"""Record a pair once per effort, and see what follows: d_K, latency, frontier, a recommended setting.

    python -m profiler.calibrate                                  # the embedded pair, K = 1..4, 50 prompts
    python -m profiler.calibrate --efforts 1,2,4 --prompts 200
    python -m profiler.calibrate --order entropy                  # the commit order of Dream
    python -m profiler.calibrate --anchor-leniency none           # a third cheaper; predicts less of leniency
    python -m profiler.calibrate --list-pairs
    python -m profiler.calibrate --pair dream-qwen2.5-32b --weights random --prompts 4   # latency alone
    python -m profiler.calibrate --pair my-pair.toml --device cuda --prompts my-prompts.jsonl

Files, in results/PAIR/RUN: manifest.json, journal.jsonl, rounds.parquet, calibration.json,
prediction.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Literal

import tyro

from profiler import summary
from profiler.cli import RunOptions, guarded, numbers
from profiler.latency import LatencyOptions, record_latency
from profiler.pairs import needs
from profiler.recording import Cell, read_rounds, record
from theory.acceptance import LOSSLESS, CactusAcceptance, LinearAcceptance
from theory.calibration import calibrate
from theory.models import LENIENCIES, predict_best
from theory.planner import recommend

TIMED = (CactusAcceptance(budget=1), CactusAcceptance(budget=1, solver="taylor"))
"""Of other kinds than linear acceptance: how much longer their rounds take is recorded too (`theory.rule_times`)."""
TWICE = 20
"""Prompts that are decoded again, for those times and the noise of the clock, which need fewer than d_K."""


@dataclass(frozen=True, kw_only=True)
class Settings(RunOptions):
    """Record a pair at leniency 0 and at an anchor, and predict its whole frontier of effort and leniency."""

    anchor_leniency: str = "1"
    """Record every effort at this leniency too: leniency leads to other texts, on which drafter and verifier differ
    otherwise. At 1 everything between is interpolated, and the rounds are fewest; none: predict from leniency 0 alone.
    """
    seed: int = 0
    """Seed of the prompts and of all random streams."""
    list_pairs: bool = False
    """Print the named pairs with the memory they need and bounds on their latency, and do nothing else."""
    weights: Literal["checkpoint", "random"] = "checkpoint"
    """random: read no checkpoint, and measure latency alone, on models of the same shape."""
    latency: LatencyOptions = field(default_factory=LatencyOptions)
    """With random weights alone."""
    precision: float | None = None
    """Exit with 2, after writing all files, unless tokens per round are known so well, as 0.02 for +- 2 % at 95 %; says
    how many prompts it would take."""
    minimum_agreement: float = 0.99
    """The recommended setting is the fastest whose agreement with the verifier, token by token, is at least this."""

    def anchor(self) -> LinearAcceptance | None:
        """The rule of the second recording."""
        if self.anchor_leniency == "none":
            return None
        given = numbers("anchor-leniency", self.anchor_leniency, float)
        if len(given) > 1 or given[0] == 0:
            msg = f"--anchor-leniency must be one number above 0, or none, got {self.anchor_leniency}; "
            raise ValueError(msg + "0 is recorded anyway")
        return LinearAcceptance(leniency=given[0])


def main(argv: list[str] | None = None) -> None:
    """Parse, record, compute, write, print."""
    settings = tyro.cli(Settings, args=argv, prog="python -m profiler.calibrate", description=__doc__)
    if settings.list_pairs:
        print(summary.pairs(needs.listing()))
        return
    if settings.weights == "random":
        print(record_latency(settings, settings.latency, seed=settings.seed))
        return
    spec, anchor = settings.spec(), settings.anchor()
    prompts = settings.requests(spec, settings.seed)
    pair = settings.load(spec)
    options = {"seed": settings.seed, "anchor": None if anchor is None else anchor.label}
    run = settings.open(pair, "calibrate", prompts, options)
    rules = [LOSSLESS] if anchor is None else [LOSSLESS, anchor]
    cells = [Cell(effort=effort, rule=rule) for effort in spec.efforts for rule in rules]
    again = [Cell(effort=spec.efforts[0], rule=rule, replica=1) for rule in (*TIMED, LOSSLESS)]
    try:
        record(pair, [*cells, *again], prompts[:TWICE], run=run, seed=settings.seed)
        record(pair, cells, prompts, run=run, seed=settings.seed)
    finally:
        if run.records:
            rounds = read_rounds(run.records)
            rounds.write(run.path / "rounds.parquet")
    calibration = calibrate(
        rounds,
        block_size=spec.longest_block,
        token_limit=spec.task.token_limit,
        identity=run.identity(),
        exactness=tuple(pair.drafter.exactness(effort) for effort in spec.efforts),
    )
    calibration.to_json(run.path / "calibration.json")
    prediction = predict_best(calibration, rounds, [LinearAcceptance(leniency=leniency) for leniency in LENIENCIES])
    prediction.to_json(run.path / "prediction.json")
    print(summary.calibration(calibration))
    print(summary.frontier(prediction))
    print(summary.precision(prediction))
    print(summary.recommendation(recommend(prediction, minimum_agreement=settings.minimum_agreement)))
    print(summary.files(run.path))
    if settings.precision is not None:
        prediction.require_precision(settings.precision)


if __name__ == "__main__":
    sys.exit(guarded(main))
