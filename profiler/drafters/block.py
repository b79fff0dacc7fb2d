"""Block diffusion drafters (SDAR): blocks see themselves and all earlier blocks, and finished blocks are cached."""

from __future__ import annotations

import torch
from torch import nn
from transformers import DynamicCache

from profiler.drafters.attention import hiding
from profiler.drafters.canvas import Canvas
from profiler.drafters.draft import Draft
from profiler.noise import Noise
from profiler.pairs.families import BlockSpec
from profiler.pairs.parts import Parts
from theory.proposition2 import Exactness


class BlockDrafter:
    """A transformer with block-causal attention whose logits at a slot predict that slot's own token (case O24).

    A text is seldom a whole number of blocks long. ``aligned``: blocks begin at absolute multiples of `length`, as in
    training; the tail of the text shares the block that is drafted, at most `length` slots less the tail, and is
    recomputed in every pass. Otherwise a new block begins where the text ends: `length` slots can be drafted, and the
    text is seen in blocks that end where rounds ended, which the model was not trained on.

    Finished blocks are computed in the same pass as the first denoising step and kept for good.
    """

    def __init__(self, model: nn.Module, *, canvas: Canvas, length: int, aligned: bool):
        if length < 1:
            raise ValueError(f"`length` of a block must be at least 1, got {length}")
        self.model = model
        self.canvas = canvas
        self._length = length
        self._aligned = aligned
        self._dtype = next(model.parameters()).dtype
        self.start()

    def start(self) -> None:
        """Forget the last request."""
        self._cache = DynamicCache()
        self._begins = [0]

    def exactness(self, effort: int) -> Exactness:
        """What lossless verification of its drafts guarantees."""
        return self.canvas.exactness(effort)

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose what of `block` tokens fits into the block that `prefix` (n,) ends in, in at most `effort` passes."""
        if not 1 <= effort <= block:
            raise ValueError(f"`effort` must lie in [1, {block}] for a block of {block} tokens, got {effort}")
        self._begin_blocks(len(prefix))
        block = min(block, self._begins[-1] + self._length - len(prefix))
        return self.canvas.denoise(
            lambda slots: self._block_logits(prefix, slots),
            block=block,
            effort=min(effort, block),
            noise=noise.part(slice(0, block)),
        )

    def _begin_blocks(self, length: int) -> None:
        """Note where the blocks of a text of `length` tokens begin, the one to be drafted included."""
        while self._begins[-1] + self._length <= length:
            self._begins.append(self._begins[-1] + self._length)
        if not self._aligned and self._begins[-1] != length:
            self._begins.append(length)

    def _block_logits(self, prefix: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Raw logits (B, W) of the B `slots` after `prefix`, from one forward pass."""
        canvas = torch.cat([prefix, slots])
        known = self._cache.get_seq_length()
        positions = torch.arange(len(canvas), device=canvas.device)
        begins = torch.tensor(self._begins).to(canvas.device, non_blocking=True)
        of_block = torch.bucketize(positions, begins, right=True)
        outputs = self.model(
            input_ids=canvas[None, known:],
            attention_mask=hiding(of_block > of_block[known:, None], self._dtype),
            position_ids=positions[None, known:],
            cache=self._cache,
            logits_to_keep=len(slots),
        )
        self._cache.crop(self._begins[-1] - len(canvas))
        return outputs.logits[0]


def build(parts: Parts[BlockSpec]) -> BlockDrafter:
    """The drafter of a pair's description."""
    spec = parts.spec
    canvas = Canvas(
        mask_id=parts.mask, banned=parts.banned, sampling=spec.sampling, order=spec.order, confidence=spec.confidence
    )
    model = parts.checkpoints.model(spec)
    return BlockDrafter(model, canvas=canvas, length=parts.block_size, aligned=spec.aligned)
