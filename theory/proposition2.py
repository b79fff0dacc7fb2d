"""Exactness of multi-step drafting: what lossless verification of a block still guarantees."""

from __future__ import annotations

from enum import StrEnum


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
