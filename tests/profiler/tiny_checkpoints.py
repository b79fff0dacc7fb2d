"""Tiny random checkpoints of the very architectures that the named pairs use, written as real ones are."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    DiffusionGemmaTextConfig,
    Gemma4Config,
    Gemma4ForCausalLM,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.gemma4.configuration_gemma4 import Gemma4VisionConfig

from profiler.drafters.early_exit_network import EarlyExitNetwork
from profiler.drafters.feature_backbone import DSparkModel, FeatureBackbone

WORDS = ("a", "b", "c", "d", "e")
EOS_ID, MASK_ID, SIZE = 5, 6, 7
CANVAS = 8
EARLY_EXIT_IDS = (0, 5, 2, 1, 4)
ROWS = 10
"""Rows of the output heads, more than there are tokens, as real checkpoints have them (case O09)."""

COMMON = {
    "vocab_size": ROWS,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.35,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": EOS_ID,
    "attn_implementation": "sdpa",
}
GEMMA = COMMON | {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 6,
    "global_head_dim": 16,
    "num_global_key_value_heads": 1,
}
GEMMA_TEXT = GEMMA | {
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 30.0,
    "pad_token_id": 0,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "position_embedding_size": 16,
}


def qwen2(seed: int, **settings: object) -> PreTrainedModel:
    """As Qwen2.5 and Dream are built."""
    return _random(Qwen2ForCausalLM, Qwen2Config(**COMMON | settings), seed)


def qwen3(seed: int, **settings: object) -> PreTrainedModel:
    """As Qwen3, SDAR and Uno are built."""
    return _random(Qwen3ForCausalLM, Qwen3Config(**COMMON | settings), seed)


def llama(seed: int, **settings: object) -> PreTrainedModel:
    """As SmolLM2 is built: the head is the table of embeddings."""
    return _random(LlamaForCausalLM, LlamaConfig(**COMMON | {"tie_word_embeddings": True} | settings), seed)


def early_exit(seed: int) -> PreTrainedModel:
    """As an early exit is built: the first layer of a Llama, and a head that lacks two of its tokens."""
    config = LlamaConfig(**COMMON | {"num_hidden_layers": 1}, draft_vocab_size=5, mask_token_id=ROWS)
    network = _random(EarlyExitNetwork, config, seed)
    network.head_ids.copy_(torch.tensor(EARLY_EXIT_IDS))
    return network


def gemma4(seed: int) -> PreTrainedModel:
    """As the text part of Gemma 4 is built: a sliding layer of 6 tokens, a full one with keys as values."""
    return _random(Gemma4ForCausalLM, Gemma4TextConfig(**GEMMA_TEXT), seed)


def gemma4_with_vision(seed: int) -> PreTrainedModel:
    """As Gemma 4's checkpoints come: the same with a part that sees, which no text uses."""
    config = Gemma4Config(
        text_config=Gemma4TextConfig(**GEMMA_TEXT),
        vision_config=Gemma4VisionConfig(**VISION),
        audio_config=None,
        initializer_range=COMMON["initializer_range"],
        attn_implementation="sdpa",
    )
    return _random(Gemma4ForConditionalGeneration, config, seed)


def diffusion_gemma(seed: int) -> PreTrainedModel:
    """As DiffusionGemma is built: four experts, two of them for each token, and a canvas of 8 tokens."""
    experts = {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8}
    config = DiffusionGemmaConfig(
        text_config=DiffusionGemmaTextConfig(**GEMMA | experts),
        vision_config=Gemma4VisionConfig(**VISION),
        canvas_length=CANVAS,
        initializer_range=0.1,
        attn_implementation="sdpa",
    )
    return _random(DiffusionGemmaForBlockDiffusion, config, seed)


def dflash(seed: int) -> PreTrainedModel:
    """As DFlash's network is built: it reads two layers of a verifier, and drafts blocks of an anchor and 4 masks."""
    own = {"mask_token_id": MASK_ID, "target_layer_ids": [0, 1]}
    return _random(FeatureBackbone, Qwen3Config(**COMMON, dflash_config=own, block_size=5), seed)


def dspark(seed: int) -> PreTrainedModel:
    """As DSpark's network is built: the same with embeddings and heads of its own, and blocks of 4."""
    own = {"mask_token_id": MASK_ID, "target_layer_ids": [0, 1], "block_size": 4, "markov_rank": 3}
    return _random(DSparkModel, Qwen3Config(**COMMON | {"initializer_range": 0.6}, **own), seed)


def write(model: PreTrainedModel, folder: Path, *, mask: bool = False) -> Path:
    """The model and a tokenizer, with the mask token only if asked for, in a folder."""
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    words = [*WORDS, "<eos>", "<mask>"] if mask else [*WORDS, "<eos>"]
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="a"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    names = {"eos_token": "<eos>"} | ({"mask_token": "<mask>"} if mask else {})
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder


def write_gguf(model: PreTrainedModel, path: Path) -> Path:
    """A Llama and its tokenizer, of letters and one pair of them, as a GGUF file."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*WORDS, "<eos>", "ab"])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(WORDS) + [gguf.TokenType.CONTROL, gguf.TokenType.NORMAL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(EOS_ID)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weights in model.state_dict().items():
        kind, rows = name.split(".")[-2], weights
        if kind in heads:  # the two halves that rotate together lie side by side in such files
            rows = weights.unflatten(0, (heads[kind], 2, -1)).transpose(1, 2).flatten(0, 2)
        if name != "lm_head.weight":
            writer.add_tensor(names.get_name(name, (".weight",)), rows.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _random(kind: type[PreTrainedModel], config: object, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config).eval()


def write_adapter(model: PreTrainedModel, folder: Path, *, rank: int, seed: int) -> dict[str, torch.Tensor]:
    """A low-rank adapter to every projection of a model's layers, as PEFT writes one; gives its weights."""
    generator, weights = torch.Generator().manual_seed(seed), {}
    for name, layer in model.named_modules():
        if name.endswith("_proj"):
            down = torch.randn(rank, layer.in_features, generator=generator)
            up = torch.randn(layer.out_features, rank, generator=generator) / 4
            weights |= {f"base_model.model.{name}.lora_{key}.weight": w for key, w in (("A", down), ("B", up))}
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    return weights


def name_own_code(folder: Path, model_type: str, **settings: object) -> None:
    """Make a checkpoint's config one that names code of its own, as Dream's and SDAR's do."""
    path = folder / "config.json"
    own = {"model_type": model_type, "architectures": ["OwnModel"], "auto_map": {"AutoModel": "modeling.OwnModel"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | own | settings))


def pair_file(
    folder: Path,
    settings: str,
    *,
    drafter: PreTrainedModel,
    verifier: PreTrainedModel,
    block_size: int = 4,
    mask: bool = False,
) -> Path:
    """The TOML file of a pair with its checkpoints beside it; `settings` are those of the drafter."""
    write(drafter, folder / "drafter", mask=mask)
    write(verifier, folder / "verifier", mask=mask)
    path = folder / "pair.toml"
    path.write_text(PAIR.format(block_size=block_size, settings=settings))
    return path


PAIR = """
description = "Tiny random networks."
block_size = {block_size}
efforts = [1]
threads = 1

[drafter]
checkpoint = "drafter"
{settings}

[verifier]
checkpoint = "verifier"

[task]
name = "word_problems"
token_limit = 24
"""
