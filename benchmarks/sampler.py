"""The verification step alone, from raw logits to accepted tokens, against the sampler of transformers.

Theirs is what assisted generation does with the logits of a pass: the warpers position by position, then
`_speculative_sampling`. Ours is what `decode` does; it also measures p(y), q(y) and TV of every slot.
"""

from __future__ import annotations

import statistics

import torch
from tqdm import tqdm
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.utils import _speculative_sampling

from benchmarks.table import Table
from profiler import sampling
from profiler.drafters.draft import Draft
from profiler.sampling import Sampling
from profiler.streams import Streams
from profiler.timing import Clock, choose_device, seconds_per_call
from profiler.verification import Place, RatioTest, verify
from theory.acceptance import LOSSLESS

VOCABULARY = 152_064
"""Of Qwen2.5 32B, the paper's verifier."""
SETTINGS = (
    Sampling(temperature=0.7),
    Sampling(temperature=0.7, top_k=20, top_p=0.8),
    Sampling(top_p=0.95),
)
CONTRAST = 5.0
"""Standard deviation of the logits: 95 % of the mass on some 100 of the tokens."""


def run(*, blocks: tuple[int, ...], vocabulary: int = VOCABULARY, samples: int = 3, seed: int = 0) -> Table:
    """Milliseconds of both for every block and way to sample, called in turn."""
    device = choose_device()
    clock = Clock.for_device(device)
    rows = []
    for block in tqdm(blocks, desc="sampler"):
        for settings in SETTINGS:
            step = _Step(block, vocabulary, settings, device, seed)
            times: tuple[list[float], list[float]] = ([], [])
            for sample in range(samples):
                warmup = 1 if sample == 0 and block == blocks[0] else 0
                for which, call in enumerate((step.ours, step.theirs)):
                    times[which].extend(seconds_per_call(call, clock=clock, warmup=warmup, samples=1))
            ours, theirs = (1e3 * statistics.median(each) for each in times)
            rows.append((f"{block}", _words(settings), f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.1f}"))
    return Table(
        title=f"The verification step alone, in ms (vocabulary {vocabulary:,}, {device}, random logits):",
        header=("B", "sampling", "ours", "transformers", "times faster"),
        rows=rows,
    )


class _Step:
    """One verification step: raw logits (B + 1, V) of a verifier, and a draft with the distributions it is from."""

    def __init__(self, block: int, vocabulary: int, settings: Sampling, device: torch.device, seed: int):
        generator = torch.Generator(device).manual_seed(seed)
        options = {"generator": generator, "device": device}
        self.settings = settings
        self.logits = CONTRAST * torch.randn(block + 1, vocabulary, **options)  # type: ignore[call-overload]
        q = self.logits[:-1] + torch.randn(block, vocabulary, **options)  # type: ignore[call-overload]
        self.banned = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        probs = sampling.probabilities(sampling.permitted_logits(q, self.banned), settings)
        tokens = sampling.draw(probs, torch.rand(block, **options))  # type: ignore[call-overload]
        self.draft = Draft(tokens=tokens, probs=probs, commit_step=torch.zeros_like(tokens), passes=1)
        self.way = RatioTest(rule=LOSSLESS, streams=Streams(seed=seed, request=0), device=device)
        self.scores = probs.log()[None]
        self.text = tokens[None]
        self.warpers = LogitsProcessorList([TemperatureLogitsWarper(settings.temperature)])
        if settings.top_k:
            self.warpers.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1:
            self.warpers.append(TopPLogitsWarper(settings.top_p))

    def ours(self) -> None:
        p = sampling.probabilities(sampling.permitted_logits(self.logits, self.banned), self.settings)
        verify(self.way, p, self.draft, Place(index=0, position=1))

    def theirs(self) -> None:
        logits = self.logits[None].clone()
        for position in range(logits.shape[1]):
            logits[:, position, :] = self.warpers(self.text[:, :position], logits[:, position, :])
        _speculative_sampling(self.text, self.scores, self.text.shape[1], logits)


def _words(settings: Sampling) -> str:
    parts = [f"T {settings.temperature:g}"]
    parts += [f"top-k {settings.top_k}"] if settings.top_k else []
    parts += [f"top-p {settings.top_p:g}"] if settings.top_p < 1 else []
    return ", ".join(parts)
