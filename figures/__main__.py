"""Draw the figures of a calibration and a sweep.

python -m figures results/embedded/CALIBRATION results/embedded/SWEEP --out figures/embedded
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from figures import cactus, figure3, figure4, figure6, rules, style
from theory.acceptance import LinearAcceptance
from theory.calibration import Calibration
from theory.measurements import Measurements
from theory.models import LENIENCIES, predict_best
from theory.prediction import predict
from theory.rounds import Rounds


@dataclass(frozen=True)
class Settings:
    """Draw figures 3, 4 and 6, what Cactus's Taylor variant spends, and where rules deviate, as PNG files."""

    calibration: tyro.conf.Positional[Path]
    """Run folder of `python -m profiler.calibrate`."""
    sweep: tyro.conf.Positional[Path]
    """Run folder of `python -m profiler.sweep`."""
    out: Path = Path("figures/embedded")
    """Where the PNG files go."""


def main(argv: list[str] | None = None) -> int:
    """Read, draw, write; 2 with one line on stderr where a run folder is not complete or has times alone."""
    settings = tyro.cli(Settings, args=argv, prog="python -m figures", description=__doc__)
    try:
        calibration = Calibration.from_json(settings.calibration / "calibration.json")
        rounds = Rounds.read(settings.calibration / "rounds.parquet")
        measurements = Measurements.read(settings.sweep / "measurements.parquet")
        leniencies = [LinearAcceptance(leniency=leniency) for leniency in LENIENCIES]
        prediction, replayed = predict(calibration, leniencies), predict_best(calibration, rounds, leniencies)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    drawn = {"figure3": figure3.draw(prediction, measurements, replayed), "figure4": figure4.draw(measurements)}
    drawn |= {"cactus": cactus.draw(), "rules": rules.draw(rounds)}
    if calibration.latency is not None:
        drawn["figure6"] = figure6.draw(rounds, calibration.latency)
    for name, figure in drawn.items():
        print(style.save(figure, settings.out / f"{name}.png"))
    print(rules.gain_lines(rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
