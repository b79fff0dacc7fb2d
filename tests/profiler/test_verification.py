"""Coupled verification: every draft ends in the text that the verifier alone writes with the same noise."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from profiler import sampling, tasks
from profiler.decode import decode
from profiler.drafters.commit import ORDERS, Order
from profiler.drafters.draft import Draft
from profiler.noise import Gumbel, Uniforms
from profiler.pairs import Pair
from profiler.sampling import Sampling
from profiler.streams import Streams
from profiler.verification import Coupling, Place, RatioTest, way_to_verify
from profiler.verifier import Verifier
from tests.profiler.scripted import (
    FALSE_ALARM,
    MarkovVerifier,
    OneStepDrafter,
    masked_drafter,
    p_value,
    pair_of,
    prompt_ids,
    uniform_p_value,
)
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.coupled import CoupledAcceptance, coupled_acceptance

COUPLED, LOSSLESS = CoupledAcceptance(), LinearAcceptance(leniency=0)
BLOCKS, EFFORTS = (5, 8, 16), (1, 2, 4)
LIMITS = (64, 64, 64, 64, 64, 64, 11)
"""Most new tokens of each request; the answers are shorter than 64, so that all but the last end by themselves."""
NEAR_TIE = 1e-4
"""A race this close may end otherwise in a pass over other rows; the requests are chosen to have none."""
PASS_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}
"""Between log probabilities of a pass over a block and of one over a token; ten times what is seen."""


@dataclass(frozen=True)
class Plain:
    """A request and what the verifier alone writes: no cache, no block, no decoding loop."""

    ids: list[int]
    streams: Streams
    limit: int
    tokens: list[int]
    ended: str


@torch.inference_mode()
def sample(pair: Pair, ids: list[int], streams: Streams, limit: int) -> Plain:
    """Autoregressive sampling as one writes it down, one forward pass over the whole text for each token."""
    banned = torch.arange(pair.vocabulary_size) == pair.tokenizer.mask_token_id
    settings = pair.verifier.sampling
    tokens: list[int] = []
    while len(tokens) < limit and not pair.stop_ids & set(tokens):
        logits = pair.verifier.model(input_ids=torch.tensor([ids + tokens]), use_cache=False).logits[0, -1]
        allowed = sampling.permitted_logits(logits, banned)
        noise = streams.gumbel(len(ids) + len(tokens), 1, pair.vocabulary_size)[0]
        races = [
            sampling.probabilities(allowed, dataclasses.replace(settings, top_p=settings.top_p + shift)).log() + noise
            for shift in (-NEAR_TIE, 0, NEAR_TIE)
        ]
        best, second = races[1].topk(2).values
        assert best - second > NEAR_TIE, "choose another seed"
        assert len({int(race.argmax()) for race in races}) == 1, "choose another seed"
        tokens.append(int(races[1].argmax()))
    return Plain(ids, streams, limit, tokens, "eos" if pair.stop_ids & set(tokens) else "limit")


@pytest.fixture(scope="module")
def plain(embedded_pair: Pair) -> list[Plain]:
    prompts = tasks.load("word_problems").prompts(len(LIMITS), seed=11)
    ids = [embedded_pair.tokenizer(each.text, add_special_tokens=False)["input_ids"] for each in prompts]
    return [
        sample(embedded_pair, tokens, Streams(seed=2, request=request), LIMITS[request])
        for request, tokens in enumerate(ids)
    ]


def with_drafter(pair: Pair, *, order: Order, block: int = 8, **settings: object) -> Pair:
    """The pair with another commit order and block size."""
    drafter = masked_drafter(
        pair.drafter.model,
        mask_id=pair.tokenizer.mask_token_id,
        banned=torch.arange(pair.vocabulary_size) == pair.tokenizer.mask_token_id,
        order=order,
        shifted=True,
        causal_prefix=True,
        **({"sampling": pair.drafter.canvas.sampling} | settings),
    )
    return dataclasses.replace(pair, drafter=drafter, spec=dataclasses.replace(pair.spec, block_size=block))


def written(pair: Pair, request: Plain, *, effort: int, rule=COUPLED, streams: Streams | None = None):
    """The tokens of a decoded request, and how it ended."""
    rounds = list(
        decode(
            pair,
            request.ids,
            effort=effort,
            rule=rule,
            streams=streams or request.streams,
            token_limit=request.limit,
        )
    )
    return [token for each in rounds for token in each.tokens], rounds[-1].ended


def test_the_requests_end_in_both_ways(plain):
    assert [each.ended for each in plain] == ["eos"] * 6 + ["limit"]


@pytest.mark.parametrize("order", ORDERS)
def test_the_text_is_the_verifiers_own_in_every_order_effort_and_block(embedded_pair, plain, order):
    """Token for token: 1,700 tokens an order, 10,000 in all."""
    compared = 0
    for block in BLOCKS:
        pair = with_drafter(embedded_pair, order=order, block=block)
        for effort in EFFORTS:
            for request in plain:
                tokens, ended = written(pair, request, effort=effort)

                assert tokens == request.tokens, (block, effort)
                assert ended == request.ended
                compared += len(tokens)
    assert compared >= 10_000 / len(ORDERS)


def test_the_text_is_the_verifiers_own_when_the_whole_canvas_is_drafted(embedded_pair, plain):
    pair = with_drafter(embedded_pair, order="entropy", block=0)

    assert written(pair, plain[0], effort=4) == (plain[0].tokens, plain[0].ended)


def test_the_verifier_alone_writes_the_same_text(embedded_pair, plain):
    for request in plain[-2:]:
        assert written(embedded_pair, request, effort=0) == (request.tokens, request.ended)


def double_precision(pair: Pair) -> Pair:
    """The pair with its verifier computing in float64."""
    banned = torch.arange(pair.vocabulary_size) == pair.tokenizer.mask_token_id
    model = type(pair.verifier.model)(pair.verifier.model.config)
    model.load_state_dict(pair.verifier.model.state_dict())
    verifier = Verifier(model.double().eval(), banned=banned, sampling=pair.verifier.sampling)
    return dataclasses.replace(pair, verifier=verifier)


@torch.inference_mode()
def passes_differ_by(pair: Pair, request: Plain) -> float:
    """The largest difference of a log probability between passes over blocks and passes over one token."""
    text = torch.tensor(request.ids + request.tokens)
    start, laws = len(request.ids), {}
    for block in (0, 7):
        pair.verifier.start(text[:start])
        places = range(start - 1, len(text) - 1, block + 1)
        laws[block] = torch.cat([pair.verifier.score(text[i : i + 1], text[i + 1 : i + 1 + block]) for i in places])
    one, blocks = laws[0], laws[7][: len(laws[0])]
    assert torch.equal(one > 0, blocks > 0)
    return float((one.log() - blocks.log())[one > 0].abs().max())


def test_passes_over_blocks_and_over_single_tokens_differ_far_less_than_the_closest_race(embedded_pair, plain):
    """Why equality of tokens can be asked for: 1e-5 in float32, where `NEAR_TIE` is 1e-4, and 1e-13 in float64."""
    for pair, dtype in ((embedded_pair, torch.float32), (double_precision(embedded_pair), torch.float64)):
        assert 0 < passes_differ_by(pair, plain[0]) < PASS_TOLERANCE[dtype] < NEAR_TIE


def test_a_verifier_in_float64_writes_the_same_text_with_every_drafter(embedded_pair, plain):
    pair = with_drafter(double_precision(embedded_pair), order="confidence")

    for effort in (0, 2):
        assert written(pair, plain[-1], effort=effort) == (plain[-1].tokens, plain[-1].ended)


class Redrawn(Streams):
    """The noise of a position changes with the round: the mistake that brings the bias back."""

    def gumbel(self, position, *rest):
        return super().gumbel(1000 * position, *rest)


def test_noise_that_changes_with_the_round_does_not_write_the_verifiers_text(embedded_pair, plain):
    pair, streams = with_drafter(embedded_pair, order="entropy"), Redrawn(seed=2, request=0)

    assert written(pair, plain[0], effort=2, streams=streams) != written(pair, plain[0], effort=0, streams=streams)


def test_the_ratio_test_writes_another_text_for_each_draft(embedded_pair, plain):
    """The comparison of tokens is a test of coupling, not of a verifier that is always sure."""
    texts = [written(with_drafter(embedded_pair, order="entropy"), plain[0], effort=k, rule=LOSSLESS) for k in EFFORTS]

    assert len({tuple(tokens) for tokens, _ in texts}) == len(EFFORTS)
    assert tuple(plain[0].tokens) not in {tuple(tokens) for tokens, _ in texts}


def test_coupled_texts_follow_the_verifiers_law(tiny_pair):
    """The noise is right as such: each token of the verifier alone is a draw from its distribution."""
    pair = dataclasses.replace(tiny_pair, stop_ids=frozenset())
    prompt, probs, tokens = prompt_ids(pair), [], []
    for request in range(25):
        streams = Streams(seed=0, request=request)
        rounds = decode(pair, prompt, effort=2, rule=COUPLED, streams=streams, token_limit=24)
        emitted = [token for each in rounds for token in each.tokens]
        tokens += emitted
        with torch.inference_mode():
            pair.verifier.start(torch.tensor(prompt))
            probs.append(pair.verifier.score(torch.tensor(prompt[-1:]), torch.tensor(emitted))[:-1])

    assert uniform_p_value(torch.cat(probs), torch.tensor(tokens)) > FALSE_ALARM


@pytest.mark.parametrize("effort", [1, 2, 8])
def test_a_greedy_verifier_writes_its_greedy_text_whatever_the_noise(tiny_pair, effort):
    banned = torch.arange(tiny_pair.vocabulary_size) == tiny_pair.tokenizer.mask_token_id
    verifier = Verifier(tiny_pair.verifier.model, banned=banned, sampling=Sampling(temperature=0.0))
    pair = dataclasses.replace(with_drafter(tiny_pair, order="margin"), verifier=verifier)
    requests = [Plain(prompt_ids(pair), Streams(seed=seed, request=0), 24, [], "") for seed in (0, 1)]

    expected = written(pair, requests[0], effort=0, rule=LOSSLESS)

    assert [written(pair, each, effort=effort) for each in requests] == [expected] * 2


class LateFirst:
    """Commits slot 1 first, uniformly over two tokens; slot 0 then repeats it with probability .95."""

    def start(self):
        pass

    def draft(self, prefix, *, block, effort, noise):
        even = torch.full((block, 2), 0.5)
        if block == 1:
            return Draft(tokens=noise.draw(even, 0), probs=even, commit_step=torch.zeros(1).long(), passes=1)
        late = noise.draw(even, 0)[1]
        probs = even.clone()
        probs[0] = torch.where(torch.arange(2) == late, 0.95, 0.05)
        early = noise.draw(probs, 1)[0]
        return Draft(tokens=torch.stack([early, late]), probs=probs, commit_step=torch.tensor([1, 0]), passes=2)


def pair_counts(rule, streams=Streams, draws=1500):
    """How often each text of two tokens comes out of the example, (4,)."""
    pair = pair_of(LateFirst(), MarkovVerifier(torch.full((2, 2), 0.5)), vocabulary_size=2, block_size=2)
    counts = np.zeros((2, 2))
    for request in range(draws):
        rounds = decode(pair, [0], effort=2, rule=rule, streams=streams(seed=0, request=request), token_limit=2)
        counts[tuple(token for each in rounds for token in each.tokens)] += 1
    return counts.ravel()


def test_coupling_repairs_the_example_in_which_the_ratio_test_is_biased():
    """.3625 for equal and .1375 for unequal tokens, by the ratio test and by noise that is redrawn; .25 by coupling."""
    biased = [0.3625, 0.1375, 0.1375, 0.3625]
    coupled, redrawn, ratio = pair_counts(COUPLED), pair_counts(COUPLED, Redrawn), pair_counts(LOSSLESS)

    assert p_value(coupled, [0.25] * 4) > FALSE_ALARM
    for counts in (redrawn, ratio):
        assert p_value(counts, biased) > FALSE_ALARM
        assert p_value(counts, [0.25] * 4) < FALSE_ALARM


P = torch.tensor([[0.05, 0.25, 0.4, 0.3]]).expand(4, -1)
Q = torch.tensor([[0.7, 0.2, 0.05, 0.05]])


def test_O06_what_is_shared_is_never_tested_by_the_ratio_and_what_is_not_never_by_equality():
    """The noise of a draft and its verdict come from one object, chosen by the rule."""
    pair, streams = pair_of(OneStepDrafter(Q), MarkovVerifier(P), vocabulary_size=4, block_size=1), streams_of(0)
    place = {"effort": 1, "block": 1}

    for rule, way, noise in (
        (LOSSLESS, RatioTest, Uniforms),
        (CactusAcceptance(budget=1), RatioTest, Uniforms),
        (COUPLED, Coupling, Gumbel),
    ):
        chosen = way_to_verify(rule, streams, pair)
        assert isinstance(chosen, way)
        assert isinstance(chosen.noise(Place(index=0, position=1), **place), noise)


class Counting(Streams):
    """Streams that note which Gumbel numbers were asked for."""

    def gumbel(self, position, count, vocabulary_size, device="cpu"):
        asked.append((position, count))
        return super().gumbel(position, count, vocabulary_size, device)


asked: list[tuple[int, int]] = []


def test_the_noise_of_a_round_is_hashed_once_for_draft_and_verdict():
    asked.clear()
    pair = pair_of(OneStepDrafter(Q), MarkovVerifier(P), vocabulary_size=4, block_size=1)
    for effort in (1, 0):
        rounds = list(
            decode(pair, [0], effort=effort, rule=COUPLED, streams=Counting(seed=0, request=0), token_limit=3)
        )
        positions = [each.prefix_length for each in rounds]
        assert asked == [(position, effort + 1) for position in positions]
        asked.clear()


def streams_of(request):
    return Streams(seed=0, request=request)


def test_coupled_rounds_accept_as_often_as_the_formula_says():
    """.2862 against .35 by the ratio test, and the law is right; a difference of five standard deviations shows."""
    draws = 3000
    pair = pair_of(OneStepDrafter(Q), MarkovVerifier(P), vocabulary_size=4, block_size=1)
    rounds = [
        next(decode(pair, [0], effort=1, rule=COUPLED, streams=streams_of(request), token_limit=1))
        for request in range(draws)
    ]
    rate = coupled_acceptance(P[0], Q[0])
    error = 4.9 * float((rate * (1 - rate) / draws) ** 0.5)  # false alarm 1e-6

    assert sum(each.accepted for each in rounds) / draws == pytest.approx(float(rate), abs=error)
    assert float(rate) + error < float(torch.minimum(P[0], Q[0]).sum())
    assert p_value(np.bincount([each.tokens[0] for each in rounds], minlength=4), P[0]) > FALSE_ALARM
