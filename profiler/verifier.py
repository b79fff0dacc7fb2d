"""The verifier: one forward pass gives the distributions at B + 1 positions; it owns its cache and the rollback."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from profiler import sampling
from profiler.sampling import Sampling


class Verifier:
    """An autoregressive model with the keys and values of everything before the last token of the text.

    The invariant between calls: the cache holds ``text[:-1]``. A round feeds the last token and the block; after it,
    `keep` drops what was rejected. The cache is made without the model's config: layers with a sliding window then
    keep all keys and mask those that are too old, so that they too can be cut back.
    """

    def __init__(self, model: PreTrainedModel, *, banned: torch.Tensor, sampling: Sampling):
        self.model = model
        self.sampling = sampling
        self._banned = banned
        self._cache = DynamicCache()
        self._observed: tuple[int, ...] = ()
        self._features = torch.empty(0)

    @property
    def cache(self) -> DynamicCache:
        """The keys and values of what it has read, for a drafter that reads them too."""
        return self._cache

    @property
    def cached(self) -> int:
        """How many tokens the cache holds."""
        return self._cache.get_seq_length()

    def observe(self, layers: Sequence[int]) -> None:
        """From the next request on, keep the outputs of these layers, counted from 0, for a drafter that reads them."""
        count = self.model.config.get_text_config().num_hidden_layers
        if not all(0 <= layer < count for layer in layers):
            raise ValueError(f"`layers` must be among the verifier's {count}, counted from 0, got {list(layers)}")
        self._observed = tuple(layers)

    @property
    def features(self) -> torch.Tensor:
        """The outputs of the observed layers for every token in the cache, side by side: (cached, layers * width)."""
        return self._features

    def start(self, prompt: torch.Tensor) -> None:
        """Begin a request: read all of `prompt` (n,) but its last token."""
        if len(prompt) < 1:
            raise ValueError("`prompt` must have at least one token, got none; give the model a start token")
        self._cache = DynamicCache()
        width = self.model.config.get_text_config().hidden_size if self._observed else 0
        self._features = torch.empty(0, width * len(self._observed), device=prompt.device)
        if len(prompt) > 1:
            self._read(prompt[:-1], logits_to_keep=1)

    def require_read(self, text: torch.Tensor) -> None:
        """Refuse to let a drafter read what is not there: the cache must hold all of `text` (n,) but its last token."""
        if self.cached != len(text) - 1:
            raise ValueError(
                f"the verifier has read {self.cached} tokens of a text of {len(text)}; "
                "a drafter that reads the verifier follows it and cannot decode alone"
            )

    def score(self, last: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
        """Distributions (B + 1, V) after the text, given its `last` token (1,) and `drafted` (B,) tokens."""
        logits = self._read(torch.cat([last, drafted]))
        return sampling.probabilities(sampling.permitted_logits(logits, self._banned), self.sampling)

    def keep(self, length: int) -> None:
        """Cut the cache back to its first `length` tokens (case O17)."""
        surplus = self.cached - length
        if surplus > 0:
            self._cache.crop(-surplus)
            self._features = self._features[:length]

    def _read(self, tokens: torch.Tensor, *, logits_to_keep: int = 0) -> torch.Tensor:
        """Raw logits of a pass over new tokens, which the cache and the features then hold too."""
        outputs = self.model(
            input_ids=tokens[None],
            cache=self._cache,
            logits_to_keep=logits_to_keep,
            output_hidden_states=bool(self._observed),
        )
        if self._observed:
            new = torch.cat([outputs.hidden_states[layer + 1][0] for layer in self._observed], dim=-1)
            self._features = torch.cat([self._features.to(new), new])
        return outputs.logits[0]
