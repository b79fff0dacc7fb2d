"""The loss of the embedded verifier: next tokens of the answer, from a prefix that may hold wrong words."""

from __future__ import annotations

import torch
from torch.nn import functional
from transformers import Qwen2ForCausalLM

from profiler.training.data import MASK_ID, TOKEN_IDS, Batch

_IGNORED = -100


def next_token_loss(model: Qwen2ForCausalLM, batch: Batch, step: int, generator: torch.Generator) -> torch.Tensor:
    """Mean cross-entropy of the answer's clean tokens, each predicted from a partly corrupted prefix."""
    inputs = corrupted(batch, generator)
    logits = model(input_ids=inputs[:, :-1], use_cache=False).logits
    targets = batch.tokens.masked_fill(~batch.in_answer(), _IGNORED)[:, 1:]
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=_IGNORED)


def corrupted(batch: Batch, generator: torch.Generator) -> torch.Tensor:
    """The tokens (N, L) with up to 15 % of the answer replaced in 40 % of the rows.

    A verifier of lenient drafts must not be thrown by a wrong word in its own prefix.
    """
    rows, width = batch.tokens.shape
    share = 0.15 * torch.rand(rows, 1, generator=generator) * (torch.rand(rows, 1, generator=generator) < 0.4)
    replaced = (torch.rand(rows, width, generator=generator) < share) & batch.in_answer()
    words = torch.randint(MASK_ID + 1, len(TOKEN_IDS), (rows, width), generator=generator)
    return torch.where(replaced, words, batch.tokens)
