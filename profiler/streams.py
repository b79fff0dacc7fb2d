"""Random numbers by counter: what a place in a recording draws depends on its key alone, not on what ran before."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

LEAST = 2.0**-54
"""Stands for a uniform of 0, half a step below the next: its Gumbel number must be finite."""


class Stream(IntEnum):
    """What a number is used for. The ratio test needs the first three independent of each other (case O06).

    The fourth is the noise that coupled verification shares between drafter and verifier, on purpose. The last is what
    a drafter's canvas of random tokens starts from, with either way to verify.
    """

    DRAFT = 0
    ACCEPTANCE = 1
    REPLACEMENT = 2
    COUPLED = 3
    CANVAS = 4


@dataclass(frozen=True, kw_only=True)
class Streams:
    """The streams of one request. Uniforms are keyed by (seed, request, stream, round, slot).

    A key by absolute position alone would hand a redrafted position its old noise again, which is not independent
    of the rejection when a later token was committed before an earlier one. Coupled verification wants just that: its
    noise is keyed by (seed, request, position, token).
    """

    seed: int
    request: int

    def __post_init__(self) -> None:
        for name in ("seed", "request"):
            if not 0 <= getattr(self, name) < 2**63:
                raise ValueError(f"`{name}` must lie in [0, 2**63), got {getattr(self, name)}")

    def uniforms(self, stream: Stream, round_index: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Independent uniforms in [0, 1), float64 on the CPU."""
        return torch.from_numpy(self._random(stream, round_index, shape))

    def gumbel(self, position: int, count: int, vocabulary_size: int) -> torch.Tensor:
        """Standard Gumbel noise (count, V) of a text's positions from `position` on, float64 on the CPU.

        Its largest value is 36.7, so that a token below 1e-17 is never drawn against one that is likely.
        """
        shape = (vocabulary_size,)
        uniforms = torch.from_numpy(
            np.stack([self._random(Stream.COUPLED, place, shape) for place in range(position, position + count)])
        )
        return -torch.log(-torch.log(uniforms.clamp(min=LEAST)))

    def _random(self, stream: Stream, index: int, shape: tuple[int, ...]) -> np.ndarray:
        philox = np.random.Philox(key=[self.seed, self.request], counter=[0, 0, index, stream])
        return np.random.Generator(philox).random(shape)
