"""Masked diffusion drafters: a block of mask tokens, denoised in K steps by a bidirectional transformer."""

from __future__ import annotations

import torch
from torch import nn
from transformers import DynamicCache

from profiler import sampling
from profiler.drafters import commit
from profiler.drafters.draft import Draft
from profiler.noise import Noise
from profiler.pairs.families import MaskedSpec
from profiler.pairs.parts import Parts
from profiler.sampling import Sampling
from theory import proposition2


class MaskedDrafter:
    """A transformer whose block of B masked slots sees itself and the prefix.

    ``shifted``: the logits at one place predict the token at the next (models adapted from an autoregressive one);
    the last clean token, the anchor, then predicts the first slot (case O24).
    ``causal_prefix``: clean tokens before the anchor never look ahead, so their keys and values are kept for good.
    Without it every pass recomputes the whole sequence, as Dream does.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mask_id: int,
        banned: torch.Tensor,
        sampling: Sampling,
        order: commit.Order,
        shifted: bool,
        causal_prefix: bool,
        confidence: float = 1.0,
    ):
        if order not in commit.ORDERS:
            raise ValueError(f"`order` must be one of {', '.join(commit.ORDERS)}, got {order!r}")
        self.model = model
        self.sampling = sampling
        self.order: commit.Order = order
        self._mask_id = mask_id
        self._banned = banned
        self._shifted = shifted
        self._causal_prefix = causal_prefix
        self._confidence = confidence
        self._dtype = next(model.parameters()).dtype
        self.start()

    def start(self) -> None:
        """Forget the last request."""
        self._cache = DynamicCache()

    def exactness(self, effort: int) -> proposition2.Exactness:
        """What lossless verification of its drafts guarantees."""
        return proposition2.exactness(self.order, effort, greedy=self.sampling.greedy)

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose `block` tokens after `prefix` (n,) in `effort` passes, drawing every token by `noise`.

        An effort above the block's length is refused: a step that commits nothing is a pass that buys nothing.
        Order ``confidence`` may need fewer passes than `effort`, which is then a limit.
        """
        if not 1 <= effort <= block:
            raise ValueError(f"`effort` must lie in [1, {block}] for a block of {block} tokens, got {effort}")
        slots = torch.full((block,), self._mask_id, device=prefix.device)
        masked = torch.ones_like(slots, dtype=torch.bool)
        commit_step = torch.full_like(slots, -1)
        probs = torch.zeros(block, len(self._banned), device=prefix.device)
        for step, count in enumerate(commit.commit_counts(block, effort)):
            logits = sampling.permitted_logits(self._block_logits(prefix, slots), self._banned)
            step_probs = sampling.probabilities(logits, self.sampling)
            drawn = noise.draw(step_probs, step)
            drawn_probs = step_probs.gather(-1, drawn[:, None])[:, 0]
            scores = commit.slot_scores(self.order, logits, drawn_probs)
            last = step == effort - 1
            now = commit.choose_slots(self.order, scores, masked, count=count, confidence=self._confidence, last=last)
            slots = torch.where(now, drawn, slots)
            commit_step = torch.where(now, step, commit_step)
            probs = torch.where(now[:, None], step_probs, probs)
            masked = masked & ~now
            if self.order == "confidence" and not masked.any():
                break
        return Draft(tokens=slots, probs=probs, commit_step=commit_step, passes=step + 1)

    def _block_logits(self, prefix: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Raw logits (B, W) that predict the B `slots` after `prefix`, from one forward pass."""
        block = len(slots)
        canvas = torch.cat([prefix, slots])
        first = len(prefix) - 1 if self._shifted else len(prefix)  # where the bidirectional part begins
        if not self._causal_prefix:
            mask = torch.zeros(1, 1, len(canvas), len(canvas), dtype=self._dtype, device=canvas.device)
            outputs = self.model(
                input_ids=canvas[None], attention_mask=mask, use_cache=False, logits_to_keep=len(canvas) - first
            )
        else:
            known = self._cache.get_seq_length()
            outputs = self.model(
                input_ids=canvas[None, known:],
                attention_mask=self._prefix_mask(known, first, len(canvas), canvas.device),
                position_ids=torch.arange(known, len(canvas), device=canvas.device)[None],
                cache=self._cache,
                logits_to_keep=len(canvas) - first,
            )
            self._cache.crop(first - len(canvas))  # the clean tokens stay, the block is forgotten
        return outputs.logits[0, :block]

    def _prefix_mask(self, known: int, first: int, total: int, device: torch.device) -> torch.Tensor:
        """Additive mask (1, 1, total - known, total): new clean rows look back, the block's rows everywhere."""
        row = torch.arange(known, total, device=device)[:, None]
        column = torch.arange(total, device=device)
        hidden = (column > row) & (row < first)
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=device)
        return mask.masked_fill(hidden, torch.finfo(self._dtype).min)[None, None]


def build(parts: Parts[MaskedSpec]) -> MaskedDrafter:
    """The drafter of a pair's description."""
    spec = parts.spec
    return MaskedDrafter(
        parts.checkpoints.model(spec),
        mask_id=parts.mask,
        banned=parts.banned,
        sampling=spec.sampling,
        order=spec.order,
        shifted=spec.shifted,
        causal_prefix=spec.causal_prefix,
        confidence=spec.confidence,
    )
