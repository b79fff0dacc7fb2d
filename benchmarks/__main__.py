"""Run the benchmarks: `python -m benchmarks [--prompts 50] [--threads 1]`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
import tyro

from benchmarks import speedup


@dataclass(frozen=True)
class Settings:
    """Speed of the embedded pair, everything side by side in one run."""

    prompts: int = 50
    """How many prompts every way of decoding gets."""
    seed: int = 3
    """Seed of the prompts."""
    threads: int = 1
    """Threads of torch; the networks are too small to gain from more."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    settings = tyro.cli(Settings, args=argv, prog="python -m benchmarks", description=__doc__)
    torch.set_num_threads(settings.threads)
    print(speedup.run(prompts=settings.prompts, seed=settings.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
