"""The optimisers of both networks: Muon on the matrices of the layers, AdamW on everything else."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

_WARMUP = 100
_MATRIX_RATE, _RATE = 0.02, 4e-3


class Schedule:
    """Muon and AdamW stepped together; the rates rise over 100 steps and fall linearly to 0 at `steps`."""

    def __init__(self, model: nn.Module, *, steps: int, done: int = 0):
        matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "layers" in name]
        known = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in known]
        self._optimisers: list[Optimizer] = [
            Muon(matrices, lr=_MATRIX_RATE, weight_decay=0.01),
            AdamW(others, lr=_RATE, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self._parameters = list(model.parameters())
        self._steps, self._done = steps, done

    def step(self) -> None:
        """Clip the gradient, step, and clear it."""
        nn.utils.clip_grad_norm_(self._parameters, 1.0)
        scale = min((self._done + 1) / _WARMUP, max(0.0, 1 - self._done / self._steps))
        for optimiser, rate in zip(self._optimisers, (_MATRIX_RATE, _RATE), strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * scale
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self._done += 1

    def state(self) -> list[dict[str, Any]]:
        """The momenta of both optimisers."""
        return [optimiser.state_dict() for optimiser in self._optimisers]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Take the momenta of an interrupted training up again."""
        for optimiser, saved in zip(self._optimisers, state, strict=True):
            optimiser.load_state_dict(saved)
