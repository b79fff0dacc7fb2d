"""Where a recording comes from: code, library versions, weights and device."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from profiler.pairs import Pair
from profiler.timing import describe_device


def provenance(pair: Pair) -> dict[str, Any]:
    """Everything apart from the settings that could change a recording."""
    return {
        "commit": _commit(),
        "versions": versions(),
        "weights": pair.weights,
        "device": describe_device(pair.device),
    }


def versions() -> dict[str, str]:
    """Of the libraries that decide numbers and times."""
    return {name: metadata.version(name) for name in ("numpy", "torch", "transformers")}


def _commit() -> str | None:
    """The commit of the source tree, with ``+`` for local changes; None where it is not a git checkout."""
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],  # noqa: S607 - git on the path
            cwd=here, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
