"""Export a recording to other programs: acceptance by position for vLLM's benchmarks, and a plain table for simulators.

    python -m theory.export results/embedded/RUN --format vllm               # one JSON file an effort
    python -m theory.export results/embedded/RUN --format csv --rules linear:0,linear:0.5,cactus:1

vLLM can accept drafted tokens at given rates instead of testing them, which shows what a server would gain from such a
drafter before it is built. Each file holds the keys that go into its `--speculative-config`, beside the method and
model of any drafter that drafts as many tokens. `docs/interchange.md` describes both formats.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from numpy.typing import NDArray

from theory.acceptance import Rule, parse_rule
from theory.calibration import Calibration
from theory.replay import replay
from theory.rounds import Rounds
from theory.tables import replacing

COLUMNS = (
    "effort", "rule", "position", "acceptance_rate", "survival_rate", "rounds",
    "draft_seconds", "verify_seconds", "overhead_seconds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Positions:
    """Acceptance at the B positions of a block.

    Attributes
    ----------
    acceptance_rate : (B,)
        Chance that a position is accepted, given that the test reaches it.
    survival_rate : (B,)
        Chance that this position and all before it are accepted, were every block whole.
    rounds : (B,)
        Rounds in which the position was drafted and the text had not ended before it.
    """

    acceptance_rate: NDArray[np.float64]
    survival_rate: NDArray[np.float64]
    rounds: NDArray[np.int64]


def positions(rounds: Rounds, rule: Rule) -> Positions:
    """Estimate acceptance by position from the rounds of one effort, (N, B).

    A block that the token limit shortened, or that holds the end of the text, says nothing about the positions behind.
    The rates are therefore taken over the rounds that have the position, each weighted by its chance to be reached, and
    multiplied up: the product-limit estimate of Kaplan and Meier (1958). Positions that no block has are left out.
    """
    survival = replay(rounds, rule).survival
    last = np.where(rounds.eos_slot < 0, rounds.drafted - 1, rounds.eos_slot)
    there = rounds.slot <= last[:, None]
    reached = np.where(there, survival[:, :-1], 0).sum(axis=0)
    accepted = np.where(there, survival[:, 1:], 0).sum(axis=0)
    count = int(np.argmin(np.append(there.any(axis=0), False)))
    # A position that no draft can reach is accepted with probability 0.
    rate = np.divide(accepted, reached, out=np.zeros_like(reached), where=reached > 0)[:count]
    return Positions(acceptance_rate=rate, survival_rate=np.cumprod(rate), rounds=there.sum(axis=0)[:count])


def vllm_config(rates: Positions) -> dict[str, Any]:
    """Return the keys of vLLM's speculative configuration that make it accept like this recording.

    ``synthetic_acceptance_rates`` are unconditional, ``survival_rate`` here: one for each drafted token, in [0, 1] and
    never rising.
    """
    survival = [round(float(rate), 6) for rate in rates.survival_rate]
    return {
        "num_speculative_tokens": len(survival),
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": survival,
    }


def csv_table(calibration: Calibration, rounds: Rounds, rules: Sequence[Rule]) -> str:
    """Return one line for each effort, rule and position; an empty field was not measured."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    latency = calibration.latency
    for effort in calibration.efforts:
        seconds: list[float | str] = ["", "", ""]
        if latency is not None:
            overhead = latency.overhead_seconds
            seconds = [latency.draft_seconds(effort), latency.verify_seconds, "" if overhead is None else overhead]
        for rule in rules:
            rates = positions(_of_effort(rounds, effort), rule)
            for place in range(len(rates.rounds)):
                values = (rates.acceptance_rate[place], rates.survival_rate[place], rates.rounds[place])
                writer.writerow([effort, rule.label, place + 1, *values, *seconds])
    return text.getvalue()


@dataclass(frozen=True)
class Settings:
    """Write what a recording says in the form that other programs read."""

    run: tyro.conf.Positional[Path]
    """Run folder of `python -m profiler.calibrate`."""
    format: Literal["vllm", "csv"] = "csv"
    """vllm: a JSON file for each effort and rule; csv: one table."""
    rules: str = "linear:0"
    """Acceptance rules, separated by commas, as in linear:0,linear:0.5,cactus:1."""
    out: Path | None = None
    """Folder for the files; the run folder if not given."""


def main(argv: list[str] | None = None) -> int:
    """Read, compute, write, print the paths; 2 with one line on stderr for what the user can mend."""
    settings = tyro.cli(Settings, args=argv, prog="python -m theory.export", description=__doc__)
    try:
        calibration = Calibration.from_json(settings.run / "calibration.json")
        if None in calibration.divergence:
            raise ValueError(f"{settings.run} holds times alone, from random weights; record the pair with its weights")
        rounds = _calibrated(Rounds.read(settings.run / "rounds.parquet"))
        rules = [parse_rule(label) for label in settings.rules.split(",")]
        out = settings.out or settings.run
        out.mkdir(parents=True, exist_ok=True)
        if settings.format == "csv":
            files = {"positions.csv": csv_table(calibration, rounds, rules)}
        else:
            files = {
                f"vllm-K{effort}-{rule.label.replace(':', '-')}.json": json.dumps(
                    vllm_config(positions(_of_effort(rounds, effort), rule)), indent=2, allow_nan=False
                )
                + "\n"
                for effort in calibration.efforts
                for rule in rules
            }
        for name, content in files.items():
            with replacing(out / name) as partial:
                partial.write_text(content, encoding="utf-8")
            print(out / name)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _calibrated(rounds: Rounds) -> Rounds:
    """The rounds that the calibration is computed from: recorded without leniency, each cell once."""
    return rounds.select((rounds.replica == 0) & (rounds.rule == "linear:0"))


def _of_effort(rounds: Rounds, effort: int) -> Rounds:
    return rounds.select(rounds.effort == effort)


if __name__ == "__main__":
    sys.exit(main())
