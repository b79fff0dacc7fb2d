"""Toy drafters whose trajectories can be enumerated, and the example in which lossless verification is not exact."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from theory.proposition2 import Order, Trajectories

ToyOrder: TypeAlias = Literal[Order, "right_to_left", "redraw"]
ORDERS: tuple[ToyOrder, ...] = get_args(ToyOrder)
"""Commit orders of masked drafters, the opposite of left to right, and ``redraw``, which draws every slot anew in each
step as uniform diffusion does."""

Denoiser: TypeAlias = Callable[[tuple[int, ...], int], NDArray[Any]]
"""Takes a prefix and a number of slots B; gives the distribution of every slot on every canvas,
``(V + 1,) * B + (B, V)``, where token V is the mask."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ToyDrafter:
    """Denoise a block in steps as a diffusion drafter does, but take every draw at once.

    Attributes
    ----------
    denoiser
        The distributions; floating-point numbers, or fractions in arrays of objects.
    order
        Which slots a step commits. ``entropy`` needs floating-point numbers.
    effort
        K, denoising steps; a block of fewer slots takes as many steps as it has slots.
    confidence
        Order ``confidence`` commits the slots whose drawn token is more probable than this, or the best one; order
        ``certainty`` those whose likeliest token is.
    """

    denoiser: Denoiser
    order: ToyOrder
    effort: int
    confidence: float | Fraction = 0.5

    def __call__(self, prefix: tuple[int, ...], block: int) -> Trajectories:
        """Return the trajectories of a block of ``block`` slots after ``prefix``."""
        table = self.denoiser(prefix, block)
        size, slots = table.shape[-1], np.arange(block)
        draws = np.array(list(product(range(size), repeat=block)))
        probability = np.ones(1, dtype=table.dtype)
        canvas, commit_step = np.full((1, block), size), np.full((1, block), -1)
        proposals = np.zeros((1, block, size), dtype=table.dtype)
        counts = commit_counts(block, min(self.effort, block))
        for step, count in enumerate(counts):
            laws = table[tuple(canvas.T)]
            redrawn = (canvas == size) | (self.order == "redraw")
            drawn = laws[:, slots, draws]
            # a slot that keeps its token draws nothing: one of the draws stands for all
            chance = np.where(redrawn[:, None], drawn, (draws == 0).astype(int)).prod(axis=-1)
            chosen = self._choose(laws, drawn, redrawn, count, last=step == len(counts) - 1)
            state, draw = np.nonzero(chance)
            chosen = np.broadcast_to(chosen, drawn.shape)[state, draw]
            probability = probability[state] * chance[state, draw]
            canvas = np.where(chosen, draws[draw], canvas[state])
            commit_step = np.where(chosen, step, commit_step[state])
            proposals = np.where(chosen[..., None], laws[state], proposals[state])
        return Trajectories(probability=probability, tokens=canvas, commit_step=commit_step, proposals=proposals)

    def _choose(
        self, laws: NDArray[Any], drawn: NDArray[Any], open_slots: NDArray[np.bool_], count: int, *, last: bool
    ) -> NDArray[np.bool_]:
        """The slots (S, C or 1, B) that a step writes, for S canvases and C draws."""
        masked = open_slots[:, None]
        if last or self.order == "redraw":
            return masked
        scores = np.where(masked, self._scores(laws, drawn), -math.inf)
        rank = np.argsort(np.argsort(-scores, axis=-1, kind="stable"), axis=-1)
        if self.order in ("confidence", "certainty"):
            passed = masked & (scores > self.confidence)
            return masked & np.where(passed.any(axis=-1, keepdims=True), passed, rank == 0)
        return masked & (rank < count)

    def _scores(self, laws: NDArray[Any], drawn: NDArray[Any]) -> NDArray[Any]:
        """How eager each slot is to be committed; only order ``confidence`` looks at what was drawn."""
        if self.order == "confidence":
            return drawn
        if self.order in ("left_to_right", "right_to_left"):
            slots = np.arange(laws.shape[1])[None, None]
            return slots if self.order == "right_to_left" else -slots
        certainty: NDArray[Any]
        if self.order == "entropy":
            certainty = (laws * np.log(np.where(laws > 0, laws, 1.0))).sum(axis=-1)
        elif self.order == "margin":
            certainty = np.diff(np.sort(laws, axis=-1)[..., -2:])[..., 0]
        else:
            certainty = laws.max(axis=-1)
        return certainty[:, None]


def commit_counts(block: int, steps: int) -> list[int]:
    """How many of ``block`` slots each of ``steps`` steps commits: equal shares, the remainder to the first steps."""
    share, remainder = divmod(block, steps)
    return [share + (step < remainder) for step in range(steps)]


@dataclass(frozen=True, kw_only=True)
class RationalLossless:
    """Lossless acceptance in fractions, written out from Algorithm 1: `acceptance` computes with floating point."""

    def probability(self, p_drafted: NDArray[Any], q_drafted: NDArray[Any], /) -> NDArray[Any]:
        """Return ``min(1, p / q)``."""
        accepted: NDArray[Any] = np.minimum(p_drafted / q_drafted, 1)
        return accepted

    def residual(self, p: NDArray[Any], q: NDArray[Any], drafted: NDArray[np.int64], /) -> NDArray[Any]:
        """Return ``normalize([p - q]_+)``, or ``p`` where p = q and nothing is ever rejected."""
        excess: NDArray[Any] = np.maximum(p - q, 0)
        total = excess.sum(axis=-1, keepdims=True)
        return np.where(total > 0, excess / np.where(total > 0, total, 1), p)


def late_first(number: type[float] | type[Fraction]) -> tuple[ToyDrafter, list[NDArray[Any]]]:
    """Return a drafter and a verifier of two slots and two symbols for which lossless verification is not exact.

    The verifier is uniform. The second slot is drafted first, uniformly; the first then takes the same symbol with
    probability 19/20. Accepting the first re-weights the second: equal symbols come out with probability .3625 each
    instead of .25, although each symbol alone is right.
    """
    half, same = number(1) / 2, number(19) / 20
    table = np.full((3, 3, 2, 2), half)
    table[:, 0, 0], table[:, 1, 0] = (same, 1 - same), (1 - same, same)

    def denoiser(prefix: tuple[int, ...], block: int) -> NDArray[Any]:
        return table if block == 2 else np.full((3, 1, 2), half)

    verifier = [np.full((2,) * n, half) for n in (1, 2)]
    return ToyDrafter(denoiser=denoiser, order="right_to_left", effort=2), verifier


def kept_when_likely(number: type[float] | type[Fraction]) -> tuple[ToyDrafter, list[NDArray[Any]]]:
    """Return a drafter and a verifier for which not even the first token is exact: commits by the sampled value.

    The verifier is uniform over two symbols. The drafter knows the second slot and gives the first one 3/5 on symbol
    0, whatever the canvas; it commits what it has drawn with more than 1/2, so that symbol 1 gets no more than a second
    chance: symbol 0 is drafted with probability .84, accepted with 5/6, and emitted with .7 instead of .5.
    """
    first, second = (number(3) / 5, number(2) / 5), (number(1), number(0))

    def denoiser(prefix: tuple[int, ...], block: int) -> NDArray[Any]:
        table = np.empty((3,) * block + (block, 2), dtype=np.asarray(second).dtype)
        table[...] = np.array([first, second][:block])
        return table

    verifier = [np.full((2,) * n, number(1) / 2) for n in (1, 2)]
    return ToyDrafter(denoiser=denoiser, order="confidence", effort=2), verifier


def random_verifier(rng: np.random.Generator, size: int, length: int, *, rational: bool = False) -> list[NDArray[Any]]:
    """Return a verifier's tables for texts of ``length`` tokens (see `proposition2.text_law`)."""
    return [_random_laws(rng, (size,) * n, size, rational=rational) for n in range(length)]


def random_denoiser(
    rng: np.random.Generator, size: int, *, rational: bool = False, certain: bool = False, causal: bool = False
) -> Denoiser:
    """Return unrelated distributions for every prefix, canvas and slot.

    Parameters
    ----------
    rational
        Fractions instead of floating-point numbers.
    certain
        One-hot distributions.
    causal
        No slot reads a later one.
    """

    @cache
    def denoiser(prefix: tuple[int, ...], block: int) -> NDArray[Any]:
        table = _random_laws(rng, (size + 1,) * block + (block,), size, rational=rational, certain=certain)
        if causal:
            for slot in range(block):
                hidden = (slice(None),) * slot + (slice(size, None),) * (block - slot)
                table[..., slot, :] = table[hidden][..., slot, :]
        return table

    return denoiser


def _random_laws(
    rng: np.random.Generator, shape: tuple[int, ...], size: int, *, rational: bool, certain: bool = False
) -> NDArray[Any]:
    """Distributions over the last axis, spread out or concentrated by chance, ``shape + (V,)``."""
    laws = rng.dirichlet(np.full(size, rng.choice([0.3, 1.0])), shape)
    if certain:
        laws = np.eye(size)[laws.argmax(axis=-1)]
    if not rational:
        return laws
    weights = np.vectorize(Fraction, otypes=[object])(np.ceil(laws * 100).astype(int) + (0 if certain else 1))
    fractions: NDArray[Any] = weights / weights.sum(axis=-1, keepdims=True)
    return fractions
