"""Tokens per round: under independent acceptance (Proposition 1), and where its hypothesis fails.

Everything follows from the survival function of a round, ``S(n)``, the chance that at least n drafted tokens are
accepted: expected tokens are ``1 + S(1) + ... + S(B)`` however the positions depend on each other. Proposition 1 is
the case ``S(n) = α^n``. Array-API code over the last axis, which counts n.
"""

import math

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
    return tokens_per_round_derivative(acceptance_rate, block_size, order=0)


def tokens_per_round_derivative(acceptance_rate: Array | float, block_size: int, *, order: int = 1) -> Array:
    """Return a derivative of Eq. 9 in α, ``(...) -> (...)``: tokens gained for each unit of acceptance rate.

    Parameters
    ----------
    acceptance_rate, block_size
        As in `tokens_per_round`.
    order
        Which derivative, from 0; beyond B all are 0. The first times the standard error of α is that of the tokens.
    """
    if order < 0:
        raise ValueError(f"`order` must not be negative, got {order}; 0 is the expectation itself")
    rate = _checked(acceptance_rate, block_size)
    xp = array_namespace(rate)
    power = xp.arange(max(block_size + 1 - order, 0), dtype=rate.dtype, device=device(rate))
    terms = rate[..., None] ** power
    for step in range(1, order + 1):
        terms = terms * (power + step)
    return xp.sum(terms, axis=-1)


def accepted_length_law(acceptance_rate: Array | float, block_size: int) -> Array:
    """Return the law of the accepted length under Proposition 1, ``(...) -> (..., B + 1)``.

    Entry n is the chance that exactly n drafted tokens are accepted: ``α^n (1 - α)``, and ``α^B`` for the whole block.

    Parameters
    ----------
    acceptance_rate, block_size
        As in `tokens_per_round`.
    """
    rate = _checked(acceptance_rate, block_size)[..., None]
    xp = array_namespace(rate)
    powers = rate ** xp.arange(block_size + 1, dtype=rate.dtype, device=device(rate))
    return xp.concat([powers[..., :-1] * (1 - rate), powers[..., -1:]], axis=-1)


def accepted_length_variance(law: Array, /) -> Array:
    """Return the variance of the accepted length, and so of a round's tokens, from its law, ``(..., B + 1) -> (...)``.

    The squares are centred first: the second moment minus the squared mean cancels where nearly all is accepted.
    """
    xp = array_namespace(law)
    length = xp.arange(law.shape[-1], dtype=law.dtype, device=device(law))
    mean = xp.sum(law * length, axis=-1, keepdims=True)
    return xp.sum(law * (length - mean) ** 2, axis=-1)


def survival(acceptance: Array, /) -> Array:
    """Return ``S(n) = a_1 ... a_n``, n = 1..B, of positions that accept independently, ``(..., B) -> (..., B)``.

    Given the draft, the positions of every acceptance rule are independent; averaged over drafts they are not, and
    then the mean of these products is the survival function.

    Parameters
    ----------
    acceptance
        Acceptance probability of each position, given that the test reaches it. NaN from its position on.
    """
    return array_namespace(acceptance).cumulative_prod(acceptance, axis=-1)


def beta_survival(acceptance_rate: Array | float, concentration: float, block_size: int) -> Array:
    """Return ``S(n) = E[P^n]``, n = 1..B, where all positions of a round share one P ~ Beta, ``(...) -> (..., B)``.

    With mean α and concentration c the moments are ``∏_{j<n} (α c + j) / (c + j)``, never below Proposition 1's
    ``α^n`` (Jensen).

    Parameters
    ----------
    acceptance_rate
        α in [0, 1], mean of P. Python numbers count as float64.
    concentration
        c > 0, the sum of the two parameters of the Beta law: a large one is nearly Proposition 1, and towards 0 a
        round accepts its whole block with chance α and nothing otherwise.
    block_size
        B >= 1, drafted tokens of a round.
    """
    if not 0 < concentration < math.inf:
        msg = f"`concentration` must be positive and finite, got {concentration}; without spread use `tokens_per_round`"
        raise ValueError(msg)
    rate = _checked(acceptance_rate, block_size)[..., None]
    xp = array_namespace(rate)
    earlier = xp.arange(block_size, dtype=rate.dtype, device=device(rate))
    return survival((rate * concentration + earlier) / (concentration + earlier))


def tokens_from_survival(survival: Array, /) -> Array:
    """Return ``1 + S(1) + ... + S(B)``, the expected tokens of a round, ``(..., B) -> (...)``.

    It holds for any dependence between the positions; the 1 is the correction or bonus token.

    Parameters
    ----------
    survival
        ``S(n)``, n = 1..B: the chance that at least n drafted tokens are accepted. No positions make one token.
    """
    return 1 + array_namespace(survival).sum(survival, axis=-1)


def law_from_survival(survival: Array, /) -> Array:
    """Return the law of the accepted length, ``S(n) - S(n + 1)``, n = 0..B, ``(..., B) -> (..., B + 1)``."""
    xp = array_namespace(survival)
    nothing = xp.zeros((*survival.shape[:-1], 1), dtype=survival.dtype, device=device(survival))
    return xp.concat([nothing + 1, survival], axis=-1) - xp.concat([survival, nothing], axis=-1)


def _checked(acceptance_rate: Array | float, block_size: int) -> Array:
    """The rate as an array; a block holds at least one token."""
    if block_size < 1:
        raise ValueError(f"`block_size` must be at least 1, got {block_size}; it counts the drafted tokens of a round")
    if isinstance(acceptance_rate, int | float):
        return np.asarray(acceptance_rate, dtype=np.float64)
    return acceptance_rate
