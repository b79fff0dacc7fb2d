"""Uniform diffusion drafters (DiffusionGemma): a canvas of random tokens, all of them drawn again in every step."""

from __future__ import annotations

import dataclasses

import torch
from transformers import DiffusionGemmaForBlockDiffusion, DynamicCache, PreTrainedModel

from profiler import sampling
from profiler.drafters.draft import Draft
from profiler.noise import Noise
from profiler.pairs.families import UniformSpec
from profiler.pairs.parts import Parts
from profiler.sampling import Sampling
from theory.proposition2 import Exactness


class UniformDrafter:
    """An encoder that reads the text once and a decoder that denoises a canvas in K steps.

    Every step draws every slot from its distribution, and the canvas of the next step is what was drawn; what the last
    step draws is the draft. The temperature falls evenly from that of `sampling` in the first step to
    `final_temperature` in the last, which is also that of a single step. Steps after the first see the logits of the
    step before, divided by its temperature (self-conditioning).

    Given the canvas that the last step starts from, its draws are independent: drafts are exact for any K. The
    encoder is causal and reads only what stays in the text, so its cache is never cut back. Its pass over new tokens
    is not counted among a draft's `passes`: those are the decoder's.
    """

    def __init__(self, model: PreTrainedModel, *, banned: torch.Tensor, sampling: Sampling, final_temperature: float):
        self.model = model
        self.sampling = sampling
        self._banned = banned
        self._final_temperature = final_temperature
        self.start()

    def start(self) -> None:
        """Forget the last request."""
        self._cache = DynamicCache(config=self.model.config.get_text_config())

    def exactness(self, effort: int) -> Exactness:
        """Every token is drawn in the last step, independently of the others given the canvas it starts from."""
        return Exactness.JOINT

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose `block` tokens after `prefix` (n,) in `effort` passes of the decoder, drawing by `noise`."""
        if effort < 1:
            raise ValueError(f"`effort` must be at least 1, got {effort}")
        longest = self.model.config.canvas_length
        if block > longest:
            raise ValueError(f"`block` must be at most the {longest} tokens of the model's canvas, got {block}")
        known = self._cache.get_seq_length()
        if known < len(prefix):
            self.model.model.encoder(input_ids=prefix[None, known:], cache=self._cache)
        drawn, conditioning = noise.random_ids(0, len(self._banned)), None
        for step, temperature in enumerate(self._temperatures(effort)):
            logits = self.model(
                cache=self._cache, decoder_input_ids=drawn[None], self_conditioning_logits=conditioning
            ).logits
            warp = dataclasses.replace(self.sampling, temperature=temperature)
            probs = sampling.probabilities(sampling.permitted_logits(logits[0], self._banned), warp)
            drawn = noise.draw(probs, step)
            conditioning = logits / temperature
        commit_step = torch.full_like(drawn, effort - 1)
        return Draft(tokens=drawn, probs=probs, commit_step=commit_step, passes=effort)

    def _temperatures(self, effort: int) -> list[float]:
        """Of each step; a single step has the final one."""
        first, last = self.sampling.temperature, self._final_temperature
        return [last + (first - last) * (effort - 1 - step) / max(effort - 1, 1) for step in range(effort)]


def build(parts: Parts[UniformSpec]) -> UniformDrafter:
    """The drafter of a pair's description."""
    spec = parts.spec
    model = parts.checkpoints.model(spec, architecture=DiffusionGemmaForBlockDiffusion)
    return UniformDrafter(model, banned=parts.banned, sampling=spec.sampling, final_temperature=spec.final_temperature)
