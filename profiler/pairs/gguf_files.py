"""GGUF files: found in an installed package, checked by their digest, and read as what they are."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from importlib import metadata
from pathlib import Path

from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import PreTrainedTokenizerFast
from transformers.integrations.gguf.reader import read_gguf_metadata

_PRE_TOKENIZERS = {"smollm": [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]}
"""How text is cut into words by the name that files have for it, where transformers' conversion does otherwise.

It leaves out that each digit is a word: spaces before one would be other tokens than those that the model has learnt.
"""


def packaged(requirement: str, name: str) -> Path:
    """The file called `name` of an installed package, which is not imported; `requirement` is as pip takes it."""
    package = requirement.partition("==")[0]
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise ValueError(
            f"the package {package} must be installed, whose file has the weights; its own dependencies are not "
            f"needed: {_installation(requirement)}"
        ) from None
    path = next((Path(str(file.locate())) for file in files if file.name == name), None)
    if path is None or not path.is_file():
        raise ValueError(
            f"the package {package} must have the file {name}, which its version {metadata.version(package)} lacks "
            f"here: {_installation(requirement)} --force-reinstall"
        )
    return path


def require_readable(path: Path, sha256: str) -> None:
    """Refuse a file whose contents are not those that a pair names, if it does, and one that nothing here can read."""
    if importlib.util.find_spec("gguf") is None:
        raise ValueError(
            f"reading {path.name} needs the package gguf: pip install gguf, or this project's extra smollm2"
        )
    found = digest(path)
    if sha256 and found != sha256:
        raise ValueError(f"`sha256` of {path} must be {sha256}, got {found}; install or download the file anew")


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits; of one that has not changed since, computed once."""
    stat = path.stat()
    return _digest(path, stat.st_size, stat.st_mtime_ns)


@cache
def _digest(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a file, which cuts text as the model was trained to see it."""
    loaded = PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name)
    fields, _ = read_gguf_metadata(str(path))
    if steps := _PRE_TOKENIZERS.get(fields.get("tokenizer.ggml.pre")):
        loaded.backend_tokenizer.pre_tokenizer = Sequence(steps)
    return loaded


def _installation(requirement: str) -> str:
    return f"pip install --no-deps {requirement}"
