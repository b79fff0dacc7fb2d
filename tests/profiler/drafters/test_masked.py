import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler import pairs
from profiler.decode import decode
from profiler.drafters.canvas import Canvas
from profiler.drafters.commit import ORDERS, THRESHOLDS, commit_counts
from profiler.noise import Uniforms
from profiler.sampling import Sampling, draw, permitted_logits, probabilities
from profiler.streams import Streams
from profiler.training.data import MASK_ID, TOKEN_IDS
from tests.profiler import scripted
from tests.profiler import tiny_checkpoints as tiny
from tests.profiler.drafters.checks import LOSSLESS, PROMPT
from tests.profiler.scripted import (
    FALSE_ALARM,
    TableModel,
    counting,
    masked_drafter,
    p_value,
    prompt_ids,
    uniform_p_value,
)

pytestmark = pytest.mark.usefixtures("no_gradients")

BLOCK = 8
BANNED = torch.arange(len(TOKEN_IDS)) == MASK_ID
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.6),
    Sampling(top_k=5),
    Sampling(top_p=0.8),
    Sampling(temperature=1.3, top_k=20, top_p=0.9),
    Sampling(temperature=0.0),
]
PASS_TOLERANCE = 2e-5
"""Between two float32 forward passes that sum in another order, in a probability; ten times what is seen."""


def drafter_of(model, **settings):
    defaults = {"sampling": Sampling(), "order": "left_to_right", "shifted": True, "causal_prefix": True}
    return masked_drafter(model, mask_id=MASK_ID, banned=BANNED, **(defaults | settings))


@pytest.fixture
def model(pair):
    return pair.drafter.model


@pytest.fixture
def prefix(pair):
    return torch.tensor(prompt_ids(pair))


def noise(seed, effort, block=BLOCK):
    return scripted.noise(seed, effort, block)


def fresh_probs(model, prefix, slots, *, shifted=True, causal_prefix=True, sampling=Sampling()):  # noqa: B008 - frozen
    """Distributions of the slots from one pass without a cache, its attention mask written out row by row."""
    canvas = torch.cat([prefix, slots])
    first = len(prefix) - 1 if shifted else len(prefix)
    mask = torch.zeros(1, 1, len(canvas), len(canvas))
    if causal_prefix:
        for row in range(first):
            mask[0, 0, row, row + 1 :] = torch.finfo(torch.float32).min
    logits = model(input_ids=canvas[None], attention_mask=mask, use_cache=False).logits[0]
    rows = logits[first : first + len(slots)]
    return probabilities(permitted_logits(rows, BANNED), sampling)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("effort", range(1, BLOCK + 1))
def test_every_slot_is_committed_once_in_as_many_passes_as_asked(tiny_pair, order, effort, monkeypatch):
    model = tiny_pair.drafter.model
    monkeypatch.setattr(model, "forward", counting(model.forward))
    drafter = drafter_of(model, order=order)

    draft = drafter.draft(torch.tensor(prompt_ids(tiny_pair)), block=BLOCK, effort=effort, noise=noise(0, effort))

    assert draft.passes == model.forward.calls
    assert draft.commit_step.bincount(minlength=effort).tolist() == (
        commit_counts(BLOCK, effort) if order not in THRESHOLDS else [1] * (effort - 1) + [BLOCK - effort + 1]
    )
    assert MASK_ID not in draft.tokens.tolist()
    assert draft.probs.shape == (BLOCK, len(TOKEN_IDS))
    if order == "left_to_right":
        assert draft.commit_step.tolist() == sorted(draft.commit_step.tolist())


def test_order_confidence_stops_when_all_slots_are_committed(tiny_pair, monkeypatch):
    model = tiny_pair.drafter.model
    monkeypatch.setattr(model, "forward", counting(model.forward))
    drafter = drafter_of(model, order="confidence", confidence=0.0)

    draft = drafter.draft(torch.tensor(prompt_ids(tiny_pair)), block=BLOCK, effort=5, noise=noise(0, 5))

    assert draft.passes == model.forward.calls == 1
    assert draft.commit_step.tolist() == [0] * BLOCK


@pytest.mark.parametrize(("block", "effort"), [(8, 9), (8, 0), (3, 4), (1, 2), (8, -1)])
def test_an_effort_outside_of_the_block_is_refused(tiny_pair, block, effort):
    prefix = torch.tensor(prompt_ids(tiny_pair))

    with pytest.raises(ValueError, match=rf"`effort` must lie in \[1, {block}\].*got {effort}"):
        drafter_of(tiny_pair.drafter.model).draft(
            prefix, block=block, effort=effort, noise=noise(0, max(effort, 1), block)
        )


def test_an_unknown_order_is_refused_with_the_known_ones(tiny_pair):
    with pytest.raises(ValueError, match=r"`order` must be one of left_to_right, entropy, .*got 'random'"):
        drafter_of(tiny_pair.drafter.model, order="random")


@pytest.mark.parametrize("order", ORDERS)
def test_what_the_first_step_commits_depends_on_drawn_values_under_order_confidence_alone(tiny_pair, order):
    drafter = drafter_of(tiny_pair.drafter.model, order=order)
    prefix = torch.tensor(prompt_ids(tiny_pair))
    drafts = [drafter.draft(prefix, block=BLOCK, effort=2, noise=noise(seed, 2)) for seed in range(20)]

    committed = {tuple((draft.commit_step == 0).tolist()) for draft in drafts}

    assert (len(committed) > 1) == (order == "confidence")
    assert len({tuple(draft.tokens.tolist()) for draft in drafts}) > 10


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
def test_each_token_inverts_the_distribution_recorded_for_it(tiny_pair, order, sampling):
    drafter = drafter_of(tiny_pair.drafter.model, order=order, sampling=sampling, confidence=0.3)
    prefix = torch.tensor(prompt_ids(tiny_pair))
    for effort in (1, 3, 8):
        uniforms = noise(effort, effort)
        draft = drafter.draft(prefix, block=BLOCK, effort=effort, noise=uniforms)

        used = uniforms.values[draft.commit_step, torch.arange(BLOCK)]
        assert torch.equal(draw(draft.probs, used), draft.tokens)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
def test_the_recorded_distribution_is_the_warped_one_of_a_pass_without_cache(model, prefix, sampling):
    draft = drafter_of(model, sampling=sampling).draft(prefix, block=BLOCK, effort=1, noise=noise(0, 1))

    expected = fresh_probs(model, prefix, torch.full((BLOCK,), MASK_ID), sampling=sampling)
    torch.testing.assert_close(draft.probs, expected, rtol=0, atol=PASS_TOLERANCE)
    assert not draft.probs[:, MASK_ID].any()


@pytest.mark.parametrize("order", [order for order in ORDERS if order != "confidence"])
def test_drawn_tokens_follow_the_recorded_distributions(tiny_pair, order):
    """Draws of slot after slot against q, each from its own commit step on: K = 4, 250 blocks of 8."""
    drafter = drafter_of(tiny_pair.drafter.model, order=order, sampling=Sampling(top_p=0.9))
    prefix = torch.tensor(prompt_ids(tiny_pair))
    drafts = [drafter.draft(prefix, block=BLOCK, effort=4, noise=noise(seed, 4)) for seed in range(250)]

    probs, tokens = torch.cat([draft.probs for draft in drafts]), torch.cat([draft.tokens for draft in drafts])

    assert uniform_p_value(probs, tokens) > FALSE_ALARM
    raw = torch.cat([fresh_probs(tiny_pair.drafter.model, prefix, torch.full((BLOCK,), MASK_ID))] * 250)
    assert uniform_p_value(raw, tokens) < FALSE_ALARM  # what was drawn is not the unwarped distribution


def test_values_decide_what_order_confidence_commits_so_its_recorded_q_is_not_their_law(tiny_pair):
    """Why it is recorded as exactness `none`: of a step's draws, the likely ones are kept."""
    drafter = drafter_of(tiny_pair.drafter.model, order="confidence")
    prefix = torch.tensor(prompt_ids(tiny_pair))
    drafts = [drafter.draft(prefix, block=BLOCK, effort=4, noise=noise(seed, 4)) for seed in range(250)]
    probs = torch.cat([draft.probs[draft.commit_step == 0] for draft in drafts])
    tokens = torch.cat([draft.tokens[draft.commit_step == 0] for draft in drafts])

    assert uniform_p_value(probs, tokens) < FALSE_ALARM
    assert drafter.exactness(4) == "none"


@pytest.mark.parametrize("slot", [0, 5])
def test_tokens_of_one_slot_follow_its_distribution(pair, model, prefix, slot):
    drafter = drafter_of(model, sampling=pair.drafter.canvas.sampling)
    drafts = [drafter.draft(prefix, block=BLOCK, effort=1, noise=noise(seed, 1)) for seed in range(600)]

    counts = torch.stack([draft.tokens[slot] for draft in drafts]).bincount(minlength=len(TOKEN_IDS))

    assert p_value(counts, drafts[0].probs[slot]) > FALSE_ALARM
    other = drafts[0].probs[slot].flip(0)
    assert p_value(counts, other) < FALSE_ALARM


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("causal_prefix", [True, False])
@settings(max_examples=15)
@given(start=st.integers(1, 30), grown=st.lists(st.integers(1, 9), max_size=4), seed=st.integers(0, 1000))
def test_O17_a_drafter_that_went_along_agrees_with_a_pass_without_cache(
    tiny_pair, shifted, causal_prefix, start, grown, seed
):
    model = tiny_pair.drafter.model
    drafter = drafter_of(model, shifted=shifted, causal_prefix=causal_prefix)
    text = torch.randint(3, len(TOKEN_IDS), (start + sum(grown),), generator=torch.Generator().manual_seed(seed))
    length = start
    for growth in (*grown, 0):
        draft = drafter.draft(text[:length], block=BLOCK, effort=2, noise=noise(seed, 2))

        slots = torch.full((BLOCK,), MASK_ID)
        first = fresh_probs(model, text[:length], slots, shifted=shifted, causal_prefix=causal_prefix)
        slots[:4] = draft.tokens[:4]
        second = fresh_probs(model, text[:length], slots, shifted=shifted, causal_prefix=causal_prefix)
        torch.testing.assert_close(draft.probs[:4], first[:4], rtol=0, atol=PASS_TOLERANCE)
        torch.testing.assert_close(draft.probs[4:], second[4:], rtol=0, atol=PASS_TOLERANCE)
        length += growth


def test_a_new_request_forgets_the_prefix_of_the_last(tiny_pair):
    drafter = drafter_of(tiny_pair.drafter.model)
    prefix = torch.tensor(prompt_ids(tiny_pair))
    other = prefix.flip(0)
    fresh = drafter_of(tiny_pair.drafter.model).draft(other, block=BLOCK, effort=1, noise=noise(0, 1))

    drafter.draft(prefix, block=BLOCK, effort=1, noise=noise(0, 1))
    drafter.start()
    draft = drafter.draft(other, block=BLOCK, effort=1, noise=noise(0, 1))

    assert torch.equal(draft.probs, fresh.probs)


def test_a_prefix_of_one_token_is_enough(tiny_pair):
    draft = drafter_of(tiny_pair.drafter.model).draft(torch.tensor([5]), block=3, effort=3, noise=noise(0, 3, 3))

    assert not draft.probs.isnan().any()
    assert draft.commit_step.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("shifted", "tokens"), [(True, ["A", "A", "B", "C"]), (False, ["A", "B", "C", "D"])])
def test_O24_logits_are_aligned_by_the_convention_of_the_model(shifted, tokens):
    """Rows that say A, B, C, D stand over four places, the first of which is the anchor of a shifted model."""

    class Rows(TableModel):
        def forward(self, input_ids, *, logits_to_keep, **others):
            outputs = super().forward(input_ids, logits_to_keep=logits_to_keep)
            outputs.logits = outputs.logits + 30 * rows[-logits_to_keep:]
            return outputs

    words = {letter: torch.eye(5)[index] for index, letter in enumerate("ABCD")}
    rows = torch.stack([words["A"], *(words[letter] for letter in "ABCD")])
    drafter = masked_drafter(
        Rows(torch.zeros(5, 5)),
        mask_id=4,
        banned=torch.arange(5) == 4,
        sampling=Sampling(),
        order="left_to_right",
        shifted=shifted,
        causal_prefix=False,
    )

    draft = drafter.draft(torch.tensor([0]), block=4, effort=1, noise=Uniforms(torch.full((1, 4), 0.5), torch.zeros(4)))

    assert ["ABCD"[token] for token in draft.tokens] == tokens


def test_O24_the_right_convention_is_nearer_to_the_verifier_than_the_other(embedded_pair):
    prefix = torch.tensor(prompt_ids(embedded_pair))
    embedded_pair.verifier.start(prefix)
    p = embedded_pair.verifier.score(prefix[-1:], prefix[:0])[0]
    slots = torch.full((BLOCK,), MASK_ID)

    distance = {
        shifted: float((fresh_probs(embedded_pair.drafter.model, prefix, slots, shifted=shifted)[0] - p).abs().sum())
        / 2
        for shifted in (True, False)
    }

    assert distance[True] < distance[False]


@pytest.mark.parametrize("greedy", [True, False])
def test_O04_greedy_drafts_are_recorded_as_certain(tiny_pair, greedy):
    sampling = Sampling(temperature=0.0) if greedy else Sampling()
    prefix = torch.tensor(prompt_ids(tiny_pair))
    draft = drafter_of(tiny_pair.drafter.model, sampling=sampling, order="entropy").draft(
        prefix, block=BLOCK, effort=2, noise=noise(0, 2)
    )

    certain = draft.probs.gather(-1, draft.tokens[:, None])[:, 0] == 1
    assert bool(certain.all()) == greedy


@pytest.mark.parametrize(
    ("order", "effort", "temperature", "guarantee"),
    [
        ("entropy", 1, 1.0, "joint"),
        ("entropy", 2, 1.0, "first_token"),
        ("entropy", 2, 0.0, "joint"),
        ("left_to_right", 8, 1.0, "joint"),
        ("confidence", 2, 1.0, "none"),
    ],
)
def test_exactness_is_told_for_order_effort_and_sampling(tiny_pair, order, effort, temperature, guarantee):
    drafter = drafter_of(tiny_pair.drafter.model, order=order, sampling=Sampling(temperature=temperature))

    assert drafter.exactness(effort) == guarantee


def test_the_margin_of_entropy_ignores_the_temperature(tiny_pair):
    """The choice of slots comes from untempered probabilities, so that it is the same at every temperature."""
    prefix = torch.tensor(prompt_ids(tiny_pair))
    steps = {
        temperature: drafter_of(
            tiny_pair.drafter.model, order="entropy", sampling=Sampling(temperature=temperature, top_p=0.9)
        )
        .draft(prefix, block=BLOCK, effort=2, noise=noise(0, 2))
        .commit_step.tolist()
        for temperature in (0.0, 0.2, 1.0, 5.0)
    }

    assert len({tuple(step) for step in steps.values()}) == 1


def test_O11_nan_logits_reach_the_recorded_distribution(tiny_pair):
    class Broken(TableModel):
        def forward(self, input_ids, **settings):
            outputs = super().forward(input_ids, **settings)
            outputs.logits[0, 2] = math.nan
            return outputs

    drafter = drafter_of(Broken(torch.zeros(len(TOKEN_IDS), len(TOKEN_IDS))), causal_prefix=False)
    draft = drafter.draft(torch.tensor([5]), block=4, effort=1, noise=noise(0, 1, 4))

    assert draft.probs.isnan().any(-1).tolist() == [False, False, True, False]


@pytest.fixture(scope="module")
def dream(tmp_path_factory):
    """A pair whose drafter is built, set up and named as Dream is: without a tokenizer.json of its own, and with a mask
    token that the verifier's tokenizer ends before."""
    path = tiny.pair_file(
        tmp_path_factory.mktemp("dream"),
        """
        family = "masked"
        tokenizer = "verifier"
        order = "entropy"
        schedule = "linear_time"
        warped_scores = true
        shifted = true
        causal_prefix = false
        temperature = 0.7
        top_p = 0.95
        """,
        drafter=tiny.qwen2(seed=1),
        verifier=tiny.qwen2(seed=2),
        block_size=0,
    )
    tiny.name_own_code(path.parent / "drafter", "Dream", mask_token_id=tiny.MASK_ID)
    (path.parent / "drafter/tokenizer.json").unlink()
    return pairs.load(str(path), device="cpu")


def test_a_dream_checkpoint_is_loaded_by_the_native_class_to_the_bit(dream):
    model = tiny.qwen2(seed=1)

    assert type(dream.drafter.model) is type(model)
    assert all(torch.equal(*both) for both in zip(dream.drafter.model.parameters(), model.parameters(), strict=True))
    assert dream.drafter.canvas.mask_id == dream.vocabulary_size == tiny.MASK_ID


def test_a_dream_draft_is_what_its_own_sampler_would_do(dream):
    """Written out after its description: all see all, rows shifted by one, entropy of the warped distributions."""
    effort, block = 3, 12
    uniforms = noise(0, effort, block)
    draft = dream.drafter.draft(torch.tensor(PROMPT), block=block, effort=effort, noise=uniforms)

    model, slots, left = dream.drafter.model, torch.full((block,), tiny.MASK_ID), [3, 4, 5]
    banned, sampling = torch.zeros(tiny.MASK_ID, dtype=torch.bool), Sampling(temperature=0.7, top_p=0.95)
    for step, count in enumerate(left):
        canvas = torch.cat([torch.tensor(PROMPT), slots])
        mask = torch.zeros(1, 1, len(canvas), len(canvas))
        rows = model(input_ids=canvas[None], attention_mask=mask, use_cache=False).logits[0]
        probs = probabilities(permitted_logits(torch.cat([rows[:1], rows[:-1]])[len(PROMPT) :], banned), sampling)
        entropies = [-sum(x * math.log(x) for x in row if x) for row in probs.double().tolist()]
        masked = [slot for slot in range(block) if slots[slot] == tiny.MASK_ID]
        now = sorted(masked, key=lambda slot: (round(entropies[slot], 6), slot))[:count]
        assert (draft.commit_step == step).nonzero()[:, 0].tolist() == sorted(now)
        torch.testing.assert_close(draft.probs[now], probs[now], rtol=0, atol=PASS_TOLERANCE)
        slots[now] = draft.tokens[now]
    assert torch.equal(slots, draft.tokens)


def test_a_dream_draft_fills_the_remaining_canvas(dream):
    endless = dataclasses.replace(dream, stop_ids=frozenset())
    rounds = list(decode(endless, PROMPT, effort=2, rule=LOSSLESS, streams=Streams(seed=0, request=0), token_limit=9))

    lengths = [len(each.tokens) for each in rounds]
    assert [each.drafted for each in rounds] == [9 - sum(lengths[:index]) for index in range(len(rounds))]


def test_warped_scores_tell_apart_what_untempered_ones_do_not():
    """A sure slot after an unsure one, both of which a greedy drafter makes certain."""
    canvas = {"mask_id": 2, "banned": torch.zeros(3, dtype=torch.bool), "order": "entropy"}

    def first(warped):
        rows = torch.tensor([[0.45, 0.45, 0.1], [0.8, 0.1, 0.1]]).log()
        filled = Canvas(**canvas, sampling=Sampling(temperature=0.0), warped_scores=warped).denoise(
            lambda slots: rows, block=2, effort=2, noise=noise(0, 2, 2)
        )
        return filled.commit_step.tolist()

    assert first(warped=False) == [1, 0]
    assert first(warped=True) == [0, 1]  # both are certain, and the leftmost comes first


def test_O22_the_mask_token_is_banned_before_anything_is_drawn():
    canvas = Canvas(mask_id=2, banned=torch.arange(3) == 2, sampling=Sampling(temperature=1.0), order="left_to_right")
    logits = torch.tensor([[1.0, 0.0, 3.0]])
    draft = canvas.denoise(lambda slots: logits, block=1, effort=1, noise=noise(0, 1, 1))

    assert draft.probs[0].tolist() == pytest.approx([0.7310585786, 0.2689414214, 0.0])


@pytest.mark.parametrize(("name", "value"), [("order", "random"), ("schedule", "cosine")])
def test_a_canvas_refuses_unknown_settings_with_the_known_ones(name, value):
    settings = {"mask_id": 2, "banned": torch.arange(3) == 2, "sampling": Sampling(), "order": "entropy"}

    with pytest.raises(ValueError, match=rf"`{name}` must be one of .*, got '{value}'"):
        Canvas(**settings | {name: value})
