"""What is trained for the SmolLM2 pair: its prompts, its two drafters, how long, and the files they end in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from tqdm import tqdm
from transformers import PreTrainedModel

from profiler import tasks
from profiler.distillation import early_exit, lora
from profiler.distillation.loop import Recipe, train
from profiler.distillation.samples import read_samples, write_shards
from profiler.drafters.early_exit_network import EarlyExitNetwork
from profiler.pairs import PairSpec, read
from profiler.pairs.checkpoints import Checkpoints
from profiler.pairs.families import LoraSpec
from profiler.pairs.prompting import render
from profiler.tasks.templates import TemplateTask

EARLY_EXIT, LORA = "smollm2", "smollm2-lora"
PROMPTS = 1380
_SHARD = 48
_TOKEN_LIMIT = 128
_LAYERS, _HEAD = 3, 8192
RECIPES = {
    "early_exit": Recipe(title="early exit", steps=3000, batch=4, rate=6e-4),
    "lora": Recipe(title="gated LoRA", steps=900, batch=1, rate=2e-3),
}


def sample(work: Path, seed: int, share: tuple[int, int], lock: Any) -> None:
    """Let the verifier answer its part of the training prompts; a worker process of its own."""
    tqdm.set_lock(lock)
    spec, checkpoints, verifier = _verifier(EARLY_EXIT)
    tokenizer = checkpoints.tokenizer(spec.verifier)
    write_shards(
        verifier,
        [
            tokenizer(render(task.format, spec.folder, text, task.instruction), add_special_tokens=False)["input_ids"]
            for task, text in training_texts(spec, seed)
        ],
        work / "samples",
        sampling=spec.verifier.sampling,
        stop_ids=frozenset({tokenizer.eos_token_id}),
        token_limit=_TOKEN_LIMIT,
        size=_SHARD,
        seed=seed,
        share=share,
    )


def train_drafter(pair: str, out: Path, work: Path, seed: int, line: int, lock: Any) -> None:
    """Train the drafter of a pair and write its folder; a worker process of its own."""
    tqdm.set_lock(lock)
    spec, _, verifier = _verifier(pair)
    verifier.requires_grad_(False)
    samples, sampling = read_samples(work / "samples"), spec.drafter.sampling
    if isinstance(spec.drafter, LoraSpec):
        rank, alpha = spec.drafter.rank, spec.drafter.alpha
        weights = lora.untrained(verifier, rank, seed=seed)
        parameters: Iterable[torch.nn.Parameter] = weights.values()
        loss = lora.noise_loss(verifier, weights, rank=rank, alpha=alpha, sampling=sampling)
    else:
        ids = early_exit.likeliest_ids(samples, _HEAD, verifier.config.vocab_size)
        network = EarlyExitNetwork.copied_from(verifier, layers=_LAYERS, head_ids=ids)
        network.requires_grad_(True)
        parameters = network.parameters()
        loss = early_exit.denoising_loss(network, verifier, sampling.temperature)
    family = spec.drafter.family
    state_file = work / f"{family}.pt"
    train(list(parameters), loss, samples, RECIPES[family], seed=seed, state_file=state_file, line=line)
    if isinstance(spec.drafter, LoraSpec):
        path = out / "lora" / "adapter_model.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: weight.detach().bfloat16() for name, weight in weights.items()}, path)
    else:
        network.to(torch.bfloat16).save_pretrained(out / "early-exit")


def training_texts(spec: PairSpec, seed: int) -> Iterable[tuple[Any, str]]:
    """The first `PROMPTS` training prompts, taken from the pair's tasks in turn."""
    own = [(task, cast(TemplateTask, tasks.load(task.name))) for task in spec.tasks]
    streams = [zip(itertools.repeat(task), each.texts(seed, held_out=False)) for task, each in own]
    return itertools.islice(itertools.chain.from_iterable(zip(*streams, strict=False)), PROMPTS)


def _verifier(pair: str) -> tuple[PairSpec, Checkpoints, PreTrainedModel]:
    """One thread a process: on one machine, the same seed gives the same drafters."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    spec = read(pair)
    checkpoints = Checkpoints(pair=spec.name, folder=spec.folder, device=torch.device("cpu"))
    return spec, checkpoints, checkpoints.model(spec.verifier)
