"""The network of feature drafters: a block of embeddings that attends to itself and to the verifier's hidden states."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3MLP,
    Qwen3PreTrainedModel,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    apply_rotary_pos_emb,
)


class FeatureAttention(nn.Module):
    """Queries from the block; keys and values from the block and, by the same projections, from the context."""

    def __init__(self, config: Qwen3Config, index: int):
        super().__init__()
        self.index = index
        self.head_dim = config.head_dim
        width, bias = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(width, config.num_attention_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(config.num_attention_heads * self.head_dim, width, bias=bias)
        self.q_norm = Qwen3RMSNorm(self.head_dim, eps=config.rms_norm_eps)
        self.k_norm = Qwen3RMSNorm(self.head_dim, eps=config.rms_norm_eps)

    def forward(
        self,
        block: torch.Tensor,
        context: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        cache: DynamicCache,
    ) -> torch.Tensor:
        """Attend from `block` (1, B, d) to the cache, the new `context` (1, C, d) and the block, without a mask."""
        rows = torch.cat([context, block], dim=1)
        query = self._heads(self.q_norm, self.q_proj(block))
        key = self._heads(self.k_norm, self.k_proj(rows))
        value = self._heads(nn.Identity(), self.v_proj(rows))
        cosine, sine = rotary
        size = block.shape[1]
        query, _ = apply_rotary_pos_emb(query, query, cosine[:, -size:], sine[:, -size:])
        key, _ = apply_rotary_pos_emb(key, key, cosine, sine)
        key, value = cache.update(key, value, self.index)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(-2))

    def _heads(self, norm: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        return norm(rows.unflatten(-1, (-1, self.head_dim))).transpose(1, 2)


class FeatureLayer(nn.Module):
    """A pre-norm transformer layer around such an attention."""

    def __init__(self, config: Qwen3Config, index: int):
        super().__init__()
        self.self_attn = FeatureAttention(config, index)
        self.mlp = Qwen3MLP(config)
        self.input_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self,
        block: torch.Tensor,
        context: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        cache: DynamicCache,
    ) -> torch.Tensor:
        """The block's next representation, (1, B, d)."""
        block = block + self.self_attn(self.input_layernorm(block), context, rotary, cache)
        return block + self.mlp(self.post_attention_layernorm(block))


class FeatureBackbone(Qwen3PreTrainedModel):
    """DFlash's network, and DSpark's apart from its embeddings and heads; weights are named as in their checkpoints.

    The verifier's hidden states after several of its layers, side by side, become the context of every layer here.
    """

    config_class = Qwen3Config

    def __init__(self, config: Qwen3Config):
        super().__init__(config)
        if "sliding_attention" in (config.layer_types or ()):
            raise ValueError("`layer_types` of a feature drafter must all be full_attention, got sliding_attention")
        self.target_layers: tuple[int, ...] = tuple(_setting(config, "target_layer_ids"))
        self.layers = nn.ModuleList([FeatureLayer(config, index) for index in range(config.num_hidden_layers)])
        self.norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = Qwen3RotaryEmbedding(config)
        self.fc = nn.Linear(len(self.target_layers) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self._add_heads(config)
        self.post_init()

    def _add_heads(self, config: Qwen3Config) -> None:
        """Nothing: DFlash reads and writes through the verifier's embeddings and head."""

    @property
    def block_size(self) -> int:
        """Rows that the network was trained to denoise at once, the anchor included."""
        return int(_setting(self.config, "block_size"))

    def forward(self, embeddings: torch.Tensor, features: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        """Final representations (B, d) of a block of `embeddings` (B, d) that follows the text.

        `features` (C, L d) are those of the tokens that `cache` does not hold yet; their keys and values stay there,
        the block's do not.
        """
        context = self.hidden_norm(self.fc(features[None]))
        known, count = cache.get_seq_length(), len(features) + len(embeddings)
        positions = torch.arange(known, known + count, device=embeddings.device)[None]
        block = embeddings[None]
        rotary = self.rotary_emb(block, positions)
        for layer in self.layers:
            block = layer(block, context, rotary, cache)
        cache.crop(-len(embeddings))
        return self.norm(block)[0]


class DSparkModel(FeatureBackbone):
    """The same with embeddings and a head of its own, and a low-rank table of what follows what (Markov head).

    The confidence head of a checkpoint is not loaded: its threshold is 0, which is off.
    """

    _keys_to_ignore_on_load_unexpected = (r"^confidence_head\.",)

    def _add_heads(self, config: Qwen3Config) -> None:
        if getattr(config, "markov_head_type", "vanilla") != "vanilla":
            raise ValueError(f"`markov_head_type` must be vanilla, got {config.markov_head_type!r}")
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.markov_head = nn.ModuleDict(
            {
                "markov_w1": nn.Embedding(config.vocab_size, config.markov_rank),
                "markov_w2": nn.Linear(config.markov_rank, config.vocab_size, bias=False),
            }
        )

    def following(self, token: torch.Tensor) -> torch.Tensor:
        """What the Markov head adds to the logits of the slot after `token` (1,): (1, W)."""
        return self.markov_head["markov_w2"](self.markov_head["markov_w1"](token))


def _setting(config: Qwen3Config, name: str) -> Any:
    """A setting of the drafter, from the table that DFlash keeps for it or from the config itself."""
    table = getattr(config, "dflash_config", None) or {}
    value = table.get(name, getattr(config, name, None))
    if value is None:
        raise ValueError(f"the drafter's config must have `{name}`, got none; check its config.json")
    return value
