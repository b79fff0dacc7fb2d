"""What the embedded pair is worth: accuracies of both networks alone, and what a verified draft yields.

    python -m profiler.training.evaluate --prompts 400 --seed 7

The figures of the model card are this command's output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
import tyro
from tqdm import tqdm

from profiler import pairs, tasks
from profiler.cli import guarded, numbers
from profiler.decode import decode, decode_drafter_alone
from profiler.pairs import Pair
from profiler.streams import Streams
from profiler.summary import table
from profiler.tasks.task import Prompt
from theory.acceptance import LOSSLESS
from theory.estimates import wilson_interval

Complete = Callable[[list[int], Streams], list[int]]


@dataclass(frozen=True)
class Settings:
    """Accuracy of the verifier alone and of the drafter alone, on fresh prompts."""

    pair: str = "embedded"
    """A named pair or a TOML file whose task scores its completions."""
    prompts: int = 400
    """How many prompts."""
    seed: int = 7
    """Seed of prompts and random streams."""
    efforts: str = "1,2,3,4,8"
    """Denoising steps of the drafter alone."""


def main(argv: list[str] | None = None) -> None:
    """Decode every prompt in each of the ways and print the accuracies."""
    settings = tyro.cli(Settings, args=argv, prog="python -m profiler.training.evaluate", description=__doc__)
    torch.set_num_threads(1)
    pair = pairs.load(settings.pair)
    prompts = tasks.load(pair.spec.task.name).prompts(settings.prompts, settings.seed)
    limit = pair.spec.task.token_limit

    def verifier(ids: list[int], streams: Streams) -> list[int]:
        rounds = decode(pair, ids, effort=0, rule=LOSSLESS, streams=streams, token_limit=limit)
        return [token for each in rounds for token in each.tokens]

    def drafter(effort: int) -> Complete:
        def complete(ids: list[int], streams: Streams) -> list[int]:
            blocks = decode_drafter_alone(pair, ids, effort=effort, streams=streams, token_limit=limit)
            return [token for block in blocks for token in block]

        return complete

    ways: dict[str, Complete] = {"verifier alone": verifier}
    ways |= {f"drafter alone, K = {effort}": drafter(effort) for effort in numbers("efforts", settings.efforts, int)}
    rows = []
    for name, complete in ways.items():
        right = _right(pair, prompts, complete, settings.seed, name)
        low, high = wilson_interval(right, len(prompts))
        rows.append((name, f"{right / len(prompts):.3f}", f"[{low:.3f}, {high:.3f}]"))
    print(table(("text from", "accuracy", "95 % interval"), rows))


def _right(pair: Pair, prompts: list[Prompt], complete: Complete, seed: int, name: str) -> int:
    task = tasks.load(pair.spec.task.name)
    right = 0
    for index, prompt in enumerate(tqdm(prompts, desc=name)):
        ids = pair.encode(prompt.text)
        text = pair.tokenizer.decode(complete(ids, Streams(seed=seed, request=index)))
        right += bool(task.is_correct(prompt, text))
    return right


if __name__ == "__main__":
    sys.exit(guarded(main))
