"""Random numbers by counter: what a place in a recording draws depends on its key alone, not on what ran before."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch


class Stream(IntEnum):
    """What a uniform is used for. The proofs need the three independent of each other (case O06)."""

    DRAFT = 0
    ACCEPTANCE = 1
    REPLACEMENT = 2


@dataclass(frozen=True, kw_only=True)
class Streams:
    """The streams of one request, keyed by (seed, request, stream, round, slot).

    A key by absolute position alone would hand a redrafted position its old noise again, which is not independent
    of the rejection when a later token was committed before an earlier one.
    """

    seed: int
    request: int

    def __post_init__(self) -> None:
        for name in ("seed", "request"):
            if not 0 <= getattr(self, name) < 2**63:
                raise ValueError(f"`{name}` must lie in [0, 2**63), got {getattr(self, name)}")

    def uniforms(self, stream: Stream, round_index: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Independent uniforms in [0, 1), float64 on the CPU."""
        philox = np.random.Philox(key=[self.seed, self.request], counter=[0, 0, round_index, stream])
        return torch.from_numpy(np.random.Generator(philox).random(shape))
