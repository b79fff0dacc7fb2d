"""Coupled verification: verifier and drafter share their noise, and any drafter becomes exact.

Each position t of the text has noise ``G_t(v)``, independent standard Gumbel numbers. The verifier's token is
``argmax_v (log p(v) + G_t(v))``, the drafter's ``argmax_v (log q(v) + G_t(v))`` at whatever step it commits t. Drafted
tokens are kept while they are the verifier's; the first that is not gives way to it. The emitted text is then a
function of the noise and the verifier alone: whatever the drafter does, it is what plain autoregressive sampling
writes with this noise. A position keeps its noise until its token is emitted, in later rounds too.

The coupling is that of Daliri, Musco and Suresh, *Coupling without Communication and Drafter-Invariant Speculative
Decoding*, arXiv 2408.07978; that it also repairs drafts whose later tokens are committed first is found here. It must
never be mixed with the ratio test of `theory.acceptance`, whose proof needs independent noise (case O06).
"""

from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from theory.distances import Array


@dataclass(frozen=True)
class CoupledAcceptance:
    """Accept a drafted token where it is the one that the verifier draws with the same noise.

    Lossless for every drafter, effort and commit order. Unlike the rules of `theory.acceptance` it knows no target and
    no probability of acceptance given the drafted token: `coupled_token` decides.
    """

    @property
    def label(self) -> str:
        """Name in tables and files."""
        return "coupled"


def coupled_token(probs: Array, noise: Array, /) -> Array:
    """Draw the token of Gumbel noise, ``argmax_v (log probs(v) + noise(v))``, ``(..., V) -> (...)``.

    Parameters
    ----------
    probs
        Distributions, ``(..., V)``. Their scale does not matter, a token of probability 0 is never drawn.
    noise
        Finite numbers, broadcast against ``probs``; the scores have the wider dtype of the two.
    """
    xp = array_namespace(probs, noise)
    probs = xp.astype(probs, xp.result_type(probs, noise))
    possible = probs > 0
    scores = xp.log(xp.where(possible, probs, 1.0)) + noise
    scores = xp.where(possible, scores, -xp.inf)
    return xp.argmax(scores, axis=-1)


def coupled_acceptance(p: Array, q: Array, /) -> Array:
    """Return the chance that two distributions draw the same token with the same noise, ``(..., V) -> (...)``.

    It is ``sum_v 1 / sum_w max(p(w) / p(v), q(w) / q(v))`` over the tokens that both allow, between
    ``(1 - TV) / (1 + TV)`` and ``1 - TV``. Both bounds are reached: the upper by any two coins, the lower by
    ``(1 - d, d, 0)`` and ``(1 - d, 0, d)``.

    Notes
    -----
    With ``E_v = exp(-G_v)``, independent exponential numbers, v wins both races iff ``E_w / E_v`` exceeds
    ``max(p(w) / p(v), q(w) / q(v))`` for every other w, which has the chance of the summand. The bound from below
    follows from ``max(a / c, b / d) <= max(a, b) / min(c, d)`` and ``sum_w max(p(w), q(w)) = 1 + TV``; the one from
    above is the coupling inequality. Sorted by ``q / p``, the inner maximum is q's part for the tokens beyond v and
    p's part for the others, so that sums along the order replace the V² terms.

    References
    ----------
    Daliri, Musco and Suresh, arXiv 2408.07978.
    """
    xp = array_namespace(p, q)
    total = p + q
    order = xp.argsort(q / xp.where(total > 0, total, 1.0), axis=-1)
    p, q = xp.take_along_axis(p, order, axis=-1), xp.take_along_axis(q, order, axis=-1)
    p_up_to = xp.cumulative_sum(p, axis=-1)
    q_from = xp.flip(xp.cumulative_sum(xp.flip(q, axis=-1), axis=-1), axis=-1)
    shared = p * q
    rivals = q * p_up_to + p * (q_from - q)
    return xp.sum(xp.where(shared > 0, shared / xp.where(shared > 0, rivals, 1.0), 0.0), axis=-1)


def coupled_pair_law(
    verifier: tuple[NDArray[np.float64], NDArray[np.float64]],
    drafter: tuple[NDArray[np.float64], NDArray[np.float64]],
    noise: NDArray[np.float64],
    *,
    redrawn: bool = False,
) -> NDArray[np.float64]:
    """Enumerate the law (V, V) of two emitted tokens whose drafter commits the later one first.

    Every round is gone through: drafted tokens are kept while they are the verifier's. If the first is not, the second
    is drafted in a new round, given the first that was emitted.

    Parameters
    ----------
    verifier
        Law of the first token (V,), and of the second given the first, (V, V) with one row for each first token.
    drafter
        Law of the second token (V,), which is committed first, and of the first given the second, (V, V).
    noise
        M equally likely vectors (M, V), for each position independently. `coin_noise` gives exact laws for V = 2.
    redrawn
        Give the second position new noise if the first token was not the verifier's, instead of keeping its own.
    """
    first, second = verifier
    late, early = drafter
    count = len(noise)
    law = np.zeros_like(second, dtype=float)

    # tables (M, M) over the noise of the first position and that of the second
    drafted_second = coupled_token(late, noise)
    drafted_first = coupled_token(early[drafted_second], noise[:, None])
    own_first = coupled_token(first, noise)
    passed = _kept(drafted_first, own_first[:, None])
    own_second = coupled_token(second[drafted_first], noise)
    emitted = np.where(_kept(drafted_second, own_second), drafted_second, own_second)
    np.add.at(law, (drafted_first, emitted), passed)

    ended = np.mean(~passed, axis=1, keepdims=True) if redrawn else ~passed
    own_second = coupled_token(second[own_first][:, None], noise)
    drafted_again = coupled_token((late[:, None] * early).T[own_first][:, None], noise)
    emitted = np.where(_kept(drafted_again, own_second), drafted_again, own_second)
    np.add.at(law, (own_first[:, None], emitted), ended)
    return law / count**2


def _kept(drafted: NDArray[np.int64], own: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which drafted tokens are the verifier's own; the others give way to these."""
    return np.asarray(drafted == own)


def coin_noise(levels: int) -> NDArray[np.float64]:
    """Return noise (levels, 2) for two tokens; a coin p falls exactly right where ``levels * p`` is whole.

    The difference of two Gumbel numbers is logistic; here it takes the middles of ``levels`` equally likely stretches.
    """
    uniforms = (np.arange(levels) + 0.5) / levels
    return np.stack([np.zeros(levels), np.log(uniforms) - np.log1p(-uniforms)], axis=1)
