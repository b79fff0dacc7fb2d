"""The named pairs are those of the paper: its Tables 2 to 5, and what they need."""

import dataclasses
import json

import pytest
import torch
from transformers import Qwen3Config

from profiler import pairs
from profiler.drafters.feature_backbone import DSparkModel, FeatureBackbone
from profiler.pairs import needs, prompting
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.roofline import H100, H200

GRIDS = {"tenths": tuple(step / 10 for step in range(11)), "fifths": (0, 0.2, 0.4, 0.6, 0.8, 1)}
PAPER = {
    "dream-qwen2.5-32b": (
        "Dream-org/Dream-v0-Instruct-7B", "Qwen/Qwen2.5-32B-Instruct", (0.2, 0, 0.95), (0.7, 20, 0.8), 0, "tenths",
        {"gsm8k": ((1, 2, 3, 4), 512), "humaneval": ((1, 2, 3, 4), 512)},
    ),
    "diffusiongemma-gemma4-31b": (
        "google/diffusiongemma-26B-A4B-it", "google/gemma-4-31B-it", (0.8, 0, 0.95), (1, 64, 0.95), 256, "tenths",
        {"gpqa": ((1, 2, 4, 8), 2048), "humaneval": ((1, 2, 4, 6, 10), 512), "gsm8k": ((1, 2, 4, 8), 512)},
    ),
    "sdar-8b-qwen3-8b": (
        "JetLM/SDAR-8B-Chat-b16", "Qwen/Qwen3-8B", (0.6, 20, 0.95), (1, 50, 0.95), 16, "fifths",
        {"gsm8k": ((1, 16), 512), "humaneval": ((1, 16), 512)},
    ),
    "sdar-1.7b-qwen3-8b": (
        "JetLM/SDAR-1.7B-Chat", "Qwen/Qwen3-8B", (0.6, 20, 0.95), (1, 50, 0.95), 16, "fifths",
        {"gsm8k": ((1, 16), 512), "humaneval": ((1, 16), 512)},
    ),
    "uno-qwen3-8b": (
        "s-sahoo/uno-qwen3-8B", "Qwen/Qwen3-8B", (1, 50, 0.95), (1, 50, 0.95), 16, "fifths",
        {"gsm8k": ((1, 2, 4), 512), "humaneval": ((1, 2, 4), 512)},
    ),
    "dflash-qwen3-8b": (
        "z-lab/Qwen3-8B-DFlash-b16", "Qwen/Qwen3-8B", (0, 0, 1), (1, 50, 0.95), 15, "fifths",
        {"gsm8k": ((1,), 512), "humaneval": ((1,), 512)},
    ),
    "dspark-qwen3-8b": (
        "deepseek-ai/dspark_qwen3_8b_block7", "Qwen/Qwen3-8B", (1, 0, 1), (1, 50, 0.95), 7, "fifths",
        {"gsm8k": ((1,), 512), "humaneval": ((1,), 512)},
    ),
    "qwen2.5-1.5b-qwen2.5-32b": (
        "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-32B-Instruct", (0.7, 20, 0.8), (0.7, 20, 0.8), 8, "tenths",
        {"gsm8k": ((1,), 512)},
    ),
}  # fmt: skip
BUDGETS = {
    ("dream-qwen2.5-32b", "gsm8k"): {1: 8, 2: 11, 3: 13, 4: 15},
    ("dream-qwen2.5-32b", "humaneval"): {1: 6, 2: 12, 3: 13, 4: 15},
    ("diffusiongemma-gemma4-31b", "humaneval"): {1: 8, 2: 12, 4: 16, 6: 15},
    ("diffusiongemma-gemma4-31b", "gpqa"): {1: 5, 2: 6},
}


def sampling(model):
    return (model.temperature, model.top_k, model.top_p)


@pytest.mark.parametrize("name", PAPER)
def test_a_named_pair_is_the_papers(name):
    drafter, verifier, drafted, verified, block, grid, tasks = PAPER[name]
    spec = pairs.read(name)

    assert (spec.drafter.checkpoint, spec.verifier.checkpoint) == (drafter, verifier)
    assert (sampling(spec.drafter), sampling(spec.verifier)) == (drafted, verified)
    assert spec.drafter.dtype == spec.verifier.dtype == "bfloat16"
    assert spec.block_size == block
    assert {task.name: (task.efforts, task.token_limit) for task in spec.tasks} == tasks
    assert {task.leniency for task in spec.tasks} == {GRIDS[grid]}


def test_the_annealed_temperature_and_the_thresholds():
    assert pairs.read("diffusiongemma-gemma4-31b").drafter.final_temperature == 0.4
    for name in ("sdar-8b-qwen3-8b", "sdar-1.7b-qwen3-8b"):
        assert {task.confidence for task in pairs.read(name).tasks} == {(0.3, 0.5, 0.7, 0.9)}
    assert pairs.read("dream-qwen2.5-32b").task.block_size == (32, 64, 128, 0)


@pytest.mark.parametrize(("name", "task"), BUDGETS)
def test_budgets_of_table_5(name, task):
    budgets = dict(pairs.read(name).for_task(task).task.cactus)
    for effort, largest in BUDGETS[name, task].items():
        assert budgets[str(effort)] == (0, 0.25, 0.5, *range(1, largest + 1))


def test_budgets_that_are_not_a_plain_range():
    gpqa = dict(pairs.read("diffusiongemma-gemma4-31b").for_task("gpqa").task.cactus)
    code = dict(pairs.read("diffusiongemma-gemma4-31b").for_task("humaneval").task.cactus)

    assert gpqa["4"] == (0, 0.25, 0.5, *range(1, 9), 10)
    assert gpqa["8"] == (1, 3, 5, 7, 10, 15)
    assert code["10"] == (0.25, 0.5, *range(1, 16), 20)


@pytest.mark.parametrize("name", pairs.names())
def test_grids_and_formats_of_every_named_pair_can_be_used(name):
    spec = pairs.read(name)
    for task in spec.tasks:
        prompting.template(task.format, spec.folder)
        _ = [LinearAcceptance(leniency=value) for value in task.leniency]
        _ = [CactusAcceptance(budget=value) for _, budgets in task.cactus for value in budgets]
        assert {int(effort) for effort, _ in task.cactus} <= set(task.efforts)


def test_O28_a_block_counts_what_is_drafted_and_not_the_anchor():
    spec = pairs.read("dflash-qwen3-8b")
    config = json.loads((spec.folder / spec.drafter.config).read_text())

    assert config["block_size"] == 16
    assert spec.block_size == 15


def test_O23_mask_tokens_of_the_named_drafters():
    masks = {}
    for name in pairs.names():
        spec = pairs.read(name)
        if spec.drafter.uses_mask and spec.drafter.config:
            masks[name] = json.loads((spec.folder / spec.drafter.config).read_text())["mask_token_id"]

    qwen3 = dict.fromkeys(("sdar-8b-qwen3-8b", "sdar-1.7b-qwen3-8b", "dflash-qwen3-8b", "dspark-qwen3-8b"), 151669)
    assert masks == {"dream-qwen2.5-32b": 151666, "smollm2": 49152} | qwen3


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("dream-qwen2.5-32b", 81), ("diffusiongemma-gemma4-31b", 112), ("sdar-8b-qwen3-8b", 33), ("uno-qwen3-8b", 17)],
)
def test_memory_of_a_pair_fits_the_device_it_needs(name, gigabytes):
    """Weights in bfloat16; caches and distributions add the rest. The adapter of Uno lies on the verifier's weights."""
    assert needs.memory_bytes(pairs.read(name)) / 1e9 == pytest.approx(gigabytes, rel=0.03)


def test_memory_of_the_embedded_pair_counted_part_by_part():
    """Weights, keys and values of 200 + 64 tokens, and p and q of 9 rows, all in float32."""
    spec = pairs.read("embedded")
    drafter, verifier = needs.shapes(spec)
    weights = 4 * (drafter.parameters + verifier.parameters)
    caches = 264 * 2 * 4 * 128 * (2 + 16)

    assert (len(drafter.layers), len(verifier.layers), verifier.vocabulary) == (2, 16, 92)
    assert needs.memory_bytes(spec) == weights + caches + 2 * 9 * 92 * 4


def test_the_memory_of_an_adapters_pair_is_counted_in_the_dtype_of_the_verifier():
    """The drafter is the verifier with its adapter, each with a cache of 200 + 128 tokens in 30 layers of 3 heads."""
    spec = pairs.read("smollm2-lora")
    half = dataclasses.replace(spec, verifier=dataclasses.replace(spec.verifier, dtype="bfloat16"))
    weights, distributions = needs.shapes(spec)[0].parameters, 2 * 9 * 49152 * 4

    for each, size in ((spec, 4), (half, 2)):
        assert needs.memory_bytes(each) == size * (weights + 2 * 328 * 2 * 3 * 64 * 30) + distributions


@pytest.mark.parametrize("name", pairs.names())
def test_every_named_pair_has_bounds_on_both_devices(name):
    slow, fast = (needs.bounds(pairs.read(name), device) for device in (H100, H200))

    assert 0 < fast.verify_seconds <= slow.verify_seconds
    assert 0 < fast.draft_slope_seconds <= slow.draft_slope_seconds
    assert (fast.draft_intercept_seconds > 0) == (pairs.read(name).drafter.reading == "encoded")


def test_a_pair_without_a_config_has_no_bounds(tiny_pair_file, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(tiny_pair_file.read_text())

    with pytest.raises(ValueError, match=r"mine: .*config.json must exist to know the shape of 'drafter'"):
        needs.bounds(pairs.read(str(path)), H200)
    assert needs.memory_bytes(pairs.read(str(tiny_pair_file))) > 0


@pytest.mark.parametrize(("name", "network"), [("dflash-qwen3-8b", FeatureBackbone), ("dspark-qwen3-8b", DSparkModel)])
def test_shapes_of_feature_drafters_are_those_of_their_networks(name, network):
    spec = pairs.read(name)
    config = Qwen3Config.from_dict(json.loads((spec.folder / spec.drafter.config).read_text()))
    with torch.device("meta"):
        model = network(config)

    assert needs.shapes(spec)[0].parameters == sum(weights.numel() for weights in model.parameters())
