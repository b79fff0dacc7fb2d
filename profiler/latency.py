"""Latency without checkpoints: random weights on the device, random prompts, the loop and the clock of a calibration.

    python -m profiler.calibrate --weights random --pair dream-qwen2.5-32b --prompts 4 --latency.rounds 10

Times are those of the real models. Distributions mean nothing, so d_K and all that follows from it is not measured.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from profiler import summary
from profiler.cli import RunOptions
from profiler.pairs import PairSpec
from profiler.pairs.needs import bounds
from profiler.recording import Cell, read_rounds, record
from profiler.tasks.task import Prompt
from theory.acceptance import LOSSLESS
from theory.calibration import calibrate, without_divergence
from theory.roofline import H100, H200


@dataclass(frozen=True, kw_only=True)
class LatencyOptions:
    """What a recording with random weights needs to know beside the options of every recording."""

    rounds: int = 10
    """How many rounds of each prompt to time."""
    prompt_tokens: int = 200
    """The length of the prompts."""
    layers: int = 0
    """Keep the last so many layers of each model alone, to fit a smaller device; 0: all."""


def record_latency(options: RunOptions, latency: LatencyOptions, *, seed: int) -> str:
    """Record the first rounds of prompts of random tokens at every effort, fit the times, and tell them."""
    for name, least in (("rounds", 1), ("prompt_tokens", 1), ("layers", 0)):
        if getattr(latency, name) < least:
            raise ValueError(f"`{name}` must be at least {least}, got {getattr(latency, name)}")
    if not isinstance(options.prompts, int) or options.prompts < 1:
        raise ValueError(f"--prompts must be a number from 1 on with --weights random, got {options.prompts}")
    spec = _without_task(options.spec())
    limits = _bounds(spec, latency)
    pair = options.load(spec, random=True, layers=latency.layers)
    prompts = random_prompts(options.prompts, latency.prompt_tokens, pair.vocabulary_size, seed)
    settings = {"seed": seed, "weights": "random", **dataclasses.asdict(latency)}
    run = options.open(pair, "calibrate", prompts, settings)
    cells = [Cell(effort=effort, rule=LOSSLESS) for effort in spec.efforts]
    cells.append(Cell(effort=spec.efforts[0], rule=LOSSLESS, replica=1))
    record(pair, cells, prompts, run=run, seed=seed, most_rounds=latency.rounds)
    recorded = read_rounds(run.records)
    recorded.write(run.path / "rounds.parquet")
    calibration = calibrate(
        recorded,
        block_size=spec.longest_block,
        identity=run.identity(),
        exactness=tuple(pair.drafter.exactness(effort) for effort in spec.efforts),
    )
    calibration = without_divergence(calibration)
    calibration.to_json(run.path / "calibration.json")
    return "\n".join([summary.calibration(calibration), limits, summary.files(run.path)])


def random_prompts(count: int, length: int, vocabulary_size: int, seed: int) -> list[Prompt]:
    """Prompts of `length` random token ids, written as numbers."""
    ids = np.random.default_rng(seed).integers(vocabulary_size, size=(count, length))
    return [
        Prompt(id=f"random/{seed}/{row}", text=" ".join(map(str, ids[row].tolist())), reference="")
        for row in range(count)
    ]


def _bounds(spec: PairSpec, latency: LatencyOptions) -> str:
    """The table of lower bounds, or why there is none: an architecture that they are not written down for."""
    try:
        limits = [bounds(spec, device, context=latency.prompt_tokens, layers=latency.layers) for device in (H100, H200)]
    except ValueError as error:
        return f"\nNo lower bounds: {error}"
    return summary.bounds(limits)


def _without_task(spec: PairSpec) -> PairSpec:
    """The pair with its task's limit alone: no format, since there are no words."""
    task = dataclasses.replace(spec.task, name="own", format="plain", instruction="")
    return dataclasses.replace(spec, task=task)
