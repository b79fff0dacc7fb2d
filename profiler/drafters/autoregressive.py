"""Autoregressive drafters: any causal language model proposes a block token by token; the baseline."""

from __future__ import annotations

import torch
from torch import nn
from transformers import DynamicCache

from profiler import sampling
from profiler.drafters.draft import Draft
from profiler.noise import Noise
from profiler.pairs.families import AutoregressiveSpec
from profiler.pairs.parts import Parts
from profiler.sampling import Sampling
from theory.proposition2 import Exactness


class AutoregressiveDrafter:
    """A causal model with the keys and values of what it has read; a block of B tokens takes it B passes.

    It knows no denoising steps: its only effort is 1, and a block is exact whatever its length.
    """

    def __init__(self, model: nn.Module, *, banned: torch.Tensor, sampling: Sampling):
        self.model = model
        self.sampling = sampling
        self._banned = banned
        self.start()

    def start(self) -> None:
        """Forget the last request."""
        self._cache = DynamicCache()

    def exactness(self, effort: int) -> Exactness:
        """Drawn from left to right, each token given those before it."""
        return Exactness.JOINT

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose `block` tokens after `prefix` (n,), drawing each by its slot of `noise`."""
        if effort != 1:
            raise ValueError(
                f"`effort` of an autoregressive drafter must be 1, got {effort}: it draws each token once, "
                "from left to right, and has no denoising steps"
            )
        surplus = self._cache.get_seq_length() - (len(prefix) - 1)
        if surplus > 0:  # rejected tokens, and the last accepted one: what follows it is asked for (case O17)
            self._cache.crop(-surplus)
        new = prefix[self._cache.get_seq_length() :]
        tokens, probs = [], []
        for slot in range(block):
            logits = self.model(input_ids=new[None], cache=self._cache, logits_to_keep=1).logits[0]
            law = sampling.probabilities(sampling.permitted_logits(logits, self._banned), self.sampling)
            new = noise.part(slice(slot, slot + 1)).draw(law, 0)
            tokens.append(new)
            probs.append(law)
        commit_step = torch.arange(block, device=prefix.device)
        return Draft(tokens=torch.cat(tokens), probs=torch.cat(probs), commit_step=commit_step, passes=block)


def build(parts: Parts[AutoregressiveSpec]) -> AutoregressiveDrafter:
    """The drafter of a pair's description."""
    return AutoregressiveDrafter(parts.checkpoints.model(parts.spec), banned=parts.banned, sampling=parts.spec.sampling)
