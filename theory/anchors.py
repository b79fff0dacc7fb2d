"""Anchors: round starts between those of two recordings, weighted by how much of the text a rule leaves as it was.

Leniency changes the texts, hence the prefixes that rounds start from. Couple the text of a rule with the lossless one
as closely as possible: they are the same until the rule accepts a token that the lossless test would have rejected,
which at a slot that the lossless test reaches has chance ``a_i - a_i(lossless)``. So the chance that a round still
starts from a lossless prefix is a product over the rounds before it, known from the lossless recording alone. One
refinement: a token counts as strange only as far as the rule accepts it more than `FAMILIAR` times as often as the
lossless test; up to there lossless texts hold it too, and rounds that follow it are in the lossless recording.
(Cactus raises likely tokens and leaves impossible ones at 0, and its texts stay familiar; linear acceptance keeps
impossible ones.)

What follows a strange token is taken to be like the rounds of the lenient recording that follow one. That is the most
that prefixes can shift: if a text forgot a strange token, or suffered anew from each, the share of shifted prefixes
would be smaller, down to the deviation that a rule spends relative to that of the lenient recording.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from theory.acceptance import Rule
from theory.replay import LOSSLESS, replay, tests_ratio
from theory.rounds import Rounds

Draws: TypeAlias = NDArray[np.float64]

FAMILIAR = 2.0
"""A token that a rule accepts up to so many times as often as the lossless test leads to a familiar text."""


def familiar_tokens(rounds: Rounds, rule: Rule) -> NDArray[np.float64]:
    """Return how many tokens of each lossless round would still follow a familiar text under a rule, (N,).

    The chance falls from round to round by ``1 - sum_i P(i - 1 accepted) [a_i - FAMILIAR a_i(lossless)]_+``; within a
    round the mean of its two ends counts.

    Parameters
    ----------
    rounds
        Whole requests, recorded at leniency 0.
    rule
        The rule that would write the text.
    """
    p, q = rounds.p_drafted, rounds.q_drafted
    strange = np.clip(tests_ratio(rule).probability(p, q) - LOSSLESS.probability(FAMILIAR * p, q), 0, None)
    arrival = replay(rounds, LOSSLESS).survival[:, :-1]
    leaves = np.clip(np.where(rounds.proposed, arrival * strange, 0).sum(axis=1), 0, 1)
    request = np.stack([rounds.prompt, rounds.effort.astype(str), rounds.replica.astype(str)], axis=1)
    _, request = np.unique(request, axis=0, return_inverse=True)
    stays = np.ones((request.max() + 1, rounds.round.max() + 2))
    stays[request, rounds.round + 1] = 1 - leaves
    prefix = np.cumprod(stays, axis=1)[request, rounds.round]
    return np.asarray(rounds.emitted * prefix * (1 - leaves / 2))


def blend(lossless: Draws, lenient: Draws, *, familiar: Draws, familiar_anchor: Draws) -> Draws:
    """Mix the means of two recordings, replayed under one rule, ``(R, 5) -> (R, 5)``.

    With Φ the familiar share of the text under the rule, and Φ_a that under the lenient recording's own rule, the share
    ``w = (1 - Φ) / (1 - Φ_a)`` of the text is like that of the lenient recording: 0 for the lossless rule, 1 for the
    lenient recording's own and for more lenient ones, which are not extrapolated. A stretch of text takes a round for
    each T tokens, so the share of round starts is ``(w / T_a) / (w / T_a + (1 - w) / T)``.

    Parameters
    ----------
    lossless, lenient
        Reached slots, accepted ones, deviation spent and tokens appended, each a mean over the rounds of the recording
        under the rule, and tokens per request.
    familiar, familiar_anchor : (R,)
        Φ and Φ_a.
    """
    strange = 1 - familiar_anchor
    text = np.where(strange > 0, (1 - familiar) / np.where(strange > 0, strange, 1), 0)
    text = np.clip(text, 0, 1)[:, None]
    lenient_starts, lossless_starts = text / lenient[:, 3:4], (1 - text) / lossless[:, 3:4]
    starts = lenient_starts / (lenient_starts + lossless_starts)
    share = np.concatenate([np.repeat(starts, 4, axis=1), text], axis=1)
    return np.asarray((1 - share) * lossless + share * lenient)
