"""Pairs without networks, whose distributions a test writes down, and the statistics to judge what they emit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import stats
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from profiler.drafters.canvas import Canvas
from profiler.drafters.draft import Draft
from profiler.drafters.masked import MaskedDrafter
from profiler.noise import Noise, Uniforms
from profiler.pairs.families import DrafterSpec, ModelSpec
from profiler.pairs.pair import Pair
from profiler.pairs.spec import PairSpec, TaskSpec
from theory.law_check import g_test
from theory.proposition2 import Exactness

FALSE_ALARM = 1e-6
"""How often a statistical test of this folder fails although the code is right, over the choice of its fixed seed."""


QUESTION = "Ann has 1 2 pens . She buys 3 packs of 4 pens . How many pens does she have now ? A:"


def p_value(counts: ArrayLike, law: ArrayLike) -> float:
    """Of a G-test; cells that expect few draws are merged. 0 where something impossible happened."""
    target = np.asarray(law, dtype=float).reshape(-1)
    return float(g_test(np.asarray(counts).reshape(-1), target / target.sum()))


def uniform_p_value(probs: torch.Tensor, tokens: torch.Tensor, seed: int = 0) -> float:
    """Whether each token (N,) was drawn from its own distribution (N, V), by the probability integral transform.

    A number drawn evenly from the token's stretch of the cumulative sum is uniform, whatever the distributions are.
    The sum goes from likely to unlikely tokens, so that laws which are too bold or too timid shift it.
    """
    probs, order = probs.double().sort(dim=-1, descending=True, stable=True)
    place = (order == tokens[:, None]).int().argmax(dim=-1, keepdim=True)
    end = probs.cumsum(-1).gather(-1, place)[:, 0]
    width = probs.gather(-1, place)[:, 0]
    noise = np.random.default_rng(seed).random(len(tokens))
    return float(stats.kstest((end - width * torch.from_numpy(noise)).numpy(), "uniform").pvalue)


def pair_of(
    drafter: object,
    verifier: object,
    *,
    vocabulary_size: int,
    block_size: int,
    stop_ids: Sequence[int] = (),
    token_limit: int = 8,
) -> Pair:
    """A pair of scripted models."""
    spec = PairSpec(
        name="scripted",
        description="",
        block_size=block_size,
        efforts=(1,),
        drafter=DrafterSpec(checkpoint="", family="scripted"),
        verifier=ModelSpec(checkpoint=""),
        task=TaskSpec(name="word_problems", token_limit=token_limit),
        folder=Path(),
    )
    return Pair(
        spec=spec,
        drafter=drafter,
        verifier=verifier,
        tokenizer=None,
        device=torch.device("cpu"),
        vocabulary_size=vocabulary_size,
        stop_ids=frozenset(stop_ids),
        weights={},
    )


class MarkovVerifier:
    """After token i comes a token by row i of `law` (V, V)."""

    def __init__(self, law: torch.Tensor):
        self.law = law

    def start(self, prompt: torch.Tensor) -> None:
        self.cached = len(prompt) - 1

    def score(self, last: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
        self.cached += 1 + len(drafted)
        return self.law[torch.cat([last, drafted])]

    def keep(self, length: int) -> None:
        self.cached = min(self.cached, length)


class OneStepDrafter:
    """Slot i comes from row i of `sampled` (B, V), independently, but `reported` is what the draft claims."""

    def __init__(self, sampled: torch.Tensor, reported: torch.Tensor | None = None):
        self.sampled = sampled
        self.reported = sampled if reported is None else reported

    def start(self) -> None:
        pass

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        tokens = noise.draw(self.sampled[:block], 0)
        commit_step = torch.zeros(block, dtype=torch.long)
        return Draft(tokens=tokens, probs=self.reported[:block], commit_step=commit_step, passes=1)

    def exactness(self, effort: int) -> Exactness:
        return Exactness.JOINT


class PlayedDrafter:
    """Proposes given blocks, one a round, as certain (one-hot) unless `probs` says otherwise."""

    def __init__(self, blocks: Sequence[Sequence[int]], size: int, probs: Sequence[torch.Tensor] | None = None):
        self.blocks = [torch.tensor(block, dtype=torch.long) for block in blocks]
        self.probs = [one_hot(block, size) for block in blocks] if probs is None else list(probs)

    def start(self) -> None:
        self.round = -1

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        self.round += 1
        tokens = self.blocks[self.round]
        return Draft(tokens=tokens, probs=self.probs[self.round], commit_step=torch.zeros_like(tokens), passes=effort)

    def exactness(self, effort: int) -> Exactness:
        return Exactness.JOINT


class PlayedVerifier:
    """Gives the distributions (B + 1, V) of a script, one table a round, and notes what it was asked to keep."""

    def __init__(self, tables: Sequence[torch.Tensor]):
        self.tables = list(tables)

    def start(self, prompt: torch.Tensor) -> None:
        self.round, self.kept = -1, []

    def score(self, last: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
        self.round += 1
        return self.tables[self.round]

    def keep(self, length: int) -> None:
        self.kept.append(length)


class TableModel(nn.Module):
    """A model without attention: the logits of a row are the table's row of its token; it counts its forward passes."""

    def __init__(self, table: torch.Tensor):
        super().__init__()
        self.table = nn.Parameter(table)
        self.forwards = 0

    def forward(self, input_ids: torch.Tensor, *, logits_to_keep: int = 0, **_: object) -> SimpleNamespace:
        self.forwards += 1
        return SimpleNamespace(logits=self.table[input_ids[:, -logits_to_keep:]])


def masked_drafter(model: nn.Module, *, shifted: bool, causal_prefix: bool, **canvas: object) -> MaskedDrafter:
    """A masked drafter whose other settings are those of its canvas."""
    return MaskedDrafter(model, canvas=Canvas(**canvas), shifted=shifted, causal_prefix=causal_prefix)


def noise(seed: int, effort: int, block: int) -> Uniforms:
    """Independent uniforms for a draft."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(effort + 1, block, generator=generator, dtype=torch.float64)
    return Uniforms(values[1:], canvas=values[0])


def one_hot(tokens: Sequence[int], size: int) -> torch.Tensor:
    """A certain distribution for each token, (n, V); ids outside of the vocabulary get none."""
    return torch.stack([(torch.arange(size) == token).float() for token in tokens])


def prompt_ids(pair: Pair, text: str = QUESTION) -> list[int]:
    """A short prompt in a pair's tokens."""
    ids: list[int] = pair.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


class HostReads(TorchDispatchMode):
    """Counts how often the host asks a tensor for a value, other than by `tolist`: a GPU's host would wait."""

    ASKING = ("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        self.count += function.overloadpacket.__name__ in self.ASKING
        return function(*args, **(kwargs or {}))


def counting(function: Callable) -> Callable:
    """The function with an attribute `calls`."""

    def counted(*args: object, **kwargs: object) -> object:
        counted.calls += 1
        return function(*args, **kwargs)

    counted.calls = 0
    return counted
