"""What a pair needs and the least its rounds can take, from the shapes of its models: no weights are read."""

from __future__ import annotations

import json
from typing import Any

from profiler.pairs.checkpoints import shortened
from profiler.pairs.families import EarlyExitSpec, LoraSpec, ModelSpec
from profiler.pairs.spec import PairSpec, names, read
from theory.roofline import BYTES_PER_NUMBER, H100, H200, Device, LatencyBound, ModelShape, bound_latency

PROMPT_TOKENS = 200
"""Of a question, its format and its instruction, where a bound needs a length."""

_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def shapes(spec: PairSpec, *, layers: int = 0) -> tuple[ModelShape, ModelShape]:
    """Drafter and verifier as their config.json describes them, or with their last `layers` alone, if not 0."""
    rank = spec.drafter.rank if isinstance(spec.drafter, LoraSpec) else 0
    drafter, verifier = (
        shortened(config, layers) if layers else config
        for config in (_config(spec, spec.drafter), _config(spec, spec.verifier))
    )
    return ModelShape.from_config(drafter, adapter_rank=rank), ModelShape.from_config(verifier)


def memory_bytes(spec: PairSpec) -> int:
    """Weights of both models, their caches at the longest text, and the distributions of a block in float32.

    An adapter lies on the verifier's own weights, an early exit reads the verifier's own cache. Activations are not
    counted, a few per cent.
    """
    drafter, verifier = shapes(spec)
    length = PROMPT_TOKENS + spec.task.token_limit
    block = spec.longest_block
    of_verifier = _BYTES[spec.verifier.dtype]
    of_drafter = of_verifier if isinstance(spec.drafter, LoraSpec) else _BYTES[spec.drafter.dtype]
    weights = drafter.parameters * of_drafter
    if not isinstance(spec.drafter, LoraSpec):
        weights += verifier.parameters * of_verifier
    caches = verifier.cache_bytes(length) * of_verifier // BYTES_PER_NUMBER
    if spec.drafter.reading != "recompute" and not isinstance(spec.drafter, EarlyExitSpec):
        caches += drafter.cache_bytes(length) * of_drafter // BYTES_PER_NUMBER
    return weights + caches + 2 * (block + 1) * verifier.vocabulary * _BYTES["float32"]


def bounds(spec: PairSpec, device: Device, *, context: int = PROMPT_TOKENS, layers: int = 0) -> LatencyBound:
    """The least that a round of the pair can take on a device, with its block after `context` tokens."""
    drafter, verifier = shapes(spec, layers=layers)
    return bound_latency(
        drafter,
        verifier,
        device,
        reading=spec.drafter.reading,
        block_size=spec.longest_block,
        context=context,
    )


def listing() -> list[tuple[str, ...]]:
    """A row for each named pair: name, family, block, efforts, tasks, memory, and bounds on a, b and c_v.

    A family with a star reads the verifier.
    """
    rows = []
    for name in names():
        spec = read(name)
        block = f"{spec.block_size}" if spec.block_size else f"<= {spec.task.token_limit}"
        rows.append(
            (
                name,
                spec.drafter.family + ("*" if spec.drafter.reads_verifier else ""),
                block,
                ",".join(map(str, spec.efforts)),
                ", ".join(task.name for task in spec.tasks),
                _in_words(memory_bytes(spec)),
                *(_milliseconds(bounds(spec, device)) for device in (H100, H200)),
            )
        )
    return rows


def _config(spec: PairSpec, model: ModelSpec) -> dict[str, Any]:
    path = spec.folder / model.config if model.config else spec.folder / model.checkpoint / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{spec.name}: {path} must exist to know the shape of {model.checkpoint!r}") from None
    return config


def _in_words(memory: int) -> str:
    return f"{memory / 1e9:.0f} GB" if memory >= 1e9 else f"{memory / 1e6:.0f} MB"


def _milliseconds(bound: LatencyBound) -> str:
    times = (bound.draft_intercept_seconds, bound.draft_slope_seconds, bound.verify_seconds)
    return " ".join(f"{1e3 * seconds:.2g}" for seconds in times)
