"""Gated adapters learn the rows of noise that their drafter feeds them, first random ids and then its own proposals."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from profiler.distillation import blocks
from profiler.distillation.blocks import BLOCK_SIZE
from profiler.distillation.loop import Loss
from profiler.distillation.samples import Sample
from profiler.drafters.lora import DOWN, FIRST_NOISE_ID, GatedAdapter, without_effect
from profiler.sampling import Sampling, probabilities

_ROWS = 112
"""Rows of noise in one pass over a sample, however long its blocks are."""
_SHORT, _SHORT_SHARE = 3, 0.75
"""Most samples get short blocks: the test seldom reaches the slots behind."""
_CANDIDATES = 64


def untrained(verifier: PreTrainedModel, rank: int, *, seed: int) -> dict[str, nn.Parameter]:
    """An adapter of every linear layer but the head that changes nothing yet: random down, zero up."""
    generator = torch.Generator().manual_seed(seed)
    weights = without_effect(verifier, rank)
    for name, weight in weights.items():
        if name.endswith(DOWN):
            weights[name] = torch.randn(weight.shape, generator=generator) / math.sqrt(weight.shape[1])
    return {name: nn.Parameter(weight) for name, weight in weights.items()}


def noise_loss(
    verifier: PreTrainedModel,
    weights: dict[str, nn.Parameter],
    *,
    rank: int,
    alpha: float,
    sampling: Sampling,
) -> Loss:
    """The mean of two passes over random blocks: noise in all slots, then some known and proposals in the others.

    A block of B slots has B - 1 rows of noise: the verifier's own row gives the first slot. The proposals are drawn
    from what the first pass predicts, as in the drafter, which feeds them back.
    """
    verifier.requires_grad_(False)

    def loss(sample: Sample, progress: float, generator: torch.Generator) -> torch.Tensor:
        adapter = GatedAdapter(verifier, dict(weights), rank=rank, alpha=alpha)
        cache, length = DynamicCache(), len(sample.tokens)
        with torch.no_grad():
            verifier.model(input_ids=sample.tokens[None], cache=cache)
        size = _SHORT if torch.rand((), generator=generator) < _SHORT_SHARE else BLOCK_SIZE - 1
        count = _ROWS // size
        anchors = blocks.random_anchors(sample, count, generator)

        def one_pass(slots: torch.Tensor, known: int) -> tuple[torch.Tensor, torch.Tensor]:
            """Loss and logits (blocks * rows, V) of the rows whose tokens are `slots`, `known` slots before them."""
            rows = slots.shape[1]
            places = anchors[:, None] + 1 + known + torch.arange(rows)
            with adapter.open_from(0):
                hidden = verifier.model(
                    input_ids=slots.flatten()[None],
                    position_ids=places.flatten()[None],
                    attention_mask=blocks.visible(anchors + 1 + known, length, rows, causal=True),
                    cache=copy.deepcopy(cache),
                ).last_hidden_state[0]
            logits = verifier.get_output_embeddings()(hidden) / sampling.temperature
            weight = (blocks.weights(torch.arange(rows)) * (places + 1 < length)).flatten()
            target = (places + 1 - sample.start).clamp(max=len(sample.target_ids) - 1).flatten()
            value = blocks.distance(
                logits, sample.target_ids[target], sample.target_probs[target], weight, progress=progress
            )
            return value, logits.detach()

        noise = torch.randint(FIRST_NOISE_ID, verifier.config.vocab_size, (count, size), generator=generator)
        first, logits = one_pass(noise, 0)
        known = int(torch.randint(1, min(4, size), (), generator=generator))
        candidates, ids = logits.topk(_CANDIDATES, dim=-1)
        drawn = probabilities(candidates, Sampling(top_p=sampling.top_p)).multinomial(1, generator=generator)
        proposals = ids.gather(1, drawn).view(count, size)[:, known - 1 : -1]
        second, _ = one_pass(proposals, known)
        return (first + second) / 2

    return loss
