import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler import pairs
from profiler.decode import decode
from profiler.drafters.autoregressive import AutoregressiveDrafter
from profiler.sampling import Sampling, permitted_logits, probabilities
from profiler.streams import Streams
from tests.profiler import tiny_checkpoints as tiny
from tests.profiler.drafters.checks import (
    LOSSLESS,
    PASS_TOLERANCE,
    PROMPT,
    Liar,
    drafts_of,
    draws_p_values,
    pair_law_p_value,
)
from tests.profiler.scripted import FALSE_ALARM, counting, noise

pytestmark = pytest.mark.usefixtures("no_gradients")

BLOCK = 3
SIZE = tiny.MASK_ID  # no mask token


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    path = tiny.pair_file(
        tmp_path_factory.mktemp("pair"),
        'family = "autoregressive"\ntop_p = 0.95',
        drafter=tiny.qwen2(seed=1),
        verifier=tiny.qwen3(seed=2),
        block_size=BLOCK,
    )
    return pairs.load(str(path), device="cpu")


def fresh_probs(drafter, text, count):
    """The distributions of the last `count` tokens of a text, from one pass without a cache."""
    logits = drafter.model(input_ids=text[None], use_cache=False).logits[0, -count - 1 : -1]
    banned = torch.zeros(SIZE, dtype=torch.bool)
    return probabilities(permitted_logits(logits, banned), drafter.sampling)


def test_a_pair_of_checkpoints_is_loaded_with_its_sampling(pair):
    assert isinstance(pair.drafter, AutoregressiveDrafter)
    assert pair.drafter.sampling == Sampling(top_p=0.95)
    assert pair.drafter.exactness(1) == "joint"


@pytest.mark.parametrize("effort", [0, 2, 3])
def test_other_efforts_than_1_are_refused_with_the_reason(pair, effort):
    with pytest.raises(ValueError, match=rf"`effort` .* must be 1, got {effort}: .* no denoising steps"):
        drafts_of(pair.drafter, block=BLOCK, effort=effort, count=1)


@pytest.mark.parametrize("block", [1, 4])
def test_a_block_takes_as_many_passes_as_tokens(pair, block, monkeypatch):
    model = pair.drafter.model
    monkeypatch.setattr(model, "forward", counting(model.forward))
    (draft,) = drafts_of(pair.drafter, block=block, effort=1, count=1)

    assert draft.passes == model.forward.calls == block
    assert draft.commit_step.tolist() == list(range(block))


@pytest.mark.parametrize(
    ("accepted", "fed"), [(0, [1, 1, 1, 1]), (1, [1, 1, 1, 1]), (3, [1, 1, 1, 1]), (4, [2, 1, 1, 1])]
)
def test_O17_the_next_round_reads_what_the_cache_lacks_and_no_more(pair, accepted, fed, monkeypatch):
    """After four drafted tokens the cache lacks the fourth, which is read only if it was accepted."""
    drafter, text = pair.drafter, torch.tensor(PROMPT)
    drafter.start()
    draft = drafter.draft(text, block=4, effort=1, noise=noise(0, 1, 4))
    other = (draft.tokens[accepted:][:1] + 1) % 5 if accepted < 4 else torch.tensor([0])
    lengths, forward = [], drafter.model.forward

    def noting(input_ids, **settings):
        lengths.append(input_ids.shape[1])
        return forward(input_ids, **settings)

    monkeypatch.setattr(drafter.model, "forward", noting)
    drafter.draft(torch.cat([text, draft.tokens[:accepted], other]), block=4, effort=1, noise=noise(1, 1, 4))

    assert lengths == fed


@settings(max_examples=20)
@given(
    start=st.integers(1, 9),
    rounds=st.lists(st.integers(1, 4).flatmap(lambda b: st.tuples(st.just(b), st.integers(0, b))), max_size=5),
    seed=st.integers(0, 1000),
)
def test_O17_a_drafter_that_went_along_agrees_with_a_pass_without_cache(pair, start, rounds, seed):
    """Whatever was accepted, and also where the correction is the very token that was drafted."""
    text = torch.randint(0, tiny.EOS_ID, (start,), generator=torch.Generator().manual_seed(seed))
    pair.drafter.start()
    for index, (block, accepted) in enumerate(rounds):
        draft = pair.drafter.draft(text, block=block, effort=1, noise=noise(seed + index, 1, block))
        fresh = fresh_probs(pair.drafter, torch.cat([text, draft.tokens]), block)
        torch.testing.assert_close(draft.probs, fresh, rtol=0, atol=PASS_TOLERANCE)
        text = torch.cat([text, draft.tokens[:accepted], torch.tensor([(seed + index) % 5])])


def test_tokens_are_drawn_from_the_recorded_distributions(pair):
    right, wrong = draws_p_values(drafts_of(pair.drafter, block=BLOCK, effort=1, count=200))

    assert right > FALSE_ALARM > wrong


def test_two_tokens_follow_the_verifiers_law(pair):
    assert pair_law_p_value(pair.drafter, effort=1, block=2, size=SIZE) > FALSE_ALARM
    assert pair_law_p_value(Liar(pair.drafter), effort=1, block=2, size=SIZE, draws=100) < FALSE_ALARM


def test_a_drafter_that_is_the_verifier_is_always_accepted(pair):
    """So that what a pair records of slot i is about the same prefix on both sides (case O29)."""
    verifier = pair.verifier
    twin = AutoregressiveDrafter(verifier.model, banned=torch.zeros(SIZE, dtype=torch.bool), sampling=verifier.sampling)
    same = dataclasses.replace(pair, drafter=twin, stop_ids=frozenset())
    rounds = list(
        decode(same, PROMPT, effort=1, rule=LOSSLESS, streams=Streams(seed=0, request=0), token_limit=4 * (BLOCK + 1))
    )

    assert [each.accepted for each in rounds] == [BLOCK] * 4
    assert max(distance for each in rounds for distance in each.divergence) < PASS_TOLERANCE
    assert [each.passes for each in rounds] == [BLOCK] * 4
