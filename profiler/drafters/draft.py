"""What every family of drafters gives back: the tokens and the distributions they were really sampled from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from profiler.noise import Noise
from theory.proposition2 import Exactness


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A block of B tokens: `tokens` (B,), `probs` (B, V) and `commit_step` (B,) on the device.

    ``probs[i]`` is the distribution that ``tokens[i]`` was drawn from at the step that committed it; `passes` counts
    the forward passes that were run.
    """

    tokens: torch.Tensor
    probs: torch.Tensor
    commit_step: torch.Tensor
    passes: int


class Drafter(Protocol):
    """A drafter keeps what it computed about the prefix of one request, from `start` on."""

    def start(self) -> None:
        """Forget the last request."""
        ...

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose `block` tokens after `prefix` (n,) in `effort` passes, drawing every token by `noise`."""
        ...

    def exactness(self, effort: int) -> Exactness:
        """What lossless verification of its drafts guarantees."""
        ...
