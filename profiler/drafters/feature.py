"""Feature drafters (DFlash, DSpark): one pass over a block, conditioned on the verifier's hidden states."""

from __future__ import annotations

import torch
from transformers import DynamicCache

from profiler import sampling
from profiler.drafters.draft import Draft
from profiler.drafters.feature_backbone import DSparkModel, FeatureBackbone
from profiler.noise import Noise
from profiler.pairs.families import FeatureSpec
from profiler.pairs.parts import Parts
from profiler.sampling import Sampling
from profiler.verifier import Verifier
from theory.proposition2 import Exactness


class FeatureDrafter:
    """What DFlash and DSpark share: the block [last token, mask, ...] after the hidden states of the text before it.

    The verifier has hidden states for what it has read alone, and reads drafted tokens only to verify them: a second
    step would need another pass of the verifier over the draft. So the only effort is 1.
    """

    spare_rows = 0
    """Rows of the block that predict nothing."""

    def __init__(
        self,
        backbone: FeatureBackbone,
        verifier: Verifier,
        *,
        mask_id: int,
        banned: torch.Tensor,
        sampling: Sampling,
    ):
        self.backbone = backbone
        self.verifier = verifier
        self.sampling = sampling
        self._mask_id = mask_id
        self._banned = banned
        verifier.observe(backbone.target_layers)
        self.start()

    def start(self) -> None:
        """Forget the last request."""
        self._cache = DynamicCache()

    def exactness(self, effort: int) -> Exactness:
        """Drawn in one step or from left to right."""
        return Exactness.JOINT

    def _hidden(self, prefix: torch.Tensor, embedding: torch.Tensor, block: int, effort: int) -> torch.Tensor:
        """Representations of the block's rows, from one pass; `embedding` (W, d) is the table of input embeddings."""
        if effort != 1:
            raise ValueError(
                f"`effort` of a feature drafter must be 1, got {effort}: a second step would need the verifier's "
                "hidden states of the draft, that is a further pass of the verifier"
            )
        longest = self.backbone.block_size - self.spare_rows
        if block > longest:
            raise ValueError(f"`block` must be at most the {longest} tokens that the drafter proposes, got {block}")
        self.verifier.require_read(prefix)
        masks = torch.full((block + self.spare_rows - 1,), self._mask_id, device=prefix.device)
        rows = torch.nn.functional.embedding(torch.cat([prefix[-1:], masks]), embedding)
        new = self.verifier.features[self._cache.get_seq_length() :]
        dtype = self.backbone.fc.weight.dtype
        return self.backbone(rows.to(dtype), new.to(dtype), self._cache)

    def _law(self, logits: torch.Tensor) -> torch.Tensor:
        return sampling.probabilities(sampling.permitted_logits(logits, self._banned), self.sampling)


class DFlashDrafter(FeatureDrafter):
    """Slot i of the block predicts the token at slot i, the anchor's row nothing (case O28); all drawn at once.

    Embeddings and head are the verifier's.
    """

    spare_rows = 1

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose `block` tokens after `prefix` (n,), which the verifier has read but for its last token."""
        model = self.verifier.model
        hidden = self._hidden(prefix, model.get_input_embeddings().weight, block, effort)
        head = model.get_output_embeddings()
        probs = self._law(head(hidden[1:].to(head.weight.dtype)))
        tokens = noise.draw(probs, 0)
        return Draft(tokens=tokens, probs=probs, commit_step=torch.zeros_like(tokens), passes=1)


class DSparkDrafter(FeatureDrafter):
    """Slot i of the block predicts the next token; drawn from left to right, each given the one before it."""

    backbone: DSparkModel

    def draft(self, prefix: torch.Tensor, *, block: int, effort: int, noise: Noise) -> Draft:
        """Propose `block` tokens after `prefix` (n,), which the verifier has read but for its last token."""
        hidden = self._hidden(prefix, self.backbone.embed_tokens.weight, block, effort)
        logits = self.backbone.lm_head(hidden)
        token, tokens, probs = prefix[-1:], [], []
        for slot in range(block):
            law = self._law(logits[slot] + self.backbone.following(token))
            token = noise.part(slice(slot, slot + 1)).draw(law, 0)
            tokens.append(token)
            probs.append(law)
        drawn = torch.cat(tokens)
        return Draft(tokens=drawn, probs=torch.cat(probs), commit_step=torch.zeros_like(drawn), passes=1)


def build(parts: Parts[FeatureSpec]) -> FeatureDrafter:
    """The drafter of a pair's description, which has the verifier keep its hidden states from now on."""
    spec = parts.spec
    kind, network = {"dflash": (DFlashDrafter, FeatureBackbone), "dspark": (DSparkDrafter, DSparkModel)}[spec.variant]
    backbone = parts.checkpoints.model(spec, architecture=network)
    if parts.checkpoints.layers:  # of a verifier that was shortened to measure its times
        count = parts.verifier.model.config.get_text_config().num_hidden_layers
        backbone.target_layers = tuple(min(layer, count - 1) for layer in backbone.target_layers)
    return kind(backbone, parts.verifier, mask_id=parts.mask, banned=parts.banned, sampling=spec.sampling)
