"""Commit orders: which of the still masked slots a denoising step fixes."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from profiler.sampling import entropy

Order = Literal["left_to_right", "entropy", "margin", "max_probability", "confidence"]
ORDERS: tuple[Order, ...] = get_args(Order)


def commit_counts(block: int, steps: int) -> list[int]:
    """How many of `block` slots each of `steps` steps commits: equal shares, the remainder to the first steps.

    >>> commit_counts(8, 3)
    [3, 3, 2]
    """
    share, remainder = divmod(block, steps)
    return [share + (step < remainder) for step in range(steps)]


def slot_scores(order: Order, logits: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """The eagerness (B,) of each slot to be committed; `logits` (B, V) permitted, `drawn` (B,) its token's probability.

    Every order but ``confidence`` looks at the untempered distribution alone, never at the value that was drawn:
    that keeps the first token of a round exact.
    """
    if order == "left_to_right":
        return -torch.arange(len(logits), device=logits.device, dtype=torch.float32)
    if order == "entropy":
        return -entropy(logits)
    if order == "confidence":
        return drawn
    top = logits.softmax(dim=-1).topk(2, dim=-1).values
    return top[:, 0] - top[:, 1] if order == "margin" else top[:, 0]


def choose_slots(
    order: Order, scores: torch.Tensor, masked: torch.Tensor, *, count: int, confidence: float, last: bool
) -> torch.Tensor:
    """The slots (B,) bool to commit now: the `count` most eager masked ones; all of them in the last step.

    Order ``confidence`` commits the slots above the threshold instead, and exactly the best one if none passes
    (case O30).
    """
    if last:
        return masked
    eager = scores.masked_fill(~masked, -torch.inf)
    if order == "confidence":
        passed = eager > confidence
        best = torch.zeros_like(masked).scatter(0, eager.argmax(dim=0, keepdim=True), True)
        return torch.where(passed.any(), passed, best)
    chosen = torch.zeros_like(masked)
    return chosen.scatter(0, eager.topk(count).indices, True) & masked
