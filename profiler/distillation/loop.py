"""The training loop of every drafter: one sample at a time, gradients summed over a few, resumed after a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from profiler.distillation.samples import Sample

_SAVE_EVERY = 50
_WARMUP = 30
Loss = Callable[[Sample, float, torch.Generator], torch.Tensor]
"""Of a sample, the share of the training that is behind (0 to 1), and the randomness of blocks and noise."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How long and how fast a drafter learns: AdamW whose rate rises over 30 steps and falls linearly to 0."""

    title: str
    steps: int
    batch: int
    rate: float


def train(
    parameters: Sequence[nn.Parameter],
    loss: Loss,
    samples: Sequence[Sample],
    recipe: Recipe,
    *,
    seed: int,
    state_file: Path,
    line: int = 0,
) -> None:
    """Train `parameters` in place; the state is kept in `state_file` every 50 steps, and taken up from there."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(parameters, betas=(0.9, 0.98), weight_decay=0.01)
    done = 0
    if state_file.exists():
        saved = torch.load(state_file, weights_only=True)
        done = saved["step"]
        optimiser.load_state_dict(saved["optimiser"])
        generator.set_state(saved["generator"])
        with torch.no_grad():
            for parameter, value in zip(parameters, saved["parameters"], strict=True):
                parameter.copy_(value)
    order = _order(len(samples), seed, skip=done * recipe.batch)
    bar = tqdm(range(done, recipe.steps), desc=recipe.title, total=recipe.steps, initial=done, position=line)
    mean = None
    for step in bar:
        total = 0.0
        for _ in range(recipe.batch):
            part = loss(samples[next(order)], step / recipe.steps, generator) / recipe.batch
            part.backward()
            total += part.item()
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * min((step + 1) / _WARMUP, 1 - step / recipe.steps)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        mean = total if mean is None else 0.95 * mean + 0.05 * total
        bar.set_postfix(loss=f"{mean:.3f}")
        if (step + 1) % _SAVE_EVERY == 0:
            _save(state_file, step + 1, parameters, optimiser, generator)


def _order(count: int, seed: int, *, skip: int) -> Iterator[int]:
    """Indices of samples, each once an epoch in an order of its own, from the `skip`-th on."""
    epoch, place = divmod(skip, count)
    while True:
        yield from torch.randperm(count, generator=torch.Generator().manual_seed(seed + epoch)).tolist()[place:]
        epoch, place = epoch + 1, 0


def _save(
    path: Path,
    step: int,
    parameters: Sequence[nn.Parameter],
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "step": step,
        "parameters": [parameter.detach() for parameter in parameters],
        "optimiser": optimiser.state_dict(),
        "generator": generator.get_state(),
    }
    partial = path.with_suffix(".part")
    torch.save(state, partial)
    partial.replace(path)
