"""Anchors: round starts between those of two recordings, weighted by the strange tokens that a rule leads to.

Leniency changes the texts, hence the prefixes that rounds start from. A token is strange as far as a rule accepts it
more than `FAMILIAR` times as often as the lossless test: up to there lossless texts hold it too, and what follows it
is in the lossless recording. (Linear acceptance keeps tokens that the verifier would never write. Cactus raises likely
ones alone, and its texts stay familiar.) How many strange tokens a rule writes follows from the lossless recording.

Let each strange token change what follows with chance `CHANGES`, for good, and let what follows then be like the
rounds of the lenient recording that have such a prefix. After n strange tokens on average, Poisson distributed, a
prefix is still familiar with chance ``exp(-CHANGES n)``. At 1 this is the maximal coupling of the rule's text with the
lossless one, the most that prefixes can shift; towards 0 the shift is proportional to n, the least if no text heals.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from theory.acceptance import LOSSLESS, Rule
from theory.replay import replay, tests_ratio
from theory.rounds import Rounds

Draws: TypeAlias = NDArray[np.float64]

FAMILIAR = 2.0
"""A token that a rule accepts up to so many times as often as the lossless test is familiar."""

CHANGES = 0.5
"""Chance that a strange token changes what follows: a choice, not a law, made on measurements of one pair.

Rounds of the embedded pair after exactly one, at leniency .25 to .75, show .3 to .5 of the full shift of tokens per
round at K = 1, 2 and 3, and all of it at K = 4; two recordings alone do not tell. One half took the place of 1, the
maximal coupling, whose errors on 112 measured prompts were all on one side. `python -m benchmarks.accuracy` shows the
errors at 0, one half and 1.
"""


def familiar_tokens(rounds: Rounds, rule: Rule, *, changes: float = CHANGES) -> NDArray[np.float64]:
    """Return how many tokens of each lossless round would still follow a familiar text under a rule, (N,).

    Each recorded stretch of text holds strange tokens at the rate at which the rule would write them there: chance of
    reaching a slot times ``[a_i - FAMILIAR a_i(lossless)]_+``, over the tokens of the round.

    Parameters
    ----------
    rounds
        Whole requests, recorded at leniency 0.
    rule
        The rule that would write the text.
    changes
        Chance above 0 that a strange token changes what follows.
    """
    p, q = rounds.p_drafted, rounds.q_drafted
    excess = np.clip(tests_ratio(rule).probability(p, q) - LOSSLESS.probability(FAMILIAR * p, q), 0, None)
    survival = replay(rounds, rule).survival
    strange = np.where(rounds.proposed, survival[:, :-1] * excess, 0).sum(axis=1)
    strange *= rounds.emitted / survival.sum(axis=1)
    request = np.stack([rounds.prompt, rounds.effort.astype(str), rounds.replica.astype(str)], axis=1)
    _, request = np.unique(request, axis=0, return_inverse=True)
    counts = np.zeros((request.max() + 1, rounds.round.max() + 2))
    counts[request, rounds.round + 1] = strange
    before = np.cumsum(counts, axis=1)[request, rounds.round]
    return np.asarray(rounds.emitted * np.exp(-changes * (before + strange / 2)))


def lenient_text(familiar: Draws, familiar_anchor: Draws) -> Draws:
    """Return the share of the text that is like that of the lenient recording, ``(1 - Φ) / (1 - Φ_a)``.

    Φ is the familiar share of the text under the rule, Φ_a that under the lenient recording's own rule: 0 for the
    lossless rule, 1 for the lenient recording's own and for more lenient ones, which are not extrapolated.
    """
    strange = 1 - familiar_anchor
    return np.asarray(np.clip(np.where(strange > 0, (1 - familiar) / np.where(strange > 0, strange, 1), 0), 0, 1))


def lenient_starts(text: Draws, lossless_tokens: Draws, lenient_tokens: Draws) -> Draws:
    """Return the share of round starts in a share w of the text, ``(w / T_a) / (w / T_a + (1 - w) / T)``.

    A stretch of text takes a round for each T tokens, T_a where it is like that of the lenient recording.
    """
    lenient, lossless = text / lenient_tokens, (1 - text) / lossless_tokens
    return lenient / (lenient + lossless)


def blend(lossless: Draws, lenient: Draws, *, familiar: Draws, familiar_anchor: Draws) -> Draws:
    """Mix the means of two recordings, replayed under one rule, ``(R, C) -> (R, C)``.

    Parameters
    ----------
    lossless, lenient
        Reached slots, accepted ones, deviation spent, tokens appended and whatever else counts rounds, each a mean over
        the rounds of the recording under the rule; last, tokens per request.
    familiar, familiar_anchor : (R,)
        Familiar share of the text under the rule, and under the lenient recording's own, see `lenient_text`.
    """
    text = lenient_text(familiar, familiar_anchor)
    starts = lenient_starts(text, lossless[:, 3], lenient[:, 3])
    share = np.stack([starts] * (lossless.shape[1] - 1) + [text], axis=1)
    return np.asarray((1 - share) * lossless + share * lenient)
