"""The verifier: one forward pass gives the distributions at B + 1 positions; it owns its cache and the rollback."""

from __future__ import annotations

import torch
from torch import nn
from transformers import DynamicCache

from profiler import sampling
from profiler.sampling import Sampling


class Verifier:
    """An autoregressive model with the keys and values of everything before the last token of the text.

    The invariant between calls: the cache holds ``text[:-1]``. A round feeds the last token and the block; after it,
    `keep` drops what was rejected.
    """

    def __init__(self, model: nn.Module, *, banned: torch.Tensor, sampling: Sampling):
        self.model = model
        self.sampling = sampling
        self._banned = banned
        self._cache = DynamicCache()

    @property
    def cached(self) -> int:
        """How many tokens the cache holds."""
        return self._cache.get_seq_length()

    def start(self, prompt: torch.Tensor) -> None:
        """Begin a request: read all of `prompt` (n,) but its last token."""
        if len(prompt) < 1:
            raise ValueError("`prompt` must have at least one token, got none; give the model a start token")
        self._cache = DynamicCache()
        if len(prompt) > 1:
            self.model(input_ids=prompt[None, :-1], cache=self._cache, logits_to_keep=1)

    def score(self, last: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
        """Distributions (B + 1, V) after the text, given its `last` token (1,) and `drafted` (B,) tokens."""
        rows = torch.cat([last, drafted])
        logits = self.model(input_ids=rows[None], cache=self._cache).logits[0]
        return sampling.probabilities(sampling.permitted_logits(logits, self._banned), self.sampling)

    def keep(self, length: int) -> None:
        """Cut the cache back to its first `length` tokens (case O17)."""
        surplus = self.cached - length
        if surplus > 0:
            self._cache.crop(-surplus)
