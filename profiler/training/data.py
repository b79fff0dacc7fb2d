"""Endless seeded batches of word problems and of bare equations, as padded token arrays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from profiler.tasks import word_problems

TOKEN_IDS = {word: index for index, word in enumerate(word_problems.vocabulary())}
PAD_ID, END_ID, MASK_ID = (TOKEN_IDS[word] for word in (word_problems.PAD, word_problems.END, word_problems.MASK))
LONGEST = 72  # tokens of the longest problem with its answer and end token, rounded up
_DRILL_OPERATORS = ("*", "+", "+", "-")


@dataclass(frozen=True)
class Batch:
    """`tokens` (N, L) padded on the right; an answer occupies ``answer_start <= position < length``, both (N,)."""

    tokens: torch.Tensor
    answer_start: torch.Tensor
    length: torch.Tensor

    def in_answer(self) -> torch.Tensor:
        """True at the answer's positions, end token included, (N, L)."""
        position = torch.arange(self.tokens.shape[1])
        return (position >= self.answer_start[:, None]) & (position < self.length[:, None])


def batches(*, seed: int, size: int, drill_share: float, steps: int) -> Iterator[Batch]:
    """`steps` batches; the share of bare equations falls linearly from `drill_share` to 0 at half of the steps."""
    rng = random.Random(seed)  # noqa: S311 - a reproducible stream, not a secret
    stream = word_problems.problems(seed, held_out=False)
    for step in range(steps):
        drills = drill_share * max(0.0, 1 - 2 * step / steps)
        rows = [_drill(rng) if rng.random() < drills else _problem(next(stream)) for _ in range(size)]
        tokens = torch.full((size, LONGEST), PAD_ID)
        for row, (ids, _) in zip(tokens, rows, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        yield Batch(tokens, torch.tensor([start for _, start in rows]), torch.tensor([len(ids) for ids, _ in rows]))


def _problem(problem: word_problems.Problem) -> tuple[list[int], int]:
    prompt, answer = problem.prompt.split(), problem.answer.split()
    return [TOKEN_IDS[word] for word in (*prompt, *answer, word_problems.END)], len(prompt)


def _drill(rng: random.Random) -> tuple[list[int], int]:
    """As many equations as fit, with the numbers that word problems use."""
    ids: list[int] = []
    while len(ids) < LONGEST - 10:
        operator = rng.choice(_DRILL_OPERATORS)
        if operator == "*":
            left, right = rng.randint(2, 9), rng.randint(2, 9)
        else:
            left = rng.randint(11, 89)
            right = rng.randint(2, 9) if operator == "-" or rng.random() < 0.3 else rng.randint(10, 99 - min(left, 89))
        ids += [TOKEN_IDS[word] for word in word_problems.equation(operator, left, right, rng).split()]
    return [*ids[: LONGEST - 1], END_ID], 1
