"""A pair's TOML file: which checkpoints, how both sample, which block, which tasks with which grids."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.pairs.checked import build
from profiler.pairs.families import FAMILIES, DrafterSpec, ModelSpec

_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A benchmark, the most new tokens that a request may get, how a prompt is put, and what to try on it.

    ``format`` names a template of `profiler.pairs.prompting` or a text file beside the TOML, ``instruction`` is a line
    before the prompt. ``efforts`` are the pair's own if not given. The grids say what to sweep: `profiler.sweep` reads
    leniencies, and Cactus budgets in nats by effort; confidence thresholds and block sizes (0: the remaining canvas)
    are given by hand, one run each, with ``--confidence`` and ``--block-size``.
    """

    name: str
    token_limit: int
    format: str = "plain"
    instruction: str = ""
    efforts: tuple[int, ...] = ()
    leniency: tuple[float, ...] = ()
    cactus: tuple[tuple[str, tuple[float, ...]], ...] = ()
    confidence: tuple[float, ...] = ()
    block_size: tuple[int, ...] = ()


_GRIDS = ("efforts", "leniency", "cactus", "confidence", "block_size")


@dataclass(frozen=True, kw_only=True)
class PairSpec:
    """Everything that decides what a pair does, apart from the device.

    ``task`` is the chosen one of ``tasks``. ``block_size = 0``: the remaining canvas. ``threads`` of torch on a CPU; 0
    leaves torch's own choice.
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
    tasks: tuple[TaskSpec, ...] = ()

    def for_task(self, name: str) -> PairSpec:
        """The pair with another of its tasks, and that task's efforts."""
        known = {task.name: task for task in self.tasks}
        if name not in known:
            raise ValueError(f"{self.name}: `task` must be one of {', '.join(known)}, got {name!r}")
        task = known[name]
        return dataclasses.replace(self, task=task, efforts=task.efforts)

    @property
    def longest_block(self) -> int:
        """B, or the whole canvas where a block is what remains of it."""
        return self.block_size or self.task.token_limit

    def settings(self) -> dict[str, Any]:
        """The settings as plain values for a manifest: no folders, which differ from machine to machine, no grids."""
        values = dataclasses.asdict(self)
        del values["folder"], values["tasks"]
        for name in _GRIDS:
            del values["task"][name]
        values["task"]["format"] = Path(self.task.format).name
        values["efforts"] = list(self.efforts)
        return values


def names() -> list[str]:
    """The named pairs, sorted."""
    return sorted(path.stem for path in _HERE.glob("*.toml"))


def read(name_or_path: str) -> PairSpec:
    """The pair called by name, or described by a TOML file of one's own, with the first of its tasks.

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
    return _pair(table | {"name": path.stem, "folder": path.parent}, path)


def describe(*, drafter: dict[str, Any], verifier: dict[str, Any], block_size: int, token_limit: int) -> PairSpec:
    """A pair without a TOML file, from its two tables: efforts 1, 2 and 4, and prompts of one's own."""
    names = [Path(each["checkpoint"]).name for each in (drafter, verifier)]
    table = {
        "name": "-".join(names),
        "folder": Path(),
        "description": "Given on the command line.",
        "block_size": block_size,
        "efforts": [effort for effort in (1, 2, 4) if not block_size or effort <= block_size],
        "drafter": drafter,
        "verifier": verifier,
        "task": {"name": "own", "token_limit": token_limit},
    }
    return _pair(table, "--drafter and --verifier")


def _pair(table: dict[str, Any], path: Path | str) -> PairSpec:
    if isinstance(table.get("drafter"), dict):
        table["drafter"] = _drafter(table["drafter"], f"{path}: [drafter]")
    if isinstance(table.get("verifier"), dict):
        table["verifier"] = build(ModelSpec, table["verifier"], f"{path}: [verifier]")
        _require_file_of_package(table["verifier"], f"{path}: [verifier]")
    _add_tasks(table, path)
    spec: PairSpec = build(PairSpec, table, str(path))
    if spec.block_size < 0:
        raise ValueError(f"{path}: `block_size` must be at least 0, got {spec.block_size}; 0 is the remaining canvas")
    if spec.threads < 0:
        raise ValueError(f"{path}: `threads` must be at least 0, got {spec.threads}; 0 leaves torch's own choice")
    tasks = tuple(_checked_task(task, spec.efforts, path) for task in spec.tasks)
    return dataclasses.replace(spec, tasks=tasks).for_task(tasks[0].name)


def _drafter(table: dict[str, Any], where: str) -> DrafterSpec:
    family = table.get("family")
    if family is None:
        raise ValueError(f"{where} lacks the keys family")
    if family not in FAMILIES:
        raise ValueError(f"{where}: `family` must be one of {', '.join(FAMILIES)}, got {family!r}")
    drafter: DrafterSpec = build(FAMILIES[family], table, where)
    _require_file_of_package(drafter, where)
    return drafter


def _require_file_of_package(model: ModelSpec, where: str) -> None:
    if model.package and not model.gguf:
        raise ValueError(f"{where}: `gguf` must name a file of the package {model.package}, got none")


def _add_tasks(table: dict[str, Any], path: Path | str) -> None:
    """Read `[task]`, or several of `[[task]]`, into `tasks`, the first of them also into `task`."""
    given = table.get("task")
    listed = [given] if isinstance(given, dict) else given
    if isinstance(listed, list) and listed and all(isinstance(each, dict) for each in listed):
        table["tasks"] = [build(TaskSpec, each, f"{path}: [task]") for each in listed]
        table["task"] = table["tasks"][0]


def _checked_task(task: TaskSpec, efforts: tuple[int, ...], path: Path | str) -> TaskSpec:
    if task.token_limit < 1:
        raise ValueError(f"{path}: `token_limit` must be at least 1, got {task.token_limit}")
    return dataclasses.replace(task, efforts=_efforts(task.efforts or efforts, path))


def _efforts(efforts: tuple[int, ...], path: Path | str) -> tuple[int, ...]:
    if not efforts or min(efforts) < 1:
        raise ValueError(f"{path}: `efforts` must be one or more numbers from 1 on, got {list(efforts)}")
    return tuple(sorted(set(efforts)))
