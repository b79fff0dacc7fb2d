"""The network of early-exit drafters: a verifier's first layers, trained to denoise a block after its own cache."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaPreTrainedModel,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

KeysAndValues = tuple[torch.Tensor, torch.Tensor]


class EarlyExitNetwork(LlamaPreTrainedModel):
    """Layers named as in the verifier's checkpoint, an embedding of the mask, and the ids that can be drafted.

    A block is [anchor, slot, slot, ...]: the text's last token and the slots after it but the last one. Its rows see
    each other and what the verifier has cached of the text before the anchor, in the same layers. A row predicts the
    next place, so that B rows give B slots. The embeddings of tokens and the rows of the head are the verifier's own.
    """

    config_class = LlamaConfig

    def __init__(self, config: LlamaConfig):
        super().__init__(config)
        self.layers = nn.ModuleList([LlamaDecoderLayer(config, index) for index in range(config.num_hidden_layers)])
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = LlamaRotaryEmbedding(config)
        self.mask_embedding = nn.Parameter(torch.zeros(config.hidden_size))
        self.head_ids: torch.Tensor
        self.register_buffer("head_ids", torch.arange(config.draft_vocab_size, dtype=torch.int32))
        self.post_init()

    @classmethod
    def copied_from(cls, verifier: PreTrainedModel, *, layers: int, head_ids: torch.Tensor) -> EarlyExitNetwork:
        """The first `layers` of a Llama, before any training; the mask is the mean token, its id one more.

        `head_ids` (H,) are the ids that can be drafted.
        """
        config = copy.deepcopy(verifier.config)
        config.num_hidden_layers = layers
        config.draft_vocab_size = len(head_ids)
        config.mask_token_id = config.vocab_size
        config.vocab_size += 1
        network = cls(config)
        weights = {name: weight for name, weight in verifier.model.state_dict().items() if not _beyond(name, layers)}
        embeddings = verifier.get_input_embeddings().weight
        network.load_state_dict(weights | {"mask_embedding": embeddings.mean(dim=0), "head_ids": head_ids.int()})
        return network.to(embeddings)

    def rows(self, ids: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Input rows (..., d) of token `ids` (...), the mask's among them; `embeddings` (V, d) is the verifier's."""
        masked = ids == self.config.mask_token_id
        known = nn.functional.embedding(ids.masked_fill(masked, 0), embeddings)
        return torch.where(masked[..., None], self.mask_embedding, known)

    def forward(
        self,
        rows: torch.Tensor,
        *,
        positions: torch.Tensor,
        prefix: Sequence[KeysAndValues],
        mask: torch.Tensor | None = None,
        head: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Final representations (N, B, d) of N blocks of `rows` (N, B, d), whose places in the text are `positions`.

        With `head`, as the method of that name gives it, their logits (N, B, H) instead.

        `prefix` holds the verifier's keys and values (N, heads, n, width) of each layer here, with their rotation;
        none for a text of the anchor alone. `positions` is (N, B) or (1, B). The additive `mask` (N, 1, B, n + B)
        hides padding and other blocks; without one each row sees the whole prefix and the whole block.
        """
        rotary = self.rotary_emb(rows, position_ids=positions)
        before = _Before(prefix)
        for layer in self.layers:
            rows = layer(rows, attention_mask=mask, position_embeddings=rotary, cache=before, is_causal=False)
        hidden = self.norm(rows)
        return hidden if head is None else hidden @ head.T

    def head(self, embeddings: torch.Tensor) -> torch.Tensor:
        """The rows (H, d) of the verifier's head for the ids that can be drafted: logits are ``hidden @ head.T``."""
        return embeddings[self.head_ids]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is self:
            nn.init.normal_(self.mask_embedding, std=self.config.initializer_range)
            self.head_ids.copy_(torch.arange(len(self.head_ids)))


def prefix_of(cache: DynamicCache, layers: int) -> list[KeysAndValues]:
    """The keys and values of the first `layers` of a cache, none of a cache that has read nothing."""
    return [(layer.keys, layer.values) for layer in cache.layers[:layers]]


class _Before:
    """A cache that is read and never grows: what attention sees before the block."""

    def __init__(self, prefix: Sequence[KeysAndValues]):
        self._prefix = prefix

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, **_: object) -> KeysAndValues:
        """The keys and values of a layer with the block's own behind them."""
        if not self._prefix:
            return keys, values
        known_keys, known_values = self._prefix[layer]
        return torch.cat([known_keys, keys], dim=2), torch.cat([known_values, values], dim=2)


def _beyond(name: str, layers: int) -> bool:
    """Whether a weight of the verifier is none of an early exit's: of the embeddings or of a later layer."""
    kind, *rest = name.split(".")
    return kind == "embed_tokens" or (kind == "layers" and int(rest[0]) >= layers)
