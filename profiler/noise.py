"""The noise that a drafter draws its tokens with: independent uniforms, or Gumbel numbers shared with the verifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from profiler import sampling
from theory.coupled import coupled_token


class Noise(Protocol):
    """How a drafter turns distributions into tokens; it never learns which rule will verify them."""

    def draw(self, probs: torch.Tensor, step: int) -> torch.Tensor:
        """One token (B,) for each slot's distribution in `probs` (B, V), at a denoising step counted from 0."""
        ...


@dataclass(frozen=True)
class Uniforms:
    """For the ratio test: `values` (K, B) in [0, 1), new for each step and slot."""

    values: torch.Tensor

    def draw(self, probs: torch.Tensor, step: int) -> torch.Tensor:
        """By inverting the cumulative sum."""
        return sampling.draw(probs, self.values[step])


@dataclass(frozen=True)
class Gumbel:
    """For coupled verification: `values` (B, V) of each slot and token, the same at every step."""

    values: torch.Tensor

    def draw(self, probs: torch.Tensor, step: int) -> torch.Tensor:
        """The token that wins the race of its slot."""
        tokens: torch.Tensor = coupled_token(probs, self.values)
        return tokens
