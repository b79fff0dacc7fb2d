"""A pair's TOML file: which checkpoints, how both sample, which block, which task."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from profiler.drafters.commit import Order
from profiler.sampling import Sampling

_HERE = Path(__file__).parent
Dtype = Literal["float32", "float64", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A checkpoint (a folder beside the TOML file, any folder, or a hub name) and how it is sampled."""

    checkpoint: str
    revision: str = "main"
    dtype: Dtype = "float32"
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def sampling(self) -> Sampling:
        """The sampling settings alone."""
        return Sampling(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)


@dataclass(frozen=True, kw_only=True)
class DrafterSpec(ModelSpec):
    """A masked drafter: see `profiler.drafters.masked.MaskedDrafter` for what the last four fields mean."""

    family: str
    order: Order = "left_to_right"
    shifted: bool = True
    causal_prefix: bool = True
    confidence: float = 1.0


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A benchmark and the most new tokens that a request may get."""

    name: str
    token_limit: int


@dataclass(frozen=True, kw_only=True)
class PairSpec:
    """Everything that decides what a pair does, apart from the device.

    ``block_size = 0``: the remaining canvas. ``threads`` of torch on a CPU; 0 leaves torch's own choice.
    """

    name: str
    description: str
    block_size: int
    efforts: tuple[int, ...]
    drafter: DrafterSpec
    verifier: ModelSpec
    task: TaskSpec
    folder: Path
    threads: int = 0

    def settings(self) -> dict[str, Any]:
        """The settings as plain values for a manifest, without the folder, which differs from machine to machine."""
        values = dataclasses.asdict(self)
        del values["folder"]
        values["efforts"] = list(self.efforts)
        return values


def names() -> list[str]:
    """The named pairs, sorted."""
    return sorted(path.stem for path in _HERE.glob("*.toml"))


def read(name_or_path: str) -> PairSpec:
    """The pair called by name, or described by a TOML file of one's own.

    Raises ValueError for an unknown name, an unknown or missing key, or a value of the wrong kind.
    """
    path = Path(name_or_path) if name_or_path.endswith(".toml") else _HERE / f"{name_or_path}.toml"
    if not path.is_file():
        if name_or_path.endswith(".toml"):
            raise ValueError(f"`pair` must be a file that exists, got {name_or_path}")
        raise ValueError(f"`pair` must be a TOML file or one of {', '.join(names())}, got {name_or_path!r}")
    try:
        table = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    table.update(name=path.stem, folder=path.parent)
    for key, kind in (("drafter", DrafterSpec), ("verifier", ModelSpec), ("task", TaskSpec)):
        if isinstance(table.get(key), dict):
            table[key] = _build(kind, table[key], f"{path}: [{key}]")
    spec: PairSpec = _build(PairSpec, table, str(path))
    if spec.block_size < 0:
        raise ValueError(f"{path}: `block_size` must be at least 0, got {spec.block_size}; 0 is the remaining canvas")
    if not spec.efforts or min(spec.efforts) < 1:
        raise ValueError(f"{path}: `efforts` must be one or more numbers from 1 on, got {list(spec.efforts)}")
    if spec.threads < 0:
        raise ValueError(f"{path}: `threads` must be at least 0, got {spec.threads}; 0 leaves torch's own choice")
    if spec.task.token_limit < 1:
        raise ValueError(f"{path}: `token_limit` must be at least 1, got {spec.task.token_limit}")
    return dataclasses.replace(spec, efforts=tuple(sorted(set(spec.efforts))))


def _build(kind: type, table: dict[str, Any], where: str) -> Any:
    """The dataclass `kind` from a table, refusing what it does not know and what it lacks."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(table) - set(fields))
    if unknown:
        raise ValueError(f"{where} has unknown keys {', '.join(unknown)}; known are {', '.join(sorted(fields))}")
    required = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
    missing = sorted(required - set(table))
    if missing:
        raise ValueError(f"{where} lacks the keys {', '.join(missing)}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    for name, hint in get_type_hints(kind).items():
        if name in values and not _fits(values[name], hint):
            raise ValueError(f"{where}: `{name}` must be {_in_words(hint)}, got {table[name]!r}")
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value that was read from TOML is what a field is declared to be."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(each, get_args(hint)[0]) for each in value)
    kinds = (int, float) if hint is float else hint
    return isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) is tuple:
        return "a list of whole numbers"
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}.get(hint, "a table")
