"""Exactness of multi-step drafting: what lossless verification of a block still guarantees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from theory.distances import Array
from theory.theorem1 import VerificationRule, emitted_law

Order: TypeAlias = Literal["left_to_right", "entropy", "margin", "max_probability", "certainty", "confidence"]
ORDERS: tuple[Order, ...] = get_args(Order)
"""Commit orders of masked drafters; only ``confidence`` looks at the drawn values."""


class Exactness(StrEnum):
    """How the law of the text at leniency 0 compares with the verifier's own."""

    JOINT = "joint"
    FIRST_TOKEN = "first_token"
    NONE = "none"


def exactness(order: str, effort: int, *, greedy: bool = False) -> Exactness:
    """What a commit order guarantees at an effort.

    One step, left-to-right commits and one-hot (`greedy`) drafts are jointly exact. An order that looks at the
    distributions alone keeps the first token of every round exact. Committing a token because of its own sampled
    value (order ``confidence``) guarantees nothing.

    Raises
    ------
    ValueError
        If the order is none of `ORDERS`: nothing is known of what it looks at.
    """
    if order not in ORDERS:
        raise ValueError(f"`order` must be one of {', '.join(ORDERS)}, got {order!r}; add what it guarantees here")
    if greedy or effort == 1 or order == "left_to_right":
        return Exactness.JOINT
    return Exactness.NONE if order == "confidence" else Exactness.FIRST_TOKEN


def committed_early(commit_step: Array, /) -> Array:
    """Return which slots were committed before an earlier slot of their block, ``(..., B) -> (..., B)``.

    Accepting the earlier slot re-weights such a token, so that it is no longer distributed as it was drawn.
    """
    xp = array_namespace(commit_step)
    latest, span = commit_step, 1  # the latest step among as many slots up to each; the standard has no running maximum
    while span < commit_step.shape[-1]:
        further = xp.maximum(latest[..., span:], latest[..., :-span])
        latest, span = xp.concat([latest[..., :span], further], axis=-1), 2 * span
    return commit_step < latest


def out_of_order_share(commit_step: Array, reached: Array, /) -> float:
    """Audit recorded commit steps: the share of reached slots that were committed before an earlier one.

    At 0 a commit order that looks at the distributions alone was jointly exact in every recorded round. Above 0 the
    share bounds from above how many tokens can be biased: drafts that do not read later slots, or are certain, are
    exact in any order. Commits by the sampled value bias without leaving a trace here.

    Parameters
    ----------
    commit_step : (N, B)
        Denoising step at which each slot was committed.
    reached : (N, B)
        Slots that the acceptance test reached; a mask of some of them audits these alone.

    Returns
    -------
    float
        NaN if no slot was reached.
    """
    xp = array_namespace(commit_step, reached)
    early, slots = xp.count_nonzero(committed_early(commit_step) & reached), xp.count_nonzero(reached)
    return float(early) / float(slots) if slots else math.nan


def verified_law(rule: VerificationRule, p: Array, proposals: Array, weights: Array) -> Array:
    """Return the exact law of a token that is verified against its realised proposal Q, ``(V,)``.

    Proposition 2: at leniency 0 it is ``p``, whatever the law of Q. Enumerates the values of Q and the drafted tokens.

    Parameters
    ----------
    rule
        Acceptance rule.
    p : (V,)
        Verifier, or any other target that does not depend on Q.
    proposals, weights : (M, V), (M,)
        Values that Q takes, and their probabilities.
    """
    xp = array_namespace(p, proposals, weights)
    return xp.sum(weights[:, None] * emitted_law(rule, p, proposals), axis=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectories:
    """Every way in which a block can be drafted, T of them.

    Attributes
    ----------
    probability : (T,)
        How likely each is; they sum to 1.
    tokens, commit_step : (T, B)
        The drafted block, and the denoising step, from 0, at which each slot was committed.
    proposals : (T, B, V)
        What each token was drawn from at its commit step.
    """

    probability: NDArray[Any]
    tokens: NDArray[np.int64]
    commit_step: NDArray[np.int64]
    proposals: NDArray[Any]


class Drafter(Protocol):
    """A drafter whose trajectories can be enumerated."""

    def __call__(self, prefix: tuple[int, ...], block: int, /) -> Trajectories:
        """Return the trajectories of a block of ``block`` slots after ``prefix``."""


def text_law(
    drafter: Drafter, verifier: Sequence[NDArray[Any]], rule: VerificationRule, *, block_size: int
) -> NDArray[Any]:
    """Return the exact law of the text that Algorithm 1 emits, ``(V,) * L``, by enumerating every round.

    Rounds follow each other until L tokens are there; the last block is cut to what is missing. Nothing is assumed of
    the drafts, so the law answers whether verification is jointly exact: it then equals `verifier_law`.

    Parameters
    ----------
    drafter
        What may be drafted after each prefix.
    verifier
        L tables: entry n holds the verifier's distribution after every text of n tokens, ``(V,) * n + (V,)``.
        Floating-point numbers, or fractions in arrays of objects if ``rule`` computes with them.
    rule
        Acceptance rule.
    block_size
        B, slots of a whole block.
    """
    size, length = len(verifier[0]), len(verifier)
    started = [np.zeros((size,) * n, dtype=verifier[0].dtype) for n in range(length + 1)]
    started[0][()] = 1
    for n in range(length):
        for prefix in product(range(size), repeat=n):
            if started[n][prefix]:
                ahead = [table[prefix] for table in verifier[n:]]
                drafted = drafter(prefix, min(block_size, length - n))
                for m, emitted in enumerate(_round_law(drafted, ahead, rule), start=1):
                    started[n + m][prefix] += started[n][prefix] * emitted
    return started[length]


def verifier_law(verifier: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the law of the verifier's own texts, ``(V,) * L``, from its tables (see `text_law`)."""
    law = verifier[0]
    for table in verifier[1:]:
        law = law[..., None] * table
    return law


def _round_law(drafted: Trajectories, verifier: Sequence[NDArray[Any]], rule: VerificationRule) -> list[NDArray[Any]]:
    """Probability of each text that a round appends: entry m for texts of m + 1 tokens, none longer than the tables."""
    size = len(verifier[0])
    block = drafted.tokens.shape[1]
    alive, texts = drafted.probability, np.zeros(len(drafted.tokens), dtype=np.int64)
    laws = []
    for slot in range(block):
        p, q, y = verifier[slot].reshape(-1, size)[texts], drafted.proposals[:, slot], drafted.tokens[:, slot]
        accepted = rule.probability(*(np.take_along_axis(law, y[:, None], axis=1)[:, 0] for law in (p, q)))
        laws.append(_gather(texts, (alive * (1 - accepted))[:, None] * rule.residual(p, q, y), slot))
        alive, texts = alive * accepted, texts * size + y
    if block < len(verifier):
        laws.append(_gather(texts, alive[:, None] * verifier[block].reshape(-1, size)[texts], block))
    else:
        whole = np.zeros_like(laws[-1]).reshape(-1)
        np.add.at(whole, texts, alive)
        laws[-1] = laws[-1] + whole.reshape(laws[-1].shape)
    return laws


def _gather(texts: NDArray[np.int64], weights: NDArray[Any], length: int) -> NDArray[Any]:
    """Sum weights (T, V) of the next token over trajectories that share a text, ``(V,) * (length + 1)``."""
    size = weights.shape[1]
    law = np.zeros((size**length, size), dtype=weights.dtype)
    np.add.at(law, texts, weights)
    return law.reshape((size,) * (length + 1))
