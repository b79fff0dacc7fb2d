"""GSM8K: grade-school mathematics, the 1,319 questions of its test set; completions are not scored yet."""

from __future__ import annotations

import importlib
import importlib.util

from profiler.tasks.task import Prompt, subset


def prompts(count: int, seed: int) -> list[Prompt]:
    """The first `count` questions of the seeded order, from the hub by the package `datasets`."""
    if importlib.util.find_spec("datasets") is None:
        raise ValueError(
            "GSM8K comes from a hub by the package datasets; install the extra `hub`, or give its file: --prompts FILE"
        )
    rows = importlib.import_module("datasets").load_dataset("openai/gsm8k", "main", split="test")
    everything = [
        Prompt(id=f"gsm8k/{index}", text=row["question"], reference=row["answer"]) for index, row in enumerate(rows)
    ]
    return subset(everything, count, seed)


def is_correct(prompt: Prompt, completion: str) -> bool | None:
    """None: not scored."""
    return None
