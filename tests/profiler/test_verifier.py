import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from profiler.sampling import Sampling, permitted_logits, probabilities
from profiler.training.data import MASK_ID, TOKEN_IDS
from profiler.verifier import Verifier
from tests.profiler import tiny_checkpoints as tiny
from tests.profiler.scripted import prompt_ids

pytestmark = pytest.mark.usefixtures("no_gradients")

WORDS = len(TOKEN_IDS)
BANNED = torch.arange(WORDS) == MASK_ID
PASS_TOLERANCE = 2e-5
"""Between two float32 forward passes that sum in another order, in a probability; ten times what is seen."""


@pytest.fixture(scope="module", params=["qwen2", "qwen3", "gemma4", "gemma4_with_vision"])
def architecture(request, tmp_path_factory):
    """A model of each architecture that verifies in a named pair, with more output rows than tokens."""
    folder = tmp_path_factory.mktemp("verifier") / request.param
    tiny.write(getattr(tiny, request.param)(seed=1), folder)
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()


def random_tokens(count, seed, low=3, size=WORDS):
    return torch.randint(low, size, (count,), generator=torch.Generator().manual_seed(seed))


def fresh_probs(model, text, sampling, banned=BANNED):
    """The distribution after every token of the text, from one pass without a cache."""
    logits = model(input_ids=text[None], use_cache=False).logits[0]
    return probabilities(permitted_logits(logits, banned), sampling)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.5, top_k=10), Sampling(temperature=0.0)])
def test_scores_are_the_distributions_after_the_text_and_after_each_drafted_token(pair, sampling):
    verifier = Verifier(pair.verifier.model, banned=BANNED, sampling=sampling)
    prompt, drafted = torch.tensor(prompt_ids(pair)), random_tokens(8, 0)

    verifier.start(prompt)
    p = verifier.score(prompt[-1:], drafted)

    expected = fresh_probs(verifier.model, torch.cat([prompt, drafted]), sampling)[len(prompt) - 1 :]
    assert p.shape == (9, len(TOKEN_IDS))
    torch.testing.assert_close(p, expected, rtol=0, atol=PASS_TOLERANCE)
    assert not p[:, MASK_ID].any()


def agree_after(model, start, rounds, seed, banned=BANNED):
    """Whether scores with the cache equal those of a fresh pass, round after round of (drafted, accepted)."""

    def tokens(count, offset):
        return random_tokens(count, seed + offset, low=0, size=len(banned))

    verifier = Verifier(model, banned=banned, sampling=Sampling())
    text = tokens(start, 0)
    verifier.start(text)
    for index, (block, accepted) in enumerate(rounds):
        drafted = tokens(block, index + 1)
        assert verifier.cached == len(text) - 1
        p = verifier.score(text[-1:], drafted)
        assert verifier.cached == len(text) + block
        fresh = fresh_probs(verifier.model, torch.cat([text, drafted]), Sampling(), banned)[len(text) - 1 :]
        torch.testing.assert_close(p, fresh, rtol=0, atol=PASS_TOLERANCE)
        verifier.keep(len(text) + accepted)
        text = torch.cat([text, drafted[:accepted], tokens(1, index + 100)])


some_rounds = st.lists(st.integers(0, 8).flatmap(lambda b: st.tuples(st.just(b), st.integers(0, b))), max_size=6)


@settings(max_examples=25)
@given(start=st.integers(1, 20), rounds=some_rounds, seed=st.integers(0, 10_000))
def test_O17_cached_and_fresh_scores_agree_after_any_accepting_and_rejecting(tiny_pair, start, rounds, seed):
    agree_after(tiny_pair.verifier.model, start, rounds, seed)


@settings(max_examples=25)
@given(start=st.integers(1, 20), rounds=some_rounds, seed=st.integers(0, 10_000))
@example(start=2 * tiny.GEMMA["sliding_window"], rounds=[(8, 0), (8, 8), (8, 3), (0, 0), (5, 1)], seed=0)
def test_O17_caches_of_every_architecture_agree_also_where_windows_slide(architecture, start, rounds, seed):
    agree_after(architecture, start, rounds, seed, banned=torch.zeros(tiny.SIZE, dtype=torch.bool))


@settings(max_examples=15)
@given(start=st.integers(1, 12), rounds=some_rounds, seed=st.integers(0, 10_000))
def test_O17_observed_hidden_states_are_those_of_the_tokens_in_the_cache(architecture, start, rounds, seed):
    """Whatever was accepted, they are what a pass over the kept text gives after the observed layers."""
    verifier = Verifier(architecture, banned=torch.zeros(tiny.SIZE, dtype=torch.bool), sampling=Sampling())
    verifier.observe([0, 1])
    text = random_tokens(start, seed, low=0, size=tiny.SIZE)
    verifier.start(text)
    for index, (block, accepted) in enumerate([*rounds, (0, 0)]):
        kept = text[:-1]
        assert verifier.features.shape == (len(kept), 2 * tiny.COMMON["hidden_size"])
        if len(kept):
            states = architecture(input_ids=kept[None], output_hidden_states=True).hidden_states
            fresh = torch.cat([states[1][0], states[2][0]], dim=-1)
            torch.testing.assert_close(verifier.features, fresh, rtol=1e-4, atol=1e-4)
        drafted = random_tokens(block, seed + index + 1, low=0, size=tiny.SIZE)
        verifier.score(text[-1:], drafted)
        verifier.keep(len(text) + accepted)
        text = torch.cat([text, drafted[:accepted], random_tokens(1, seed + index, low=0, size=tiny.SIZE)])


def test_layers_that_the_verifier_does_not_have_are_refused(architecture):
    verifier = Verifier(architecture, banned=torch.zeros(tiny.SIZE, dtype=torch.bool), sampling=Sampling())

    with pytest.raises(ValueError, match=r"`layers` must be among the verifier's \d, counted from 0, got \[1, 9\]"):
        verifier.observe([1, 9])


def test_O17_the_embedded_pairs_cache_agrees_too(embedded_pair):
    agree_after(embedded_pair.verifier.model, 15, [(8, 0), (8, 8), (0, 0), (8, 3), (1, 1), (8, 7)], seed=0)


def test_the_window_of_the_sliding_layers_is_really_shorter_than_those_texts():
    """A wider window changes the distributions, so that the test above would see keys dropped or kept wrongly."""
    text = random_tokens(14, 0, low=0, size=tiny.SIZE)
    narrow, wide = tiny.gemma4(seed=1), tiny.gemma4(seed=1)
    wide.config.sliding_window = 64

    distance = (fresh_probs(narrow, text, Sampling()) - fresh_probs(wide, text, Sampling())).abs().amax(-1)

    assert (distance[: tiny.GEMMA["sliding_window"]] < PASS_TOLERANCE).all()
    assert (distance[tiny.GEMMA["sliding_window"] :] > 100 * PASS_TOLERANCE).all()


def test_O09_rows_beyond_the_tokenizer_and_banned_ids_get_nothing(architecture):
    banned = torch.arange(tiny.SIZE) == tiny.MASK_ID
    verifier = Verifier(architecture, banned=banned, sampling=Sampling())
    text = random_tokens(9, 0, low=0, size=tiny.SIZE)
    verifier.start(text)
    p = verifier.score(text[-1:], random_tokens(3, 1, low=0, size=tiny.SIZE))

    assert p.shape == (4, tiny.SIZE)
    assert not p[:, tiny.MASK_ID].any()
    torch.testing.assert_close(p.sum(-1), torch.ones(4))


def test_O12_probabilities_are_float32_and_sum_to_one_whatever_the_models_dtype():
    """In bfloat16 the sum of these probabilities would be off by up to 4e-3."""
    model = tiny.qwen2(seed=1).to(torch.bfloat16)
    verifier = Verifier(model, banned=torch.zeros(tiny.SIZE, dtype=torch.bool), sampling=Sampling(temperature=0.7))
    text = random_tokens(9, 0, low=0, size=tiny.SIZE)
    verifier.start(text)
    p = verifier.score(text[-1:], random_tokens(8, 1, low=0, size=tiny.SIZE))

    assert p.dtype == torch.float32
    assert (p.sum(-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize(("accepted", "cached"), [(0, 11), (1, 12), (3, 14), (4, 15)])
def test_O17_the_cache_keeps_the_prefix_the_last_token_and_what_was_accepted(tiny_pair, accepted, cached):
    verifier = Verifier(tiny_pair.verifier.model, banned=BANNED, sampling=Sampling())
    text = random_tokens(11, 0)  # ten in the cache and the one that starts the round
    verifier.start(text)
    verifier.score(text[-1:], random_tokens(4, 1))

    verifier.keep(len(text) + accepted)

    assert verifier.cached == cached


def test_keeping_all_or_more_than_there_is_changes_nothing(tiny_pair):
    verifier = Verifier(tiny_pair.verifier.model, banned=BANNED, sampling=Sampling())
    verifier.start(random_tokens(5, 0))
    for length in (4, 9):
        verifier.keep(length)
        assert verifier.cached == 4


def test_a_request_starts_with_an_empty_cache(tiny_pair):
    verifier = Verifier(tiny_pair.verifier.model, banned=BANNED, sampling=Sampling())
    for length in (9, 4, 1):
        verifier.start(random_tokens(length, 0))
        assert verifier.cached == length - 1


def test_a_prompt_without_tokens_is_refused(tiny_pair):
    with pytest.raises(ValueError, match="`prompt` must have at least one token, got none"):
        tiny_pair.verifier.start(torch.tensor([], dtype=torch.long))
