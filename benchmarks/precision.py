"""How far a verifier's distributions move when it computes in another dtype, on texts of its own."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.table import Table
from profiler import pairs, tasks
from profiler.decode import decode
from profiler.pairs import PairSpec
from profiler.pairs.families import Dtype
from profiler.streams import Streams
from profiler.verifier import Verifier
from theory.acceptance import LOSSLESS
from theory.distances import total_variation
from theory.estimates import clustered_ratio

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")


def run(specs: list[PairSpec], *, prompts: int, seed: int) -> Table:
    """Total variation of each token's distribution between the first dtype, whose texts they are, and the others."""
    rows = []
    for spec in specs:
        base, *others = (
            pairs.load(dataclasses.replace(spec, verifier=dataclasses.replace(spec.verifier, dtype=dtype)))
            for dtype in DTYPES
        )
        chosen = [base.encode(prompt.text) for prompt in tasks.load(spec.task.name).prompts(prompts, seed)]
        distances: list[list[torch.Tensor]] = [[] for _ in others]
        for request, ids in enumerate(tqdm(chosen, desc=f"precision, {spec.name}")):
            streams, limit = Streams(seed=seed, request=request), spec.task.token_limit
            rounds = decode(base, ids, effort=0, rule=LOSSLESS, streams=streams, token_limit=limit)
            answer = [token for each in rounds for token in each.tokens]
            p = _laws(base.verifier, ids, answer, base.device)
            for other, found in zip(others, distances, strict=True):
                found.append(total_variation(p, _laws(other.verifier, ids, answer, base.device)))
        for dtype, found in zip(DTYPES[1:], distances, strict=True):
            every = torch.cat(found).double().cpu().numpy()
            cluster = np.repeat(np.arange(len(found)), [len(each) for each in found])
            mean, error = clustered_ratio(every, np.ones_like(every), cluster)
            largest = f"{np.quantile(every, 0.99):.3f}"
            rows.append((spec.name, dtype, f"{len(every)}", f"{mean:.4f} +- {error:.4f}", largest))
    return Table(
        title=f"Total variation of the verifier from itself in {DTYPES[0]} ({prompts} prompts):",
        header=("pair", "dtype", "tokens", "mean", "99 % below"),
        rows=rows,
        note="  p(y) of a recording is the verifier's in the dtype of the run; lossless means lossless to that one.",
    )


@torch.inference_mode()
def _laws(verifier: Verifier, prompt: list[int], answer: list[int], device: torch.device) -> torch.Tensor:
    """The distributions (A, V) that the tokens of an answer were drawn from."""
    text = torch.tensor(prompt + answer, device=device)
    verifier.start(text[: len(prompt)])
    return verifier.score(text[len(prompt) - 1 : len(prompt)], text[len(prompt) : -1])
