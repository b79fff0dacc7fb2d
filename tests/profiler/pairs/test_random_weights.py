import json

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DiffusionGemmaForBlockDiffusion

from profiler import pairs
from profiler.pairs import random_weights
from profiler.pairs.checkpoints import shortened

DEVICE = torch.device("cpu")
COMMON = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 128,
}  # fmt: skip
SLIDING = {
    "num_hidden_layers": 3, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "sliding_window": 6, "global_head_dim": 16, "num_global_key_value_heads": 1, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8}
CONFIGS = {
    "qwen2": COMMON | {"tie_word_embeddings": True},
    "qwen3": COMMON,
    "gemma4_text": COMMON | SLIDING | {"attention_k_eq_v": True, "hidden_size_per_layer_input": 0},
    "diffusion_gemma": {
        "canvas_length": 8,
        "text_config": COMMON | SLIDING | EXPERTS,
        "vision_config": {
            "model_type": "gemma4_vision", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "position_embedding_size": 16,
        },
    },
}  # fmt: skip


def built(kind, dtype=torch.bfloat16, change=None):
    """The model of a kind, after `change` of its table."""
    table = CONFIGS[kind] if change is None else change(CONFIGS[kind])
    architecture = DiffusionGemmaForBlockDiffusion if kind == "diffusion_gemma" else AutoModelForCausalLM
    config = CONFIG_MAPPING[kind].from_dict(table | {"model_type": kind})
    return random_weights.build(architecture, config, dtype=dtype, device=DEVICE)


def logits(model):
    tokens = torch.arange(8, device=model.device)[None]
    with torch.inference_mode():
        if isinstance(model, DiffusionGemmaForBlockDiffusion):
            return model(input_ids=tokens, decoder_input_ids=tokens).logits
        return model(input_ids=tokens).logits


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_of_random_weights_runs_and_lacks_nothing(kind):
    model = built(kind)

    for tensor in (*model.parameters(), *model.buffers()):
        assert tensor.device == DEVICE
        assert tensor.isfinite().all()
    assert all((values == 1).all() for name, values in model.named_buffers() if "layer_scalar" in name)
    assert {weights.dtype for weights in model.parameters()} == {torch.bfloat16}
    assert not any(weights.requires_grad for weights in model.parameters())
    assert not model.training
    assert logits(model).isfinite().all()
    assert model.config._attn_implementation == "sdpa"
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_is_one_tensor_is_allocated_once(kind, monkeypatch):
    """Weights that are tied count once; an encoder and a decoder of 25 billion parameters must not become two."""
    allocated = []
    empty_like = torch.empty_like

    def counted(tensor, **options):
        if tensor.is_meta:
            allocated.append(tensor.numel())
        return empty_like(tensor, **options)

    monkeypatch.setattr(torch, "empty_like", counted)
    model = built(kind)

    assert sum(allocated) == sum(weights.numel() for weights in model.parameters())
    if kind == "diffusion_gemma":
        encoder = dict(model.model.encoder.language_model.named_parameters())
        for name, weights in model.model.decoder.named_parameters():
            assert name.startswith("self_conditioning") or encoder[name] is weights


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gemma4_text"])
def test_weights_and_buffers_are_spread_as_transformers_spreads_them(kind):
    """Against the same class built the ordinary way: matrices normal with its deviation, norms 1, frequencies equal."""
    model = built(kind, torch.float32)
    config = CONFIG_MAPPING[kind].from_dict(CONFIGS[kind] | {"model_type": kind})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        expected = AutoModelForCausalLM.from_config(config)

    for (name, ours), (other, theirs) in zip(model.named_parameters(), expected.named_parameters(), strict=True):
        assert (name, ours.shape) == (other, theirs.shape)
        if ours.ndim > 1:
            deviation = float(theirs.detach().std())
            assert float(ours.std()) == pytest.approx(deviation, rel=0.25)
            assert abs(float(ours.mean())) < 0.3 * deviation
        else:
            assert torch.equal(ours, theirs)
    for (name, ours), (other, theirs) in zip(model.named_buffers(), expected.named_buffers(), strict=True):
        assert name == other
        torch.testing.assert_close(ours, theirs, msg=name)


def test_random_weights_are_the_same_in_every_run_and_leave_the_generator_alone():
    state = torch.get_rng_state()
    first, second = logits(built("qwen3")), logits(built("qwen3"))

    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_shortened_model_keeps_its_last_layers(kind):
    model = built(kind, change=lambda table: shortened(table, 1))
    text = model.config.get_text_config()

    assert text.num_hidden_layers == 1
    assert logits(model).isfinite().all()
    if "gemma" in kind:
        assert text.layer_types == ["full_attention"]
    assert shortened(CONFIGS["qwen3"], 5)["num_hidden_layers"] == 2
    assert shortened(CONFIGS["gemma4_text"], 2)["layer_types"] == ["sliding_attention", "full_attention"]


TOML = """
description = "Random weights of a small shape."
block_size = {block}
efforts = [1, 2]

[drafter]
family = "masked"
checkpoint = "not/there"
config = "drafter.json"
dtype = "bfloat16"
order = "entropy"
causal_prefix = {causal}

[verifier]
checkpoint = "nor/there"
config = "verifier.json"
dtype = "bfloat16"
top_k = 5

[task]
name = "own"
token_limit = 16
"""


@pytest.fixture
def small(tmp_path):
    """Write a pair whose checkpoints do not exist; the path of its TOML file."""

    def write(block=4, causal="false", kind="qwen3"):
        (tmp_path / "drafter.json").write_text(
            json.dumps(CONFIGS["qwen2"] | {"model_type": "qwen2", "mask_token_id": 60})
        )
        (tmp_path / "verifier.json").write_text(json.dumps(CONFIGS[kind] | {"model_type": kind, "vocab_size": 62}))
        path = tmp_path / "small.toml"
        path.write_text(TOML.format(block=block, causal=causal))
        return path

    return write


def test_a_pair_of_random_weights_needs_neither_checkpoint_nor_tokenizer(small):
    pair = pairs.load(str(small()), device="cpu", random=True)

    assert pair.vocabulary_size == 62, "of both heads the smaller"
    assert pair.weights == {"drafter": "random, seed 0", "verifier": "random, seed 0"}
    assert pair.stop_ids == frozenset()
    assert pair.encode("3 1 2") == [3, 1, 2]
    assert pair.tokenizer.decode([3, 1, 2]) == "3 1 2"
    with torch.inference_mode():
        pair.verifier.start(torch.tensor([1, 2]))
        probs = pair.verifier.score(torch.tensor([2]), torch.tensor([3]))
    assert not probs[:, 60].any(), "the mask token stays banned"


def test_without_random_weights_the_same_pair_is_refused(small):
    with pytest.raises(ValueError, match="small: no tokenizer at 'nor/there'"):
        pairs.load(str(small()), device="cpu")


def test_layers_shorten_both_models(small):
    pair = pairs.load(str(small()), device="cpu", random=True, layers=1)

    assert len(pair.drafter.model.model.layers) == len(pair.verifier.model.model.layers) == 1
