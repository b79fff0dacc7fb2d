"""Measure a grid of settings, and hold the measurement against the prediction of a calibration.

    python -m profiler.sweep                                     # K = 1..4 x leniency 0,.1,.25,.5,.75,1
    python -m profiler.sweep --leniency 0,0.5,1 --cactus 0.5,2 --prompts 200
    python -m profiler.sweep --order entropy --leniency 0 --coupled   # the ratio test beside coupled verification
    python -m profiler.sweep --calibration results/embedded/RUN
    python -m profiler.sweep --repeat 20                         # twice, to see how far two runs differ
    python -m profiler.sweep --pair dream-qwen2.5-32b --cactus pair --prompts 500   # the grid of the paper

An interrupted sweep resumes. Files, in results/PAIR/RUN: manifest.json, journal.jsonl, rounds.parquet,
measurements.parquet. The verifier alone, one token a round, is measured beside the grid as effort 0.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro

from profiler import summary
from profiler.cli import RunOptions, guarded, numbers
from profiler.pairs import PairSpec
from profiler.recording import Cell, read_requests, read_rounds, record, verifier_alone
from profiler.store import find_calibration, read_manifest
from theory.acceptance import CactusAcceptance, LinearAcceptance, Rule
from theory.calibration import Calibration
from theory.comparison import compare
from theory.coupled import CoupledAcceptance
from theory.measurements import measure, two_runs
from theory.models import predict_by_all, timed_rules
from theory.rounds import Rounds

LENIENCIES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, kw_only=True)
class Settings(RunOptions):
    """Decode prompts in every cell of effort x rule and measure speed, agreement and accuracy."""

    leniency: str = ""
    """Leniencies of linear acceptance; those that the pair names, or 0,0.1,0.25,0.5,0.75,1, if not given."""
    cactus: str = ""
    """Budgets of Cactus acceptance, in nats; pair: those that the pair names for each effort."""
    coupled: bool = False
    """Measure coupled verification too: drafter and verifier share their noise, the text is the verifier's own whatever
    the commit order and the effort, and fewer tokens are accepted."""
    seed: int = 1
    """Seed of the prompts and random streams; another than the calibration's, so that prediction meets new prompts."""
    repeat: int = 0
    """Decode so many of the prompts again with other random numbers, to see how far two measurements differ."""
    calibration: Path | None = None
    """The run folder whose prediction is compared; the newest of the same pair if not given."""

    def rules(self, spec: PairSpec, effort: int) -> list[Rule]:
        """The rules to measure at an effort; leniencies that differ by rounding are one (case O63)."""
        leniencies = numbers("leniency", self.leniency, float) if self.leniency else spec.task.leniency
        rules: list[Rule] = [LinearAcceptance(leniency=x) for x in leniencies or LENIENCIES]
        if self.cactus:
            own = dict(spec.task.cactus).get(str(effort), ())
            budgets = own if self.cactus == "pair" else numbers("cactus", self.cactus, float)
            rules += [CactusAcceptance(budget=x) for x in budgets]
        if self.coupled:
            rules.append(CoupledAcceptance())
        return list({rule.label: rule for rule in rules}.values())

    def cells(self, spec: PairSpec) -> list[Cell]:
        """Every effort with its rules."""
        if self.cactus == "pair" and not spec.task.cactus:
            raise ValueError(f"--cactus pair: {spec.name} names no budgets for {spec.task.name}; give them as numbers")
        return [Cell(effort=effort, rule=rule) for effort in spec.efforts for rule in self.rules(spec, effort)]


def main(argv: list[str] | None = None) -> None:
    """Parse, record, compute, write, print."""
    settings = tyro.cli(Settings, args=argv, prog="python -m profiler.sweep", description=__doc__)
    spec = settings.spec()
    cells = settings.cells(spec)
    rules = {cell.rule.label: cell.rule for cell in cells}
    if settings.repeat < 0:
        raise ValueError(f"--repeat must be at least 0, got {settings.repeat}; it counts prompts")
    if settings.calibration is not None:
        read_manifest(settings.calibration)  # a mistyped folder is better noticed before the sweep than after it
    prompts = settings.requests(spec, settings.seed)
    pair = settings.load(spec)
    grid = {"rules": list(rules), "cactus": settings.cactus}
    run = settings.open(pair, "sweep", prompts, {"seed": settings.seed, **grid})
    try:
        record(pair, [verifier_alone(), *cells], prompts, run=run, seed=settings.seed)
        again = [replace(cell, replica=1) for cell in cells]
        record(pair, again, prompts[: settings.repeat], run=run, seed=settings.seed)
    finally:
        if run.records:
            rounds = read_rounds(run.records)
            rounds.write(run.path / "rounds.parquet")
    requests = read_requests(run.records)
    measurements = measure(rounds, requests)
    measurements.write(run.path / "measurements.parquet")
    twice = two_runs(rounds, requests)
    runs = None if twice is None else (measure(*twice[0]), measure(*twice[1]))
    print(summary.measurements(measurements, float(np.nanmedian(rounds.prefill_seconds))))
    calibrated = settings.calibration or find_calibration(run)
    if calibrated is None:
        print("no calibration of this pair and device to compare with; record one with python -m profiler.calibrate")
    else:
        calibration = Calibration.from_json(calibrated / "calibration.json")
        run.require_same_pair(calibration.identity, calibrated)
        if calibration.latency is not None and (measurements.scored > 0).all():
            print(summary.measured_frontier(measurements, calibration.latency))
        known = {rule.label for rule in timed_rules(calibration, list(rules.values()))}
        if missing := [label for label in rules if label not in known and label != CoupledAcceptance().label]:
            print(f"not predicted, for want of a recorded time: {', '.join(missing)}; record again")
        predictions = predict_by_all(calibration, Rounds.read(calibrated / "rounds.parquet"), list(rules.values()))
        print(summary.comparison([compare(each, measurements, runs=runs) for each in predictions.values()], calibrated))
    if runs is not None:
        print(summary.repeats(*runs))
    print(summary.files(run.path))


if __name__ == "__main__":
    sys.exit(guarded(main))
