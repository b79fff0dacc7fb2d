"""Prompts of one's own, or of a benchmark that nobody may redistribute: they come from a file, unscored."""

from __future__ import annotations

from profiler.tasks.task import Prompt


def prompts(count: int, seed: int) -> list[Prompt]:
    """There are none without a file."""
    raise ValueError("this task's prompts come from a file; give it with --prompts FILE")


def is_correct(prompt: Prompt, completion: str) -> bool | None:
    """None: not scored."""
    return None
