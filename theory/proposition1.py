"""Tokens per round under independent acceptance (Proposition 1)."""

import numpy as np
from array_api_compat import array_namespace, device

from theory.distances import Array


def tokens_per_round(acceptance_rate: Array | float, block_size: int) -> Array:
    """Return the expected tokens of a round, correction or bonus included (Eq. 9), ``(...) -> (...)``.

    The sum of powers ``1 + α + ... + α^B`` needs no branch at α = 1, where the closed form divides zero by zero, and
    cancels nothing close to it.

    Parameters
    ----------
    acceptance_rate
        α in [0, 1]: chance that a drafted token is accepted, given that the test reaches it. Python numbers count as
        float64.
    block_size
        B >= 1, drafted tokens of a round.
    """
    if block_size < 1:
        raise ValueError(f"`block_size` must be at least 1, got {block_size}; it counts the drafted tokens of a round")
    if isinstance(acceptance_rate, int | float):
        acceptance_rate = np.asarray(acceptance_rate, dtype=np.float64)
    xp = array_namespace(acceptance_rate)
    accepted = xp.arange(block_size + 1, dtype=acceptance_rate.dtype, device=device(acceptance_rate))
    return xp.sum(acceptance_rate[..., None] ** accepted, axis=-1)
