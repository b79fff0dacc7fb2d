"""Write what a recording says as one HTML page that needs no network: report.html in the run folder.

python -m figures.report results/embedded/RUN                    # beside the newest sweep of the same pair
python -m figures.report results/embedded/RUN --sweep results/embedded/SWEEP
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from figures.report import choice, errors, frontiers, page, recording
from theory.acceptance import LinearAcceptance, RatioRule, parse_rule
from theory.calibration import Calibration
from theory.identity import comparable
from theory.measurements import Measurements
from theory.models import LENIENCIES, predict_best, timed_rules
from theory.rounds import Rounds
from theory.tables import replacing


@dataclass(frozen=True)
class Settings:
    """Write report.html into a run folder."""

    run: tyro.conf.Positional[Path | None] = None
    """Run folder of `python -m profiler.calibrate`; the newest if not given."""
    results: Path = Path("results")
    """Where to look for the newest, the `--out` of `python -m profiler.calibrate`."""
    sweep: Path | None = None
    """Run folder of `python -m profiler.sweep`; the newest of the same pair, weights and device if not given."""
    repeat: Path | None = None
    """Another run of the same sweep with another seed, which shows how far two measurements differ."""
    minimum_agreement: float = 0.99
    """The recommended setting keeps at least this agreement with the verifier."""


def main(argv: list[str] | None = None) -> int:
    """Read, compute, write, print the path; 2 with one line on stderr for what the user can mend."""
    settings = tyro.cli(Settings, args=argv, prog="python -m figures.report", description=__doc__)
    try:
        run = settings.run or newest_run(settings.results)
        path = run / "report.html"
        html = report(run, settings.minimum_agreement, sweep=settings.sweep, repeat=settings.repeat)
        with replacing(path) as partial:
            partial.write_text(html, encoding="utf-8")
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0


def report(run: Path, minimum_agreement: float, *, sweep: Path | None = None, repeat: Path | None = None) -> str:
    """Return the page for a calibrated run folder, with what a sweep measured if there is one."""
    calibration = Calibration.from_json(run / "calibration.json")
    rounds = Rounds.read(run / "rounds.parquet")
    pair = calibration.identity["settings"]["pair"]
    title = f"{pair['name']}: speed and quality"
    subtitle = f"{pair['description']} Recorded on {calibration.identity['provenance']['device']}."
    recorded = [recording.divergence(calibration), recording.latency(calibration, rounds)]
    if None in calibration.divergence:
        return page.render(title, subtitle, [*recorded, recording.provenance(calibration, run, None)])
    sweep = sweep or find_sweep(run, calibration)
    measured, repeated = (
        None if folder is None else Measurements.read(folder / "measurements.parquet") for folder in (sweep, repeat)
    )
    rules = timed_rules(calibration, _rules(measured))
    prediction = predict_best(calibration, rounds, rules)
    parts = [
        choice.recommendation(prediction, measured, minimum_agreement),
        frontiers.predicted(prediction, measured),
        frontiers.in_accuracy(measured),
        *recorded,
        errors.errors(calibration, rounds, rules, prediction, measured, repeated),
        recording.provenance(calibration, run, sweep),
    ]
    return page.render(title, subtitle, [part for part in parts if part is not None])


def newest_run(results: Path) -> Path:
    """The run folder whose calibration was written last."""
    files = sorted(results.glob("*/*/calibration.json"), key=lambda path: path.stat().st_mtime)
    if not files:
        msg = (
            f"there is no calibrated run in {results}; record one with python -m profiler.calibrate, or name its folder"
        )
        raise ValueError(msg)
    return files[-1].parent


def find_sweep(run: Path, calibration: Calibration) -> Path | None:
    """The newest sweep beside a run folder that was recorded with the same pair, weights and device."""
    mine = comparable(calibration.identity["settings"], calibration.identity["provenance"])
    files = sorted(run.resolve().parent.glob("*/measurements.parquet"), key=lambda path: path.stat().st_mtime)
    for path in reversed(files):
        manifest = json.loads((path.parent / "manifest.json").read_text(encoding="utf-8"))
        if any(comparable(manifest["settings"], each) == mine for each in manifest["provenances"].values()):
            return path.parent
    return None


def _rules(measured: Measurements | None) -> list[RatioRule]:
    """A grid of leniencies, and the rules of the sweep but for coupled verification."""
    labels = [] if measured is None else measured.rule[measured.effort > 0].tolist()
    rules: list[RatioRule] = [LinearAcceptance(leniency=leniency) for leniency in LENIENCIES]
    rules += [rule for rule in map(parse_rule, labels) if isinstance(rule, RatioRule)]
    distinct = {rule.label: rule for rule in rules}
    return sorted(distinct.values(), key=_order)


def _order(rule: RatioRule) -> tuple[bool, str, float]:
    """Linear acceptance first, then by strength."""
    kind, _, value = rule.label.partition(":")
    return kind != "linear", kind, float(value)


if __name__ == "__main__":
    sys.exit(main())
