from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler import pairs
from profiler.decode import decode
from profiler.drafters.block import BlockDrafter
from profiler.drafters.canvas import Canvas
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
from tests.profiler.scripted import FALSE_ALARM, MarkovVerifier, TableModel, counting, noise, p_value, pair_of

pytestmark = pytest.mark.usefixtures("no_gradients")

LENGTH = 4
BANNED = torch.arange(tiny.SIZE) == tiny.MASK_ID


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    path = tiny.pair_file(
        tmp_path_factory.mktemp("pair"),
        'family = "block"\norder = "left_to_right"\ntop_p = 0.95\ntop_k = 5',
        drafter=tiny.qwen3(seed=1),
        verifier=tiny.qwen3(seed=2),
        block_size=LENGTH,
        mask=True,
    )
    tiny.name_own_code(path.parent / "drafter", "sdar", mask_token_id=tiny.MASK_ID)
    return pairs.load(str(path), device="cpu")


def drafter_of(model, *, length=LENGTH, aligned=True, **settings):
    defaults = {"mask_id": tiny.MASK_ID, "banned": BANNED, "sampling": Sampling(), "order": "left_to_right"}
    return BlockDrafter(model, canvas=Canvas(**(defaults | settings)), length=length, aligned=aligned)


def fresh_probs(model, prefix, slots, begins, sampling=Sampling()):  # noqa: B008 - frozen
    """Distributions of the slots from one pass without a cache; its mask is written out row by row."""
    canvas = torch.cat([prefix, slots])
    mask = torch.zeros(1, 1, len(canvas), len(canvas))
    for row in range(len(canvas)):
        end = min(begin for begin in [*begins, len(canvas)] if begin > row)
        mask[0, 0, row, end:] = torch.finfo(torch.float32).min
    logits = model(input_ids=canvas[None], attention_mask=mask, use_cache=False).logits[0, len(prefix) :]
    return probabilities(permitted_logits(logits, BANNED), sampling)


def test_a_checkpoint_with_code_of_its_own_is_loaded_by_the_native_class_to_the_bit(pair):
    model = tiny.qwen3(seed=1)

    assert type(pair.drafter.model) is type(model)
    assert all(torch.equal(*both) for both in zip(pair.drafter.model.parameters(), model.parameters(), strict=True))
    assert pair.drafter.canvas.mask_id == tiny.MASK_ID
    assert pair.drafter.canvas.sampling == Sampling(top_p=0.95, top_k=5)


@pytest.mark.parametrize(("tokens", "drafted"), [(1, 3), (3, 1), (4, 4), (5, 3), (7, 1), (8, 4)])
def test_an_aligned_draft_ends_where_the_block_ends_and_an_anchored_one_is_whole(pair, tokens, drafted):
    prefix = [0, 1, 2, 3, 4, 0, 1, 2][:tokens]
    for aligned, expected in ((True, drafted), (False, LENGTH)):
        drafter = drafter_of(pair.drafter.model, aligned=aligned)
        (draft,) = drafts_of(drafter, block=LENGTH, effort=4, count=1, prefix=prefix)
        assert len(draft.tokens) == len(draft.probs) == len(draft.commit_step) == expected
        assert draft.passes == min(4, expected)


def test_fewer_tokens_than_the_block_can_be_asked_for(pair):
    (draft,) = drafts_of(drafter_of(pair.drafter.model), block=2, effort=2, count=1, prefix=[0, 1, 2, 3])

    assert len(draft.tokens) == 2


@pytest.mark.parametrize(("block", "effort"), [(4, 0), (4, 5), (1, 2)])
def test_an_effort_outside_of_the_block_is_refused(pair, block, effort):
    with pytest.raises(ValueError, match=rf"`effort` must lie in \[1, {block}\].*got {effort}"):
        drafter_of(pair.drafter.model).draft(
            torch.tensor(PROMPT), block=block, effort=effort, noise=noise(0, max(effort, 1), block)
        )


def test_a_block_without_slots_is_refused(pair):
    with pytest.raises(ValueError, match="`length` of a block must be at least 1, got 0"):
        drafter_of(pair.drafter.model, length=0)


@pytest.mark.parametrize(
    ("order", "confidence", "effort", "passes"),
    [
        ("left_to_right", 1.0, 3, 3),
        ("entropy", 1.0, 2, 2),
        ("confidence", 0.0, 4, 1),
        ("certainty", 0.0, 4, 1),
        ("confidence", 1.0, 3, 3),
        ("certainty", 1.0, 4, 4),
    ],
)
def test_passes_are_the_forward_passes_that_were_run(pair, order, confidence, effort, passes, monkeypatch):
    """A threshold that everything exceeds needs one pass; one that nothing exceeds commits a slot a pass."""
    model = pair.drafter.model
    monkeypatch.setattr(model, "forward", counting(model.forward))
    drafter = drafter_of(model, order=order, confidence=confidence, aligned=False)
    (draft,) = drafts_of(drafter, block=LENGTH, effort=effort, count=1)

    assert draft.passes == model.forward.calls == passes
    assert int(draft.commit_step.max()) == passes - 1
    assert not draft.probs[:, tiny.MASK_ID].any()


@pytest.mark.parametrize("aligned", [True, False])
@settings(max_examples=15)
@given(
    start=st.integers(1, 10),
    grown=st.lists(st.integers(1, 5), max_size=4),
    effort=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_O17_a_drafter_that_went_along_agrees_with_a_pass_without_cache(pair, aligned, start, grown, effort, seed):
    """Cached blocks change no distribution, neither in the first step nor in the one that sees what it committed."""
    model = pair.drafter.model
    drafter = drafter_of(model, aligned=aligned)
    text = torch.randint(0, 5, (start + sum(grown),), generator=torch.Generator().manual_seed(seed))
    length, begins = start, [0]
    for growth in (*grown, 0):
        if aligned:
            begins = list(range(0, length + 1, LENGTH))
        else:
            begins += [*range(begins[-1] + LENGTH, length, LENGTH), length]
        draft = drafter.draft(text[:length], block=LENGTH, effort=effort, noise=noise(seed, effort, LENGTH))
        slots = torch.full((len(draft.tokens),), tiny.MASK_ID)
        for step in range(draft.passes):
            now = draft.commit_step == step
            fresh = fresh_probs(model, text[:length], slots, begins)
            torch.testing.assert_close(draft.probs[now], fresh[now], rtol=0, atol=PASS_TOLERANCE)
            slots = torch.where(now, draft.tokens, slots)
        length += growth


def test_O17_only_whole_blocks_stay_in_the_cache(pair):
    drafter = drafter_of(pair.drafter.model)
    for length, cached in ((3, 0), (4, 4), (7, 4), (9, 8)):
        drafter.draft(torch.zeros(length, dtype=torch.long), block=4, effort=1, noise=noise(0, 1, 4))
        assert drafter._cache.get_seq_length() == cached


def test_a_new_request_forgets_the_prefix_and_the_blocks_of_the_last(pair):
    for aligned in (True, False):
        used, new = (drafter_of(pair.drafter.model, aligned=aligned) for _ in range(2))
        drafts_of(used, block=LENGTH, effort=1, count=1)
        used.start()
        other = [4, 3, 2, 1, 0, 0]
        results = [drafts_of(each, block=LENGTH, effort=1, count=1, prefix=other)[0] for each in (used, new)]
        assert torch.equal(results[0].probs, results[1].probs)


@pytest.mark.parametrize(
    ("order", "effort", "guarantee"),
    [
        ("confidence", 1, "joint"),
        ("left_to_right", 4, "joint"),
        ("certainty", 4, "first_token"),
        ("entropy", 2, "first_token"),
        ("confidence", 4, "none"),
    ],
)
def test_exactness_is_told_for_order_and_effort(pair, order, effort, guarantee):
    assert drafter_of(pair.drafter.model, order=order, confidence=0.5).exactness(effort) == guarantee


def test_tokens_are_drawn_from_the_recorded_distributions(pair):
    drafter = drafter_of(pair.drafter.model, aligned=False, sampling=Sampling(top_p=0.9))
    right, wrong = draws_p_values(drafts_of(drafter, block=LENGTH, effort=2, count=150))

    assert right > FALSE_ALARM > wrong


def test_two_tokens_of_a_left_to_right_draft_follow_the_verifiers_law(pair):
    drafter = drafter_of(pair.drafter.model, aligned=False)

    assert pair_law_p_value(drafter, effort=2, block=2) > FALSE_ALARM
    assert pair_law_p_value(Liar(drafter), effort=2, block=2, draws=100) < FALSE_ALARM


SIZE = 4
P = torch.tensor([[0.1, 0.6, 0.3, 0], [0.45, 0.15, 0.4, 0], [0.2, 0.5, 0.3, 0], [0.3, 0.3, 0.4, 0]])


class Neighbours(TableModel):
    """Slot logits that depend on the token before, through the table, and on the one after, which pulls."""

    def forward(self, input_ids, *, logits_to_keep, **_):
        before = torch.cat([input_ids[:, :1], input_ids[:, :-1]], dim=1)
        after = torch.cat([input_ids[:, 1:], input_ids[:, :1] * 0 + 3], dim=1)
        logits = self.table[before] + 8 * torch.eye(SIZE)[after] * (after != 3)[..., None]
        return SimpleNamespace(logits=logits[:, -logits_to_keep:])


TABLE = torch.tensor([[0.5, 0.3, 0.2, 0], [0.2, 0.5, 0.3, 0], [0.6, 0.1, 0.3, 0], [0.05, 0.15, 0.8, 0]])


def law_of_scripted_blocks(order, confidence, size=2, law=P, draws=800):
    """Counts of the first two tokens that blocks give in as many steps as slots; slot 1 is surer than slot 0."""
    canvas = Canvas(mask_id=3, banned=torch.arange(SIZE) == 3, sampling=Sampling(), order=order, confidence=confidence)
    drafter = BlockDrafter(Neighbours((TABLE + 1e-9).log()), canvas=canvas, length=size, aligned=False)
    pair = pair_of(drafter, MarkovVerifier(law), vocabulary_size=SIZE, block_size=size)
    counts = np.zeros((SIZE, SIZE))
    for request in range(draws):
        rounds = decode(pair, [0], effort=size, rule=LOSSLESS, streams=Streams(seed=0, request=request), token_limit=2)
        counts[tuple(token for each in rounds for token in each.tokens)] += 1
    return counts


def test_the_papers_confidence_changes_even_the_first_token():
    """Exactness `none`: a token is kept because it is likely, so that q is not the law of what was kept."""
    law = torch.tensor([[0.45, 0.35, 0.2, 0]]).expand(SIZE, -1)
    counts = law_of_scripted_blocks("confidence", 0.45, size=4, law=law)

    assert p_value(counts.sum(1), law[0]) < FALSE_ALARM


def test_confidence_by_the_distribution_alone_keeps_the_law_of_the_first_token_and_not_of_both():
    """Exactness `first_token`: slot 1 is committed first and then decides slot 0."""
    counts = law_of_scripted_blocks("certainty", 0.7)

    assert p_value(counts.sum(1), P[0]) > FALSE_ALARM
    assert p_value(counts, P[0][:, None] * P) < FALSE_ALARM


def test_the_same_blocks_from_left_to_right_keep_the_law_of_both():
    assert p_value(law_of_scripted_blocks("left_to_right", 1.0), P[0][:, None] * P) > FALSE_ALARM
