"""Prompts from a file: JSON lines with `prompt` or `question`, or plain text, one prompt a line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from profiler.tasks.task import Prompt


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of a file, `.jsonl` or `.jsonl.gz` with JSON, anything else as plain text; empty lines are skipped.

    A JSON line's `id` or `task_id` names its prompt, else the file and the number of the line; its `answer` is kept as
    the reference. Raises ValueError, naming file and line, for what is no prompt.
    """
    if not path.is_file():
        raise ValueError(f"--prompts must be a number or a file that exists, got {path}")
    opened = gzip.open if path.suffix == ".gz" else open
    structured = path.name.removesuffix(".gz").endswith(".jsonl")
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            lines = [(number, line.strip()) for number, line in enumerate(file, start=1)]
    except (UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} must be text in UTF-8: {error}") from error
    stem = path.name.split(".")[0]
    prompts = [
        _from_json(line, f"{stem}/{number}", f"{path}, line {number}")
        if structured
        else Prompt(id=f"{stem}/{number}", text=line, reference="")
        for number, line in lines
        if line
    ]
    if not prompts:
        raise ValueError(f"{path} must hold at least one prompt, got none")
    ids = [prompt.id for prompt in prompts]
    repeated = sorted({name for name in ids if ids.count(name) > 1}) if len(set(ids)) < len(ids) else []
    if repeated:
        raise ValueError(f"{path}: each prompt must have an id of its own, got {repeated[0]!r} more than once")
    return prompts


def _from_json(line: str, default_id: str, where: str) -> Prompt:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not JSON ({error}); name a file of plain text otherwise than .jsonl") from error
    text = row.get("prompt", row.get("question")) if isinstance(row, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{where}: a line must have a text `prompt` or `question`, got {line[:60]}")
    return Prompt(
        id=str(row.get("id", row.get("task_id", default_id))), text=text, reference=str(row.get("answer", ""))
    )
