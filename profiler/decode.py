"""Algorithm 1: draft, verify, accept a prefix, replace or add one token, again; a generator of rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from profiler.drafters.draft import Draft
from profiler.pairs.pair import Pair
from profiler.streams import Streams
from profiler.timing import Clock
from profiler.verification import Coupling, Place, RatioTest, verify, way_to_verify
from theory.acceptance import LinearAcceptance, Rule


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round did; `tokens` is what it added to the text, the rest are the columns of `theory.rounds`."""

    tokens: list[int]
    prefix_length: int
    passes: int
    drafted: int
    accepted: int
    ended: str
    eos_slot: int
    p_drafted: list[float]
    q_drafted: list[float]
    divergence: list[float]
    commit_step: list[int]
    draft_seconds: float
    verify_seconds: float
    overhead_seconds: float
    prefill_seconds: float


@torch.inference_mode()
def decode(
    pair: Pair,
    prompt: list[int],
    *,
    effort: int,
    rule: Rule,
    streams: Streams,
    token_limit: int,
) -> Iterator[Round]:
    """Decode one request until a stop token or `token_limit` new tokens (Algorithm 1).

    Parameters
    ----------
    prompt : token ids, at least one.
    effort : K, denoising steps a block; 0 is the verifier alone, one token a round.
    rule : how the verifier's target is relaxed; or coupled verification, whose text no drafter can change.
    streams : the request's random numbers; the same streams give the same rounds.

    Raises
    ------
    NumericalError : a model's logits are NaN, naming the model, the round and the position (case O11).
    """
    _require(pair, effort, token_limit)
    clock = Clock.for_device(pair.device)
    way = way_to_verify(rule, streams, pair)
    text = torch.tensor(prompt, device=pair.device)
    begin = clock.mark()
    pair.verifier.start(text)
    pair.drafter.start()
    (prefill_seconds,) = clock.seconds(begin, clock.mark())
    produced, ended, index = 0, "", 0
    while not ended:
        place = Place(index=index, position=len(text))
        begin = clock.mark()
        block = pair.block(token_limit - produced) if effort else 0
        draft = _draft(pair, text, block, min(effort, block), way, place)
        drafted_at = clock.mark()
        p = pair.verifier.score(text[-1:], draft.tokens)
        verified_at = clock.mark()

        verdict = verify(way, p, draft, place)
        tokens = [*verdict.drafted[: verdict.accepted], verdict.added]
        tokens, ended = _truncated(tokens, pair.stop_ids, token_limit - produced)
        pair.verifier.keep(len(text) + min(verdict.accepted, len(tokens)))
        text = torch.cat([text, torch.tensor(tokens).to(pair.device, non_blocking=True)])
        draft_seconds, verify_seconds, overhead_seconds = clock.seconds(begin, drafted_at, verified_at, clock.mark())
        yield Round(
            tokens=tokens,
            prefix_length=place.position,
            passes=draft.passes,
            drafted=len(verdict.drafted),
            accepted=verdict.accepted,
            ended=ended,
            eos_slot=next((slot for slot, token in enumerate(verdict.drafted) if token in pair.stop_ids), -1),
            p_drafted=verdict.p_drafted,
            q_drafted=verdict.q_drafted,
            divergence=verdict.divergence,
            commit_step=verdict.commit_step,
            draft_seconds=draft_seconds if block else float("nan"),
            verify_seconds=verify_seconds,
            overhead_seconds=overhead_seconds,
            prefill_seconds=prefill_seconds if index == 0 else float("nan"),
        )
        produced += len(tokens)
        index += 1


@torch.inference_mode()
def decode_drafter_alone(
    pair: Pair, prompt: list[int], *, effort: int, streams: Streams, token_limit: int
) -> Iterator[list[int]]:
    """The diffusion model without a verifier: every drafted block is kept, up to a stop token or the limit."""
    _require(pair, effort, token_limit)
    if pair.spec.drafter.reads_verifier:
        raise ValueError(
            f"a drafter of the family {pair.spec.drafter.family!r} reads what the verifier computed; "
            "it cannot decode alone"
        )
    way = way_to_verify(LinearAcceptance(leniency=1.0), streams, pair)
    text = torch.tensor(prompt, device=pair.device)
    pair.drafter.start()
    produced, ended, index = 0, "", 0
    while not ended:
        block = pair.block(token_limit - produced)
        place = Place(index=index, position=len(text))
        draft = _draft(pair, text, block, min(effort, block), way, place)
        tokens, ended = _truncated(draft.tokens.tolist(), pair.stop_ids, token_limit - produced)
        yield tokens
        text = torch.cat([text, torch.tensor(tokens).to(pair.device, non_blocking=True)])
        produced += len(tokens)
        index += 1


def _require(pair: Pair, effort: int, token_limit: int) -> None:
    if token_limit < 1:
        raise ValueError(f"`token_limit` must be at least 1, got {token_limit}")
    if effort < 0:
        raise ValueError(f"`effort` must be at least 1, or 0 for the verifier alone, got {effort}")
    if effort > pair.block(token_limit):
        raise ValueError(f"`effort` must be at most the block of {pair.block(token_limit)} tokens, got {effort}")


def _draft(pair: Pair, text: torch.Tensor, block: int, effort: int, way: RatioTest | Coupling, place: Place) -> Draft:
    if block == 0:
        empty = torch.empty(0, dtype=torch.long, device=pair.device)
        return Draft(tokens=empty, probs=torch.empty(0, pair.vocabulary_size), commit_step=empty, passes=0)
    return pair.drafter.draft(text, block=block, effort=effort, noise=way.noise(place, effort, block))


def _truncated(tokens: list[int], stop_ids: frozenset[int], room: int) -> tuple[list[int], str]:
    """Cut at the first stop token (case O14), then at the limit; says which of the two ended the text."""
    for position, token in enumerate(tokens[:room]):
        if token in stop_ids:
            return tokens[: position + 1], "eos"
    return tokens[:room], "limit" if len(tokens) >= room else ""
