"""What the command lines share: the options that name a pair and a run, and errors as one line with exit code 2."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from profiler import pairs
from profiler.drafters.commit import Order
from profiler.pairs import Pair, PairSpec
from profiler.pairs.families import DrafterSpec
from profiler.provenance import provenance
from profiler.recording import WARMUP_REQUESTS
from profiler.store import RunFolder, digest, open_run

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every recording."""

    pair: str = "embedded"
    """A named pair, or the path of your own pair's TOML file."""
    task: str = ""
    """One of the pair's tasks; the first if not given."""
    efforts: str = ""
    """Denoising steps K to record, as in 1,2,4; the pair's own if not given."""
    prompts: int = 50
    """How many prompts to decode in every cell."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    order: Order | None = None
    """Commit order of the drafter, instead of the pair's own."""
    block_size: int | None = None
    """Tokens drafted a round, instead of the pair's own."""
    out: Path = Path("results")
    """The folder that holds the run folders, as OUT/PAIR/RUN."""
    run: str = ""
    """Name of the run folder; made from the settings if not given, so that the same command resumes the same run."""
    fresh: bool = False
    """Throw away what the run folder holds and start over."""
    allow_mixed: bool = False
    """Add to a run that other code, weights or another device began; its rows stay marked."""

    def spec(self) -> PairSpec:
        """The pair's description with the options applied."""
        spec = pairs.read(self.pair)
        if self.task:
            spec = spec.for_task(self.task)
        if self.order is not None:
            spec = dataclasses.replace(spec, drafter=_with_order(spec.drafter, self.order))
        if self.block_size is not None:
            if self.block_size < 1:
                raise ValueError(f"--block-size must be at least 1, got {self.block_size}")
            spec = dataclasses.replace(spec, block_size=self.block_size)
        if self.efforts:
            spec = dataclasses.replace(spec, efforts=tuple(sorted(numbers("efforts", self.efforts, int))))
        if self.prompts < 1:
            raise ValueError(f"--prompts must be at least 1, got {self.prompts}")
        for effort in spec.efforts:
            if effort < 1 or (spec.block_size and effort > spec.block_size):
                raise ValueError(f"--efforts must lie in [1, {spec.block_size or 'canvas'}], got {effort}")
        return spec

    def open(self, pair: Pair, command: str, settings: dict[str, Any]) -> RunFolder:
        """The run folder of a command with its settings."""
        everything = {"command": command, "pair": pair.spec.settings(), "warmup_requests": WARMUP_REQUESTS, **settings}
        name = self.run or f"{command}-{digest(everything)}"
        return open_run(
            self.out / pair.spec.name / name,
            settings=json.loads(json.dumps(everything)),
            provenance=provenance(pair),
            fresh=self.fresh,
            allow_mixed=self.allow_mixed,
        )


def _with_order(drafter: DrafterSpec, order: Order) -> DrafterSpec:
    """The drafter with another commit order, if its family has one."""
    if "order" not in {field.name for field in dataclasses.fields(drafter)}:
        raise ValueError(
            f"--order does not apply to drafters of the family {drafter.family}: they have no commit order"
        )
    changes: dict[str, Any] = {"order": order}
    return dataclasses.replace(drafter, **changes)


def numbers(option: str, text: str, kind: type[Number]) -> tuple[Number, ...]:
    """The distinct numbers of a comma-separated option, at least one, in the order given."""
    try:
        return tuple(dict.fromkeys(kind(part) for part in text.split(",")))
    except ValueError:
        raise ValueError(f"--{option} must be numbers separated by commas, got {text!r}") from None


def guarded(main: Callable[[list[str] | None], None], argv: list[str] | None = None) -> int:
    """Run a command line: 0, or 2 with one line on stderr for what the user can mend, or 130 after Ctrl-C."""
    try:
        main(argv)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; what was recorded is kept, the same command goes on from there", file=sys.stderr)
        return 130
    return 0
