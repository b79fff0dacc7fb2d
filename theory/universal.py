"""Eq. 6-7: one acceptance rate, alike and independent at every slot of a whole block, for a whole grid at once."""

import math

import numpy as np
from numpy.typing import NDArray

from theory.latency import rounds_per_request, tokens_per_second
from theory.proposition1 import accepted_length_law, tokens_per_round


def quantities(
    divergence: NDArray[np.float64],
    leniency: NDArray[np.float64],
    seconds: NDArray[np.float64],
    block_size: int,
    length: float,
) -> dict[str, NDArray[np.float64]]:
    """Return acceptance, agreement (Eq. 6), tokens per round (Eq. 9) and per second (Eq. 7), and seconds per request.

    Parameters
    ----------
    divergence, leniency, seconds : (M,)
        d_K, λ and the time of a round in M cells; NaN: not known.
    block_size
        B, drafted tokens of a round.
    length
        Mean tokens of a text; NaN: not known.
    """
    acceptance_rate = 1 - (1 - leniency) * divergence
    tokens = tokens_per_round(acceptance_rate, block_size)
    return {
        "acceptance_rate": acceptance_rate,
        "agreement": 1 - leniency * divergence,
        "tokens_per_round": tokens,
        "tokens_per_second": tokens_per_second(tokens, seconds),
        "seconds_per_request": _rounds_per_request(acceptance_rate, block_size, length) * seconds,
    }


def _rounds_per_request(acceptance_rate: NDArray[np.float64], block_size: int, length: float) -> NDArray[np.float64]:
    """Rounds of a text of this mean length, its last round cut; between whole lengths on the line through them."""
    if math.isnan(length):
        return np.full_like(acceptance_rate, math.nan)
    law = accepted_length_law(acceptance_rate, block_size)
    whole = math.floor(length)
    fewer, more = rounds_per_request(law, [whole]), rounds_per_request(law, [whole + 1])
    return np.asarray(fewer + (length - whole) * (more - fewer))
