"""Exactness of multi-step drafting: what lossless verification of a block still guarantees."""

from __future__ import annotations

from enum import StrEnum

from array_api_compat import array_namespace, device

from theory.acceptance import Rule
from theory.distances import Array


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
    """
    if greedy or effort == 1 or order == "left_to_right":
        return Exactness.JOINT
    return Exactness.NONE if order == "confidence" else Exactness.FIRST_TOKEN


def verified_law(rule: Rule, p: Array, proposals: Array, weights: Array) -> Array:
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
    law = xp.zeros_like(p)
    tokens = xp.arange(p.shape[-1], device=device(p))
    for token in range(p.shape[-1]):
        drafted = weights * proposals[:, token]
        accepted = drafted * rule.probability(p[token], proposals[:, token])
        replaced = rule.residual(p, proposals, xp.full_like(drafted, token, dtype=xp.int64))
        law = law + xp.where(tokens == token, xp.sum(accepted), 0.0)
        law = law + xp.sum((drafted - accepted)[:, None] * replaced, axis=0)
    return law
