"""Random blocks of a sample, what their rows may see, and how far a drafter's distributions are from the targets."""

from __future__ import annotations

import torch

from profiler.distillation.samples import Sample
from profiler.drafters.attention import hiding

BLOCK_SIZE = 8
"""Slots that a drafter proposes at once."""
_FADING = 0.7
"""Weight of a drafted slot against the one before it: the test reaches it only if that one was accepted."""


def random_anchors(sample: Sample, count: int, generator: torch.Generator) -> torch.Tensor:
    """Places (count,) of the last known token, each followed by at least one token of the answer."""
    first, last = sample.start - 1, len(sample.tokens) - 2
    return first + torch.randint(last - first + 1, (count,), generator=generator)


def visible(known: torch.Tensor, length: int, size: int, *, causal: bool) -> torch.Tensor:
    """Additive mask (1, 1, R, length + R) for n blocks of `size` rows after a text of `length`, R = n * size.

    A row sees the first `known` (n,) places of the text, and of its own block all rows or those up to itself.
    """
    rows = len(known) * size
    block, slot = torch.arange(rows) // size, torch.arange(rows) % size
    own = block[:, None] == block
    if causal:
        own &= slot[:, None] >= slot
    before = torch.arange(length) < known.repeat_interleave(size)[:, None]
    return hiding(~torch.cat([before, own], dim=1), torch.float32)


def weights(drafted: torch.Tensor) -> torch.Tensor:
    """Weights of slots by how many drafted ones stand before them, `drafted` (...); 0 for those known, below 0."""
    return torch.where(drafted >= 0, _FADING ** drafted.clamp(min=0).float(), 0.0)


def distance(
    logits: torch.Tensor, target_ids: torch.Tensor, target_probs: torch.Tensor, weight: torch.Tensor, *, progress: float
) -> torch.Tensor:
    """Weighted mean loss of rows: cross-entropy in the beginning, total variation, which is d_K, in the end.

    `logits` (R, W) are divided by the temperature; `target_ids` (R, 32) are columns of theirs, -1 for none, with masses
    `target_probs`. Cross-entropy finds the mass; total variation then spends it where it is accepted. Without
    any row it is 0.
    """
    log_q = logits.log_softmax(dim=-1).gather(1, target_ids.clamp(min=0))
    p = target_probs.masked_fill(target_ids < 0, 0.0)
    entropy = -(p * log_q).sum(dim=-1)
    variation = 1 - torch.minimum(p, log_q.exp()).sum(dim=-1)
    return (((1 - progress) * entropy + progress * variation) * weight).sum() / weight.sum().clamp(min=1)
