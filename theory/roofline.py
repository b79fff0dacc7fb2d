"""Roofline: how fast a forward pass can be at best, from a model's shape and a device's bandwidth and FLOP/s.

Every time here is a bound, not a measurement: the weights, keys and values that must be read once, and the products
that must be done, at the device's peak rates. Activations, kernel launches, softmax and sampling are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

BYTES_PER_NUMBER = 2
"""Of bfloat16, in which weights, keys and values are kept."""

Reading = Literal["recompute", "cached", "encoded", "token_by_token"]


@dataclass(frozen=True, kw_only=True)
class Device:
    """An accelerator's peak rates: memory bandwidth, and dense bfloat16 operations, by its data sheet."""

    name: str
    bytes_per_second: float
    operations_per_second: float


H100 = Device(name="H100 SXM", bytes_per_second=3.35e12, operations_per_second=989.4e12)
H200 = Device(name="H200 SXM", bytes_per_second=4.8e12, operations_per_second=989.4e12)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A transformer layer. ``window`` tokens, itself included, are attended to; None: all of them.

    ``experts`` gated feed-forwards of width ``expert_feed_forward``, ``active_experts`` of them for each token, stand
    beside the dense one. ``shared_projection``: one matrix gives keys and values. ``adapter_rank``: low-rank updates
    beside every dense matrix. ``vectors`` counts norms, biases and scales.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vectors: int
    window: int | None = None
    shared_projection: bool = False
    experts: int = 0
    active_experts: int = 0
    expert_feed_forward: int = 0
    adapter_rank: int = 0

    @property
    def dense_parameters(self) -> int:
        """Parameters that every token meets."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        matrices = [
            (self.hidden, queries),
            *[(self.hidden, keys)] * (1 if self.shared_projection else 2),
            (queries, self.hidden),
            *[(self.hidden, self.feed_forward)] * 3,
        ]
        adapters = self.adapter_rank * sum(rows + columns for rows, columns in matrices)
        router = self.hidden * self.experts
        return sum(rows * columns for rows, columns in matrices) + adapters + router + self.vectors

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert."""
        return 3 * self.hidden * self.expert_feed_forward

    @property
    def cache_bytes(self) -> int:
        """Bytes of one token's key and value."""
        return 2 * self.kv_heads * self.head_dim * BYTES_PER_NUMBER

    def experts_read(self, tokens: int) -> float:
        """Expected number of distinct experts that some tokens meet, if routing is uniform and independent.

        Real routing is less even and meets fewer: with experts, the bound holds under this assumption only.
        """
        if not self.experts:
            return 0.0
        return self.experts * (1 - (1 - self.active_experts / self.experts) ** tokens)

    def visible(self, context: int) -> int:
        """How many of ``context`` cached tokens the first token after them attends to."""
        return context if self.window is None else min(context, self.window - 1)

    def attended(self, tokens: int, context: int, *, causal: bool) -> int:
        """Pairs of query and key for ``tokens`` rows after ``context`` cached ones; unless causal, all see all rows."""
        if not causal:
            return tokens * (self.visible(context) + tokens)
        whole = (
            tokens if self.window is None else min(tokens, max(0, self.window - context))
        )  # rows that see all before
        return whole * context + whole * (whole + 1) // 2 + (tokens - whole) * (self.window or 0)


@dataclass(frozen=True, kw_only=True)
class Forward:
    """One forward pass at best: what it moves, what it computes, and the longer of the two times."""

    memory_bytes: float
    operations: float
    seconds: float
    limit: Literal["memory", "compute"]


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A transformer's layers and its two ends; ``vocabulary`` counts the rows of its output head.

    ``tied``: the output head is the embedding. ``borrows_ends``: both belong to another model. ``extra`` counts what
    every pass reads outside layers and ends, ``tables`` what it reads single rows of.
    """

    hidden: int
    vocabulary: int
    tied: bool
    layers: tuple[Layer, ...]
    extra: int
    tables: int = 0
    borrows_ends: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, adapter_rank: int = 0) -> Self:
        """Return the shape that a checkpoint's config.json describes.

        Raises
        ------
        ValueError
            The model type is not one whose architecture is written down here.
        """
        kind = config.get("model_type")
        if kind not in _VECTORS:
            known = ", ".join(_VECTORS)
            raise ValueError(f"`config` must have a model_type of {known}, got {kind!r}; give the shape as ModelShape")
        text = config.get("text_config", config)
        hidden = text["hidden_size"]
        types = text.get("layer_types") or ["full_attention"] * text["num_hidden_layers"]
        return cls(
            hidden=hidden,
            vocabulary=text.get("draft_vocab_size", text["vocab_size"]),
            tied=text.get("tie_word_embeddings", False),
            layers=tuple(_layer(text, kind, attention, adapter_rank) for attention in types),
            extra=_extra(text, kind),
            tables=text.get("markov_rank", 0) * text["vocab_size"],
            borrows_ends="dflash_config" in config,
        )

    @property
    def parameters(self) -> int:
        """All parameters, every expert included."""
        ends = 0 if self.borrows_ends else self.hidden * self.vocabulary * (1 if self.tied else 2)
        layers = sum(layer.dense_parameters + layer.experts * layer.expert_parameters for layer in self.layers)
        return layers + self.extra + self.tables + ends

    def cache_bytes(self, context: int) -> int:
        """Bytes of the keys and values that one token after ``context`` cached ones reads."""
        return sum(layer.visible(context) * layer.cache_bytes for layer in self.layers)

    def forward(self, device: Device, *, tokens: int, context: int, logits: int, causal: bool = True) -> Forward:
        """Bound a pass over ``tokens`` rows after ``context`` cached ones, with output rows for ``logits`` of them.

        Parameters
        ----------
        device
            Where it runs.
        tokens, context, logits
            Numbers of rows; weights are read once, whatever their number.
        causal
            False: the rows see each other in both directions.
        """
        for name, value, least in (("tokens", tokens, 1), ("context", context, 0), ("logits", logits, 0)):
            if value < least:
                raise ValueError(f"`{name}` must be at least {least}, got {value}; it counts rows")
        head = self.hidden * self.vocabulary
        numbers: float = self.extra + (head if logits else 0)
        operations = 2 * (self.extra + head * logits)
        cached = 0
        for layer in self.layers:
            active = layer.dense_parameters + layer.active_experts * layer.expert_parameters
            numbers += layer.dense_parameters + layer.experts_read(tokens) * layer.expert_parameters
            pairs = layer.attended(tokens, context, causal=causal)
            operations += 2 * active * tokens + 4 * layer.heads * layer.head_dim * pairs
            cached += layer.visible(context) * layer.cache_bytes
        memory_bytes = numbers * BYTES_PER_NUMBER + cached
        memory, compute = memory_bytes / device.bytes_per_second, operations / device.operations_per_second
        return Forward(
            memory_bytes=memory_bytes,
            operations=operations,
            seconds=max(memory, compute),
            limit="memory" if memory >= compute else "compute",
        )


@dataclass(frozen=True, kw_only=True)
class LatencyBound:
    """The least that a round can take, ``a + bK + c_v`` of Eq. 7, on one device; a bound, never a measurement."""

    device: Device
    block_size: int
    context: int
    draft_intercept_seconds: float
    draft_slope_seconds: float
    verify_seconds: float

    def round_seconds(self, effort: int) -> float:
        """Return ``a + bK + c_v``."""
        return self.draft_intercept_seconds + self.draft_slope_seconds * effort + self.verify_seconds


def bound_latency(
    drafter: ModelShape, verifier: ModelShape, device: Device, *, reading: Reading, block_size: int, context: int
) -> LatencyBound:
    """Bound a round that drafts ``block_size`` tokens after ``context`` ones.

    Parameters
    ----------
    drafter, verifier
        Their shapes.
    device
        Where both run.
    reading
        How the drafter reads the text. ``recompute``: every step reads text and block anew, in both directions (Dream).
        ``cached``: every step reads the block after cached keys and values. ``encoded``: the same, after one causal
        pass a round over the tokens that the last one added, of which the bound counts one (DiffusionGemma).
        ``token_by_token``: one pass for each drafted token, and no effort but 1.
    block_size, context
        B, and the tokens before the block.
    """
    verify = verifier.forward(device, tokens=block_size + 1, context=context, logits=block_size + 1)
    intercept = 0.0
    if reading == "recompute":
        step = drafter.forward(device, tokens=context + block_size, context=0, logits=block_size, causal=False).seconds
    elif reading == "token_by_token":
        slots = range(block_size)
        step = sum(drafter.forward(device, tokens=1, context=context + slot, logits=1).seconds for slot in slots)
    else:
        step = drafter.forward(device, tokens=block_size, context=context, logits=block_size, causal=False).seconds
    if reading == "encoded":
        intercept = drafter.forward(device, tokens=1, context=context, logits=0).seconds
    return LatencyBound(
        device=device,
        block_size=block_size,
        context=context,
        draft_intercept_seconds=intercept,
        draft_slope_seconds=step,
        verify_seconds=verify.seconds,
    )


_VECTORS: dict[str, tuple[int, int, bool]] = {
    "llama": (2, 0, False),
    "qwen2": (2, 0, True),
    "qwen3": (2, 2, False),
    "gemma4_text": (4, 2, False),
    "diffusion_gemma": (8, 2, False),
}
"""Vectors of a layer by model type: of the hidden width, of a head's width, and whether projections have biases."""


def _layer(text: Mapping[str, Any], kind: str, attention: str, adapter_rank: int) -> Layer:
    """A layer of a config; Gemma's full-attention layers have heads of their own and one projection for both."""
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    whole = attention == "full_attention"
    wide = whole and "global_head_dim" in text
    head_dim = text["global_head_dim"] if wide else text.get("head_dim") or hidden // heads
    kv_heads = text["num_global_key_value_heads"] if wide else text["num_key_value_heads"]
    experts = text.get("num_experts") or 0
    of_hidden, of_head, biases = _VECTORS[kind]
    return Layer(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward=text["intermediate_size"],
        vectors=of_hidden * hidden + of_head * head_dim + (heads + 2 * kv_heads) * head_dim * biases + experts,
        window=None if whole else text["sliding_window"],
        shared_projection=wide,
        experts=experts,
        active_experts=text.get("top_k_experts") or 0,
        expert_feed_forward=text.get("moe_intermediate_size") or 0,
        adapter_rank=adapter_rank,
    )


def _extra(text: Mapping[str, Any], kind: str) -> int:
    """Parameters outside layers and ends: the last norm, and what feeds a drafter."""
    hidden = text["hidden_size"]
    extra = hidden
    if kind == "diffusion_gemma":  # self-conditioning: a norm and a gated feed-forward
        extra += hidden + 3 * hidden * text["intermediate_size"]
    if "draft_vocab_size" in text:  # the embedding of the mask, which an early exit's vocabulary lacks
        extra += hidden
    targets = text.get("dflash_config", text).get("target_layer_ids")
    if targets:  # one projection of the verifier's hidden states side by side, and its norm
        extra += len(targets) * hidden**2 + hidden
    return int(extra + text.get("markov_rank", 0) * text["vocab_size"])
