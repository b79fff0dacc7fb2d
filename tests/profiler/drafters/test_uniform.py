import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache

from profiler import pairs
from profiler.drafters.uniform import UniformDrafter
from profiler.sampling import Sampling, permitted_logits, probabilities
from tests.profiler import tiny_checkpoints as tiny
from tests.profiler.drafters.checks import (
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
BANNED = torch.zeros(SIZE, dtype=torch.bool)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    path = tiny.pair_file(
        tmp_path_factory.mktemp("pair"),
        'family = "uniform"\ntemperature = 0.8\nfinal_temperature = 0.4\ntop_p = 0.95',
        drafter=tiny.diffusion_gemma(seed=1),
        verifier=tiny.gemma4(seed=2),
        block_size=BLOCK,
    )
    return pairs.load(str(path), device="cpu")


@pytest.fixture
def drafter(pair):
    pair.drafter.start()
    return pair.drafter


def fresh_drafts(drafter, prefix, uniforms, temperatures):
    """Distributions of the last step, every step written out, with an encoding of the whole text of its own."""
    model, text_config = drafter.model, drafter.model.config.get_text_config()
    cache = DynamicCache(config=text_config)
    model.model.encoder(input_ids=prefix[None], cache=cache)
    canvas, previous = (uniforms.canvas * SIZE).long(), None
    for step, temperature in enumerate(temperatures):
        logits = model(cache=cache, decoder_input_ids=canvas[None], self_conditioning_logits=previous).logits[0]
        probs = probabilities(permitted_logits(logits, BANNED), Sampling(temperature=temperature, top_p=0.95))
        canvas, previous = uniforms.draw(probs, step), (logits / temperature)[None]
    return canvas, probs


def test_a_checkpoint_is_loaded_by_the_native_class_to_the_bit(pair):
    model = tiny.diffusion_gemma(seed=1)

    assert isinstance(pair.drafter, UniformDrafter)
    assert type(pair.drafter.model) is type(model)
    assert all(torch.equal(*both) for both in zip(pair.drafter.model.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("effort", "temperatures"), [(1, [0.4]), (2, [0.8, 0.4]), (3, [0.8, 0.6, 0.4]), (5, [0.8, 0.7, 0.6, 0.5, 0.4])]
)
def test_the_temperature_falls_evenly_to_that_of_a_single_step(drafter, effort, temperatures):
    uniforms = noise(0, effort, BLOCK)
    draft = drafter.draft(torch.tensor(PROMPT), block=BLOCK, effort=effort, noise=uniforms)
    tokens, probs = fresh_drafts(drafter, torch.tensor(PROMPT), uniforms, temperatures)

    torch.testing.assert_close(draft.probs, probs, rtol=0, atol=PASS_TOLERANCE)
    assert torch.equal(draft.tokens, tokens)


def test_steps_see_the_logits_of_the_step_before(drafter):
    """Else self-conditioning would be off, which a draft of its own distributions cannot show."""
    uniforms = noise(0, 2, BLOCK)
    drafted = drafter.draft(torch.tensor(PROMPT), block=BLOCK, effort=2, noise=uniforms).probs
    forward = drafter.model.forward

    def blind(self_conditioning_logits, **settings):
        return forward(self_conditioning_logits=None, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafter.model, "forward", blind)
        drafter.start()
        without = drafter.draft(torch.tensor(PROMPT), block=BLOCK, effort=2, noise=uniforms).probs

    assert (drafted - without).abs().max() > 100 * PASS_TOLERANCE


@pytest.mark.parametrize("effort", [1, 3])
def test_passes_are_those_of_the_decoder_and_the_encoder_reads_new_tokens_once(drafter, effort, monkeypatch):
    model = drafter.model
    encoder = model.model.encoder
    monkeypatch.setattr(model, "forward", counting(model.forward))
    monkeypatch.setattr(encoder, "forward", counting(encoder.forward))
    draft = drafter.draft(torch.tensor(PROMPT), block=BLOCK, effort=effort, noise=noise(0, effort, BLOCK))

    assert draft.passes == model.forward.calls == effort
    assert encoder.forward.calls == 1
    assert draft.commit_step.tolist() == [effort - 1] * BLOCK
    assert drafter.exactness(effort) == "joint"


def test_impossible_efforts_and_blocks_are_refused(drafter):
    with pytest.raises(ValueError, match="`effort` must be at least 1, got 0"):
        drafter.draft(torch.tensor(PROMPT), block=BLOCK, effort=0, noise=noise(0, 1, BLOCK))
    with pytest.raises(ValueError, match="`block` must be at most the 8 tokens of the model's canvas, got 9"):
        drafter.draft(torch.tensor(PROMPT), block=9, effort=1, noise=noise(0, 1, 9))


@settings(max_examples=15)
@given(start=st.integers(1, 12), grown=st.lists(st.integers(1, 5), max_size=4), seed=st.integers(0, 1000))
def test_O17_an_encoder_that_went_along_agrees_with_one_that_reads_all(pair, start, grown, seed):
    """Also beyond the window of the sliding layers."""
    text = torch.randint(0, 5, (start + sum(grown),), generator=torch.Generator().manual_seed(seed))
    pair.drafter.start()
    length = start
    for growth in (*grown, 0):
        uniforms = noise(seed, 2, BLOCK)
        draft = pair.drafter.draft(text[:length], block=BLOCK, effort=2, noise=uniforms)
        _, probs = fresh_drafts(pair.drafter, text[:length], uniforms, [0.8, 0.4])
        torch.testing.assert_close(draft.probs, probs, rtol=0, atol=PASS_TOLERANCE)
        length += growth


def test_tokens_are_drawn_from_the_recorded_distributions(drafter):
    right, wrong = draws_p_values(drafts_of(drafter, block=BLOCK, effort=2, count=120))

    assert right > FALSE_ALARM > wrong


def test_two_tokens_of_a_two_step_draft_follow_the_verifiers_law(drafter):
    assert pair_law_p_value(drafter, effort=2, block=2, size=SIZE) > FALSE_ALARM
    assert pair_law_p_value(Liar(drafter), effort=2, block=2, size=SIZE, draws=100) < FALSE_ALARM
