"""Logits to the distribution that is really sampled, and one draw from it; always in float32 or better."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a model's logits become its distribution, in the order temperature, top-k, top-p.

    ``temperature=0`` is greedy: a one-hot distribution (cases O04, O18). ``top_k=0`` and ``top_p=1`` switch off.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"`temperature` must be at least 0, got {self.temperature}; 0 is greedy")
        if self.top_k < 0:
            raise ValueError(f"`top_k` must be at least 0, got {self.top_k}; 0 keeps every token")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must lie in (0, 1], got {self.top_p}; 1 keeps every token")

    @property
    def greedy(self) -> bool:
        """True where the distribution is one-hot."""
        return self.temperature == 0


def permitted_logits(logits: torch.Tensor, banned: torch.Tensor) -> torch.Tensor:
    """Logits (..., W) brought to the tokenizer's V ids in float32 or better, with the `banned` (V,) at minus infinity.

    Rows of the output head beyond the tokenizer are padding that no text uses, and ids that a narrow head lacks get no
    mass (cases O08, O09); the mask token is banned before anything is drawn, so that q is renormalised over real
    tokens (case O22).
    """
    missing = banned.shape[0] - logits.shape[-1]  # a negative pad cuts
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf).masked_fill(banned, -torch.inf)


def probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The distribution (..., V) that `sampling` draws from, given permitted logits (..., V).

    A row with a NaN logit comes out as NaN everywhere, greedy rows included (case O11); `decode` reports it.
    """
    if sampling.greedy:
        one_hot = torch.nn.functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).to(logits.dtype)
        return torch.where(logits.isnan().any(dim=-1, keepdim=True), torch.nan, one_hot)
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        threshold = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < threshold, -torch.inf)
    probs = logits.softmax(dim=-1)
    if sampling.top_p < 1:
        ordered, index = probs.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(dim=-1) - ordered
        dropped = torch.zeros_like(probs, dtype=torch.bool).scatter(-1, index, before >= sampling.top_p)
        probs = probs.masked_fill(dropped, 0.0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return probs


def draw(probs: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """One token a row by inverting the cumulative sum in float64: probs (..., V), uniforms (...) in [0, 1) -> (...).

    A token of probability 0 is never drawn; rows are never flattened, so V times B has no limit (case O13).
    """
    cumulative = probs.double().cumsum(dim=-1)
    total = cumulative[..., -1:]
    below_total = torch.nextafter(total, torch.zeros_like(total))
    point = torch.minimum(uniforms.to(cumulative)[..., None] * total, below_total)
    last = probs.shape[-1] - 1
    return torch.searchsorted(cumulative, point, right=True)[..., 0].clamp(max=last)  # the clamp is for NaN rows


def entropy(probs: torch.Tensor) -> torch.Tensor:
    """Shannon entropy in nats, (..., V) -> (...)."""
    return torch.special.entr(probs).sum(dim=-1)
