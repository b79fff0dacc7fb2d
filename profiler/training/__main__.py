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
from tqdm import tqdm

from profiler.training.checkpoints import write_checkpoint
from profiler.training.drafter import denoising_loss
from profiler.training.loop import Recipe, train
from profiler.training.verifier import next_token_loss

RECIPES = {
    "verifier": Recipe(
        title="verifier",
        loss=next_token_loss,
        steps=9000,
        layers=8,
        intermediate=384,
        drill_share=0.3,
        grow_at=5850,
        grown_layers=14,
    ),
    "drafter": Recipe(title="drafter ", loss=denoising_loss, steps=4000, layers=2, intermediate=512, drill_share=0.15),
}


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
    settings = tyro.cli(Settings, args=argv, prog="python -m profiler.training")
    context = multiprocessing.get_context("spawn")
    lock = context.RLock()
    workers = [
        context.Process(target=_train_one, args=(name, settings, line, lock)) for line, name in enumerate(RECIPES)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        return 1
    shutil.rmtree(settings.work / str(settings.seed))
    return 0


def _train_one(name: str, settings: Settings, line: int, lock: object) -> None:
    tqdm.set_lock(lock)
    state_file = settings.work / str(settings.seed) / f"{name}.pt"
    model = train(RECIPES[name], seed=settings.seed, state_file=state_file, line=line)
    write_checkpoint(model, settings.out / name)


if __name__ == "__main__":
    sys.exit(main())
