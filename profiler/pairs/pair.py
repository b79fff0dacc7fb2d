"""A drafter and a verifier that share a vocabulary, loaded on a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from profiler.drafters.draft import Drafter
from profiler.pairs.spec import PairSpec
from profiler.verifier import Verifier


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two models ready to decode; `weights` names the checkpoints' contents, `stop_ids` end a text."""

    spec: PairSpec
    drafter: Drafter
    verifier: Verifier
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    vocabulary_size: int
    stop_ids: frozenset[int]
    weights: dict[str, str]

    def block(self, remaining: int) -> int:
        """How many tokens the drafter proposes when `remaining` may still be produced."""
        return self.spec.block_size or remaining
