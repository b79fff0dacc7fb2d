"""A drafter and a verifier that share a vocabulary, loaded on a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from profiler.drafters.draft import Drafter
from profiler.pairs.prompting import render
from profiler.pairs.spec import PairSpec
from profiler.verifier import Verifier


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two models ready to decode; `weights` names the checkpoints' contents, `stop_ids` end a text.

    `tokenizer` is the verifier's, `drafter_tokenizer` the drafter's if there are two.
    """

    spec: PairSpec
    drafter: Drafter
    verifier: Verifier
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    vocabulary_size: int
    stop_ids: frozenset[int]
    weights: dict[str, str]
    drafter_tokenizer: PreTrainedTokenizerBase | None = None

    def block(self, remaining: int) -> int:
        """How many tokens the drafter proposes when `remaining` may still be produced."""
        return self.spec.block_size or remaining

    def encode(self, prompt: str) -> list[int]:
        """The ids of a prompt in the task's format.

        Raises ValueError where the drafter's tokenizer reads it otherwise: p and q must follow one prefix (case O29).
        """
        text = render(self.spec.task.format, self.spec.folder, prompt, self.spec.task.instruction)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if self.drafter_tokenizer is not None:
            _require_same(ids, self.drafter_tokenizer(text, add_special_tokens=False)["input_ids"], self.spec.name)
        return list(ids)


def _require_same(verifier: list[int], drafter: list[int], name: str) -> None:
    if verifier != drafter:
        different = (i for i, (one, other) in enumerate(zip(verifier, drafter, strict=False)) if one != other)
        place = next(different, min(len(verifier), len(drafter)))
        raise ValueError(
            f"{name}: drafter and verifier read a prompt differently from token {place} on ({len(drafter)} and "
            f"{len(verifier)} tokens); a pair must share one tokenizer, its special tokens included"
        )
