"""Benchmarks, one file each."""

from __future__ import annotations

from typing import cast

from profiler.tasks import code, gsm8k, humaneval, instructions, mathematics, own, word_problems
from profiler.tasks.task import Task

_TASKS: dict[str, Task] = {
    "code": code.TASK,
    "gpqa": cast(Task, own),  # its authors ask not to spread it
    "gsm8k": cast(Task, gsm8k),
    "humaneval": cast(Task, humaneval),
    "instructions": instructions.TASK,
    "mathematics": mathematics.TASK,
    "own": cast(Task, own),
    "word_problems": cast(Task, word_problems),
}


def load(name: str) -> Task:
    """The task called `name`; an unknown name is a ValueError that lists the known ones."""
    if name not in _TASKS:
        raise ValueError(f"`task` must be one of {', '.join(sorted(_TASKS))}, got {name!r}")
    return _TASKS[name]
