"""Tasks whose prompts are made from templates by a seed, in a training half and a held-out half that share no request.

Nothing is downloaded: a drafter can be trained and measured on them wherever its verifier runs.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from profiler.tasks.task import Prompt

_HELD_OUT_BYTES = 64  # of 256: a quarter of all requests
_PATIENCE = 10_000


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for, and the words it is asked in; the same `content` in other words is in the same half."""

    content: str
    text: str


@dataclass(frozen=True, kw_only=True)
class TemplateTask:
    """The task called `name`, whose requests `make` draws (Task); completions are not scored."""

    name: str
    make: Callable[[random.Random], Request]

    def texts(self, seed: int, *, held_out: bool) -> Iterator[str]:
        """Prompts of one half in the seeded order, each content once, until nothing new is found."""
        rng = random.Random(seed)  # noqa: S311 - a reproducible stream, not a secret
        seen: set[str] = set()
        misses = 0
        while misses < _PATIENCE:
            request = self.make(rng)
            if request.content in seen or is_held_out(request.content) != held_out:
                misses += 1
                continue
            seen.add(request.content)
            misses = 0
            yield request.text

    def prompts(self, count: int, seed: int) -> list[Prompt]:
        """The first `count` held-out prompts of a seed (Task)."""
        texts = list(itertools.islice(self.texts(seed, held_out=True), count))
        if len(texts) < count:
            raise ValueError(f"--prompts must be at most {len(texts)}, all that {self.name} has, got {count}")
        return [Prompt(id=f"{self.name}/{seed}/{index}", text=text, reference="") for index, text in enumerate(texts)]

    def is_correct(self, prompt: Prompt, completion: str) -> bool | None:
        """None: not scored (Task)."""
        return None


def is_held_out(content: str) -> bool:
    """Which half a request belongs to, by a hash of its content."""
    return hashlib.sha256(content.encode()).digest()[0] < _HELD_OUT_BYTES
