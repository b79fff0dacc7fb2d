"""Train the embedded pair from nothing and write its two checkpoint folders.

    python -m profiler.training --out profiler/pairs/embedded

Both networks are trained at once, one thread each. An interrupted run goes on where its last saved state was.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from profiler.training.recipes import RECIPES, train_network
from profiler.training.workers import finished


@dataclass(frozen=True)
class Settings:
    """Train the embedded pair (about an hour on two cores)."""

    out: Path = Path("profiler/pairs/embedded")
    """The folder that gets `verifier/` and `drafter/`."""
    seed: int = 0
    """The seed of weights, problems, corruption and masks."""
    work: Path = Path(".training")
    """Where the states of an interrupted run are kept; removed at the end."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    settings = tyro.cli(Settings, args=argv, prog="python -m profiler.training", description=__doc__)
    context = multiprocessing.get_context("spawn")
    lock = context.RLock()
    states = settings.work / str(settings.seed)
    networks = [
        (name, settings.out, states / f"{name}.pt", settings.seed, line, lock) for line, name in enumerate(RECIPES)
    ]
    if not finished(context, train_network, networks):
        return 1
    shutil.rmtree(states)
    return 0


if __name__ == "__main__":
    sys.exit(main())
