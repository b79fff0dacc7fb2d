"""Random numbers by counter: what a place in a recording draws depends on its key alone, not on what ran before."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

LEAST = 2.0**-54
"""Stands for a uniform of 0, half a step below the next: its Gumbel number must be finite."""

_WEYL, _MIX = 0x9E3779B97F4A7C15 - 2**64, (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
"""The constants of SplitMix64, as signed numbers."""


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
        return torch.from_numpy(np.random.Generator(self._philox(stream, round_index)).random(shape))

    def gumbel(
        self, position: int, count: int, vocabulary_size: int, device: torch.device | str = "cpu"
    ) -> torch.Tensor:
        """Standard Gumbel noise (count, V) of a text's positions from `position` on, float64.

        The CPU draws one key a position; the numbers of its tokens are hashed from it on the device, since a large
        vocabulary has millions of them in a block. The largest is 36.7, so that a token below 1e-17 is never drawn
        against one that is likely.
        """
        keys = [self._philox(Stream.COUPLED, place).random_raw(1) for place in range(position, position + count)]
        rows = torch.from_numpy(np.stack(keys).view(np.int64)).to(device, non_blocking=True)
        return -torch.log(-torch.log(_hashed(rows, vocabulary_size).clamp(min=LEAST)))

    def _philox(self, stream: Stream, index: int) -> np.random.Philox:
        return np.random.Philox(key=[self.seed, self.request], counter=[0, 0, index, stream])


def _hashed(keys: torch.Tensor, size: int) -> torch.Tensor:
    """Uniforms (n, size) in [0, 1) by SplitMix64 from 64-bit keys (n, 1); number v of a row does not depend on `size`.

    Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014. Products wrap around, as they must.
    """
    state = keys + _WEYL * torch.arange(1, size + 1, device=keys.device)
    state = (state ^ _shifted(state, 30)) * _MIX[0]
    state = (state ^ _shifted(state, 27)) * _MIX[1]
    return _shifted(state ^ _shifted(state, 31), 11).double() * 2.0**-53


def _shifted(numbers: torch.Tensor, places: int) -> torch.Tensor:
    """Shift to the right and fill with zeros; torch's own shift repeats the sign."""
    return (numbers >> places) & ((1 << (64 - places)) - 1)
