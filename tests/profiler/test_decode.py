import dataclasses
import math

import numpy as np
import pytest
import torch

from profiler import decode as decode_module
from profiler.decode import decode, decode_drafter_alone
from profiler.drafters.draft import Draft
from profiler.noise import Uniforms
from profiler.sampling import Sampling
from profiler.streams import Stream, Streams
from profiler.timing import Clock
from profiler.verification import NumericalError
from tests.profiler.scripted import (
    MarkovVerifier,
    OneStepDrafter,
    PlayedDrafter,
    PlayedVerifier,
    TableModel,
    masked_drafter,
    one_hot,
    pair_of,
    prompt_ids,
)
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.coupled import CoupledAcceptance

LOSSLESS = LinearAcceptance(leniency=0.0)
EOS = 2
SIZE = 10
SECONDS = ("draft_seconds", "verify_seconds", "overhead_seconds", "prefill_seconds")


def streams(request=0, seed=0):
    return Streams(seed=seed, request=request)


def play(blocks, truths, *, limit=100, effort=1):
    """Decode a script: the drafter is certain of `blocks`, the verifier of `truths`, one token longer."""
    verifier = PlayedVerifier([one_hot(truth, SIZE) for truth in truths])
    drafter = PlayedDrafter(blocks, SIZE)
    pair = pair_of(drafter, verifier, vocabulary_size=SIZE, block_size=len(blocks[0]), stop_ids=[EOS])
    rounds = list(decode(pair, [0, 1], effort=effort, rule=LOSSLESS, streams=streams(), token_limit=limit))
    return rounds, verifier


def text(rounds):
    return [token for each in rounds for token in each.tokens]


def without_seconds(rounds):
    return [dataclasses.replace(each, **dict.fromkeys(SECONDS, 0.0)) for each in rounds]


def test_O14_nothing_follows_a_stop_token():
    (only,), _ = play([[5, EOS, 7, 8]], [[5, EOS, 7, 8, 9]])

    assert only.tokens == [5, EOS]
    assert (only.ended, only.eos_slot) == ("eos", 1)


def test_O15_emitted_tokens_end_at_the_stop_token_and_accepted_slots_do_not():
    rounds, _ = play(
        [[4, 5, 6, 7, 8], [4, 5, EOS, 7, 8]],
        [[4, 5, 6, 9, 9, 9], [4, 5, EOS, 7, 8, 9]],
    )

    assert [(each.drafted, each.accepted, len(each.tokens)) for each in rounds] == [(5, 3, 4), (5, 5, 3)]
    assert sum(len(each.tokens) for each in rounds) / len(rounds) == 3.5


def test_a_stop_token_that_was_not_reached_does_not_end_the_text():
    rounds, _ = play([[5, 6, EOS], [5, EOS, 6]], [[5, 7, 4, 4], [5, EOS, 6, 4]])

    assert [each.tokens for each in rounds] == [[5, 7], [5, EOS]]
    assert [each.eos_slot for each in rounds] == [2, 1]
    assert [each.ended for each in rounds] == ["", "eos"]


def test_a_stop_token_as_the_bonus_ends_the_text():
    (only,), _ = play([[5, 6]], [[5, 6, EOS]])

    assert (only.tokens, only.ended, only.eos_slot, only.accepted) == ([5, 6, EOS], "eos", -1, 2)


def test_a_stop_token_as_the_correction_ends_the_text():
    (only,), _ = play([[5, 6]], [[EOS, 6, 7]])

    assert (only.tokens, only.ended, only.eos_slot, only.accepted) == ([EOS], "eos", -1, 0)


@pytest.mark.parametrize(
    ("limit", "tokens", "ended"),
    [
        (1, [[4]], ["limit"]),
        (2, [[4, 5]], ["limit"]),
        (3, [[4, 5, 6]], ["limit"]),
        (4, [[4, 5, 6, 7]], ["limit"]),
        (5, [[4, 5, 6, 7], [4]], ["", "limit"]),
        (6, [[4, 5, 6, 7], [4, EOS]], ["", "eos"]),
        (7, [[4, 5, 6, 7], [4, EOS]], ["", "eos"]),
    ],
)
def test_the_token_limit_cuts_inside_the_block_and_a_stop_token_at_the_limit_counts_as_one(limit, tokens, ended):
    rounds, _ = play([[4, 5, 6], [4, EOS, 6]], [[4, 5, 6, 7], [4, EOS, 6, 7]], limit=limit)

    assert [each.tokens for each in rounds] == tokens
    assert [each.ended for each in rounds] == ended
    assert rounds[0].accepted == rounds[0].drafted == 3


def test_an_accepted_block_is_followed_by_the_bonus_token_and_a_rejected_one_by_the_correction():
    rounds, _ = play([[4, 5], [6, 7], [6, EOS]], [[4, 5, 9], [6, 3, 9], [6, EOS, 9]])

    assert [each.tokens for each in rounds] == [[4, 5, 9], [6, 3], [6, EOS]]
    assert [each.prefix_length for each in rounds] == [2, 5, 7]


def test_O17_the_verifier_keeps_the_text_without_its_last_token():
    rounds, verifier = play([[4, 5, 6, 7]] * 5, [[4, 5, 6, 7, 8], *([[4, 9] + [9] * 3] * 3), [9] * 5], limit=12)

    lengths = np.cumsum([2] + [len(each.tokens) for each in rounds])[1:]
    assert [each.accepted for each in rounds] == [4, 1, 1, 1, 0]
    assert verifier.kept == [length - 1 for length in lengths]


@pytest.mark.parametrize(("accepted", "cached"), [(0, 11), (1, 12), (3, 14), (4, 15)])
def test_O17_a_real_cache_is_cut_to_the_prefix_and_what_was_accepted(tiny_pair, accepted, cached):
    """Ten tokens before the last, four drafted, of which the first few are what a greedy verifier says."""
    greedy = pair_with(tiny_pair, verifier_sampling=Sampling(temperature=0.0))
    prompt = prompt_ids(tiny_pair)[:11]
    answer = text(run(greedy, effort=0, prompt=prompt, token_limit=5))
    block = answer[:accepted] + [token % 80 + 5 for token in answer[accepted:4]]
    drafter = PlayedDrafter([block], greedy.vocabulary_size)
    rounds = decode(
        dataclasses.replace(greedy, drafter=drafter, spec=dataclasses.replace(greedy.spec, block_size=4)),
        prompt,
        effort=1,
        rule=LOSSLESS,
        streams=streams(),
        token_limit=50,
    )

    first = next(rounds)

    assert first.accepted == accepted
    assert first.tokens == answer[: accepted + 1]
    assert greedy.verifier.cached == cached


def pair_with(pair, *, order=None, drafter_sampling=None, verifier_sampling=None, **spec):
    """A copy of a pair with other settings, and with caches of its own."""
    old = pair.drafter
    drafter = masked_drafter(
        old.model,
        mask_id=pair.tokenizer.mask_token_id,
        banned=torch.arange(pair.vocabulary_size) == pair.tokenizer.mask_token_id,
        sampling=drafter_sampling or old.canvas.sampling,
        order=order or old.canvas.order,
        shifted=True,
        causal_prefix=True,
    )
    verifier = type(pair.verifier)(
        pair.verifier.model,
        banned=torch.arange(pair.vocabulary_size) == pair.tokenizer.mask_token_id,
        sampling=verifier_sampling or pair.verifier.sampling,
    )
    return dataclasses.replace(pair, drafter=drafter, verifier=verifier, spec=dataclasses.replace(pair.spec, **spec))


def run(pair, *, effort, prompt=None, rule=LOSSLESS, request=0, seed=0, token_limit=24):
    ids = prompt_ids(pair) if prompt is None else prompt
    return list(decode(pair, ids, effort=effort, rule=rule, streams=streams(request, seed), token_limit=token_limit))


def test_O10_a_placeholder_id_is_never_emitted():
    """No drafter of ours proposes one; another's is refused by the look-up of its probability."""
    pair = pair_of(
        PlayedDrafter([[-1]], 2, probs=[torch.tensor([[0.1, 0.9]])]),
        MarkovVerifier(torch.tensor([[0.1, 0.9], [0.1, 0.9]])),
        vocabulary_size=2,
        block_size=1,
    )
    rounds = decode(pair, [0], effort=1, rule=LinearAcceptance(leniency=1.0), streams=streams(), token_limit=3)

    with pytest.raises((ValueError, RuntimeError)):
        next(rounds)


RULES = [LOSSLESS, CactusAcceptance(budget=1.0), CoupledAcceptance()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)
def test_O11_nan_logits_of_the_drafter_are_reported_with_round_and_slot(rule):
    nan = torch.tensor([[0.2, 0.3, 0.5], [math.nan] * 3])
    pair = pair_of(OneStepDrafter(nan), MarkovVerifier(torch.full((3, 3), 1 / 3)), vocabulary_size=3, block_size=2)

    with pytest.raises(NumericalError, match=r"drafter's logits are NaN at slot 1 of round 0.*load it in float32"):
        list(decode(pair, [0], effort=1, rule=rule, streams=streams(), token_limit=4))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_O11_nan_logits_of_the_verifier_are_reported_with_round_and_slot(broken, rule):
    """All three rows: two drafted slots, and the bonus, which is reached since the rest is certain."""
    good, bad = one_hot([4, 5, 6], SIZE), one_hot([4, 5, 6], SIZE)
    bad[broken] = math.nan
    drafter, verifier = PlayedDrafter([[4, 5], [4, 5]], SIZE), PlayedVerifier([good, bad])
    pair = pair_of(drafter, verifier, vocabulary_size=SIZE, block_size=2)
    rounds = decode(pair, [0], effort=1, rule=rule, streams=streams(), token_limit=9)

    assert next(rounds).tokens == [4, 5, 6]
    with pytest.raises(NumericalError, match=f"verifier's logits are NaN at slot {broken} of round 1 "):
        next(rounds)


def test_O11_one_nan_among_the_verifiers_probabilities_is_enough():
    table = one_hot([4, 5, 6], SIZE)
    table[1, 8] = math.nan  # neither the drafted token nor one that could be drawn
    pair = pair_of(PlayedDrafter([[3, 5]], SIZE), PlayedVerifier([table]), vocabulary_size=SIZE, block_size=2)

    with pytest.raises(NumericalError, match="verifier's logits are NaN at slot 1 of round 0"):
        list(decode(pair, [0], effort=1, rule=LOSSLESS, streams=streams(), token_limit=9))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)
def test_O11_nan_logits_of_the_verifier_alone_are_reported(rule):
    pair = pair_of(None, MarkovVerifier(torch.full((3, 3), math.nan)), vocabulary_size=3, block_size=2)
    pair = dataclasses.replace(pair, drafter=OneStepDrafter(torch.zeros(0, 3)))

    with pytest.raises(NumericalError, match="verifier's logits are NaN at slot 0 of round 0"):
        list(decode(pair, [0], effort=0, rule=rule, streams=streams(), token_limit=4))


def test_O11_real_networks_with_nan_weights_are_reported_by_name(tiny_pair, monkeypatch):
    for name in ("drafter", "verifier"):
        with monkeypatch.context() as patch:
            model = getattr(tiny_pair, name).model
            broken = model.model.norm.weight.detach() * math.nan
            patch.setattr(model.model.norm.weight, "data", broken)
            for effort in (1, 2):
                with pytest.raises(NumericalError, match=f"{name}'s logits are NaN at slot . of round 0"):
                    run(tiny_pair, effort=effort)
        assert run(tiny_pair, effort=1)


def test_O18_greedy_speculation_writes_what_the_greedy_verifier_writes(pair):
    greedy = pair_with(pair, verifier_sampling=Sampling(temperature=0.0))
    alone = text(run(greedy, effort=0))

    for effort in (1, 2, 4, 8):
        for seed in (0, 1):
            assert text(run(greedy, effort=effort, seed=seed)) == alone


def test_effort_0_is_the_verifier_alone_one_token_a_round(tiny_pair, monkeypatch):
    monkeypatch.setattr(tiny_pair.drafter, "draft", None)
    rounds = run(dataclasses.replace(tiny_pair, stop_ids=frozenset()), effort=0, token_limit=7)

    assert [len(each.tokens) for each in rounds] == [1] * 7
    assert {(each.drafted, each.accepted, each.passes, each.eos_slot) for each in rounds} == {(0, 0, 0, -1)}
    assert all(each.p_drafted == each.q_drafted == each.divergence == each.commit_step == [] for each in rounds)
    assert all(math.isnan(each.draft_seconds) for each in rounds)
    assert [each.ended for each in rounds] == [""] * 6 + ["limit"]


def test_a_negative_effort_is_refused(tiny_pair):
    with pytest.raises(ValueError, match="`effort` must be at least 1, or 0 for the verifier alone, got -1"):
        run(tiny_pair, effort=-1)


def test_an_effort_above_the_block_is_refused(tiny_pair):
    with pytest.raises(ValueError, match="`effort` must be at most the block of 8 tokens, got 9"):
        run(tiny_pair, effort=9)
    with pytest.raises(ValueError, match="`effort` must be at most the block of 8 tokens, got 9"):
        next(decode_drafter_alone(tiny_pair, [5], effort=9, streams=streams(), token_limit=24))


@pytest.mark.parametrize("limit", [0, -3])
def test_a_token_limit_below_one_is_refused(tiny_pair, limit):
    with pytest.raises(ValueError, match=f"`token_limit` must be at least 1, got {limit}"):
        run(tiny_pair, effort=1, token_limit=limit)


def test_a_prompt_without_tokens_is_refused(tiny_pair):
    with pytest.raises(ValueError, match="`prompt` must have at least one token"):
        run(tiny_pair, effort=1, prompt=[])


def test_block_size_0_drafts_the_remaining_canvas_with_an_effort_that_fits(tiny_pair):
    canvas = pair_with(dataclasses.replace(tiny_pair, stop_ids=frozenset()), block_size=0)
    rounds = run(canvas, effort=6, token_limit=13)

    left = 13 - np.cumsum([0] + [len(each.tokens) for each in rounds])
    assert [each.drafted for each in rounds] == left[:-1].tolist()
    assert [each.passes for each in rounds] == [min(6, remaining) for remaining in left[:-1]]
    assert left[-1] == 0


def test_a_round_lists_the_probabilities_of_its_drafted_tokens_and_their_divergence():
    q = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.375, 0.5]])
    p = torch.tensor([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25], [1.0, 0, 0]])
    drafter = PlayedDrafter([[0, 2]], 3, probs=[q])
    pair = pair_of(drafter, PlayedVerifier([p]), vocabulary_size=3, block_size=2)

    (only,) = decode(pair, [0], effort=1, rule=LinearAcceptance(leniency=1.0), streams=streams(), token_limit=3)

    assert only.p_drafted == [0.25, 0.25]
    assert only.q_drafted == [0.5, 0.5]
    assert only.divergence == [0.25, 0.375]
    assert only.tokens == [0, 2, 0]


def test_recorded_scalars_are_those_of_the_recorded_tokens(pair):
    """p(y), q(y) and TV of each slot against distributions that are computed again, without decode."""
    rounds = run(pair, effort=2)
    ids = prompt_ids(pair)
    for index, each in enumerate(rounds):
        with torch.inference_mode():
            pair.drafter.start()
            prefix = torch.tensor(ids)
            noise = Uniforms(streams().uniforms(Stream.DRAFT, index, (2, each.drafted)), torch.zeros(each.drafted))
            draft = pair.drafter.draft(prefix, block=each.drafted, effort=2, noise=noise)
            pair.verifier.start(prefix)
            p = pair.verifier.score(prefix[-1:], draft.tokens)[: each.drafted]
        y = draft.tokens[:, None]
        assert each.q_drafted == pytest.approx(draft.probs.gather(-1, y)[:, 0].tolist(), abs=1e-4)
        assert each.p_drafted == pytest.approx(p.gather(-1, y)[:, 0].tolist(), abs=1e-4)
        assert each.divergence == pytest.approx(((p - draft.probs).abs().sum(-1) / 2).tolist(), abs=1e-4)
        assert each.tokens[: each.accepted] == draft.tokens[: each.accepted].tolist()[: len(each.tokens)]
        ids = ids + each.tokens


@pytest.mark.parametrize("effort", [1, 3, 8])
@pytest.mark.parametrize("order", ["left_to_right", "entropy", "confidence"])
def test_at_leniency_1_the_text_is_the_drafters_own_blocks_each_with_a_bonus(pair, effort, order):
    lenient = pair_with(dataclasses.replace(pair, stop_ids=frozenset()), order=order)
    again = pair_with(lenient)
    ids = prompt_ids(pair)

    rounds = run(lenient, effort=effort, rule=LinearAcceptance(leniency=1.0), token_limit=27)

    assert len(rounds) == 3
    for index, each in enumerate(rounds):
        noise = Uniforms(streams().uniforms(Stream.DRAFT, index, (effort, 8)), torch.zeros(8))
        with torch.inference_mode():
            draft = again.drafter.draft(torch.tensor(ids), block=8, effort=effort, noise=noise)
        assert each.accepted == each.drafted == 8
        assert each.tokens[:8] == draft.tokens.tolist()
        assert len(each.tokens) == 9
        ids = ids + each.tokens


def test_the_same_streams_give_the_same_rounds_whatever_ran_before(pair):
    first = run(pair, effort=4, request=3)

    run(pair, effort=1, request=9, prompt=prompt_ids(pair)[:5])
    next(decode(pair, prompt_ids(pair), effort=2, rule=LOSSLESS, streams=streams(8), token_limit=24))  # left unfinished
    torch.manual_seed(1)

    assert without_seconds(run(pair, effort=4, request=3)) == without_seconds(first)


@pytest.mark.parametrize("other", [{"seed": 1}, {"request": 4}])
def test_other_streams_give_other_rounds(tiny_pair, other):
    first = run(tiny_pair, effort=4, request=3)

    assert without_seconds(run(tiny_pair, effort=4, **({"request": 3} | other))) != without_seconds(first)


def test_rounds_of_one_request_do_not_repeat_their_noise():
    law = torch.full((50, 50), 1 / 50)
    pair = pair_of(OneStepDrafter(law[:4]), MarkovVerifier(law), vocabulary_size=50, block_size=4)
    first, second, *_ = decode(pair, [0], effort=1, rule=LOSSLESS, streams=streams(), token_limit=20)

    assert first.tokens != second.tokens


def test_decoding_does_not_switch_off_gradients_for_the_caller(tiny_pair):
    rounds = decode(tiny_pair, prompt_ids(tiny_pair), effort=1, rule=LOSSLESS, streams=streams(), token_limit=9)
    next(rounds)

    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


class Stopwatch:
    """Models that take a known time on a fake clock."""

    def __init__(self, monkeypatch):
        self.time = 0.0
        fake = Clock(lambda: None, lambda: self.time)
        monkeypatch.setattr(decode_module.Clock, "for_device", classmethod(lambda cls, device: fake))

    def taking(self, seconds, function):
        def timed(*args, **kwargs):
            self.time += seconds
            return function(*args, **kwargs)

        return timed


def test_O40_prefill_draft_verification_and_the_rest_are_timed_apart(monkeypatch):
    watch = Stopwatch(monkeypatch)
    law = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    drafter, verifier = OneStepDrafter(law), MarkovVerifier(law)
    monkeypatch.setattr(verifier, "start", watch.taking(2.0, verifier.start))
    monkeypatch.setattr(drafter, "draft", watch.taking(0.25, drafter.draft))
    monkeypatch.setattr(verifier, "score", watch.taking(0.5, verifier.score))
    monkeypatch.setattr(verifier, "keep", watch.taking(0.125, verifier.keep))
    pair = pair_of(drafter, verifier, vocabulary_size=2, block_size=2)

    rounds = list(decode(pair, [0], effort=1, rule=LOSSLESS, streams=streams(), token_limit=7))

    assert len(rounds) > 1
    assert {(each.draft_seconds, each.verify_seconds, each.overhead_seconds) for each in rounds} == {(0.25, 0.5, 0.125)}
    assert rounds[0].prefill_seconds == 2.0
    assert all(math.isnan(each.prefill_seconds) for each in rounds[1:])


def test_what_the_caller_does_between_rounds_is_not_timed(monkeypatch):
    watch = Stopwatch(monkeypatch)
    law = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    pair = pair_of(OneStepDrafter(law), MarkovVerifier(law), vocabulary_size=2, block_size=2)
    for each in decode(pair, [0], effort=1, rule=LOSSLESS, streams=streams(), token_limit=7):
        watch.time += 1000

        assert each.draft_seconds == each.verify_seconds == each.overhead_seconds == 0


def test_the_passes_of_a_round_are_the_forwards_that_were_run():
    model = TableModel(torch.zeros(5, 5))
    drafter = masked_drafter(
        model,
        mask_id=4,
        banned=torch.arange(5) == 4,
        sampling=Sampling(),
        order="left_to_right",
        shifted=True,
        causal_prefix=False,
    )
    pair = pair_of(drafter, MarkovVerifier(torch.full((5, 5), 0.2)), vocabulary_size=5, block_size=4)

    rounds = list(decode(pair, [0], effort=3, rule=LOSSLESS, streams=streams(), token_limit=20))

    assert sum(each.passes for each in rounds) == model.forwards == 3 * len(rounds)


class FixedBlock:
    """A drafter alone that repeats one block."""

    def __init__(self, block):
        self.block = torch.tensor(block)

    def start(self):
        pass

    def draft(self, prefix, *, block, effort, noise):
        return Draft(tokens=self.block, probs=one_hot(self.block, SIZE), commit_step=self.block * 0, passes=1)


@pytest.mark.parametrize(
    ("block", "limit", "texts"),
    [
        ([4, 5, 6], 7, [[4, 5, 6], [4, 5, 6], [4]]),
        ([4, 5, 6], 6, [[4, 5, 6], [4, 5, 6]]),
        ([4, EOS, 6], 6, [[4, EOS]]),
    ],
)
def test_a_drafter_alone_keeps_its_blocks_up_to_a_stop_token_or_the_limit(block, limit, texts):
    pair = pair_of(FixedBlock(block), None, vocabulary_size=SIZE, block_size=3, stop_ids=[EOS])

    assert list(decode_drafter_alone(pair, [0], effort=1, streams=streams(), token_limit=limit)) == texts


def test_a_drafter_alone_says_the_same_as_with_a_verifier_at_leniency_1(pair):
    endless = dataclasses.replace(pair, stop_ids=frozenset())
    first = next(decode_drafter_alone(endless, prompt_ids(pair), effort=2, streams=streams(), token_limit=8))

    assert first == run(endless, effort=2, rule=LinearAcceptance(leniency=1.0), token_limit=8)[0].tokens
