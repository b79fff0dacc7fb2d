"""What the command lines share: the options that name a pair and a run, and errors as one line with exit code 2."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from profiler import pairs, tasks
from profiler.drafters.commit import Order
from profiler.pairs import Pair, PairSpec, prompting
from profiler.pairs.compiled import Compile, compile_forwards
from profiler.pairs.families import DrafterSpec, Dtype
from profiler.provenance import provenance
from profiler.recording import WARMUP_REQUESTS
from profiler.store import RunFolder, digest, open_run
from profiler.tasks.files import read_prompts
from profiler.tasks.task import Prompt, subset

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every recording."""

    pair: str = "embedded"
    """A named pair (--list-pairs of profiler.calibrate shows them), or the path of your own pair's TOML file."""
    drafter: str = ""
    """With --verifier, a pair without a TOML file: the drafter's checkpoint, a folder or a hub name."""
    verifier: str = ""
    """The verifier's checkpoint, a folder or a hub name."""
    family: str = "masked"
    """The family of --drafter, with its default settings; a TOML file can change them. The families uniform, lora and
    feature need one: they have settings without a default."""
    token_limit: int = 256
    """Most new tokens of a request, for --drafter and --verifier; a named pair has its own."""
    task: str = ""
    """One of the pair's tasks; the first if not given."""
    efforts: str = ""
    """Denoising steps K to record, as in 1,2,4; the pair's own if not given."""
    prompts: int | Path = 50
    """How many prompts to decode in every cell, or a file of them: JSON lines with `prompt` or `question`, or plain
    text, one a line."""
    sample: int = 0
    """How many prompts to take from a file of them, at random by the seed; 0: all."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    order: Order | None = None
    """Commit order of the drafter, instead of the pair's own."""
    confidence: float | None = None
    """Confidence above which a drafter that has such a threshold commits a token, instead of the pair's own."""
    aligned: bool | None = None
    """Whether drafts of the family block end at multiples of the block size, instead of the pair's own. False: they are
    whole blocks."""
    block_size: int | None = None
    """Tokens drafted a round, instead of the pair's own."""
    dtype: Dtype | None = None
    """What both models compute in, instead of the pair's own dtypes; distributions are float32 or more in any case.
    Another dtype is another verifier: a run says which, and calibrations in one are not used for sweeps in another."""
    out: Path = Path("results")
    """The folder that holds the run folders, as OUT/PAIR/RUN."""
    run: str = ""
    """Name of the run folder; made from the settings if not given, so that the same command resumes the same run."""
    fresh: bool = False
    """Throw away what the run folder holds and start over."""
    allow_mixed: bool = False
    """Add to a run that other code, weights or another device began; its rows stay marked."""
    compile: Compile = "off"
    """Compile both forwards with torch, in its default mode; reduce-overhead: a drafter without a cache as CUDA graphs
    too. The first passes take minutes."""
    trust_remote_code: bool = False
    """Execute code that a checkpoint brings, where transformers has no class for it."""

    def spec(self) -> PairSpec:
        """The pair's description with the options applied."""
        spec = self._described()
        if self.task:
            spec = spec.for_task(self.task)
        for name in ("order", "confidence", "aligned"):
            if getattr(self, name) is not None:
                spec = dataclasses.replace(spec, drafter=_with(spec.drafter, name, getattr(self, name)))
        if self.block_size is not None:
            if self.block_size < 0:
                raise ValueError(f"--block-size must be at least 0, got {self.block_size}; 0 is the remaining canvas")
            spec = dataclasses.replace(spec, block_size=self.block_size)
        if self.dtype is not None:
            models = {
                name: dataclasses.replace(getattr(spec, name), dtype=self.dtype) for name in ("drafter", "verifier")
            }
            spec = dataclasses.replace(spec, **models)
        if self.efforts:
            spec = dataclasses.replace(spec, efforts=tuple(sorted(numbers("efforts", self.efforts, int))))
        for effort in spec.efforts:
            if effort < 1 or (spec.block_size and effort > spec.block_size):
                raise ValueError(f"--efforts must lie in [1, {spec.block_size or 'canvas'}], got {effort}")
        return spec

    def load(self, spec: PairSpec, **options: Any) -> Pair:
        """The pair on its device, compiled if asked for."""
        pair = pairs.load(spec, device=self.device, trust_remote_code=self.trust_remote_code, **options)
        compile_forwards(pair, self.compile)
        return pair

    def requests(self, spec: PairSpec, seed: int) -> list[Prompt]:
        """The prompts to decode: the task's, or a file's, in an order by the seed."""
        if isinstance(self.prompts, Path):
            everything = read_prompts(self.prompts)
            if self.sample < 0:
                raise ValueError(f"--sample must be at least 0, got {self.sample}; 0 takes all of the file's prompts")
            return subset(everything, self.sample or len(everything), seed)
        if self.sample:
            raise ValueError("--sample takes some of the prompts of a file; give the file with --prompts FILE")
        if self.prompts < 1:
            raise ValueError(f"--prompts must be at least 1, got {self.prompts}")
        return tasks.load(spec.task.name).prompts(self.prompts, seed)

    def open(self, pair: Pair, command: str, prompts: Sequence[Prompt], settings: dict[str, Any]) -> RunFolder:
        """The run folder of a command with its prompts and settings."""
        everything = {
            "command": command,
            "pair": pair.spec.settings(),
            "warmup_requests": WARMUP_REQUESTS,
            "prompts": [prompt.id for prompt in prompts],
            "prompts_digest": digest({prompt.id: prompt.text for prompt in prompts}),
            "format_digest": prompting.digest(pair.spec.task.format, pair.spec.folder),
            **({} if self.compile == "off" else {"compile": self.compile}),
            **settings,
        }
        name = self.run or f"{command}-{digest(everything)}"
        return open_run(
            self.out / pair.spec.name / name,
            settings=json.loads(json.dumps(everything)),
            provenance=provenance(pair),
            fresh=self.fresh,
            allow_mixed=self.allow_mixed,
        )

    def _described(self) -> PairSpec:
        """The pair as its TOML file, or --drafter and --verifier, describe it."""
        if not self.drafter and not self.verifier:
            return pairs.read(self.pair)
        if not (self.drafter and self.verifier):
            raise ValueError("--drafter and --verifier make a pair together; give both, or --pair")
        if self.block_size is None:
            raise ValueError("--block-size must be given with --drafter and --verifier; 0 is the remaining canvas")
        return pairs.describe(
            drafter={"family": self.family, "checkpoint": self.drafter},
            verifier={"checkpoint": self.verifier},
            block_size=self.block_size,
            token_limit=self.token_limit,
        )


def _with(drafter: DrafterSpec, name: str, value: Any) -> DrafterSpec:
    """The drafter with another value of a setting, if its family has that setting."""
    if name not in {field.name for field in dataclasses.fields(drafter)}:
        raise ValueError(f"--{name} does not apply to drafters of the family {drafter.family}: they have none")
    changes = {name: value}
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
