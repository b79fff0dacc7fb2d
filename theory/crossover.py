"""Crossover: at which deviation from the verifier one more denoising step pays (Eq. 6-7).

At deviation ε = λ d_K an effort with divergence d accepts with ``α = 1 - d + ε``, and with 1 from ε = d on, where its
own samples pass. Against the next effort, with divergence d' < d and a longer round c' > c, the gain in tokens

    N(1 - d' + ε) / N(1 - d + ε),    N(α) = 1 + α + ... + α^B,

first rises and then falls as ε grows, whatever the block size; so the next effort is faster within one range of
deviations, which is empty if no gain reaches c' / c. From B = 4 on the gain is largest at ε = d', where the next effort
accepts everything: log N is convex on [0, 1] exactly then (`theory.symbolic` derives it).
Array-API code, elementwise; Python numbers count as float64.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from theory.distances import Array
from theory.proposition1 import tokens_per_round, tokens_per_round_derivative

BISECTIONS = 56
"""Halvings of a range of deviations, at most 1 wide, until nothing of it is left beside the rounding of float64."""


def tokens_at_deviation(deviation: Array | float, divergence: Array | float, block_size: float) -> Array:
    """Return the expected tokens of a round at the leniency that spends a deviation (Eq. 6 in Eq. 9), elementwise.

    Parameters
    ----------
    deviation
        ε >= 0, total variation between the emitted text and the verifier; beyond d it is not spent.
    divergence
        d_K in [0, 1].
    block_size
        B >= 1, drafted tokens of a round, or `math.inf` for the limit ``1 / (d - ε)``, infinite from ε = d on.
    """
    deviation, divergence = _arrays(deviation, divergence)
    _check(block_size, divergence)
    if not array_namespace(deviation).all(deviation >= 0):
        raise ValueError(f"`deviation` must not be negative, got {deviation}; 0 is lossless")
    return _tokens(deviation, divergence, block_size)


def largest_gain(divergence: Array | float, next_divergence: Array | float, block_size: float) -> Array:
    """Return the largest factor by which the next effort's rounds bring more tokens, over deviations, elementwise.

    One more step pays at some deviation exactly if it makes the round longer by less than this factor. From B = 4 on
    it is ``(B + 1) / N(1 - d + d')``. It is at least 1, since from max(d, d') on every draft is accepted; in the limit
    of long blocks, where tokens have no bound there, those deviations do not count: ``d / d'``, or infinite for d' < d.

    Parameters
    ----------
    divergence, next_divergence
        d and d' in [0, 1].
    block_size
        B >= 1, or `math.inf`.
    """
    divergence, next_divergence = _arrays(divergence, next_divergence)
    _check(block_size, divergence, next_divergence)
    return _largest_gain(divergence, next_divergence, block_size)


def paying_deviations(
    divergence: Array | float,
    round_seconds: Array | float,
    next_divergence: Array | float,
    next_round_seconds: Array | float,
    block_size: float,
) -> tuple[Array, Array]:
    """Return the ends of the deviations within which the next effort gives more tokens per second, elementwise.

    The first is 0 if the next effort is faster from the lossless end on; both are NaN if it is faster nowhere. For long
    blocks the first is ``(d' c' - d c) / (c' - c)`` and the last d.

    Parameters
    ----------
    divergence, next_divergence
        d and d' in [0, 1].
    round_seconds, next_round_seconds
        c and c', seconds of a round, draft and verification; ``0 < c < c'``.
    block_size
        B >= 1, or `math.inf` for the limit of long blocks.
    """
    d, c, next_d, next_c = _arrays(divergence, round_seconds, next_divergence, next_round_seconds)
    _check(block_size, d, next_d)
    xp = array_namespace(d)
    if not xp.all((c > 0) & (c < next_c)):
        msg = "`next_round_seconds` must be longer than `round_seconds`, and that positive, got "
        msg += f"{next_round_seconds} after {round_seconds}; a further step takes time"
        raise ValueError(msg)
    if block_size == math.inf:
        first, last = xp.clip((next_d * next_c - d * c) / (next_c - c), 0.0), d
        return _where_it_pays(next_d < d, first, last)
    best = _best_deviation(d, next_d, block_size)

    def pays(deviation: Array) -> Array:
        return _gain(deviation, d, next_d, block_size) * c > next_c

    first = _last_that_holds(lambda deviation: ~pays(deviation), xp.zeros_like(d), best)
    last = _last_that_holds(pays, best, d)
    return _where_it_pays((next_d < d) & pays(best), first, last)


def owns_whole_frontier(divergence: Array, round_seconds: Array, block_size: float) -> Array:
    """Return which efforts are by themselves as fast as any other at every deviation, ``(..., J) -> (..., J)``.

    Effort k is, exactly if no other effort j gains more than its round takes longer: ``largest_gain(d_k, d_j) <=
    c_j / c_k`` for all j. With bounded blocks only the shortest round can be it; in the limit of long blocks it is the
    effort with the smallest d_K if its product ``d_K c_K`` is the smallest too. Where none is, the frontier needs
    several efforts.

    Parameters
    ----------
    divergence
        d_K in [0, 1] of J efforts.
    round_seconds
        c_K > 0, seconds of a round of each.
    block_size
        B >= 1, or `math.inf`.
    """
    divergence, round_seconds = _arrays(divergence, round_seconds)
    _check(block_size, divergence)
    xp = array_namespace(divergence)
    if not xp.all(round_seconds > 0):
        raise ValueError(f"`round_seconds` must be positive, got {round_seconds}; a round takes time")
    gain = _largest_gain(divergence[..., :, None], divergence[..., None, :], block_size)
    return xp.all(gain * round_seconds[..., :, None] <= round_seconds[..., None, :], axis=-1)


def _arrays(*values: Any) -> tuple[Array, ...]:
    """Numbers and arrays as arrays of one shape and library."""
    given = [value for value in values if not isinstance(value, int | float)]
    like = given[0] if given else np.asarray(0.0)
    xp = array_namespace(like, *given)
    floating = [value.dtype for value in given if xp.isdtype(value.dtype, "real floating")]
    dtype = xp.result_type(*floating) if floating else xp.float64
    each = [xp.asarray(value, dtype=dtype, device=device(like)) for value in values]
    return tuple(xp.broadcast_arrays(*each))


def _check(block_size: float, *divergences: Array) -> None:
    if not (block_size >= 1 and (block_size == math.inf or float(block_size).is_integer())):
        msg = f"`block_size` must be a whole number from 1 on, or math.inf, got {block_size}; it counts drafted tokens"
        raise ValueError(msg)
    for divergence in divergences:
        if not array_namespace(divergence).all((divergence >= 0) & (divergence <= 1)):
            raise ValueError(f"`divergence` must lie in [0, 1], got {divergence}; leave out what was not measured")


def _tokens(deviation: Array, divergence: Array, block_size: float) -> Array:
    xp = array_namespace(deviation)
    rejected = xp.clip(divergence - deviation, 0.0)
    if block_size == math.inf:
        return xp.where(rejected > 0, 1 / xp.where(rejected > 0, rejected, 1.0), math.inf)
    return tokens_per_round(1 - rejected, int(block_size))


def _largest_gain(divergence: Array, next_divergence: Array, block_size: float) -> Array:
    xp = array_namespace(divergence)
    if block_size == math.inf:
        ratio = divergence / xp.where(next_divergence > 0, next_divergence, 1.0)
        return xp.where(next_divergence < divergence, math.inf, xp.where(next_divergence > 0, ratio, 1.0))
    best = _best_deviation(divergence, next_divergence, block_size)
    gain = _gain(best, divergence, next_divergence, block_size)
    return xp.where(next_divergence < divergence, gain, 1.0)


def _gain(deviation: Array, divergence: Array, next_divergence: Array, block_size: float) -> Array:
    return _tokens(deviation, next_divergence, block_size) / _tokens(deviation, divergence, block_size)


def _best_deviation(divergence: Array, next_divergence: Array, block_size: float) -> Array:
    """Where the gain is largest: its slope has the sign of ``N'(α') / N(α') - N'(α) / N(α)``, first + and then -."""

    def rises(deviation: Array) -> Array:
        slope, next_slope = (
            tokens_per_round_derivative(rate, int(block_size)) / tokens_per_round(rate, int(block_size))
            for rate in (1 - divergence + deviation, 1 - next_divergence + deviation)
        )
        return next_slope > slope

    nothing = array_namespace(divergence).zeros_like(divergence)
    return _last_that_holds(rises, nothing, next_divergence)


def _last_that_holds(condition: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """End of the part of [low, high] in which a condition holds that fails from there on; low if it never holds."""
    xp = array_namespace(low)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        holds = condition(middle)
        low, high = xp.where(holds, middle, low), xp.where(holds, high, middle)
    return low


def _where_it_pays(pays: Array, first: Array, last: Array) -> tuple[Array, Array]:
    xp = array_namespace(first)
    return xp.where(pays, first, math.nan), xp.where(pays, last, math.nan)
