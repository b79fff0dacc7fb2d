"""Early exits learn to denoise blocks of the verifier's answers, reading the keys and values of its first layers."""

from __future__ import annotations

import torch
from transformers import DynamicCache, PreTrainedModel

from profiler.distillation import blocks
from profiler.distillation.blocks import BLOCK_SIZE
from profiler.distillation.loop import Loss
from profiler.distillation.samples import Sample
from profiler.drafters.early_exit_network import EarlyExitNetwork, KeysAndValues, prefix_of

_BLOCKS = 16
"""Blocks of a sample in one pass."""


def likeliest_ids(samples: list[Sample], count: int, vocabulary_size: int) -> torch.Tensor:
    """The `count` ids that the verifier gave most mass in its answers, ascending; rare ones go by their number."""
    mass = torch.zeros(vocabulary_size, dtype=torch.float64)
    for sample in samples:
        mass.index_add_(0, sample.target_ids.flatten(), sample.target_probs.flatten().double())
    return mass.sort(descending=True, stable=True).indices[:count].sort().values


def denoising_loss(network: EarlyExitNetwork, verifier: PreTrainedModel, temperature: float) -> Loss:
    """The loss of random blocks of a sample: half of them all masked, half masked after a known beginning.

    The verifier is cut down to the layers that the network reads; what they make of a sample is computed once.
    """
    layers = network.config.num_hidden_layers
    embeddings = verifier.get_input_embeddings().weight
    head = network.head(embeddings)
    column = torch.full((len(embeddings),), -1)
    column[network.head_ids.long()] = torch.arange(len(head))
    body = verifier.model
    body.layers, body.config.num_hidden_layers = body.layers[:layers], layers
    known: dict[int, list[KeysAndValues]] = {}

    def prefix(sample: Sample) -> list[KeysAndValues]:
        if id(sample) not in known:
            cache = DynamicCache()
            with torch.no_grad():
                body(input_ids=sample.tokens[None], cache=cache)
            known[id(sample)] = prefix_of(cache, layers)
        return known[id(sample)]

    def loss(sample: Sample, progress: float, generator: torch.Generator) -> torch.Tensor:
        length = len(sample.tokens)
        anchors = blocks.random_anchors(sample, _BLOCKS, generator)
        clean = torch.randint(BLOCK_SIZE, (_BLOCKS, 1), generator=generator)
        clean = torch.where(torch.rand(_BLOCKS, 1, generator=generator) < 0.5, 0, clean)
        row = torch.arange(BLOCK_SIZE)
        places = anchors[:, None] + row
        inside = places + 1 < length
        ids = sample.tokens[places.clamp(max=length - 1)]
        ids = torch.where((row <= clean) & (places < length), ids, network.config.mask_token_id)
        hidden = network(
            network.rows(ids, embeddings).flatten(0, 1)[None],
            positions=places.flatten()[None],
            prefix=prefix(sample),
            mask=blocks.visible(anchors, length, BLOCK_SIZE, causal=False),
        )[0]
        weight = blocks.weights(row - clean) * inside
        scored = weight.flatten() > 0
        target = (places + 1 - sample.start).flatten()[scored]
        logits = hidden[scored] @ head.T / temperature
        return blocks.distance(
            logits, column[sample.target_ids[target]], sample.target_probs[target], weight.flatten()[scored],
            progress=progress,
        )  # fmt: skip

    return loss
