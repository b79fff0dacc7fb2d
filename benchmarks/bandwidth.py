"""How near the verifier's forward comes to the bound of the machine's memory, measured in the same run.

The bound is the time to read all weights and cached keys and values once, at the rate of a large matrix-vector product
of the same dtype, which does nothing else. Weights that fit into a cache of the processor can pass it.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from transformers import DynamicCache

from benchmarks.table import Table
from profiler import pairs
from profiler.pairs import PairSpec
from profiler.timing import Clock, seconds_per_call
from theory.roofline import BYTES_PER_NUMBER, H200, ModelShape

CONTEXT = 200
"""Tokens before the block."""


def run(specs: list[PairSpec], *, samples: int = 9, rows: int = 16_384, columns: int = 8_192) -> Table:
    """Milliseconds of a forward over one token and over a block and one, beside the bound."""
    lines = []
    for spec in specs:
        model = pairs.load(spec).verifier.model
        clock = Clock.for_device(model.device)
        rate = read_rate(model.dtype, model.device, clock, samples=samples, rows=rows, columns=columns)
        shape = ModelShape.from_config(model.config.to_dict())
        for tokens in (1, spec.longest_block + 1):
            forward = shape.forward(H200, tokens=tokens, context=CONTEXT, logits=tokens)
            memory = forward.memory_bytes * model.dtype.itemsize / BYTES_PER_NUMBER
            seconds = _forward_seconds(model, tokens, clock, samples)
            lines.append(
                (
                    spec.name,
                    str(model.dtype).removeprefix("torch."),
                    f"{tokens}",
                    f"{memory / 1e6:.1f}",
                    f"{rate / 1e9:.1f}",
                    f"{1e3 * memory / rate:.2f}",
                    f"{1e3 * seconds:.2f}",
                    f"{100 * memory / rate / seconds:.0f} %",
                    f"{forward.operations / seconds / 1e9:.1f}",
                )
            )
    return Table(
        title=f"The verifier's forward after {CONTEXT} tokens, against the bound of memory:",
        header=("pair", "dtype", "tokens", "MB", "GB/s", "bound ms", "forward ms", "share", "Gop/s"),
        rows=lines,
        note="  GB/s: read by a matrix-vector product in this run. Gop/s: that the forward does.",
    )


@torch.inference_mode()
def read_rate(
    dtype: torch.dtype, device: torch.device, clock: Clock, *, samples: int, rows: int, columns: int
) -> float:
    """Bytes per second of a matrix-vector product with a matrix (rows, columns), the best of some samples."""
    matrix, vector = torch.ones(rows, columns, dtype=dtype, device=device), torch.ones(1, columns, dtype=dtype)
    vector = vector.to(device)
    times = seconds_per_call(lambda: torch.nn.functional.linear(vector, matrix), clock=clock, warmup=1, samples=samples)
    return matrix.numel() * matrix.itemsize / min(times)


@torch.inference_mode()
def _forward_seconds(model: Any, tokens: int, clock: Clock, samples: int) -> float:
    """The median of passes over `tokens` rows after the same cache."""
    ids = torch.arange(CONTEXT + tokens, device=model.device) % model.config.vocab_size
    cache = DynamicCache()
    model(input_ids=ids[None, :CONTEXT], cache=cache, logits_to_keep=1)

    def forward() -> None:
        model(input_ids=ids[None, CONTEXT:], cache=cache)
        cache.crop(-tokens)

    return statistics.median(seconds_per_call(forward, clock=clock, warmup=2, samples=samples))
