"""What a benchmark gives the profiler: prompts by seed, and a score for a completion."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One request: a stable `id`, the text to complete, and the reference that the score needs."""

    id: str
    text: str
    reference: str


class Task(Protocol):
    """A module with these two functions is a task."""

    def prompts(self, count: int, seed: int) -> list[Prompt]:
        """The first `count` prompts of the seeded order; the same for every run."""
        ...

    def is_correct(self, prompt: Prompt, completion: str) -> bool | None:
        """Whether the completion answers the prompt; None where completions are not scored."""
        ...


def subset(prompts: Sequence[Prompt], count: int, seed: int) -> list[Prompt]:
    """`count` of the prompts in a seeded random order, of which a smaller count is the beginning.

    Raises ValueError where there are fewer: a prompt that is decoded twice is no second observation.
    """
    if count > len(prompts):
        raise ValueError(f"--prompts must be at most {len(prompts)}, all that there are, got {count}")
    order = list(range(len(prompts)))
    random.Random(seed).shuffle(order)  # noqa: S311 - no secret, the same in every run
    return [prompts[index] for index in order[:count]]
