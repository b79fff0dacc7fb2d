"""Additive attention masks: what eager and fused attention understand alike."""

from __future__ import annotations

import torch


def hiding(hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask (1, 1, Q, K) in a model's dtype that hides the keys where `hidden` (Q, K) is true.

    A boolean mask would do for fused attention alone: eager attention adds it, and true and false become 1 and 0.
    """
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return mask.masked_fill(hidden, torch.finfo(dtype).min)[None, None]
