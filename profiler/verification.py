"""The two ways to verify a draft: the ratio test (Algorithm 1, lines 7-12) and coupled verification.

One object draws the drafter's noise and gives the verdict, so that a draft never meets the other way's test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from profiler import sampling
from profiler.drafters.draft import Draft
from profiler.noise import Gumbel, Noise, Uniforms
from profiler.pairs.pair import Pair
from profiler.streams import Stream, Streams
from theory.acceptance import RatioRule, Rule, accept_prefix, acceptance_probability
from theory.coupled import CoupledAcceptance, coupled_token
from theory.distances import total_variation

_NAN = (
    "the {model}'s logits are NaN at {place} of round {index} (p(y) = {p}, q(y) = {q}); "
    "load it in float32 or check the checkpoint"
)


class NumericalError(ValueError):
    """A model gave a distribution that is not one."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a block stands: the round of its request, and the text's length before it."""

    index: int
    position: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How many drafted tokens stay, the token that follows them, and the draft with p(y), q(y) and TV of each slot."""

    accepted: int
    added: int
    drafted: list[int]
    commit_step: list[int]
    p_drafted: list[float]
    q_drafted: list[float]
    divergence: list[float]


@dataclass(frozen=True, kw_only=True)
class RatioTest:
    """Accept by the ratio of target and drafter; drafting, test and replacement have a stream each, new every round."""

    rule: RatioRule
    streams: Streams
    device: torch.device

    def noise(self, place: Place, effort: int, block: int) -> Noise:
        """What the drafter draws with."""
        return Uniforms(
            self._uniforms(Stream.DRAFT, place, effort, block), canvas=self._uniforms(Stream.CANVAS, place, block)
        )

    def choose(
        self, p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, place: Place
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The accepted length, the token added, and the law (V,) that it was drawn from."""
        block = len(drafted)
        law, accepted = p[0], torch.zeros((), dtype=torch.long, device=p.device)
        if block:
            q_drafted = _at(drafted, q)
            target = self.rule.drafted_target(_at(drafted, p), q_drafted)
            acceptance = acceptance_probability(target, q_drafted)
            accepted = accept_prefix(acceptance, self._uniforms(Stream.ACCEPTANCE, place, block))
            slot = accepted.clamp(max=block - 1)[None]
            (replacement,) = self.rule.residual(p[slot], q[slot], drafted[slot], target[slot])
            law = torch.where(accepted < block, replacement, p[block])
        return accepted, sampling.draw(law, self._uniforms(Stream.REPLACEMENT, place)), law

    def _uniforms(self, stream: Stream, place: Place, *shape: int) -> torch.Tensor:
        return self.streams.uniforms(stream, place.index, shape).to(self.device, non_blocking=True)


@dataclass(kw_only=True)
class Coupling:
    """Accept what the verifier draws with the drafter's own noise, which belongs to the position, not to the round.

    The text is that of the verifier alone with the same noise, as long as its probabilities at a position are the same
    in a pass over a block and in one over a single token. Floating point makes them differ in the last digits, which
    turns the race of two tokens whose scores differ by less. Either outcome is a fair draw, so that the law of the text
    is not touched; which of the two texts comes out is, about once in 1e6 tokens in float32 and never in practice in
    float64, which a pair may ask of its verifier.
    """

    streams: Streams
    device: torch.device
    vocabulary_size: int
    _noise: tuple[Place, torch.Tensor] | None = field(default=None, init=False)

    def noise(self, place: Place, effort: int, block: int) -> Noise:
        """What the drafter draws with, at every step the same."""
        canvas = self.streams.uniforms(Stream.CANVAS, place.index, (block,)).to(self.device, non_blocking=True)
        return Gumbel(self._gumbel(place, block)[:block], canvas=canvas)

    def choose(
        self, p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, place: Place
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The accepted length, the token added, and the law (V,) that it was drawn from."""
        tokens = coupled_token(p, self._gumbel(place, len(drafted)))
        same = (drafted == tokens[:-1]).to(p)
        accepted = accept_prefix(same, torch.zeros_like(same))
        return accepted, tokens[accepted[None]][0], p[accepted[None]][0]

    def _gumbel(self, place: Place, block: int) -> torch.Tensor:
        """Noise of a block's positions and the one after it, hashed once for a round's draft and verdict."""
        if self._noise is None or self._noise[0] != place or len(self._noise[1]) != block + 1:
            noise = self.streams.gumbel(place.position, block + 1, self.vocabulary_size, self.device)
            self._noise = place, noise
        return self._noise[1]


def way_to_verify(rule: Rule, streams: Streams, pair: Pair) -> RatioTest | Coupling:
    """How drafts are drawn and verified under a rule."""
    if isinstance(rule, CoupledAcceptance):
        return Coupling(streams=streams, device=pair.device, vocabulary_size=pair.vocabulary_size)
    return RatioTest(rule=rule, streams=streams, device=pair.device)


def verify(way: RatioTest | Coupling, p: torch.Tensor, draft: Draft, place: Place) -> Verdict:
    """Judge a draft by the verifier's distributions `p` (B + 1, V), on the device and with one copy to the host.

    Raises
    ------
    NumericalError : a distribution is NaN, naming the model, the round and the position (case O11).
    """
    block = len(draft.tokens)
    q = draft.probs.to(p)
    accepted, added, law = way.choose(p, q, draft.tokens, place)
    slots = [_at(draft.tokens, p), _at(draft.tokens, q), total_variation(p[:block], q)]
    summary = torch.stack([accepted, added]), law.sum()[None], draft.tokens, draft.commit_step, *slots
    accepted_value, added_value, mass, *values = torch.cat([each.double() for each in summary]).tolist()
    drafted, commit_step, p_drafted, q_drafted, divergence = (values[i * block : (i + 1) * block] for i in range(5))
    verdict = Verdict(
        accepted=int(accepted_value),
        added=int(added_value),
        drafted=[int(token) for token in drafted],
        commit_step=[int(step) for step in commit_step],
        p_drafted=p_drafted,
        q_drafted=q_drafted,
        divergence=divergence,
    )
    _check(verdict, mass, place.index)
    return verdict


def _at(drafted: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """The probability of each drafted token, (B,)."""
    return probs[: len(drafted)].gather(-1, drafted[:, None])[:, 0]


def _check(verdict: Verdict, mass: float, index: int) -> None:
    """Refuse NaN at once: it must not be averaged away, and a NaN row must not become an ordinary token."""
    if not math.isnan(sum(verdict.divergence) + mass):
        return
    slots = zip(verdict.p_drafted, verdict.q_drafted, verdict.divergence, strict=True)
    for slot, (p, q, distance) in enumerate(slots):
        if math.isnan(distance):
            model = "drafter" if math.isnan(q) else "verifier"
            raise NumericalError(_NAN.format(model=model, place=f"slot {slot}", index=index, p=p, q=q))
    place = f"slot {len(verdict.divergence)}"
    raise NumericalError(_NAN.format(model="verifier", place=place, index=index, p=mass, q="not drafted"))
