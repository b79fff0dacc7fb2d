"""The drafters that come with the pair smollm2; with its verifier where that is installed."""

import functools
import json

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, LlamaConfig

from profiler import pairs
from profiler.decode import decode
from profiler.drafters.early_exit_network import EarlyExitNetwork
from profiler.drafters.lora import without_effect
from profiler.pairs.checkpoints import Checkpoints
from profiler.streams import Streams
from tests.profiler.pairs.test_gguf_files import published as published
from theory.acceptance import LOSSLESS


def test_the_early_exit_has_all_its_weights_and_distinct_ids_of_the_verifier():
    spec = pairs.read("smollm2")
    network, report = EarlyExitNetwork.from_pretrained(spec.folder / spec.drafter.checkpoint, output_loading_info=True)

    assert not any(report.values()), report
    assert network.head_ids.shape == (8192,)
    assert len(set(network.head_ids.tolist())) == 8192
    assert network.head_ids.min() >= 0
    assert network.head_ids.max() < json.loads((spec.folder / spec.verifier.config).read_text())["vocab_size"] == 49152


def test_the_adapter_has_the_tensors_of_every_linear_layer_of_the_verifier_but_the_head():
    spec = pairs.read("smollm2-lora")
    config = LlamaConfig.from_dict(json.loads((spec.folder / spec.verifier.config).read_text()))
    with torch.device("meta"):
        expected = without_effect(AutoModelForCausalLM.from_config(config), spec.drafter.rank)
    path = spec.folder / spec.drafter.checkpoint / spec.drafter.adapter / "adapter_model.safetensors"
    with safe_open(path, "pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no mapping

    assert shapes == {name: tuple(weights.shape) for name, weights in expected.items()}


@pytest.fixture(scope="module")
def shipped(published):
    """Both pairs, over one copy of the verifier: half a minute goes into its file, most of it into names."""
    gguf = pytest.importorskip("gguf")
    read, known = Checkpoints.model, {}

    def model(self, spec, **options):
        if spec.gguf not in known:
            loaded = read(self, spec, **options)
            return known.setdefault(spec.gguf, loaded) if spec.gguf else loaded
        return known[spec.gguf]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "model", model)
        patch.setattr(gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map))
        return [pairs.load(name, device="cpu") for name in ("smollm2", "smollm2-lora")]


def test_both_pairs_draft_whole_blocks_in_as_many_passes_as_asked_for(shipped):
    assert shipped[0].verifier.model is shipped[1].verifier.model
    for pair in shipped:
        prompt = pair.encode("What is 12 + 30?")
        for effort in (1, 2):
            streams = Streams(seed=0, request=0)
            rounds = list(decode(pair, prompt, effort=effort, rule=LOSSLESS, streams=streams, token_limit=8))

            assert sum(len(each.tokens) for each in rounds) == 8 or rounds[-1].ended == "eos"
            assert {(each.passes, each.drafted) for each in rounds} == {(effort, 8)}
