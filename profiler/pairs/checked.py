"""A frozen dataclass from a TOML table: unknown keys, missing keys and values of the wrong kind are refused by name."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints


def build(kind: type, table: dict[str, Any], where: str) -> Any:
    """The dataclass `kind` from a table of `where`, refusing what it does not know and what it lacks."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(table) - set(fields))
    if unknown:
        raise ValueError(f"{where} has unknown keys {', '.join(unknown)}; known are {', '.join(sorted(fields))}")
    required = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
    missing = sorted(required - set(table))
    if missing:
        raise ValueError(f"{where} lacks the keys {', '.join(missing)}")
    values = {name: _frozen(value) for name, value in table.items()}
    for name, hint in get_type_hints(kind).items():
        if name in values and not _fits(values[name], hint):
            raise ValueError(f"{where}: `{name}` must be {_in_words(hint)}, got {table[name]!r}")
    return kind(**values)


def _frozen(value: Any) -> Any:
    """Lists as tuples, and a table of lists as pairs in the table's order."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return tuple((name, _frozen(each)) for name, each in value.items())
    return value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value that was read from TOML is what a field is declared to be."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if parts[-1] is not ...:
            return (
                isinstance(value, tuple)
                and len(value) == len(parts)
                and all(_fits(each, part) for each, part in zip(value, parts, strict=True))
            )
        return isinstance(value, tuple) and all(_fits(each, parts[0]) for each in value)
    kinds = (int, float) if hint is float else hint
    return isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) is tuple:
        return {int: "a list of whole numbers", float: "a list of numbers"}.get(get_args(hint)[0], "a table of lists")
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}.get(hint, "a table")
