"""Train both drafters of the SmolLM2 pair on their verifier's own answers, and write their checkpoint folders.

    python -m profiler.distillation --out profiler/pairs/smollm2

The answers are sampled by two processes, then each drafter is trained by one. An interrupted run goes on where its last
saved state was.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from profiler.distillation.drafters import EARLY_EXIT, LORA, sample, train_drafter
from profiler.training.workers import finished

_SAMPLERS = 2


@dataclass(frozen=True)
class Settings:
    """Train the drafters of the SmolLM2 pair (at most 90 minutes on two cores)."""

    out: Path = Path("profiler/pairs/smollm2")
    """The folder that gets a folder for each drafter."""
    seed: int = 0
    """The seed of prompts, answers, weights, blocks and noise."""
    work: Path = Path(".training/smollm2")
    """Where answers and the states of an interrupted run are kept; removed at the end."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    settings = tyro.cli(Settings, args=argv, prog="python -m profiler.distillation", description=__doc__)
    context = multiprocessing.get_context("spawn")
    lock = context.RLock()
    work = settings.work / str(settings.seed)
    shares = [(work, settings.seed, (line, _SAMPLERS), lock) for line in range(_SAMPLERS)]
    pairs = [(pair, settings.out, work, settings.seed, line, lock) for line, pair in enumerate((EARLY_EXIT, LORA))]
    if not (finished(context, sample, shares) and finished(context, train_drafter, pairs)):
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
