"""Early-exit drafters: the verifier's first layers denoise a block after what the verifier itself has cached."""

from __future__ import annotations

import dataclasses

import torch

from profiler.drafters.canvas import Canvas
from profiler.drafters.commit import Order
from profiler.drafters.draft import Draft
from profiler.drafters.early_exit_network import EarlyExitNetwork, KeysAndValues, prefix_of
from profiler.noise import Noise
from profiler.pairs.families import EarlyExitSpec
from profiler.pairs.parts import Parts
from profiler.sampling import Sampling
from profiler.verifier import Verifier
from theory.proposition2 import Exactness


class EarlyExitDrafter:
    """A block of B masked slots after the verifier's own keys and values: the text before it is never read anew.

    A row predicts the next place, so that the last token of the text, the anchor, predicts the first slot (case O24).
    Few tokens can be drafted, a small part of the vocabulary. Denoising happens among them, a token being its place
    in the network's `head_ids`; the draft has ids of the whole vocabulary, and probability 0 for all that is not
    among them.
    """

    def __init__(
        self,
        network: EarlyExitNetwork,
        verifier: Verifier,
        *,
        banned: torch.Tensor,
        sampling: Sampling,
        order: Order = "left_to_right",
        confidence: float = 1.0,
    ):
        self.network = network
        self.verifier = verifier
        self._ids = network.head_ids.long()
        self._ids_and_mask = torch.nn.functional.pad(self._ids, (0, 1), value=network.config.mask_token_id)
        self._size = len(banned)
        self.canvas = Canvas(
            mask_id=len(self._ids), banned=banned[self._ids], sampling=sampling, order=order, confidence=confidence
        )
        self._embeddings = verifier.model.get_input_embeddings().weight.to(network.norm.weight)
        self._head = network.head(self._embeddings)

    def start(self) -> None:
        """Nothing: what is known of a request lies in the verifier's cache."""

    def exactness(self, effort: int) -> Exactness:
        """What lossless verification of its drafts guarantees."""
        return self.canvas.exactness(effort)

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose `block` tokens after `prefix` (n,), which the verifier has read but for its last token."""
        if not 1 <= effort <= block:
            raise ValueError(f"`effort` must lie in [1, {block}] for a block of {block} tokens, got {effort}")
        self.verifier.require_read(prefix)
        known = [
            (keys.to(self._head), values.to(self._head))
            for keys, values in prefix_of(self.verifier.cache, len(self.network.layers))
        ]
        draft = self.canvas.denoise(
            lambda slots: self._block_logits(prefix, known, slots),
            block=block,
            effort=effort,
            noise=noise.among(self._ids),
        )
        probs = draft.probs.new_zeros(block, self._size).index_copy(1, self._ids, draft.probs)
        return dataclasses.replace(draft, tokens=self._ids[draft.tokens], probs=probs)

    def _block_logits(self, prefix: torch.Tensor, known: list[KeysAndValues], slots: torch.Tensor) -> torch.Tensor:
        """Raw logits (B, H) of what the B `slots` after `prefix` may hold, from one pass after what is `known`."""
        block = torch.cat([prefix[-1:], self._ids_and_mask[slots[:-1]]])
        anchor = len(prefix) - 1
        logits = self.network(
            self.network.rows(block, self._embeddings)[None],
            positions=torch.arange(anchor, anchor + len(block), device=block.device)[None],
            prefix=known,
            head=self._head,
        )
        return logits[0]


def build(parts: Parts[EarlyExitSpec]) -> EarlyExitDrafter:
    """The drafter of a pair's description, reading the pair's verifier."""
    spec = parts.spec
    network = parts.checkpoints.model(spec, architecture=EarlyExitNetwork)
    return EarlyExitDrafter(
        network,
        parts.verifier,
        banned=parts.banned,
        sampling=spec.sampling,
        order=spec.order,
        confidence=spec.confidence,
    )
