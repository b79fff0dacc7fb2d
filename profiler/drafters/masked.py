"""Masked diffusion drafters: a block of mask tokens, denoised in K steps by a bidirectional transformer."""

from __future__ import annotations

import torch
from torch import nn
from transformers import DynamicCache

from profiler.drafters.attention import hiding
from profiler.drafters.canvas import Canvas
from profiler.drafters.draft import Draft
from profiler.noise import Noise
from profiler.pairs.families import MaskedSpec
from profiler.pairs.parts import Parts
from theory.proposition2 import Exactness


class MaskedDrafter:
    """A transformer whose block of B masked slots sees itself and the prefix.

    ``shifted``: the logits at one place predict the token at the next (models adapted from an autoregressive one);
    the last clean token, the anchor, then predicts the first slot (case O24).
    ``causal_prefix``: clean tokens before the anchor never look ahead, so their keys and values are kept for good.
    Without it every pass recomputes the whole sequence, as Dream does.
    """

    def __init__(self, model: nn.Module, *, canvas: Canvas, shifted: bool, causal_prefix: bool):
        self.model = model
        self.canvas = canvas
        self._shifted = shifted
        self._causal_prefix = causal_prefix
        self._dtype = next(model.parameters()).dtype
        self.start()

    def start(self) -> None:
        """Forget the last request."""
        self._cache = DynamicCache()

    def exactness(self, effort: int) -> Exactness:
        """What lossless verification of its drafts guarantees."""
        return self.canvas.exactness(effort)

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose `block` tokens after `prefix` (n,) in `effort` passes, drawing every token by `noise`.

        An effort above the block's length is refused: a step that commits nothing is a pass that buys nothing.
        """
        if not 1 <= effort <= block:
            raise ValueError(f"`effort` must lie in [1, {block}] for a block of {block} tokens, got {effort}")
        return self.canvas.denoise(
            lambda slots: self.block_logits(prefix, slots), block=block, effort=effort, noise=noise
        )

    def block_logits(self, prefix: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Raw logits (B, W) that predict the B `slots` after `prefix`, from one forward pass."""
        block = len(slots)
        canvas = torch.cat([prefix, slots])
        first = len(prefix) - 1 if self._shifted else len(prefix)  # where the bidirectional part begins
        kept = len(canvas) - first
        if not self._causal_prefix:
            outputs = self.model(input_ids=canvas[None], is_causal=False, use_cache=False, logits_to_keep=kept)
            return outputs.logits[0, :block]
        known = self._cache.get_seq_length()
        outputs = self.model(
            input_ids=canvas[None, known:],
            attention_mask=self._prefix_mask(known, first, len(canvas), canvas.device),
            position_ids=torch.arange(known, len(canvas), device=canvas.device)[None],
            cache=self._cache,
            logits_to_keep=kept,
        )
        self._cache.crop(-kept)  # the clean tokens stay, the block is forgotten
        return outputs.logits[0, :block]

    def _prefix_mask(self, known: int, first: int, total: int, device: torch.device) -> torch.Tensor:
        """New clean rows look back, the block's rows everywhere: (1, 1, total - known, total)."""
        row = torch.arange(known, total, device=device)[:, None]
        column = torch.arange(total, device=device)
        return hiding((column > row) & (row < first), self._dtype)


def build(parts: Parts[MaskedSpec]) -> MaskedDrafter:
    """The drafter of a pair's description."""
    spec = parts.spec
    canvas = Canvas(
        mask_id=parts.mask,
        banned=parts.banned,
        sampling=spec.sampling,
        order=spec.order,
        confidence=spec.confidence,
        schedule=spec.schedule,
        warped_scores=spec.warped_scores,
    )
    return MaskedDrafter(
        parts.checkpoints.model(spec), canvas=canvas, shifted=spec.shifted, causal_prefix=spec.causal_prefix
    )
