"""The training loop of both networks: seeded, with a progress bar, and resumed after an interruption."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm
from transformers import Qwen2Config, Qwen2ForCausalLM

from profiler.training.data import END_ID, MASK_ID, PAD_ID, TOKEN_IDS, Batch, batches
from profiler.training.optimisation import Schedule

_SAVE_EVERY = 500
Loss = Callable[[Qwen2ForCausalLM, Batch, int, torch.Generator], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one network is trained. From step `grow_at` on (if it is not None) it has `grown_layers` layers."""

    title: str
    loss: Loss
    steps: int
    layers: int
    intermediate: int
    drill_share: float
    grow_at: int | None = None
    grown_layers: int = 0


def network(layers: int, *, intermediate: int) -> Qwen2ForCausalLM:
    """A Qwen2 of width 128 over the word-problem vocabulary, with random weights from torch's global generator."""
    config = Qwen2Config(
        vocab_size=len(TOKEN_IDS),
        hidden_size=128,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        eos_token_id=END_ID,
        bos_token_id=None,
        mask_token_id=MASK_ID,
        attn_implementation="eager",  # its backward pass is faster than sdpa's at this size
    )
    return Qwen2ForCausalLM(config)


def train(recipe: Recipe, *, seed: int, state_file: Path, line: int) -> Qwen2ForCausalLM:
    """Train by `recipe`; the state is kept in `state_file` every 500 steps, and taken up from there.

    One thread and flushed denormals: on one machine, the same seed gives the same weights to the bit.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    model = network(recipe.layers, intermediate=recipe.intermediate)
    generator = torch.Generator().manual_seed(seed)
    schedule, done = Schedule(model, steps=recipe.steps), 0
    if state_file.exists():
        saved = torch.load(state_file, weights_only=True)
        done = saved["step"]
        model = network(saved["layers"], intermediate=recipe.intermediate)
        model.load_state_dict(saved["model"])
        schedule = Schedule(model, steps=recipe.steps, done=done)
        schedule.restore(saved["schedule"])
        generator.set_state(saved["generator"])
    stream = batches(seed=seed, size=32, drill_share=recipe.drill_share, steps=recipe.steps)
    bar = tqdm(stream, desc=recipe.title, total=recipe.steps, position=line, initial=0, mininterval=5)
    for step, batch in enumerate(bar):
        if step < done:
            continue
        if step == recipe.grow_at:
            model = grow(model, recipe.grown_layers)
            schedule = Schedule(model, steps=recipe.steps, done=step)
        loss = recipe.loss(model, batch, step, generator)
        loss.backward()
        schedule.step()
        if step % 50 == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}")
        if (step + 1) % _SAVE_EVERY == 0:
            _save(state_file, step + 1, model, schedule, generator)
    return model.eval()


def grow(model: Qwen2ForCausalLM, layers: int) -> Qwen2ForCausalLM:
    """The same function with `layers` layers: copies with zeroed output projections are put between the old ones."""
    old: list[Any] = list(model.model.layers)
    extra = layers - len(old)
    copies = Counter(i * len(old) // extra for i in range(extra))
    stack: list[Any] = []
    for index, layer in enumerate(old):
        stack.append(layer)
        for _ in range(copies[index]):
            twin = copy.deepcopy(layer)
            nn.init.zeros_(twin.self_attn.o_proj.weight)
            nn.init.zeros_(twin.mlp.down_proj.weight)
            stack.append(twin)
    for index, layer in enumerate(stack):
        layer.self_attn.layer_idx = index
    grown = network(layers, intermediate=model.config.intermediate_size)
    grown.model.layers = nn.ModuleList(stack)
    grown.model.embed_tokens = model.model.embed_tokens
    grown.model.norm = model.model.norm
    grown.tie_weights()
    return grown


def _save(path: Path, step: int, model: Qwen2ForCausalLM, schedule: Schedule, generator: torch.Generator) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "step": step,
        "layers": len(model.model.layers),
        "model": model.state_dict(),
        "schedule": schedule.state(),
        "generator": generator.get_state(),
    }
    partial = path.with_suffix(".part")
    torch.save(state, partial)
    partial.replace(path)
