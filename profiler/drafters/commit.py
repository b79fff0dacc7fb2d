"""Commit orders: which of the still masked slots a denoising step fixes, and how many."""

from __future__ import annotations

import itertools
from typing import Literal, TypeAlias, get_args

import torch

from profiler.sampling import entropy
from theory import proposition2

Order: TypeAlias = proposition2.Order
ORDERS = proposition2.ORDERS
THRESHOLDS: tuple[Order, ...] = ("certainty", "confidence")
"""Orders that commit what exceeds a threshold, however many slots that is."""

Schedule = Literal["equal", "linear_time"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
_LAST_TIME = 1e-3


def commit_counts(block: int, steps: int, schedule: Schedule = "equal") -> list[int]:
    """How many of `block` slots each of `steps` steps commits.

    ``equal``: equal shares, the remainder to the first steps. ``linear_time``, which is Dream's: diffusion time falls
    evenly from 1 to 0.001, a step from t to s commits the whole part of (1 - s/t) of what is masked, the last step
    the rest; where steps are nearly as many as slots, a step may commit none.

    >>> commit_counts(8, 3), commit_counts(512, 3, "linear_time")
    ([3, 3, 2], [170, 170, 172])
    """
    if schedule == "equal":
        share, remainder = divmod(block, steps)
        return [share + (step < remainder) for step in range(steps)]
    times = [1 - (1 - _LAST_TIME) * step / steps for step in range(steps + 1)]
    counts: list[int] = []
    for now, then in itertools.pairwise(times):
        counts.append(int((block - sum(counts)) * (1 - then / now)))
    return [*counts[:-1], block - sum(counts[:-1])]


def slot_scores(order: Order, probs: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """The eagerness (B,) of each slot to be committed, by its distribution `probs` (B, V).

    `drawn` (B,) is the probability of the token that was drawn. Every order but ``confidence`` looks at the
    distribution alone, never at the value that was drawn: that keeps the first token of a round exact.
    """
    if order == "left_to_right":
        return -torch.arange(len(probs), device=probs.device, dtype=torch.float32)
    if order == "entropy":
        return -entropy(probs)
    if order == "confidence":
        return drawn
    if order == "margin":
        top = probs.topk(2, dim=-1).values
        return top[:, 0] - top[:, 1]
    return probs.amax(dim=-1)


def choose_slots(
    order: Order, scores: torch.Tensor, masked: torch.Tensor, *, count: int, confidence: float, last: bool
) -> torch.Tensor:
    """The slots (B,) bool to commit now: the `count` most eager masked ones; all of them in the last step.

    Of slots that are equally eager the leftmost come first. Orders with a threshold commit the slots above
    `confidence` instead, and exactly the best one if none passes (case O30).
    """
    if last:
        return masked
    eager = scores.masked_fill(~masked, -torch.inf)
    ranked = eager.argsort(descending=True, stable=True)
    chosen = torch.zeros_like(masked)
    if order in THRESHOLDS:
        passed = eager > confidence
        return torch.where(passed.any(), passed, chosen.scatter(0, ranked[:1], True))
    return chosen.scatter(0, ranked[:count], True) & masked
