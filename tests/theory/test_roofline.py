"""Counts by hand, transformers' own models on the meta device, and torch's counter of operations are the oracles."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DiffusionGemmaForBlockDiffusion

from profiler import pairs
from theory.roofline import H100, H200, Device, Layer, ModelShape, bound_latency

CONFIGS = Path(pairs.__file__).parent / "configs"
UNIT = Device(name="unit", bytes_per_second=1.0, operations_per_second=1.0)

HAND = Layer(hidden=4, heads=3, kv_heads=1, head_dim=2, feed_forward=5, vectors=7)
"""Matrices: queries 4 x 6, keys and values 4 x 2 each, output 6 x 4, feed-forward three of 4 x 5."""
HAND_PARAMETERS = 24 + 8 + 8 + 24 + 60 + 7
MODEL = ModelShape(hidden=4, vocabulary=10, tied=False, layers=(HAND, HAND), extra=4)


def config(name):
    return json.loads((CONFIGS / f"{name}.json").read_text())


def shape(name, **options):
    return ModelShape.from_config(config(name), **options)


def built(table):
    """The model of a config on the meta device, where weights take no memory."""
    kind = table["model_type"]
    made = CONFIG_MAPPING[kind].from_dict(table)
    with torch.device("meta"):
        if kind == "diffusion_gemma":
            return DiffusionGemmaForBlockDiffusion(made).model.decoder
        return AutoModelForCausalLM.from_config(made)


def test_parameters_counted_by_hand():
    assert HAND.dense_parameters == HAND_PARAMETERS
    assert MODEL.parameters == 2 * HAND_PARAMETERS + 4 + 2 * 40
    assert ModelShape(**vars(MODEL) | {"tied": True}).parameters == 2 * HAND_PARAMETERS + 4 + 40
    assert ModelShape(**vars(MODEL) | {"borrows_ends": True}).parameters == 2 * HAND_PARAMETERS + 4
    shared = Layer(**vars(HAND) | {"shared_projection": True})
    assert shared.dense_parameters == HAND_PARAMETERS - 8
    adapted = Layer(**vars(HAND) | {"adapter_rank": 1})
    assert adapted.dense_parameters == HAND_PARAMETERS + (4 + 6) + 2 * (4 + 2) + (6 + 4) + 3 * (4 + 5)
    mixed = Layer(**vars(HAND) | {"experts": 8, "active_experts": 2, "expert_feed_forward": 3})
    assert mixed.dense_parameters == HAND_PARAMETERS + 8 * 4
    assert mixed.expert_parameters == 3 * 4 * 3


def test_a_pass_counted_by_hand():
    """Two tokens after three, both with logits; the embedding is not read, the head is."""
    forward = MODEL.forward(UNIT, tokens=2, context=3, logits=2)
    pairs_seen = 4 + 5

    assert forward.memory_bytes == 2 * (2 * HAND_PARAMETERS + 4 + 40) + 2 * 3 * (2 * 2 * 2)
    products = 2 * (HAND_PARAMETERS * 2 * 2 + 4 + 40 * 2)
    assert forward.operations == products + 2 * (4 * 6 * pairs_seen)
    assert (forward.seconds, forward.limit) == (forward.operations, "compute")
    slow_memory = Device(name="slow memory", bytes_per_second=0.01, operations_per_second=1.0)
    assert MODEL.forward(slow_memory, tokens=2, context=3, logits=2).seconds == 100 * forward.memory_bytes
    assert MODEL.forward(slow_memory, tokens=2, context=3, logits=2).limit == "memory"


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in CONFIGS.glob("*.json") if path.stem[:2] not in ("df", "ds"))
)
def test_parameters_are_those_of_transformers_models(name):
    assert shape(name).parameters == sum(weights.numel() for weights in built(config(name)).parameters())


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("dream-7b", 7.616), ("qwen2.5-32b", 32.764), ("qwen2.5-1.5b", 1.544), ("qwen3-8b", 8.191), ("sdar-8b", 8.191),
        ("sdar-1.7b", 1.721), ("gemma-4-31b", 30.70), ("diffusiongemma-26b-a4b", 25.25), ("dflash-qwen3-8b", 1.05),
    ],
)  # fmt: skip
def test_parameters_of_the_named_models(name, billions):
    assert shape(name).parameters / 1e9 == pytest.approx(billions, rel=2e-3)


def test_an_adapter_of_rank_128_on_all_projections_has_a_third_of_a_billion():
    added = shape("sdar-8b", adapter_rank=128).parameters - shape("sdar-8b").parameters

    assert added == 36 * 128 * ((4096 + 4096) * 2 + (4096 + 1024) * 2 + (4096 + 12288) * 3)


@pytest.mark.parametrize(
    ("name", "gigabytes"), [("dream-7b", 14.1), ("qwen2.5-32b", 64.0), ("qwen2.5-1.5b", 3.09), ("qwen3-8b", 15.1)]
)
def test_what_one_step_reads(name, gigabytes):
    forward = shape(name).forward(H200, tokens=1, context=0, logits=1)

    assert forward.memory_bytes / 1e9 == pytest.approx(gigabytes, rel=5e-3)
    assert forward.limit == "memory"


def test_mixtures_read_the_experts_that_are_met():
    """All of them at 256 tokens, which is 50 GB; a token alone computes with 3.84 billion parameters."""
    mixture = shape("diffusiongemma-26b-a4b")

    assert mixture.forward(H200, tokens=256, context=0, logits=256).memory_bytes / 1e9 == pytest.approx(50.5, rel=5e-3)
    one = mixture.forward(H200, tokens=1, context=0, logits=1)
    assert one.memory_bytes / 2e9 == pytest.approx(3.84, rel=5e-3)


@pytest.mark.parametrize(("tokens", "experts"), [(1, 8), (16, 82), (64, 126), (256, 128)])
def test_distinct_experts_of_diffusiongemma(tokens, experts):
    assert round(shape("diffusiongemma-26b-a4b").layers[0].experts_read(tokens)) == experts


@pytest.mark.parametrize(("experts", "active", "tokens"), [(3, 1, 2), (4, 2, 3), (5, 3, 1), (4, 4, 2)])
def test_distinct_experts_against_enumeration(experts, active, tokens):
    layer = Layer(**vars(HAND) | {"experts": experts, "active_experts": active, "expert_feed_forward": 1})
    choices = list(itertools.combinations(range(experts), active))
    met = [len(set(itertools.chain(*routes))) for routes in itertools.product(choices, repeat=tokens)]

    assert layer.experts_read(tokens) == pytest.approx(sum(met) / len(met), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "kibibytes"), [("qwen2.5-32b", 256), ("qwen2.5-1.5b", 28), ("qwen3-8b", 144), ("sdar-1.7b", 112)]
)
def test_cache_of_a_token(name, kibibytes):
    assert shape(name).cache_bytes(1) == kibibytes * 1024


def test_sliding_windows_cap_the_cache():
    gemma = shape("gemma-4-31b")

    assert gemma.cache_bytes(1) == (800 + 80) * 1024
    assert gemma.cache_bytes(5000) == (800 * 1023 + 80 * 5000) * 1024


@given(
    tokens=st.integers(1, 12), context=st.integers(0, 12), window=st.none() | st.integers(1, 9), causal=st.booleans()
)
def test_attended_pairs_against_a_mask(tokens, context, window, causal):
    """Rows see the cache as far as the window reaches, themselves, and each other as `causal` says."""
    layer = Layer(**vars(HAND) | {"window": window})
    count = 0
    for row, column in itertools.product(range(context, context + tokens), range(context + tokens)):
        if causal:
            count += column <= row and (window is None or row - column < window)
        else:
            count += column >= context or window is None or context - column < window

    assert layer.attended(tokens, context, causal=causal) == count


@pytest.mark.parametrize("name", ["qwen2.5-1.5b", "qwen3-8b"])
def test_operations_against_torchs_counter(name):
    """Torch counts every pair of query and key, masked or not, so ours counts both directions here.

    Norms and biases are no matrix products: ours takes them for some, 0.02 % of a layer.
    """
    table = config(name) | {"num_hidden_layers": 2}
    model = built(table)
    tokens = torch.zeros(1, 24, dtype=torch.long, device="meta")
    mask = torch.zeros(1, 1, 24, 24, device="meta")
    counter = FlopCounterMode(display=False)
    with counter:
        model(input_ids=tokens, attention_mask=mask, use_cache=False)

    forward = ModelShape.from_config(table).forward(H200, tokens=24, context=0, logits=24, causal=False)
    assert forward.operations == pytest.approx(counter.get_total_flops(), rel=1e-3)


def test_where_a_forward_of_qwen_turns_from_memory_to_compute():
    """206 tokens on an H200: two bytes read against two operations a token."""
    limits = [shape("qwen3-8b").forward(H200, tokens=n, context=0, logits=n).limit for n in (190, 220)]

    assert limits == ["memory", "compute"]


def test_the_papers_pair_on_both_devices():
    """A Dream step over 712 tokens is compute bound (10 ms), so is the verification of 512 (33 ms): as fast on both."""
    bounds = [
        bound_latency(shape("dream-7b"), shape("qwen2.5-32b"), device, reading="recompute", block_size=512, context=200)
        for device in (H100, H200)
    ]

    assert bounds[0].round_seconds(4) == bounds[1].round_seconds(4)
    assert bounds[1].draft_intercept_seconds == 0
    assert bounds[1].draft_slope_seconds == pytest.approx(10e-3, rel=0.03)
    assert bounds[1].verify_seconds == pytest.approx(33e-3, rel=0.03)
    assert bounds[1].round_seconds(3) == 3 * bounds[1].draft_slope_seconds + bounds[1].verify_seconds


def test_a_step_of_diffusiongemma_costs_most_of_a_verification():
    bound = bound_latency(
        shape("diffusiongemma-26b-a4b"), shape("gemma-4-31b"), H200, reading="encoded", block_size=256, context=200
    )

    assert 0 < bound.draft_intercept_seconds < bound.draft_slope_seconds
    assert bound.draft_slope_seconds / bound.verify_seconds == pytest.approx(0.65, abs=0.05)


def test_an_autoregressive_drafter_passes_once_a_token():
    small, large = shape("qwen2.5-1.5b"), shape("qwen2.5-32b")
    bound = bound_latency(small, large, H200, reading="token_by_token", block_size=8, context=100)
    passes = [small.forward(H200, tokens=1, context=100 + slot, logits=1).seconds for slot in range(8)]

    assert bound.draft_slope_seconds == pytest.approx(sum(passes), rel=1e-12)
    assert passes == sorted(passes)


@given(tokens=st.integers(1, 600), context=st.integers(0, 2000), more=st.integers(1, 600))
def test_more_work_is_never_faster_and_a_better_device_never_slower(tokens, context, more):
    model = shape("gemma-4-31b")
    first = model.forward(H100, tokens=tokens, context=context, logits=1)

    assert model.forward(H100, tokens=tokens + more, context=context, logits=1).seconds >= first.seconds
    assert model.forward(H100, tokens=tokens, context=context + more, logits=1).seconds >= first.seconds
    assert model.forward(H200, tokens=tokens, context=context, logits=1).seconds <= first.seconds


@pytest.mark.parametrize(("name", "value"), [("tokens", 0), ("context", -1), ("logits", -1)])
def test_impossible_numbers_of_rows_are_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be at least {value + 1}, got {value}"):
        MODEL.forward(UNIT, **{"tokens": 1, "context": 0, "logits": 1, name: value})


def test_an_unknown_architecture_is_refused():
    with pytest.raises(ValueError, match=r"`config` must have a model_type of llama, qwen2, .*, got 'mamba'"):
        ModelShape.from_config({"model_type": "mamba"})


def test_a_pass_without_output_rows_does_not_read_the_head():
    with_head, without = (MODEL.forward(UNIT, tokens=1, context=0, logits=logits) for logits in (1, 0))

    assert with_head.memory_bytes - without.memory_bytes == 2 * 40
    assert with_head.operations - without.operations == 2 * 40


def by_hand(tokens, pairs_seen, logits):
    """Operations of a pass, which take longer than its memory on a device that does one of each in a second."""
    return 2 * (2 * HAND_PARAMETERS * tokens + 4 + 40 * logits) + 2 * (4 * 6 * pairs_seen)


@pytest.mark.parametrize(
    ("reading", "intercept", "slope"),
    [
        ("recompute", 0, by_hand(5, 5 * 5, 2)),
        ("cached", 0, by_hand(2, 2 * (3 + 2), 2)),
        ("encoded", by_hand(1, 4, 0), by_hand(2, 2 * (3 + 2), 2)),
        ("token_by_token", 0, by_hand(1, 4, 1) + by_hand(1, 5, 1)),
    ],
)
def test_a_round_of_two_tokens_after_three_counted_by_hand(reading, intercept, slope):
    bound = bound_latency(MODEL, MODEL, UNIT, reading=reading, block_size=2, context=3)

    assert (bound.draft_intercept_seconds, bound.draft_slope_seconds) == (intercept, slope)
    assert bound.verify_seconds == by_hand(3, 4 + 5 + 6, 3)
    assert bound.round_seconds(4) == intercept + 4 * slope + bound.verify_seconds
