"""What a family of drafters builds its drafter from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from profiler.pairs.checkpoints import Checkpoints
from profiler.pairs.families import DrafterSpec
from profiler.verifier import Verifier

Spec = TypeVar("Spec", bound=DrafterSpec)


@dataclass(frozen=True, kw_only=True)
class Parts(Generic[Spec]):
    """The argument of ``profiler.drafters.<family>.build(parts) -> Drafter``.

    `verifier` is the loaded one, for families that share its weights or read its cache. `banned` (V,) is on the device
    and holds the mask token.
    """

    spec: Spec
    checkpoints: Checkpoints
    verifier: Verifier
    banned: torch.Tensor
    mask_id: int | None
    block_size: int

    @property
    def mask(self) -> int:
        """The id of the mask token, which only a family that uses one may ask for."""
        if self.mask_id is None:
            raise ValueError(f"drafters of the family {self.spec.family!r} have no mask token")
        return self.mask_id
