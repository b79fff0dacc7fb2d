"""Identity: what decides whether two recordings speak of the same pair."""

from collections.abc import Mapping
from typing import Any


def comparable(settings: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a run's settings and provenance that must be equal: not its efforts, not the commit.

    A prompt format is its contents, since a file is named without its folder.
    """
    pair = {name: value for name, value in settings["pair"].items() if name != "efforts"}
    return {
        **pair,
        "format_digest": settings.get("format_digest"),
        "weights": provenance["weights"],
        "device": provenance["device"],
        "compile": settings.get("compile", "off"),
    }
