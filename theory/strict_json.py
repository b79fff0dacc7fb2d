"""Standard JSON from values that may hold NaN or infinity: null in their place, their names in a list ``flags``."""

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(document: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Return JSON that every parser reads; Python's own writes NaN and Infinity, which are no JSON.

    A list is flagged once, whatever the number of its entries.

    >>> dumps({"tv": math.nan, "kl": math.inf})
    '{"tv": null, "kl": null, "flags": ["tv_nan", "kl_inf"]}'
    """
    flags: dict[str, None] = {}
    content = {name: _finite(value, name, flags) for name, value in document.items()}
    return json.dumps({**content, "flags": list(flags)}, indent=indent, allow_nan=False)


def _finite(value: Any, name: str, flags: dict[str, None]) -> Any:
    """Copy of a JSON value with null for NaN and infinity, whose names are added to ``flags``."""
    if isinstance(value, Mapping):
        return {key: _finite(item, f"{name}.{key}", flags) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item, name, flags) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        flags[f"{name}_{value}".replace("-inf", "minus_inf")] = None
        return None
    return value
