import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler import pairs
from profiler.decode import decode
from profiler.drafters.early_exit import EarlyExitDrafter
from profiler.drafters.early_exit_network import prefix_of
from profiler.sampling import Sampling, permitted_logits, probabilities
from profiler.streams import Streams
from profiler.verifier import Verifier
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

BLOCK, SIZE = 4, tiny.MASK_ID
IDS = torch.tensor(tiny.EARLY_EXIT_IDS)
BANNED = torch.zeros(SIZE, dtype=torch.bool)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    path = tiny.pair_file(
        tmp_path_factory.mktemp("pair"),
        'family = "early_exit"',
        drafter=tiny.early_exit(seed=1),
        verifier=tiny.llama(seed=2),
        block_size=BLOCK,
    )
    return pairs.load(str(path), device="cpu")


def drafter_of(pair, prefix=PROMPT, **changes):
    """A drafter of the pair's network, other than the pair's in `changes`, whose verifier has read a text."""
    verifier = Verifier(pair.verifier.model, banned=BANNED, sampling=Sampling())
    verifier.start(torch.tensor(prefix))
    given = {"banned": BANNED, "sampling": Sampling()} | changes
    return EarlyExitDrafter(pair.drafter.network, verifier, **given)


def fresh_probs(pair, prefix, slots):
    """Distributions of the slots, -1 standing for a mask, over a cache that has read the text in one pass."""
    verifier, network = Verifier(pair.verifier.model, banned=BANNED, sampling=Sampling()), pair.drafter.network
    verifier.start(prefix)
    table = pair.verifier.model.get_input_embeddings().weight
    slots = slots.masked_fill(slots < 0, network.config.mask_token_id)
    hidden = network(
        network.rows(torch.cat([prefix[-1:], slots[:-1]])[None], table),
        positions=torch.arange(len(prefix) - 1, len(prefix) - 1 + len(slots))[None],
        prefix=prefix_of(verifier.cache, 1),
    )
    logits = torch.full((len(slots), SIZE), -torch.inf)
    logits[:, IDS] = hidden[0] @ table[IDS].T
    return probabilities(permitted_logits(logits, BANNED), Sampling())


@settings(max_examples=15)
@given(
    start=st.integers(1, 8),
    rounds=st.lists(st.integers(1, 4).flatmap(lambda b: st.tuples(st.just(b), st.integers(0, b))), max_size=4),
    data=st.data(),
    seed=st.integers(0, 1000),
)
def test_O17_every_step_agrees_with_a_pass_over_a_fresh_cache(pair, start, rounds, data, seed):
    """The verifier's own cache changes no distribution, whatever it has read and cut back before."""
    text = torch.randint(0, 5, (start,), generator=torch.Generator().manual_seed(seed))
    drafter = drafter_of(pair, text.tolist())
    for index, (block, accepted) in enumerate([*rounds, (4, 0)]):
        effort = data.draw(st.integers(1, block))
        draft = drafter.draft(text, block=block, effort=effort, noise=noise(seed + index, effort, block))
        for step in range(effort):
            known = torch.where(draft.commit_step < step, draft.tokens, -1)
            now = draft.commit_step == step
            fresh = fresh_probs(pair, text, known)[now]
            torch.testing.assert_close(draft.probs[now], fresh, rtol=0, atol=PASS_TOLERANCE)
        drafter.verifier.score(text[-1:], draft.tokens)
        drafter.verifier.keep(len(text) + accepted)
        text = torch.cat([text, draft.tokens[:accepted], torch.tensor([(seed + index) % 5])])


def test_a_draft_leaves_the_verifiers_cache_as_it_was(pair):
    drafter = drafter_of(pair)
    before = [(keys.clone(), values.clone()) for keys, values in prefix_of(drafter.verifier.cache, 2)]
    drafts_of(drafter, block=BLOCK, effort=2, count=1)

    after = prefix_of(drafter.verifier.cache, 2)
    assert drafter.verifier.cached == len(PROMPT) - 1
    assert all(torch.equal(*both) for layers in zip(before, after, strict=True) for both in zip(*layers, strict=True))


def test_a_draft_is_of_the_heads_ids_alone_and_its_law_covers_all(pair):
    absent = [index for index in range(SIZE) if index not in tiny.EARLY_EXIT_IDS]
    for draft in drafts_of(drafter_of(pair), block=BLOCK, effort=2, count=20):
        assert draft.probs.shape == (BLOCK, SIZE)
        assert not set(draft.tokens.tolist()) & set(absent)
        assert (draft.probs[:, absent] == 0).all()
        assert (draft.probs.gather(1, draft.tokens[:, None]) > 0).all()


def test_ids_that_are_banned_are_not_drafted_either(pair):
    """Such as a token that the verifier's tokenizer does not have."""
    for draft in drafts_of(drafter_of(pair, banned=torch.arange(SIZE) == 2), block=BLOCK, effort=1, count=20):
        assert (draft.probs[:, 2] == 0).all()
        assert (draft.probs.sum(-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("effort", [1, 3])
def test_passes_are_the_forward_passes_that_were_run(pair, effort, monkeypatch):
    network, model = pair.drafter.network, pair.verifier.model
    monkeypatch.setattr(network, "forward", counting(network.forward))
    drafter = drafter_of(pair)
    monkeypatch.setattr(model, "forward", counting(model.forward))
    (draft,) = drafts_of(drafter, block=BLOCK, effort=effort, count=1)

    assert draft.passes == network.forward.calls == effort
    assert model.forward.calls == 0
    assert draft.commit_step.tolist() == {1: [0, 0, 0, 0], 3: [0, 0, 1, 2]}[effort]
    assert drafter.exactness(effort) == "joint"


def test_the_product_with_the_head_is_a_part_of_the_forward(pair):
    """So that it is timed as the drafter's and compiled with it."""
    shapes = []
    hook = pair.drafter.network.register_forward_hook(lambda _module, _inputs, output: shapes.append(output.shape))
    drafts_of(drafter_of(pair), block=BLOCK, effort=1, count=1)
    hook.remove()

    assert shapes == [(1, BLOCK, len(IDS))]


def test_other_orders_look_at_the_networks_own_distributions(pair):
    prefix = [0, 3, 1]
    drafter = drafter_of(pair, prefix, order="max_probability")
    (draft,) = drafts_of(drafter, block=BLOCK, effort=BLOCK, count=1, prefix=prefix)
    first = int((draft.commit_step == 0).nonzero())

    untouched = fresh_probs(pair, torch.tensor(prefix), torch.full((BLOCK,), -1))
    assert first == int(untouched.amax(-1).argmax()) != 0
    assert drafter.exactness(2) == "first_token"
    assert drafter_of(pair, order="confidence", confidence=0.5).exactness(2) == "none"


@pytest.mark.parametrize("effort", [0, 5])
def test_an_effort_outside_of_the_block_is_refused(pair, effort):
    with pytest.raises(ValueError, match=rf"`effort` must lie in \[1, {BLOCK}\].*got {effort}"):
        drafts_of(drafter_of(pair), block=BLOCK, effort=effort, count=1)


def test_a_text_that_the_verifier_has_not_read_is_refused(pair):
    with pytest.raises(ValueError, match="the verifier has read 2 tokens of a text of 5"):
        drafts_of(drafter_of(pair, PROMPT[:3]), block=BLOCK, effort=1, count=1)


def test_tokens_are_drawn_from_the_recorded_distributions(pair):
    right, wrong = draws_p_values(drafts_of(drafter_of(pair), block=BLOCK, effort=2, count=150))

    assert right > FALSE_ALARM > wrong


@pytest.mark.parametrize("effort", [1, 2])
def test_two_tokens_follow_the_verifiers_law(pair, effort):
    """Which has tokens that are never drafted; a rejection brings them."""
    law = {"effort": effort, "block": 2, "size": SIZE, "verifier": pair.verifier}
    assert pair_law_p_value(pair.drafter, **law) > FALSE_ALARM
    assert pair_law_p_value(Liar(pair.drafter), **law, draws=100) < FALSE_ALARM


def test_tokens_that_cannot_be_drafted_are_written_all_the_same(pair):
    endless = dataclasses.replace(pair, stop_ids=frozenset())
    rounds = decode(endless, PROMPT, effort=2, rule=LOSSLESS, streams=Streams(seed=0, request=0), token_limit=60)

    assert 3 in [token for each in rounds for token in each.tokens]
