import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.sampling import Sampling, permitted_logits, probabilities
from profiler.training.data import MASK_ID, TOKEN_IDS
from profiler.verifier import Verifier
from tests.profiler.scripted import prompt_ids

BANNED = torch.arange(len(TOKEN_IDS)) == MASK_ID
PASS_TOLERANCE = 2e-5
"""Between two float32 forward passes that sum in another order, in a probability; ten times what is seen."""


@pytest.fixture(autouse=True)
def no_gradients():
    """As within `decode`."""
    with torch.inference_mode():
        yield


def random_tokens(count, seed):
    return torch.randint(3, len(TOKEN_IDS), (count,), generator=torch.Generator().manual_seed(seed))


def fresh_probs(model, text, sampling):
    """The distribution after every token of the text, from one pass without a cache."""
    logits = model(input_ids=text[None], use_cache=False).logits[0]
    return probabilities(permitted_logits(logits, BANNED), sampling)


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


def agree_after(pair, start, rounds, seed):
    """Whether scores with the cache equal those of a fresh pass, round after round of (drafted, accepted)."""
    verifier = Verifier(pair.verifier.model, banned=BANNED, sampling=Sampling())
    text = random_tokens(start, seed)
    verifier.start(text)
    for index, (block, accepted) in enumerate(rounds):
        drafted = random_tokens(block, seed + index + 1)
        assert verifier.cached == len(text) - 1
        p = verifier.score(text[-1:], drafted)
        assert verifier.cached == len(text) + block
        fresh = fresh_probs(verifier.model, torch.cat([text, drafted]), Sampling())[len(text) - 1 :]
        torch.testing.assert_close(p, fresh, rtol=0, atol=PASS_TOLERANCE)
        verifier.keep(len(text) + accepted)
        text = torch.cat([text, drafted[:accepted], random_tokens(1, seed + index + 100)])


@settings(max_examples=25)
@given(
    start=st.integers(1, 20),
    rounds=st.lists(st.integers(0, 8).flatmap(lambda b: st.tuples(st.just(b), st.integers(0, b))), max_size=6),
    seed=st.integers(0, 10_000),
)
def test_O17_cached_and_fresh_scores_agree_after_any_accepting_and_rejecting(tiny_pair, start, rounds, seed):
    agree_after(tiny_pair, start, rounds, seed)


def test_O17_the_embedded_pairs_cache_agrees_too(embedded_pair):
    agree_after(embedded_pair, 15, [(8, 0), (8, 8), (0, 0), (8, 3), (1, 1), (8, 7)], seed=0)


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
