"""Tokens per second of lossless speculative decoding, of the verifier and of the drafter alone, on the same prompts."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from tqdm import tqdm

from benchmarks.generation import generate
from benchmarks.table import Table, spread
from profiler import pairs, tasks
from profiler.decode import decode, decode_drafter_alone
from profiler.pairs import Pair, PairSpec
from profiler.streams import Streams
from profiler.timing import Clock, undisturbed
from theory.acceptance import LOSSLESS


def run(spec: PairSpec, *, prompts: int, seed: int) -> Table:
    """Tokens per second, and the ratio to the verifier alone prompt by prompt, as median and quartiles."""
    pair = pairs.load(spec)
    ways: dict[str, Callable[[list[int], int], int]] = {
        "verifier alone": lambda ids, request: _speculative(pair, ids, 0, seed, request),
        "verifier alone, transformers' generate": lambda ids, request: generate(pair, ids, request),
    }
    for effort in spec.efforts:
        ways[f"speculative, K = {effort}"] = lambda ids, request, k=effort: _speculative(pair, ids, k, seed, request)
    for effort in () if spec.drafter.reads_verifier else spec.efforts:
        ways[f"drafter alone, K = {effort}"] = lambda ids, request, k=effort: _drafted(pair, ids, k, seed, request)
    clock = Clock.for_device(pair.device)
    chosen = [pair.encode(prompt.text) for prompt in tasks.load(spec.task.name).prompts(prompts, seed)]
    for way in ways.values():
        way(chosen[0], 0)
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    with undisturbed():
        for request, ids in enumerate(tqdm(chosen, desc="speed")):
            for name, way in ways.items():
                begin = clock.now()
                tokens = way(ids, request)
                speeds[name].append(tokens / (clock.now() - begin))
    base = speeds["verifier alone"]
    rows = [
        (name, f"{statistics.median(values):.0f}", *spread([a / b for a, b in zip(values, base, strict=True)]))
        for name, values in speeds.items()
    ]
    return Table(
        title=f"Lossless decoding against the verifier alone ({spec.name}, {prompts} prompts):",
        header=("way", "tokens/s", "ratio", "quartiles"),
        rows=rows,
    )


def _speculative(pair: Pair, ids: list[int], effort: int, seed: int, request: int) -> int:
    streams = Streams(seed=seed, request=request)
    limit = pair.spec.task.token_limit
    return sum(
        len(each.tokens) for each in decode(pair, ids, effort=effort, rule=LOSSLESS, streams=streams, token_limit=limit)
    )


def _drafted(pair: Pair, ids: list[int], effort: int, seed: int, request: int) -> int:
    streams, limit = Streams(seed=seed, request=request), pair.spec.task.token_limit
    return sum(map(len, decode_drafter_alone(pair, ids, effort=effort, streams=streams, token_limit=limit)))
