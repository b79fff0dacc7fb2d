"""Verification as a sampler, right and in the ways that it has been got wrong: what a check of laws must tell apart."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from theory.acceptance import LOSSLESS, LinearAcceptance
from theory.law_check import Sampler
from theory.theorem1 import VerificationRule

Law: TypeAlias = NDArray[np.float64]
Tokens: TypeAlias = NDArray[np.int64]


class AlwaysAccept(LinearAcceptance):
    """Every drafted token is kept (case O02)."""

    def probability(self, p_drafted: Law, q_drafted: Law, /) -> Law:
        """Return 1."""
        return np.ones_like(p_drafted)


class ExactMatch(LinearAcceptance):
    """A drafted token is kept if an independent draw from ``p`` is the same, else that draw is emitted (case O05)."""

    def probability(self, p_drafted: Law, q_drafted: Law, /) -> Law:
        """Return ``p``, the chance of a match."""
        return p_drafted

    def residual(self, p: Law, q: Law, drafted: Tokens, drafted_target: Law | None = None, /) -> Law:
        """Return ``p`` without the drafted token."""
        other = np.where(np.arange(p.shape[-1]) == drafted[..., None], 0.0, p)
        law: Law = other / other.sum(axis=-1, keepdims=True)
        return law


class ReplaceFromTarget(LinearAcceptance):
    """A rejected token is replaced by a draw from ``p`` instead of the residual."""

    def residual(self, p: Law, q: Law, drafted: Tokens, drafted_target: Law | None = None, /) -> Law:
        """Return ``p``."""
        return p


@dataclass(frozen=True, kw_only=True, eq=False)
class VerifiedToken:
    """Sampler of one verified token.

    Attributes
    ----------
    p, proposal : (V,)
        Verifier, and what the draft is drawn from.
    believed : (V,)
        What verification takes for the proposal; the proposal itself if None.
    rule
        Acceptance rule.
    noise
        ``independent`` for draft, test and replacement; ``uniform``: one uniform number for all three; ``gumbel``: one
        vector of Gumbel noise for draft and replacement.
    acceptance
        The outcome is ``token + V`` where the draft was accepted, and not the token alone.
    """

    p: Law
    proposal: Law
    believed: Law | None = None
    rule: VerificationRule = LOSSLESS
    noise: Literal["independent", "uniform", "gumbel"] = "independent"
    acceptance: bool = False

    @property
    def target(self) -> Law:
        """Law of the outcomes of a right sampler: ``p``, or what is replaced followed by what is accepted."""
        if not self.acceptance:
            return self.p
        return np.concatenate([np.maximum(self.p - self.proposal, 0), np.minimum(self.p, self.proposal)])

    def __call__(self, rng: np.random.Generator, draws: int) -> Tokens:
        """Draw outcomes, ``(draws,)``."""
        first, test, second = rng.random((3, draws))
        if self.noise == "uniform":
            test = second = first
        gumbel = rng.gumbel(size=(draws, len(self.p))) if self.noise == "gumbel" else None
        accepts, replacement = _verification(
            self.p, self.proposal if self.believed is None else self.believed, self.rule
        )
        drafted = _draw(self.proposal, first, gumbel)
        kept = drafted + len(self.p) * self.acceptance
        return np.where(test < accepts[drafted], kept, _draw(replacement[drafted], second, gumbel))


@dataclass(frozen=True, kw_only=True, eq=False)
class VerifiedPair:
    """Sampler of two tokens, drafted from left to right in two steps; the outcome is ``first * V + second``.

    Attributes
    ----------
    p, p_next : (V,), (V, V)
        Verifier for the first token, and for the second after each first one.
    proposal, proposal_next : (V,), (V, V)
        Drafter likewise.
    mean
        Verify the second token against the mean proposal E[Q] instead of the one that it was drawn from.
    """

    p: Law
    p_next: Law
    proposal: Law
    proposal_next: Law
    mean: bool = False

    @property
    def target(self) -> Law:
        """Law of the outcomes of a right sampler: the verifier's own pairs."""
        return (self.p[:, None] * self.p_next).reshape(-1)

    def __call__(self, rng: np.random.Generator, draws: int) -> Tokens:
        """Draw outcomes, ``(draws,)``."""
        uniforms = rng.random((6, draws))
        accepts, replacement = _verification(self.p, self.proposal)
        believed = self.proposal @ self.proposal_next if self.mean else self.proposal_next
        accepts_next, replacement_next = _verification(self.p_next, np.broadcast_to(believed, self.p_next.shape))
        first = _draw(self.proposal, uniforms[0])
        second = _draw(self.proposal_next[first], uniforms[1])
        kept = uniforms[2] < accepts[first]
        kept_next = kept & (uniforms[3] < accepts_next[first, second])
        emitted = np.where(kept, first, _draw(replacement[first], uniforms[4]))
        # after a rejected first token the block is cut, and the next one comes from the verifier
        law_next = np.where(kept[:, None], replacement_next[first, second], self.p_next[emitted])
        return emitted * len(self.p) + np.where(kept_next, second, _draw(law_next, uniforms[5]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Mistake:
    """A wrong sampler beside the right one, and the law that the right one has."""

    name: str
    wrong: Sampler
    right: Sampler
    target: Law


def known_mistakes() -> list[Mistake]:
    """Return the mistakes that have been reported, with the numbers of their cases where these have some."""
    plain = _token([0.05, 0.25, 0.4, 0.3], [0.7, 0.2, 0.05, 0.05])
    warped = _token([0.625, 0.375, 0, 0], [4 / 7, 3 / 7, 0, 0])
    greedy = _token([0.5, 0.3, 0.2], [1, 0, 0])
    matched = replace(_token([0.5, 0.3, 0.2], [0.4, 0.4, 0.2]), acceptance=True)
    pair = VerifiedPair(
        p=np.array([0.5, 0.5]),
        p_next=np.array([[0.7, 0.3], [0.4, 0.6]]),
        proposal=np.array([0.6, 0.4]),
        proposal_next=np.array([[0.9, 0.1], [0.2, 0.8]]),
    )
    return [
        _mistake("accepts always (O02)", _token([0.2, 0.8], [0.8, 0.2]), rule=AlwaysAccept(leniency=0)),
        _mistake("raw instead of warped q (O03)", warped, believed=np.array([0.4, 0.3, 0.2, 0.1])),
        _mistake("raw instead of warped p", warped, p=np.array([0.5, 0.3, 0.1, 0.1])),
        _mistake("soft q for a greedy draft (O04)", greedy, believed=np.array([0.6, 0.3, 0.1])),
        _mistake("exact match, by token and acceptance (O05)", matched, rule=ExactMatch(leniency=0)),
        _mistake("one uniform number for all draws (O06)", plain, noise="uniform"),
        _mistake("one Gumbel vector for all draws (O06)", plain, noise="gumbel"),
        _mistake("replacement from p", plain, rule=ReplaceFromTarget(leniency=0)),
        _mistake("E[Q] instead of the realised Q", pair, mean=True),
    ]


def _token(p: list[float], proposal: list[float]) -> VerifiedToken:
    return VerifiedToken(p=np.array(p), proposal=np.array(proposal))


def _mistake(name: str, right: VerifiedToken | VerifiedPair, **changes: Any) -> Mistake:
    return Mistake(name=name, wrong=replace(right, **changes), right=right, target=right.target)


def _draw(laws: Law, uniforms: Law, gumbel: Law | None = None) -> Tokens:
    """One token a draw, from one law or one each, by inversion, or as the largest log-probability plus noise."""
    if gumbel is not None:
        with np.errstate(divide="ignore"):
            return np.asarray(np.argmax(np.log(laws) + gumbel, axis=-1))
    reached = np.cumsum(laws, axis=-1)
    return np.asarray((reached <= uniforms[:, None] * reached[..., -1:]).sum(axis=-1))


def _verification(p: Law, believed: Law, rule: VerificationRule = LOSSLESS) -> tuple[Law, Law]:
    """Acceptance probability of each token that may be drafted, ``(..., V)``, and its replacement, ``(..., V, V)``."""
    tokens = np.broadcast_to(np.arange(p.shape[-1]), p.shape)
    replacement = rule.residual(p[..., None, :], believed[..., None, :], tokens)
    return rule.probability(p, believed), np.broadcast_to(replacement, (*p.shape, p.shape[-1]))
