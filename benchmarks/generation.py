"""The peer of our loop: text by transformers' own `generate`, sampled as the pair's verifier is."""

from __future__ import annotations

from typing import Any

import torch

from profiler.pairs import Pair


def generate(pair: Pair, ids: list[int], request: int, **options: Any) -> int:
    """How many tokens `generate` adds to a prompt, with the request's number as the seed; `options` go to it."""
    torch.manual_seed(request)
    model, sampling = pair.verifier.model, pair.verifier.sampling
    inputs = torch.tensor([ids], device=pair.device)
    with torch.inference_mode():
        text = model.generate(  # type: ignore[operator]
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            do_sample=True,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_new_tokens=pair.spec.task.token_limit,
            **options,
        )
    return text.shape[1] - len(ids)
