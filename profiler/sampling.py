"""Logits to the distribution that is really sampled, and one draw from it; always in float32 or better."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_LIST_LENGTHS = (128, 2048)


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
    if missing:
        logits = torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
    return torch.where(banned, -torch.inf, logits)


def probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The distribution (..., V) that `sampling` draws from, given permitted logits (..., V).

    A row with a NaN logit comes out as NaN everywhere, greedy rows included (case O11); `decode` reports it.
    """
    if sampling.greedy:
        one_hot = torch.nn.functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).to(logits.dtype)
        return torch.where(logits.isnan().any(dim=-1, keepdim=True), torch.nan, one_hot)
    if sampling.temperature != 1:
        logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        threshold = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = torch.where(logits < threshold, -torch.inf, logits)
    probs = logits.softmax(dim=-1)
    return _nucleus(probs, sampling.top_p) if sampling.top_p < 1 else probs


def draw(probs: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """One token a row by inverting the cumulative sum in float64: probs (..., V), uniforms (...) in [0, 1) -> (...).

    A token of probability 0 is never drawn; rows are never flattened, so V times B has no limit (case O13).
    """
    cumulative = probs.to(torch.float64, copy=True).cumsum_(dim=-1)  # fresh memory costs more than the sum
    total = cumulative[..., -1:]
    below_total = torch.nextafter(total, torch.zeros_like(total))
    point = torch.minimum(uniforms.to(cumulative)[..., None] * total, below_total)
    last = probs.shape[-1] - 1
    return torch.searchsorted(cumulative, point, right=True)[..., 0].clamp(max=last)  # the clamp is for NaN rows


def _nucleus(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """The likeliest tokens of each row (..., V) up to the one that crosses `top_p`, renormalised in place.

    On the CPU lists of the likeliest tokens are tried, each longer than the last, since sorting a whole vocabulary
    takes longer than all the rest of a round outside its forwards. A list tells where the nucleus ends if it holds a
    token that is dropped and likelier than its own last one: equal tokens count by their ids, and a list may lack some
    of its last. Other devices sort everything at once: they do so fast, and the host would wait for each answer.
    """
    width = probs.shape[-1]
    lengths = _LIST_LENGTHS if probs.device.type == "cpu" else ()
    for length in (*(each for each in lengths if each < width), width):
        values, index = _likeliest(probs, length)
        dropped = values.cumsum(dim=-1) - values >= top_p
        if length == width or (dropped & (values > values[..., -1:])).any(dim=-1).all():
            break
    probs.zero_().scatter_(-1, index, values.masked_fill(dropped, 0.0))
    return probs.div_(probs.sum(dim=-1, keepdim=True))


def _likeliest(probs: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `length` largest of each row (..., V) in descending order, and their ids; the first of equal ones first."""
    if length == probs.shape[-1]:
        return probs.sort(dim=-1, descending=True, stable=True)
    ids = probs.topk(length, dim=-1, sorted=False).indices.sort(dim=-1).values
    values, order = probs.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, order)


def entropy(probs: torch.Tensor) -> torch.Tensor:
    """Shannon entropy in nats, (..., V) -> (...)."""
    return torch.special.entr(probs).sum(dim=-1)
