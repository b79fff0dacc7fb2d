"""Gated low-rank drafters (Uno): the frozen verifier with an adapter that acts on the noise rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from profiler import sampling
from profiler.drafters.draft import Draft
from profiler.noise import Noise
from profiler.pairs.families import LoraSpec
from profiler.pairs.parts import Parts
from profiler.sampling import Sampling
from theory.proposition2 import Exactness

_PEFT = "base_model.model."
DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
FIRST_NOISE_ID = 1
"""Noise is drawn from the ids behind the first, as in training."""


class GatedAdapter:
    """Low-rank updates of a model's linear layers, added to the rows of a pass from a given one on.

    `weights` are named as PEFT names them: ``base_model.model.<layer>.lora_A.weight`` (rank, inputs) and ``lora_B``
    (outputs, rank). While the gate is shut the model is untouched.
    """

    def __init__(self, model: PreTrainedModel, weights: dict[str, torch.Tensor], *, rank: int, alpha: float):
        layers = {name.removesuffix(DOWN) for name in weights if name.endswith(DOWN)}
        modules = dict(model.named_modules())
        self._updates = {}
        for layer in sorted(layers):
            target = modules.get(layer.removeprefix(_PEFT))
            if target is None or layer + _UP not in weights:
                raise ValueError(f"the adapter's {layer} must be a layer of the verifier with lora_A and lora_B")
            down, up = weights[layer + DOWN], weights[layer + _UP]
            if len(down) != rank:
                raise ValueError(f"`rank` must be the adapter's own, {len(down)} at {layer}, got {rank}")
            self._updates[target] = (down.to(target.weight), alpha / rank * up.to(target.weight))
        if not self._updates:
            raise ValueError(f"the adapter must have weights named {_PEFT}<layer>{DOWN}, got none")

    @contextmanager
    def open_from(self, first: int) -> Iterator[None]:
        """Let the adapter act on the rows from `first` on."""

        def add(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
            down, up = self._updates[layer]
            output[:, first:] += inputs[0][:, first:] @ down.T @ up.T
            return output

        hooks = [layer.register_forward_hook(add) for layer in self._updates]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


class LoraDrafter:
    """The verifier's own weights; rows of known tokens run them alone, rows of noise with the adapter.

    Attention is causal and a row predicts the next token, as in the verifier. A pass over the last known token and
    B - 1 noise tokens gives B distributions, the first of them the verifier's own: that token is exact.

    The method is published for one step, and the paper's K > 1 is not specified further than that proposals are fed
    back. Here a step knows one token more than the step before: the next one, whose distribution came from a row
    without the adapter, is committed; the proposals behind it take the place of the noise. The last step commits all
    that is left. Commits go from left to right, so that drafts are exact for any K, and with K = B the drafter is the
    verifier itself.
    """

    def __init__(self, model: PreTrainedModel, adapter: GatedAdapter, *, banned: torch.Tensor, sampling: Sampling):
        self.model = model
        self.sampling = sampling
        self._adapter = adapter
        self._banned = banned
        self.start()

    def start(self) -> None:
        """Forget the last request."""
        self._cache = DynamicCache()

    def exactness(self, effort: int) -> Exactness:
        """Tokens are committed from left to right."""
        return Exactness.JOINT

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose `block` tokens after `prefix` (n,) in `effort` passes, drawing every token by `noise`."""
        if not 1 <= effort <= block:
            raise ValueError(f"`effort` must lie in [1, {block}] for a block of {block} tokens, got {effort}")
        slots = noise.random_ids(FIRST_NOISE_ID, len(self._banned))
        probs = torch.empty(0)
        for step in range(effort):
            logits = sampling.permitted_logits(self._logits(prefix, slots, step), self._banned)
            fresh = sampling.probabilities(logits, self.sampling)
            probs = torch.cat([probs[:step], fresh]) if step else fresh
            drawn = noise.draw(probs, step)
            slots = torch.cat([slots[:step], drawn[step:]])
        commit_step = torch.arange(block, device=prefix.device).clamp(max=effort - 1)
        return Draft(tokens=slots, probs=probs, commit_step=commit_step, passes=effort)

    def _logits(self, prefix: torch.Tensor, slots: torch.Tensor, known: int) -> torch.Tensor:
        """Raw logits of the slots from `known` on, the slots before it being known: (B - known, W)."""
        rows = torch.cat([prefix, slots[:-1]])
        begin = self._cache.get_seq_length()
        with self._adapter.open_from(len(prefix) + known - begin):
            outputs = self.model(input_ids=rows[None, begin:], cache=self._cache, logits_to_keep=len(slots) - known)
        self._cache.crop(len(prefix) - 1 - len(rows))  # all of the text but its last token stays
        return outputs.logits[0]


def build(parts: Parts[LoraSpec]) -> LoraDrafter:
    """The drafter of a pair's description, on the weights of its verifier."""
    spec, model = parts.spec, parts.verifier.model
    if parts.checkpoints.random:
        weights = without_effect(model, spec.rank)
    else:
        weights = load_file(parts.checkpoints.file(spec, f"{spec.adapter}/adapter_model.safetensors"))
    adapter = GatedAdapter(model, weights, rank=spec.rank, alpha=spec.alpha)
    return LoraDrafter(model, adapter, banned=parts.banned, sampling=spec.sampling)


def without_effect(model: PreTrainedModel, rank: int) -> dict[str, torch.Tensor]:
    """An adapter of zeros on every linear layer but the head, to measure what it costs."""
    head = model.get_output_embeddings()
    weights = {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and layer is not head:
            weights[_PEFT + name + DOWN] = layer.weight.new_zeros(rank, layer.in_features)
            weights[_PEFT + name + _UP] = layer.weight.new_zeros(layer.out_features, rank)
    return weights
