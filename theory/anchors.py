"""Anchors: round starts between those of two recordings, blended by the deviation that a rule has spent."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Draws: TypeAlias = NDArray[np.float64]

FIXED_POINT_STEPS = 50


def blend(lossless: Draws, lenient: Draws, *, anchor: Draws) -> Draws:
    """Mix the means of two recordings, replayed under one rule, ``(R, 5) -> (R, 5)``.

    The share of round starts that are like those of the lenient recording is the deviation that the rule spends a token
    on the mixed rounds, relative to what the lenient recording itself spent: a fixed point, 0 for the lossless rule and
    1 for the lenient recording's own.

    Parameters
    ----------
    lossless, lenient
        Reached slots, accepted ones, deviation spent, tokens appended and tokens per request, each a mean over the
        rounds of the recording, under the rule.
    anchor
        The same of the lenient recording under its own rule.
    """
    most = anchor[:, 2] / anchor[:, 3]
    share = np.zeros(len(most))
    for _ in range(FIXED_POINT_STEPS):
        mixed = _mix(lossless, lenient, share)
        share = np.clip(mixed[:, 2] / mixed[:, 3] / most, 0, 1)
    return _mix(lossless, lenient, share)


def _mix(lossless: Draws, lenient: Draws, share: Draws) -> Draws:
    return np.asarray((1 - share[:, None]) * lossless + share[:, None] * lenient)
