"""Answers of a verifier to many prompts, with the distribution behind each token: what its drafters learn from.

A shard is one batch and one file, written when it is complete; an interrupted run goes on with the shard it was at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tqdm import tqdm
from transformers import DynamicCache, PreTrainedModel

from profiler.sampling import Sampling, probabilities

_CANDIDATES = 256
_KEPT = 32


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A prompt with its answer, `tokens` (n,), which begins at `start` and may end with a stop token.

    The answer's token i was drawn from the distribution that gives `target_ids[i]` the masses `target_probs[i]`, each
    (A, 32); the tokens behind the 32 likeliest are left out.
    """

    tokens: torch.Tensor
    start: int
    target_ids: torch.Tensor
    target_probs: torch.Tensor


def write_shards(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    folder: Path,
    *,
    sampling: Sampling,
    stop_ids: frozenset[int],
    token_limit: int,
    size: int,
    seed: int,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Answer `prompts` in batches of `size`, one file each; `share` (i, n) takes every n-th batch from the i-th on."""
    folder.mkdir(parents=True, exist_ok=True)
    first, step = share
    shards = list(range(first, -(-len(prompts) // size), step))
    for shard in tqdm(shards, desc=f"samples {first}", position=first, unit="shard"):
        path = folder / f"{shard:04}.safetensors"
        if path.exists():
            continue
        columns = _answer(
            model,
            prompts[shard * size : (shard + 1) * size],
            sampling=sampling,
            stop_ids=stop_ids,
            token_limit=token_limit,
            generator=torch.Generator().manual_seed(1_000_003 * seed + shard),
        )
        partial = path.with_suffix(".part")
        save_file(columns, partial)
        partial.replace(path)


def read_samples(folder: Path) -> list[Sample]:
    """All samples of a folder, in the order of the prompts."""
    return [sample for path in sorted(folder.glob("*.safetensors")) for sample in _rows(load_file(path))]


def _rows(columns: dict[str, torch.Tensor]) -> Iterator[Sample]:
    for row, (start, end) in enumerate(zip(columns["start"].tolist(), columns["end"].tolist(), strict=True)):
        yield Sample(
            tokens=columns["tokens"][row, :end].long(),
            start=start,
            target_ids=columns["target_ids"][row, : end - start].long(),
            target_probs=columns["target_probs"][row, : end - start].float(),
        )


@torch.inference_mode()
def _answer(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    *,
    sampling: Sampling,
    stop_ids: frozenset[int],
    token_limit: int,
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    """The columns of a shard. Rows are padded on the left while they are decoded; those that have ended are dropped."""
    rows, longest = len(prompts), max(map(len, prompts))
    starts = torch.tensor([len(prompt) for prompt in prompts])
    inputs = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = (torch.arange(longest) >= (longest - starts)[:, None]).long()
    stops = torch.tensor(sorted(stop_ids))
    answers = torch.zeros(rows, token_limit, dtype=torch.int32)
    target_ids = torch.zeros(rows, token_limit, _KEPT, dtype=torch.int32)
    target_probs = torch.zeros(rows, token_limit, _KEPT)
    lengths = torch.full((rows,), token_limit)
    live = torch.arange(rows)
    cache = DynamicCache()
    for step in range(token_limit):
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -inputs.shape[1] :]
        outputs = model(input_ids=inputs, attention_mask=mask, position_ids=positions, cache=cache, logits_to_keep=1)
        logits, ids = outputs.logits[:, -1].float().topk(_CANDIDATES, dim=-1)
        probs = probabilities(logits, sampling)
        drawn = ids.gather(1, probs.multinomial(1, generator=generator))
        answers[live, step] = drawn[:, 0].int()
        target_ids[live, step] = ids[:, :_KEPT].int()
        target_probs[live, step] = probs[:, :_KEPT]
        ended = torch.isin(drawn[:, 0], stops)
        lengths[live[ended]] = step + 1
        if ended.all():
            break
        kept = (~ended).nonzero()[:, 0]
        if ended.any():
            cache.batch_select_indices(kept)
        live, inputs = live[kept], drawn[kept]
        mask = torch.nn.functional.pad(mask[kept], (0, 1), value=1)
    ends = starts + lengths
    tokens = torch.zeros(rows, int(ends.max()), dtype=torch.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt)
        tokens[row, len(prompt) : ends[row]] = answers[row, : lengths[row]]
    return {
        "tokens": tokens,
        "start": starts.int(),
        "end": ends.int(),
        "target_ids": target_ids,
        "target_probs": target_probs.half(),
    }
