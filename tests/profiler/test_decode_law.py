"""What law the emitted text has. Every test has fixed seeds and fails with chance `FALSE_ALARM` if the code is right;
beside it stand wrong implementations, each of which it must find."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from profiler import sampling
from profiler.decode import decode
from profiler.sampling import Sampling
from profiler.streams import Streams
from tests.profiler.scripted import (
    FALSE_ALARM,
    MarkovVerifier,
    OneStepDrafter,
    TableModel,
    masked_drafter,
    p_value,
    pair_of,
    prompt_ids,
    uniform_p_value,
)
from theory.acceptance import LinearAcceptance

DRAWS = 2000
LOSSLESS = LinearAcceptance(leniency=0.0)
P = torch.tensor([[0.1, 0.5, 0.1, 0.3], [0.4, 0.1, 0.3, 0.2], [0.25, 0.25, 0.1, 0.4], [0.05, 0.35, 0.5, 0.1]])
Q = torch.tensor([[0.6, 0.1, 0.2, 0.1], [0.1, 0.2, 0.1, 0.6]])
START = 0
FIRST_LAW = P[START].double().numpy()
PAIR_LAW = (P[START][:, None] * P).double().numpy()


class AlwaysAccept:
    """O02: the uniform is ignored."""

    def drafted_target(self, p_drafted, q_drafted):
        return q_drafted

    def residual(self, p, q, drafted, target):
        return p


class ReplaceFromTheTarget:
    """A rejected token is replaced by a draw from p instead of the residual."""

    def drafted_target(self, p_drafted, q_drafted):
        return LOSSLESS.drafted_target(p_drafted, q_drafted)

    def residual(self, p, q, drafted, target):
        return p


class ExactMatch:
    """O05: a draft is accepted if an independent draw from p is the same."""

    def drafted_target(self, p_drafted, q_drafted):
        return p_drafted * q_drafted

    def residual(self, p, q, drafted, target):
        return torch.where(torch.arange(p.shape[-1]) == drafted, 0.0, p)


class SharedNoise(Streams):
    """O06: one stream for drafting, the test and the replacement."""

    def uniforms(self, stream, round_index, shape):
        return super().uniforms(0, round_index, shape)


def count_texts(pair, *, rule=LOSSLESS, streams=Streams, effort=1, length=2, draws=DRAWS):
    """How often each text of `length` tokens is emitted after `START`, (V,) * length."""
    counts = np.zeros((pair.vocabulary_size,) * length)
    for request in range(draws):
        noise = streams(seed=0, request=request)
        rounds = decode(pair, [START], effort=effort, rule=rule, streams=noise, token_limit=length)
        counts[tuple(token for each in rounds for token in each.tokens)] += 1
    return counts


def scripted(drafter=None, verifier=None, block_size=2):
    drafter, verifier = drafter or OneStepDrafter(Q), verifier or MarkovVerifier(P)
    return pair_of(drafter, verifier, vocabulary_size=4, block_size=block_size)


def test_one_and_two_tokens_follow_the_verifiers_law_at_leniency_0():
    counts = count_texts(scripted())

    assert p_value(counts.sum(1), FIRST_LAW) > FALSE_ALARM
    assert p_value(counts, PAIR_LAW) > FALSE_ALARM


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"rule": AlwaysAccept()}, id="O02 always accepts"),
        pytest.param({"rule": ReplaceFromTheTarget()}, id="replaces from p"),
        pytest.param({"rule": LinearAcceptance(leniency=0.5)}, id="is lenient"),
        pytest.param({"streams": SharedNoise}, id="O06 shares its noise"),
    ],
)
def test_the_first_token_shows_an_implementation_that(wrong):
    assert p_value(count_texts(scripted(), length=1, **wrong), FIRST_LAW) < FALSE_ALARM


def test_the_second_token_shows_a_verifier_that_scores_the_wrong_prefix():
    class Behind(MarkovVerifier):
        def score(self, last, drafted):
            return super().score(last, torch.cat([last, drafted[:-1]]))

    counts = count_texts(scripted(verifier=Behind(P)))

    assert p_value(counts.sum(1), FIRST_LAW) > FALSE_ALARM
    assert p_value(counts, PAIR_LAW) < FALSE_ALARM


def test_O03_a_warped_draft_is_verified_against_its_warped_distribution():
    """Both models with top-k = 2; the wrong drafter reports the distribution before it."""
    warped, raw_q = Sampling(top_k=2), torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    p = sampling.probabilities(torch.tensor([[0.1, 0.5, 0.1, 0.3]]).log(), warped).expand(4, -1)
    q = sampling.probabilities(raw_q.log(), warped)

    right = count_texts(scripted(OneStepDrafter(q), MarkovVerifier(p), 1), length=1)
    wrong = count_texts(scripted(OneStepDrafter(q, reported=raw_q), MarkovVerifier(p), 1), length=1)

    assert p_value(right, p[0]) > FALSE_ALARM
    assert p_value(wrong, p[0]) < FALSE_ALARM


def test_O04_a_greedy_draft_is_verified_as_certain():
    p, soft = torch.tensor([[0.5, 0.3, 0.2]]).expand(3, -1), torch.tensor([[0.6, 0.3, 0.1]])
    certain = sampling.probabilities(soft.log(), Sampling(temperature=0.0))

    def counts(drafter):
        pair = pair_of(drafter, MarkovVerifier(p), vocabulary_size=3, block_size=1)
        return count_texts(pair, length=1)

    assert p_value(counts(OneStepDrafter(certain)), [0.5, 0.3, 0.2]) > FALSE_ALARM
    wrong = counts(OneStepDrafter(certain, reported=soft))
    assert p_value(wrong, [0.5, 0.3, 0.2]) < FALSE_ALARM
    assert p_value(wrong, [5 / 6, 0, 1 / 6]) > FALSE_ALARM  # as the case says it would come out


def test_O06_the_cases_own_numbers():
    p, q = torch.tensor([[0.05, 0.25, 0.4, 0.3]]).expand(4, -1), torch.tensor([[0.7, 0.2, 0.05, 0.05]])
    pair = pair_of(OneStepDrafter(q), MarkovVerifier(p), vocabulary_size=4, block_size=1)

    assert p_value(count_texts(pair, length=1), p[0]) > FALSE_ALARM
    assert p_value(count_texts(pair, length=1, streams=SharedNoise), p[0]) < FALSE_ALARM


def test_O02_and_O05_the_acceptance_rate_shows_what_the_law_may_hide():
    """An always accepting and an exactly matching test against 1 - TV; the second keeps the law and is merely slow."""
    p, q = torch.tensor([[0.5, 0.3, 0.2]]).expand(3, -1), torch.tensor([[0.4, 0.4, 0.2]])
    pair = pair_of(OneStepDrafter(q), MarkovVerifier(p), vocabulary_size=3, block_size=1)

    def rate(rule):
        rounds = [
            next(decode(pair, [0], effort=1, rule=rule, streams=Streams(seed=0, request=request), token_limit=1))
            for request in range(DRAWS)
        ]
        return sum(each.accepted for each in rounds) / DRAWS

    error, slower = (4.9 * math.sqrt(chance * (1 - chance) / DRAWS) for chance in (0.9, 0.36))  # false alarm 1e-6
    assert rate(LOSSLESS) == pytest.approx(0.9, abs=error)
    assert rate(AlwaysAccept()) == 1 > 0.9 + error
    assert rate(ExactMatch()) == pytest.approx(0.36, abs=slower)


def masked(model, order, **settings):
    banned = torch.arange(4) == 3
    defaults = {"mask_id": 3, "banned": banned, "sampling": Sampling(), "shifted": True, "causal_prefix": False}
    return masked_drafter(model, order=order, **(defaults | settings))


P3 = torch.tensor([[0.1, 0.6, 0.3, 0], [0.45, 0.15, 0.4, 0], [0.2, 0.5, 0.3, 0], [0.3, 0.3, 0.4, 0]])
DRAFT_TABLE = torch.tensor([[0.5, 0.3, 0.2, 0], [0.2, 0.5, 0.3, 0], [0.6, 0.1, 0.3, 0], [0.1, 0.2, 0.7, 0]])
TRIPLE_LAW = (P3[START][:, None, None] * P3[:, :, None] * P3[None]).double().numpy()


@pytest.mark.parametrize(("effort", "order"), [(1, "entropy"), (2, "left_to_right"), (4, "left_to_right")])
def test_three_tokens_of_a_multi_step_draft_follow_the_verifiers_law(effort, order):
    """A drafter that reads the token before each slot; at K = 2 it commits two slots, then two that depend on them."""
    drafter = masked(TableModel((DRAFT_TABLE + 1e-9).log()), order)
    pair = pair_of(drafter, MarkovVerifier(P3), vocabulary_size=4, block_size=4)

    counts = count_texts(pair, effort=effort, length=3, draws=1500)

    assert drafter.exactness(effort) == "joint"
    assert p_value(counts, TRIPLE_LAW) > FALSE_ALARM


class BothWays(TableModel):
    """A slot's logits depend on the tokens before and after it, so that a late slot can pull an early one."""

    def forward(self, input_ids, *, logits_to_keep, **_):
        outputs = super().forward(input_ids, logits_to_keep=input_ids.shape[1])
        after = torch.cat([input_ids[:, 2:], input_ids[:, :2] * 0 + 3], dim=1)
        outputs.logits = (outputs.logits + self.pull[after])[:, -logits_to_keep:]
        return outputs

    pull = torch.tensor([[3.0, 0, 0, 0], [0, 3.0, 0, 0], [0, 0, 3.0, 0], [0, 0, 0, 0]])


def test_a_late_slot_committed_first_keeps_the_law_of_the_first_token_alone():
    """Exactness `first_token`: slot 1 is surer, is committed first, and then decides slot 0."""
    drafter = masked(BothWays((DRAFT_TABLE + 1e-9).log()), "entropy")
    pair = pair_of(drafter, MarkovVerifier(P3), vocabulary_size=4, block_size=2)

    counts = count_texts(pair, effort=2)

    assert drafter.exactness(2) == "first_token"
    assert p_value(counts.sum(1), P3[START]) > FALSE_ALARM
    assert p_value(counts, P3[START][:, None] * P3) < FALSE_ALARM


def test_commits_by_drawn_value_change_even_the_first_token():
    """Exactness `none`: a token is kept because it is likely, so that q is not the law of what was kept."""
    drafter = masked(TableModel((DRAFT_TABLE + 1e-9).log()), "confidence", confidence=0.45)
    pair = pair_of(drafter, MarkovVerifier(P3), vocabulary_size=4, block_size=2)

    counts = count_texts(pair, effort=2, length=1)

    assert drafter.exactness(2) == "none"
    assert p_value(counts, P3[START]) < FALSE_ALARM


def endless(pair):
    return dataclasses.replace(pair, stop_ids=frozenset())


@torch.inference_mode()
def verifier_laws(pair, prompt, tokens):
    """The verifier's distribution before each of `tokens`, from one pass over the whole text."""
    text = torch.tensor([*prompt, *tokens])
    logits = pair.verifier.model(input_ids=text[None], use_cache=False).logits[0]
    banned = torch.arange(pair.vocabulary_size) == pair.tokenizer.mask_token_id
    probs = sampling.probabilities(sampling.permitted_logits(logits, banned), pair.verifier.sampling)
    return probs[len(prompt) - 1 : -1]


def transformed(pair, *, effort, rule=LOSSLESS, requests=25, length=24):
    """The p-value of the emitted tokens, each under the verifier's distribution of its own prefix."""
    prompt, probs, tokens = prompt_ids(pair), [], []
    for request in range(requests):
        streams = Streams(seed=0, request=request)
        rounds = decode(endless(pair), prompt, effort=effort, rule=rule, streams=streams, token_limit=length)
        emitted = [token for each in rounds for token in each.tokens]
        probs.append(verifier_laws(pair, prompt, emitted))
        tokens += emitted
    return uniform_p_value(torch.cat(probs), torch.tensor(tokens))


@pytest.mark.parametrize("effort", [0, 1, 2, 8])
def test_every_token_of_real_networks_follows_the_verifiers_law_given_its_prefix(pair, effort):
    assert transformed(pair, effort=effort) > FALSE_ALARM


@pytest.mark.parametrize("rule", [AlwaysAccept(), LinearAcceptance(leniency=1.0)])
def test_tokens_of_real_networks_show_the_drafters_law(pair, rule):
    assert transformed(pair, effort=1, rule=rule) < FALSE_ALARM


def test_one_and_two_tokens_of_the_embedded_pair_follow_the_verifiers_law(embedded_pair):
    draws, size, prompt = 400, embedded_pair.vocabulary_size, prompt_ids(embedded_pair)
    counts = np.zeros((size, size))
    for request in range(draws):
        streams = Streams(seed=0, request=request)
        rounds = decode(endless(embedded_pair), prompt, effort=1, rule=LOSSLESS, streams=streams, token_limit=2)
        counts[tuple(token for each in rounds for token in each.tokens)] += 1

    first = verifier_laws(embedded_pair, prompt, [0])[0].double().numpy()
    second = np.stack([verifier_laws(embedded_pair, prompt, [token, 0])[1].double().numpy() for token in range(size)])

    assert p_value(counts.sum(1), first) > FALSE_ALARM
    assert p_value(counts, first[:, None] * second) > FALSE_ALARM


@pytest.mark.parametrize(
    ("effort", "order"), [(1, "left_to_right"), (1, "entropy"), (2, "left_to_right"), (4, "left_to_right")]
)
def test_measured_acceptance_at_reached_slots_is_one_minus_tv(pair, effort, order):
    """Given what came before it, a reached slot is accepted with chance 1 - TV, so that the sum of the differences is a
    martingale: it lies within 4.9 of its standard deviations but for a false alarm in 1e6."""
    accepted, expected, variance = reached_sums(pair, effort, order, LOSSLESS)

    assert variance > 5
    assert abs(accepted - expected) < 4.9 * math.sqrt(variance)


@pytest.mark.parametrize("rule", [AlwaysAccept(), ExactMatch()])
def test_O02_O05_measured_acceptance_shows_a_wrong_test(pair, rule):
    accepted, expected, variance = reached_sums(pair, 1, "left_to_right", rule)

    assert abs(accepted - expected) > 4.9 * math.sqrt(variance)


def reached_sums(pair, effort, order, rule, requests=12):
    """Over reached slots: accepted ones, the sum of 1 - TV, and the variance of their difference."""
    accepted = expected = variance = 0.0
    drafter = masked_drafter(
        pair.drafter.model,
        mask_id=pair.tokenizer.mask_token_id,
        banned=torch.arange(pair.vocabulary_size) == pair.tokenizer.mask_token_id,
        sampling=pair.drafter.canvas.sampling,
        order=order,
        shifted=True,
        causal_prefix=True,
    )
    changed = dataclasses.replace(pair, drafter=drafter)
    for request in range(requests):
        streams = Streams(seed=0, request=request)
        for each in decode(changed, prompt_ids(pair), effort=effort, rule=rule, streams=streams, token_limit=48):
            reached = each.divergence[: each.accepted + 1]
            accepted += each.accepted
            expected += sum(1 - divergence for divergence in reached)
            variance += sum(divergence * (1 - divergence) for divergence in reached)
    return accepted, expected, variance
