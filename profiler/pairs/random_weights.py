"""Models without checkpoints: built from their config on the device itself, to measure latency at full size.

What such models say is noise: their times are those of the real ones, their distributions mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

SEED = 0


def build(architecture: Any, config: PreTrainedConfig, *, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model of a config with random weights, which exist on the device and in `dtype` alone.

    It is laid out on the meta device, where tied weights become one; each is then allocated once and drawn in place.
    """
    config._attn_implementation = "sdpa"
    with _default_dtype(dtype), torch.device("meta"):
        from_config = getattr(architecture, "from_config", None)
        model: PreTrainedModel = from_config(config, dtype=dtype) if from_config else architecture(config)
    _allocate(model, device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(SEED)
        model.initialize_weights()
    return model.eval()


class NumberTokenizer:
    """Token ids written as numbers, for models that come without a tokenizer."""

    mask_token_id = None
    eos_token_id = None

    def __call__(self, text: str, *, add_special_tokens: bool = False) -> dict[str, list[int]]:
        """The ids of a text of numbers."""
        return {"input_ids": [int(number) for number in text.split()]}

    def decode(self, ids: list[int]) -> str:
        """The numbers of some ids."""
        return " ".join(map(str, ids))


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _allocate(model: nn.Module, device: torch.device) -> None:
    """Give each parameter and buffer its memory on the device, one for those that are one.

    Buffers begin as 1: a scale that its class never initialises has no effect then.
    """
    moved: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for name, weights in module.named_parameters(recurse=False, remove_duplicate=False):
            if weights not in moved:
                moved[weights] = nn.Parameter(torch.empty_like(weights, device=device), requires_grad=False)
            setattr(module, name, moved[weights])
        for name, values in module.named_buffers(recurse=False, remove_duplicate=False):
            setattr(module, name, torch.ones_like(values, device=device))
