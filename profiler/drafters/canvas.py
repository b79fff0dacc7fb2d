"""The canvas of mask tokens that masked and block drafters denoise: what is drawn, committed and recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from profiler import sampling
from profiler.drafters import commit
from profiler.drafters.draft import Draft
from profiler.noise import Noise
from profiler.sampling import Sampling
from theory import proposition2

_JUDGED_UNTEMPERED: tuple[commit.Order, ...] = ("entropy", "margin", "max_probability")


@dataclass(frozen=True, kw_only=True)
class Canvas:
    """How a block of masked slots becomes tokens in K passes, whatever model says what the slots may hold.

    ``banned`` (V,) holds the mask token: it is banned before anything is drawn. ``order``, ``schedule`` and, for the
    orders with a threshold, ``confidence`` decide which slots a pass commits. The scores of the orders ``entropy``,
    ``margin`` and ``max_probability`` are those of the untempered distributions, with ``warped_scores`` of those that
    tokens are drawn from, as in Dream's own sampler.
    """

    mask_id: int
    banned: torch.Tensor
    sampling: Sampling
    order: commit.Order
    confidence: float = 1.0
    schedule: commit.Schedule = "equal"
    warped_scores: bool = False

    def __post_init__(self) -> None:
        if self.order not in commit.ORDERS:
            raise ValueError(f"`order` must be one of {', '.join(commit.ORDERS)}, got {self.order!r}")
        if self.schedule not in commit.SCHEDULES:
            raise ValueError(f"`schedule` must be one of {', '.join(commit.SCHEDULES)}, got {self.schedule!r}")

    def exactness(self, effort: int) -> proposition2.Exactness:
        """What lossless verification of its drafts guarantees."""
        return proposition2.exactness(self.order, effort, greedy=self.sampling.greedy)

    def denoise(
        self, block_logits: Callable[[torch.Tensor], torch.Tensor], *, block: int, effort: int, noise: Noise
    ) -> Draft:
        """Fill `block` slots in `effort` calls of `block_logits`, drawing every token by `noise`.

        `block_logits` turns the slots (B,), committed or masked, into raw logits (B, W) of what each may hold. Orders
        with a threshold may need fewer passes than `effort`, which is then a limit.
        """
        slots = torch.full((block,), self.mask_id, device=self.banned.device)
        masked = torch.ones_like(slots, dtype=torch.bool)
        commit_step = torch.full_like(slots, -1)
        probs = torch.empty(0)
        for step, count in enumerate(commit.commit_counts(block, effort, self.schedule)):
            logits = sampling.permitted_logits(block_logits(slots), self.banned)
            step_probs = sampling.probabilities(logits, self.sampling)
            drawn = noise.draw(step_probs, step)
            now = self._commits(logits, step_probs, drawn, masked, count=count, last=step == effort - 1)
            slots = torch.where(now, drawn, slots)
            commit_step = torch.where(now, step, commit_step)
            probs = torch.where(now[:, None], step_probs, probs) if step else step_probs
            masked = masked & ~now
            if self.order in commit.THRESHOLDS and step < effort - 1 and not masked.any():
                break
        return Draft(tokens=slots, probs=probs, commit_step=commit_step, passes=step + 1)

    def _commits(
        self,
        logits: torch.Tensor,
        step_probs: torch.Tensor,
        drawn: torch.Tensor,
        masked: torch.Tensor,
        *,
        count: int,
        last: bool,
    ) -> torch.Tensor:
        """The slots (B,) bool that this pass commits."""
        if last:
            return masked
        drawn_probs = step_probs.gather(-1, drawn[:, None])[:, 0]
        judged = step_probs
        if self.order in _JUDGED_UNTEMPERED and not self.warped_scores:
            judged = logits.softmax(dim=-1)
        scores = commit.slot_scores(self.order, judged, drawn_probs)
        return commit.choose_slots(self.order, scores, masked, count=count, confidence=self.confidence, last=False)
