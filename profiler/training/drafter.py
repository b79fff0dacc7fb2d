"""The loss of the embedded drafter: blocks denoised bidirectionally over a causal clean prefix, shifted by one."""

from __future__ import annotations

import torch
from torch.nn import functional
from transformers import Qwen2ForCausalLM

from profiler.training.data import MASK_ID, Batch

_BLOCKS = 4  # blocks per sequence: one pass over the clean prefix serves all of them
_BLOCK_SIZE, _LONG_BLOCK = 8, 16
_CLEAN_WEIGHT = 1.0


def denoising_loss(model: Qwen2ForCausalLM, batch: Batch, step: int, generator: torch.Generator) -> torch.Tensor:
    """Cross-entropy of the masked slots of random blocks, plus the next-token loss of the clean answer.

    A row is the clean sequence followed by `_BLOCKS` copies of a stretch of it: an anchor (the last clean token)
    and 8 slots (16 in every fourth step). A block sees the clean tokens before its anchor and all of itself; the
    output at one place predicts the token at the next, so that the anchor predicts the first slot.
    """
    size = _LONG_BLOCK if step % 4 == 3 else _BLOCK_SIZE
    rows, width = batch.tokens.shape
    first = batch.answer_start - 1
    spread = torch.rand(rows, _BLOCKS, generator=generator) * (batch.length - 1 - first)[:, None]
    anchors = first[:, None] + spread.long()  # (N, blocks)
    places = anchors[..., None] + torch.arange(size + 1)  # (N, blocks, size + 1)
    inside = places < batch.length[:, None, None]
    truth = batch.tokens.gather(1, places.clamp(max=width - 1).flatten(1)).view_as(places)
    masked = _masks(rows, size, generator) | ~inside[..., 1:]
    slots = torch.where(masked, MASK_ID, truth[..., 1:])
    blocks = torch.cat([truth[..., :1], slots], dim=-1).flatten(1)

    tokens = torch.cat([batch.tokens, blocks], dim=1)
    positions = torch.cat([torch.arange(width).expand(rows, -1), places.flatten(1)], dim=1)
    logits = model(
        input_ids=tokens, attention_mask=_attention(width, anchors, size), position_ids=positions, use_cache=False
    ).logits
    clean = logits[:, : width - 1][batch.in_answer()[:, 1:]]
    clean_loss = functional.cross_entropy(clean, batch.tokens[:, 1:][batch.in_answer()[:, 1:]])
    block_logits = logits[:, width:].unflatten(1, (_BLOCKS, size + 1))[:, :, :-1]
    scored = masked & inside[..., 1:]
    block_loss = functional.cross_entropy(block_logits[scored], truth[..., 1:][scored])
    return block_loss + _CLEAN_WEIGHT * clean_loss


def _masks(rows: int, size: int, generator: torch.Generator) -> torch.Tensor:
    """Masked slots (N, blocks, size): half of the blocks at random places, half everything after a clean start."""
    share = torch.rand(rows, _BLOCKS, 1, generator=generator)
    scattered = torch.rand(rows, _BLOCKS, size, generator=generator) < share
    start = torch.randint(size, (rows, _BLOCKS, 1), generator=generator)
    after_start = torch.arange(size) >= start
    return torch.where(torch.rand(rows, _BLOCKS, 1, generator=generator) < 0.5, scattered, after_start)


def _attention(width: int, anchors: torch.Tensor, size: int) -> torch.Tensor:
    """Additive mask (N, 1, R, R), 0 where a row may look: clean rows causally, a block at its prefix and itself."""
    rows, count = anchors.shape
    length = count * (size + 1)
    allowed = torch.zeros(rows, width + length, width + length, dtype=torch.bool)
    allowed[:, :width, :width] = torch.ones(width, width, dtype=torch.bool).tril()
    before = torch.arange(width) < anchors.repeat_interleave(size + 1, dim=1)[..., None]
    allowed[:, width:, :width] = before
    owner = torch.arange(length) // (size + 1)
    allowed[:, width:, width:] = owner[:, None] == owner
    return torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)[:, None]
