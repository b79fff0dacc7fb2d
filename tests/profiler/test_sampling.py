import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from profiler import sampling
from profiler.sampling import Sampling, draw, entropy, permitted_logits, probabilities
from tests import strategies
from tests.profiler.scripted import FALSE_ALARM, p_value
from theory.distances import overlap, total_variation

EPS = torch.finfo(torch.float32).eps
ROUNDING = 8 * EPS  # a softmax over a few tokens
QUOTED = 1e-9  # cases quote ten digits
ALL = Sampling()
GREEDY = Sampling(temperature=0.0)


def logits_of(probs):
    return torch.tensor(probs).log()


def uniforms(count, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).random(count))


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("temperature", -0.1, "at least 0"),
        ("temperature", math.nan, "at least 0"),
        ("top_k", -1, "at least 0"),
        ("top_p", 0.0, r"\(0, 1\]"),
        ("top_p", 1.1, r"\(0, 1\]"),
        ("top_p", math.nan, r"\(0, 1\]"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name, value, rule):
    with pytest.raises(ValueError, match=f"`{name}` must .*{rule}.*got {value}"):
        Sampling(**{name: value})


def test_O03_the_distribution_is_the_one_after_top_k():
    p, q = (probabilities(logits_of(raw), Sampling(top_k=2)) for raw in ([0.5, 0.3, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1]))

    assert p.tolist() == pytest.approx([0.625, 0.375, 0, 0], abs=ROUNDING)
    assert q.tolist() == pytest.approx([0.5714285714, 0.4285714286, 0, 0], abs=ROUNDING)
    assert float(total_variation(p, q)) == pytest.approx(0.0535714286, abs=ROUNDING)
    assert float(overlap(p, q)) == pytest.approx(0.9464285714, abs=ROUNDING)


@pytest.mark.parametrize("top_k", [4, 5, 100])
def test_a_top_k_of_the_vocabulary_or_more_keeps_every_token(top_k):
    logits = logits_of([0.5, 0.3, 0.1, 0.1])

    assert torch.equal(probabilities(logits, Sampling(top_k=top_k)), probabilities(logits, ALL))


def test_O04_a_greedy_drafter_has_a_one_hot_distribution():
    q = probabilities(logits_of([0.6, 0.3, 0.1]), GREEDY)

    assert q.tolist() == [1, 0, 0]
    assert float(overlap(torch.tensor([0.5, 0.3, 0.2]), q)) == 0.5


def test_O18_temperature_0_means_one_hot_for_both_models():
    p, q = (probabilities(logits_of(raw), GREEDY) for raw in ([0.3, 0.5, 0.2], [0.2, 0.15, 0.65]))

    assert (p.tolist(), q.tolist()) == ([0, 1, 0], [0, 0, 1])
    assert float(total_variation(p, q)) == 1
    assert int(draw(p, torch.tensor(0.999))) == 1


def test_greedy_ties_go_to_one_token():
    assert probabilities(torch.zeros(2, 3), GREEDY).sum(-1).tolist() == [1, 1]


def test_O09_rows_beyond_the_tokenizer_get_no_mass():
    logits = permitted_logits(torch.tensor([-1.0, -2, -3, 0, 0]), torch.zeros(3, dtype=torch.bool))

    assert probabilities(logits, GREEDY).tolist() == [1, 0, 0]
    expected = [0.6652409558, 0.2447284711, 0.0900305732]
    assert probabilities(logits, ALL).tolist() == pytest.approx(expected, abs=ROUNDING)


def test_O08_ids_that_a_narrow_output_head_lacks_get_no_mass():
    banned = torch.tensor([False, False, True])
    logits = permitted_logits(torch.tensor([[0.0, 1.0]]), banned)

    assert logits.shape == (1, 3)
    assert probabilities(logits, ALL)[0].tolist() == pytest.approx([0.2689414214, 0.7310585786, 0], abs=ROUNDING)


@pytest.mark.parametrize("sampling", [ALL, GREEDY, Sampling(top_k=1), Sampling(top_p=0.5)])
def test_O22_the_mask_token_is_never_drawn_and_the_others_share_its_mass(sampling):
    logits = permitted_logits(torch.tensor([1.0, 0.0, 3.0]), torch.tensor([False, False, True]))
    probs = probabilities(logits, sampling)

    expected = [0.7310585786, 0.2689414214, 0] if sampling == ALL else [1, 0, 0]
    assert probs.tolist() == pytest.approx(expected, abs=ROUNDING)
    assert 2 not in draw(probs.expand(300, -1), uniforms(300))


def test_logits_in_float64_keep_their_digits():
    logits = torch.tensor([0.0, 1e-12], dtype=torch.float64)

    assert torch.equal(permitted_logits(logits, torch.zeros(2, dtype=torch.bool)), logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("width", [151936, 32000])
def test_O12_probabilities_of_half_precision_logits_sum_to_one(dtype, width):
    logits = torch.zeros(width, dtype=dtype)
    probs = probabilities(permitted_logits(logits, torch.zeros(width, dtype=torch.bool)), ALL)

    assert probs.dtype == torch.float32
    assert abs(float(probs.double().sum()) - 1) < 1e-6
    assert float(total_variation(probs, probs)) == 0


def test_permitted_logits_leave_the_model_its_own_tensor():
    raw = torch.zeros(3)
    permitted_logits(raw, torch.tensor([True, False, False]))

    assert raw.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("probs", "top_p", "kept"),
    [
        ([0.5, 0.3, 0.15, 0.05], 0.6, [0, 1]),
        ([0.5, 0.35, 0.1, 0.05], 0.9, [0, 1, 2]),
        ([0.5, 0.3, 0.2], 0.8, [0, 1]),
        ([0.5, 0.3, 0.2], 0.5, [0]),
        ([0.05, 0.3, 0.5, 0.15], 0.6, [1, 2]),
    ],
)
def test_O19_the_nucleus_keeps_the_token_that_crosses_top_p(probs, top_p, kept):
    nucleus = probabilities(logits_of(probs), Sampling(top_p=top_p))

    assert nucleus.nonzero()[:, 0].tolist() == kept
    assert float(nucleus.sum()) == pytest.approx(1, abs=ROUNDING)


@pytest.mark.parametrize("given", [Sampling(top_p=0.9), Sampling(top_k=9, temperature=0.5), GREEDY])
def test_a_device_is_asked_nothing_on_the_way_to_a_draw(given):
    """Tensors of the device ``meta`` have no values: asking for one is an error."""
    logits = torch.empty(2, 5000, device="meta")
    banned = torch.empty(5000, device="meta", dtype=torch.bool)
    probs = probabilities(permitted_logits(logits, banned), given)

    assert draw(probs, torch.empty(2, device="meta")).shape == (2,)


def test_the_nucleus_never_is_empty():
    assert probabilities(logits_of([0.4, 0.3, 0.3]), Sampling(top_p=1e-12)).tolist() == [1, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("contrast", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("top_p", [1e-9, 0.5, 0.95, 1 - 1e-7])
def test_a_nucleus_found_in_a_list_of_the_likeliest_is_that_of_a_full_sort(monkeypatch, dtype, contrast, top_p):
    """Of many equal tokens too, as bfloat16 has them; a flat distribution needs the longer list, or the sort."""
    logits = (contrast * torch.from_numpy(np.random.default_rng(0).normal(size=(4, 5000)))).to(dtype)
    nuclei = []
    for lengths in ((128, 2048), (1, 2, 3), ()):
        monkeypatch.setattr(sampling, "_LIST_LENGTHS", lengths)
        nuclei.append(probabilities(logits.float(), Sampling(top_p=top_p)))

    assert torch.equal(nuclei[0], nuclei[2])
    assert torch.equal(nuclei[1], nuclei[2])


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    temperature=st.sampled_from([1.0, 0.3, 0.7, 2.0]),
    top_k=st.integers(0, 12),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.1]),
)
def test_temperature_top_k_and_top_p_agree_with_those_of_transformers(seed, temperature, top_k, top_p):
    logits = torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (5, 10))).float()
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)

    probs = probabilities(logits, Sampling(temperature=temperature, top_k=top_k, top_p=top_p))

    torch.testing.assert_close(probs, expected.softmax(-1), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("sampling", [ALL, GREEDY, Sampling(top_k=2), Sampling(top_p=0.9), Sampling(temperature=0.5)])
def test_O11_a_row_with_a_nan_stays_nan_and_leaves_the_others_alone(sampling):
    logits = torch.tensor([[1.0, math.nan, 3.0], [math.nan] * 3, [1.0, 0.0, 2.0]])
    probs = probabilities(logits, sampling)

    assert probs[:2].isnan().all()
    assert torch.equal(probs[2], probabilities(logits[2], sampling))


def test_O20_draws_have_the_frequencies_of_the_distribution():
    probs = torch.tensor([0.5, 0.3, 0.2])
    counts = draw(probs.expand(3000, -1), uniforms(3000)).bincount(minlength=3)

    assert p_value(counts, probs) > FALSE_ALARM
    assert p_value([3000, 0, 0], probs) < FALSE_ALARM  # what a sampler that returns the argmax would show


def test_O27_peaked_logits_are_drawn_by_their_probabilities():
    probs = probabilities(torch.tensor([95.0, 100.0, 90.0]), ALL)
    counts = draw(probs.expand(200_000, -1), uniforms(200_000)).bincount(minlength=3)

    law = [0.0066925491, 0.9932623568, 4.5094e-05]
    assert probs.tolist() == pytest.approx(law, abs=ROUNDING)
    assert p_value(counts, law) > FALSE_ALARM
    assert p_value([0, 200_000, 0], law) < FALSE_ALARM


def test_O13_rows_are_drawn_apart_however_large_the_block_is():
    block, width = 512, 151_936  # together 4.6 times 2 ** 24, the limit of torch.multinomial
    probs = torch.zeros(block, width)
    chosen = torch.arange(block) * 293
    probs[torch.arange(block), chosen] = 0.25
    probs[torch.arange(block), width - 1 - chosen] = 0.75

    assert torch.equal(draw(probs, torch.full((block,), 0.0)), torch.minimum(chosen, width - 1 - chosen))
    assert torch.equal(draw(probs, torch.full((block,), 0.99)), torch.maximum(chosen, width - 1 - chosen))


def test_O13_a_rare_last_token_is_not_rounded_away():
    """In float32 the cumulative sum would end at the first token."""
    probs = torch.tensor([1.0, 1e-9])

    assert draw(probs.expand(2, -1), torch.tensor([1 - 2e-9, 1 - 1e-10], dtype=torch.float64)).tolist() == [0, 1]


def test_a_draw_from_a_large_vocabulary_keeps_the_frequencies():
    width = 151_936
    probs = torch.full((width,), 1 / width)
    tokens = draw(probs, uniforms(20_000))

    assert p_value((tokens * 50 // width).bincount(minlength=50), np.full(50, 1 / 50)) > FALSE_ALARM


@settings(max_examples=300)
@given(
    law=strategies.distributions(5),
    uniform=st.sampled_from([0.0, 1 - 2**-53, 2**-53]) | st.floats(0, 1, exclude_max=True),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@example(law=np.array([0.1] * 9 + [0.0]), uniform=1 - 2**-53, dtype=torch.float32)
def test_a_token_of_probability_0_is_never_drawn(law, uniform, dtype):
    probs = torch.from_numpy(law).to(dtype)

    assert probs[draw(probs, torch.tensor(uniform, dtype=torch.float64))] > 0


@settings(max_examples=200)
@given(law=strategies.distributions(5), uniform=st.floats(0, 1, exclude_max=True))
def test_a_draw_inverts_the_cumulative_sum(law, uniform):
    token = int(draw(torch.from_numpy(law), torch.tensor(uniform, dtype=torch.float64)))

    slack = 8 * np.finfo(float).eps
    assert law[:token].sum() <= uniform + slack
    assert law[: token + 1].sum() >= uniform - slack


def test_a_draw_from_a_nan_row_is_some_token_for_decode_to_refuse():
    assert 0 <= int(draw(torch.full((3,), math.nan), torch.tensor(0.5))) < 3


def test_entropy_is_in_nats_and_counts_impossible_tokens_as_nothing():
    probs = torch.tensor([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [1.0, 0, 0, 0]])

    assert entropy(probs).tolist() == pytest.approx([math.log(2), math.log(4), 0], abs=ROUNDING)
