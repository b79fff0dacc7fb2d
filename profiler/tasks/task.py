"""What a benchmark gives the profiler: prompts by seed, and a score for a completion."""

from __future__ import annotations

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

    def is_correct(self, prompt: Prompt, completion: str) -> bool:
        """Whether the completion answers the prompt."""
        ...
