"""How the two networks of the embedded pair are trained, and the worker that trains one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tqdm import tqdm

from profiler.training.checkpoints import write_checkpoint
from profiler.training.drafter import denoising_loss
from profiler.training.loop import Recipe, train
from profiler.training.verifier import next_token_loss

RECIPES = {
    "verifier": Recipe(
        title="verifier",
        loss=next_token_loss,
        steps=5500,
        layers=4,
        intermediate=384,
        drill_share=0.3,
        grow_at=4500,
        grown_layers=16,
    ),
    "drafter": Recipe(title="drafter ", loss=denoising_loss, steps=9000, layers=2, intermediate=512, drill_share=0.3),
}


def train_network(name: str, out: Path, state_file: Path, seed: int, line: int, lock: Any) -> None:
    """Train the network `name` and write its checkpoint folder; `line` and `lock` place its progress bar."""
    tqdm.set_lock(lock)
    write_checkpoint(train(RECIPES[name], seed=seed, state_file=state_file, line=line), out / name)
