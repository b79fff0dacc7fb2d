"""How a prompt is put to a pair: text templates with `{prompt}` in them, one for both models (case O29)."""

from __future__ import annotations

import hashlib
from pathlib import Path

_FORMATS = Path(__file__).parent / "formats"


def formats() -> list[str]:
    """The named templates, sorted."""
    return sorted(path.stem for path in _FORMATS.glob("*.txt"))


def template(name: str, folder: Path) -> str:
    """The template called `name`, or that of a file in `folder`, which must hold `{prompt}` exactly once."""
    path = folder / name if name.endswith(".txt") else _FORMATS / f"{name}.txt"
    if not path.is_file():
        place = "a text file beside the pair's TOML"
        raise ValueError(f"`format` must be {place} or one of {', '.join(formats())}, got {name!r}")
    text = path.read_text(encoding="utf-8")
    if text.count("{prompt}") != 1:
        raise ValueError(f"{path} must hold {{prompt}} once, got {text.count('{prompt}')} times")
    return text


def render(name: str, folder: Path, prompt: str, instruction: str = "") -> str:
    """The text that both models read; the instruction is a line before the prompt."""
    question = f"{instruction}\n{prompt}" if instruction else prompt
    return template(name, folder).replace("{prompt}", question)


def digest(name: str, folder: Path) -> str:
    """Sixteen hexadecimal digits that stand for a template: another thinking block is another recording."""
    return hashlib.sha256(template(name, folder).encode()).hexdigest()[:16]
