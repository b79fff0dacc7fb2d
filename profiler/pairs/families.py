"""The settings of each family of drafters, as they stand in a pair's `[drafter]` table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from profiler.drafters.commit import Order, Schedule
from profiler.sampling import Sampling
from theory.roofline import Reading

Dtype = Literal["float32", "float64", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A checkpoint (a folder beside the TOML file, any folder, or a hub name) and how it is sampled.

    ``config`` is a copy of the checkpoint's config.json beside the TOML file: its shape is then known without a hub,
    and an adapter or a GGUF file may come without one. ``tokenizer`` is the checkpoint whose tokenizer it uses, for one
    that comes without a tokenizer.json of its own.

    ``gguf`` names a GGUF file that holds everything, in the checkpoint's folder or hub or, with ``package``, among the
    files of an installed package, written as pip takes it. ``sha256`` is what its contents must be.
    """

    checkpoint: str
    gguf: str = ""
    package: str = ""
    sha256: str = ""
    config: str = ""
    tokenizer: str = ""
    revision: str = "main"
    dtype: Dtype = "float32"
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def sampling(self) -> Sampling:
        """The sampling settings alone."""
        return Sampling(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)


@dataclass(frozen=True, kw_only=True)
class DrafterSpec(ModelSpec):
    """A model that drafts; its `family` decides which further settings there are."""

    uses_mask: ClassVar[bool] = False
    """Whether slots that are not drafted yet hold a mask token."""
    reads_verifier: ClassVar[bool] = False
    """Whether it drafts from what the verifier computed, and so cannot decode alone."""

    family: str

    @property
    def reading(self) -> Reading:
        """How it reads the text, which decides what a step costs: see `theory.roofline.bound_latency`."""
        return "cached"


@dataclass(frozen=True, kw_only=True)
class MaskedSpec(DrafterSpec):
    """A canvas of mask tokens: see `Canvas` and `MaskedDrafter` in `profiler.drafters` for what the fields mean."""

    uses_mask: ClassVar[bool] = True

    order: Order = "left_to_right"
    schedule: Schedule = "equal"
    warped_scores: bool = False
    shifted: bool = True
    causal_prefix: bool = True
    confidence: float = 1.0

    @property
    def reading(self) -> Reading:
        """Without a causal prefix, every step reads everything anew."""
        return "cached" if self.causal_prefix else "recompute"


@dataclass(frozen=True, kw_only=True)
class BlockSpec(DrafterSpec):
    """Blocks of mask tokens after a cached prefix (SDAR).

    ``confidence``: a token commits above this probability, under the order that names which. ``aligned``: draft to the
    end of the block at absolute multiples of the block size, as in training; else a whole block after the prefix.
    """

    uses_mask: ClassVar[bool] = True

    order: Order = "confidence"
    confidence: float = 0.9
    aligned: bool = True


@dataclass(frozen=True, kw_only=True)
class UniformSpec(DrafterSpec):
    """A canvas of random tokens, all drawn again in every step (DiffusionGemma).

    The temperature falls from ``temperature`` in the first step to ``final_temperature`` in the last.
    """

    final_temperature: float

    @property
    def reading(self) -> Reading:
        """A causal encoder reads the text, a bidirectional decoder the canvas."""
        return "encoded"


@dataclass(frozen=True, kw_only=True)
class LoraSpec(DrafterSpec):
    """The frozen verifier with a low-rank adapter that acts on the drafted slots alone (Uno)."""

    adapter: str = "adapter"
    rank: int
    alpha: float


@dataclass(frozen=True, kw_only=True)
class FeatureSpec(DrafterSpec):
    """Conditioned on the verifier's hidden states (DFlash, DSpark)."""

    uses_mask: ClassVar[bool] = True
    reads_verifier: ClassVar[bool] = True

    variant: Literal["dflash", "dspark"]


@dataclass(frozen=True, kw_only=True)
class EarlyExitSpec(DrafterSpec):
    """The verifier's first layers, trained to draft, reading the verifier's own cache: see `Canvas` for the fields."""

    uses_mask: ClassVar[bool] = True
    reads_verifier: ClassVar[bool] = True

    order: Order = "left_to_right"
    confidence: float = 1.0


@dataclass(frozen=True, kw_only=True)
class AutoregressiveSpec(DrafterSpec):
    """A smaller causal language model that drafts token by token; its only effort is 1."""

    @property
    def reading(self) -> Reading:
        """One pass a token."""
        return "token_by_token"


FAMILIES: dict[str, type[DrafterSpec]] = {
    "masked": MaskedSpec,
    "block": BlockSpec,
    "uniform": UniformSpec,
    "lora": LoraSpec,
    "feature": FeatureSpec,
    "early_exit": EarlyExitSpec,
    "autoregressive": AutoregressiveSpec,
}
