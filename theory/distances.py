"""Distances between next-token distributions: total variation (Eq. 1-2) and relative entropy (Eq. 17).

Array-API code: the same functions run on NumPy, array-api-strict and torch. They sit in the decoding loop, so nothing
is validated here; NaN in gives NaN out. Throughout the project ``p`` is the verifier and ``q`` the drafter.
"""

import math
from typing import Any, TypeAlias

from array_api_compat import array_namespace

Array: TypeAlias = Any
"""An array of any library that follows the array-API standard."""


def total_variation(p: Array, q: Array, /) -> Array:
    """Half the absolute difference of two distributions (Eq. 2), ``(..., V) -> (...)``."""
    xp = array_namespace(p, q)
    return xp.sum(xp.abs(p - q), axis=-1) / 2


def overlap(p: Array, q: Array, /) -> Array:
    """Mass that two distributions share, the lossless acceptance rate (Eq. 1), ``(..., V) -> (...)``."""
    xp = array_namespace(p, q)
    return xp.sum(xp.minimum(p, q), axis=-1)


def kullback_leibler(p: Array, q: Array, /) -> Array:
    """Relative entropy of ``p`` with respect to ``q`` in nats, ``(..., V) -> (...)``.

    A token with ``p = 0`` costs nothing, whatever ``q`` is; one with ``p > 0 = q`` costs infinity.
    """
    terms = _relative_entropy(p, q)
    return array_namespace(terms).sum(terms, axis=-1)


def binary_kullback_leibler(gamma: Array, p: Array, /) -> Array:
    """Relative entropy of a coin ``gamma`` with respect to a coin ``p`` in nats (Φ of Eq. 17), elementwise.

    Φ(0 | p) = -log(1 - p) and Φ(1 | p) = -log p; infinite where ``p`` rules out what ``gamma`` allows.
    """
    xp = array_namespace(gamma, p)
    log_rest = xp.log1p(-xp.where(gamma == 1, 0.0, gamma)) - xp.log1p(-xp.where(p == 1, 0.0, p))
    rest = xp.where((gamma < 1) & (p == 1), math.inf, (1 - gamma) * log_rest)
    return _relative_entropy(gamma, p) + rest


def _relative_entropy(p: Array, q: Array) -> Array:
    """``p log(p / q)`` elementwise, without dividing: ``p / q`` overflows where ``q`` is subnormal."""
    xp = array_namespace(p, q)
    log_ratio = xp.log(xp.where(p == 0, 1.0, p)) - xp.log(xp.where(q == 0, 1.0, q))
    return xp.where((p > 0) & (q == 0), math.inf, p * log_ratio)
