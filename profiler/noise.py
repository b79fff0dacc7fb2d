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

    def random_ids(self, low: int, high: int) -> torch.Tensor:
        """A canvas (B,) of ids in [low, high), each as likely, independent of what `draw` gives."""
        ...

    def part(self, slots: slice) -> Noise:
        """The noise of some of the slots alone."""
        ...

    def among(self, ids: torch.Tensor) -> Noise:
        """The noise for distributions over the tokens `ids` (H,) alone, a token being its place among them."""
        ...


@dataclass(frozen=True)
class Uniforms:
    """For the ratio test: `values` (K, B) in [0, 1), new for each step and slot; `canvas` (B,) too, for random ids."""

    values: torch.Tensor
    canvas: torch.Tensor

    def draw(self, probs: torch.Tensor, step: int) -> torch.Tensor:
        """By inverting the cumulative sum."""
        return sampling.draw(probs, self.values[step])

    def random_ids(self, low: int, high: int) -> torch.Tensor:
        """A canvas (B,) of ids in [low, high)."""
        return _ids(self.canvas, low, high)

    def part(self, slots: slice) -> Uniforms:
        """The noise of some of the slots alone."""
        return Uniforms(self.values[:, slots], self.canvas[slots])

    def among(self, ids: torch.Tensor) -> Uniforms:
        """The same: a uniform belongs to no token."""
        return self


@dataclass(frozen=True)
class Gumbel:
    """For coupled verification: `values` (B, V) of each slot and token, the same at every step.

    The random ids of a canvas come from uniforms of their own, `canvas` (B,): they need not be shared.
    """

    values: torch.Tensor
    canvas: torch.Tensor

    def draw(self, probs: torch.Tensor, step: int) -> torch.Tensor:
        """The token that wins the race of its slot."""
        tokens: torch.Tensor = coupled_token(probs, self.values)
        return tokens

    def random_ids(self, low: int, high: int) -> torch.Tensor:
        """A canvas (B,) of ids in [low, high)."""
        return _ids(self.canvas, low, high)

    def part(self, slots: slice) -> Gumbel:
        """The noise of some of the slots alone."""
        return Gumbel(self.values[slots], self.canvas[slots])

    def among(self, ids: torch.Tensor) -> Gumbel:
        """The noise of these tokens alone."""
        return Gumbel(self.values[:, ids], self.canvas)


def _ids(uniforms: torch.Tensor, low: int, high: int) -> torch.Tensor:
    return low + (uniforms * (high - low)).long()
