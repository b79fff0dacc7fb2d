"""Models, configs and tokenizers of a pair, from folders or a hub, by transformers' own classes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import try_to_load_from_cache
from safetensors import SafetensorError
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    GgufConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils.hub import cached_file, extract_commit_hash

from profiler.pairs import gguf_files, random_weights
from profiler.pairs.families import ModelSpec

NATIVE = {"Dream": "qwen2", "sdar": "qwen3"}
"""Checkpoints whose model type names code of their own, and the type of transformers with the same architecture."""

_FOREIGN = (AttributeError, ImportError, KeyError, TypeError)
"""What code that was written for another transformers raises (case O31)."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Where the models of a pair come from and which device they go to; errors name the pair.

    A checkpoint's own code is executed only with ``trust_remote_code``. With ``random`` weights nothing of a checkpoint
    is read, and configs are those beside the pair's TOML file; with the last ``layers`` of each model alone, if not 0.
    """

    pair: str
    folder: Path
    device: torch.device
    trust_remote_code: bool = False
    random: bool = False
    layers: int = 0

    def location(self, model: ModelSpec) -> str:
        """The folder beside the pair's TOML file, if there is one, else the folder or hub name as it is written."""
        beside = self.folder / model.checkpoint
        return str(beside) if beside.is_dir() else model.checkpoint

    def config(self, model: ModelSpec) -> PreTrainedConfig:
        """The architecture, in a class of transformers itself even where the checkpoint names code of its own."""
        source, options = self._source(model)
        try:
            if model.config and (self.random or self._lacks_config(model)):
                table = json.loads((self.folder / model.config).read_text())
            else:
                table, _ = PreTrainedConfig.get_config_dict(source, **options)
            if self.layers:
                table = shortened(table, self.layers)
            if "model_type" not in table:
                raise ValueError("there is no config.json that names a model_type")
            kind = NATIVE.get(table["model_type"], table["model_type"])
            if kind in CONFIG_MAPPING:
                return CONFIG_MAPPING[kind].from_dict(table | {"model_type": kind})
            if self.trust_remote_code:
                return AutoConfig.from_pretrained(source, **options, trust_remote_code=True)
        except self._errors as error:
            raise ValueError(self._not_loaded(model, "model", error)) from error
        raise ValueError(
            f"{self.pair}: {model.checkpoint!r} has the model type {kind!r}, which transformers "
            f"{transformers.__version__} does not have; its own code is executed only with --trust-remote-code"
        )

    def model(self, model: ModelSpec, *, architecture: Any = AutoModelForCausalLM, **changes: Any) -> PreTrainedModel:
        """The model in its dtype on the device, in the class that `architecture` chooses for its config.

        `changes` are set on the config first. Weights that the files lack are refused: they would be random. Those of a
        GGUF file become ordinary ones: multiplied as they are packed, they would be several times as slow.
        """
        config = self.config(model)
        for name, value in changes.items():
            setattr(config, name, value)
        if self.random:
            return random_weights.build(architecture, config, dtype=getattr(torch, model.dtype), device=self.device)
        source, options = self._source(model)
        if model.gguf:
            options |= {"quantization_config": GgufConfig(dequantize=True)}
        try:
            loaded, report = architecture.from_pretrained(
                source,
                config=config,
                dtype=getattr(torch, model.dtype),
                attn_implementation="sdpa",
                device_map={"": self.device},
                output_loading_info=True,
                trust_remote_code=self.trust_remote_code,
                **options,
            )
            if report["missing_keys"]:
                raise ValueError(f"weights are missing, {sorted(report['missing_keys'])[0]} among them")
        except self._errors as error:
            raise ValueError(self._not_loaded(model, "model", error)) from error
        return loaded.eval()

    def tokenizer(self, model: ModelSpec) -> PreTrainedTokenizerBase:
        """The tokenizer.json as it stands: AutoTokenizer would choose a class by the model's type and override it."""
        if model.tokenizer:
            revision = model.revision if model.tokenizer == model.checkpoint else "main"
            model = ModelSpec(checkpoint=model.tokenizer, revision=revision)
        path = self._gguf(model) if model.gguf else None
        try:
            if path:
                return gguf_files.tokenizer(path)
            return PreTrainedTokenizerFast.from_pretrained(self.location(model), revision=model.revision)
        except (OSError, ValueError) as error:
            raise ValueError(self._not_loaded(model, "tokenizer", error)) from error

    def file(self, model: ModelSpec, name: str) -> Path:
        """A file of a checkpoint, such as an adapter in a folder of its own."""
        try:
            return Path(cached_file(self.location(model), name, revision=model.revision))
        except OSError as error:
            raise ValueError(self._not_loaded(model, name, error)) from error

    def fingerprint(self, model: ModelSpec) -> str:
        """What the weights are: a digest of the local files that hold them, else the hub name with its commit.

        The revision stands for a commit that is not known. Raises ValueError for a folder without weights.
        """
        if self.random:
            return f"random, seed {random_weights.SEED}"
        if model.gguf:
            return f"sha256:{gguf_files.digest(self._gguf(model))[:16]}"
        folder = Path(self.location(model))
        if not folder.is_dir():
            return f"{model.checkpoint}@{_commit(model) or model.revision}"
        files = sorted(folder.rglob("*.safetensors")) or sorted(folder.rglob("*.bin"))
        if not files:
            raise ValueError(f"{self.pair}: {folder} must hold weights in *.safetensors or *.bin files, got none")
        digest = hashlib.sha256()
        for path in files:
            digest.update(path.read_bytes())
        return f"sha256:{digest.hexdigest()[:16]}"

    def _source(self, model: ModelSpec) -> tuple[str, dict[str, Any]]:
        """Where transformers finds a model, and the options that say so."""
        if model.gguf and not self.random:
            path = self._gguf(model)
            return str(path.parent), {"gguf_file": path.name}
        return self.location(model), {"revision": model.revision}

    def _gguf(self, model: ModelSpec) -> Path:
        """The GGUF file of a model, if it is what the pair says it is."""
        path = None if model.package else self.file(model, model.gguf)
        try:
            path = path or gguf_files.packaged(model.package, model.gguf)
            gguf_files.require_readable(path, model.sha256)
        except ValueError as error:
            raise ValueError(f"{self.pair}: {error}") from error
        return path

    def _lacks_config(self, model: ModelSpec) -> bool:
        """Whether there is no config.json to read: in a GGUF file, or in the folder of an adapter."""
        folder = Path(self.location(model))
        return bool(model.gguf) or (folder.is_dir() and not (folder / "config.json").exists())

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        """What loading raises for files that do not fit, and a checkpoint's own code for any reason."""
        return (OSError, RuntimeError, ValueError, SafetensorError) + (_FOREIGN if self.trust_remote_code else ())

    def _not_loaded(self, model: ModelSpec, part: str, error: Exception) -> str:
        reason = str(error).strip().split("\n")[0]
        if isinstance(error, _FOREIGN):
            reason = (
                f"{type(error).__name__}: {reason}; the checkpoint's own code may be for another transformers than "
                f"{transformers.__version__}"
            )
        place = "a folder beside the pair's TOML, or a hub name"
        return f"{self.pair}: no {part} at {model.checkpoint!r} ({place}): {reason}"


def _commit(model: ModelSpec) -> str | None:
    """The commit that a hub model's revision stood for when its config was loaded."""
    config = try_to_load_from_cache(model.checkpoint, "config.json", revision=model.revision)
    return extract_commit_hash(config, None) if isinstance(config, str) else None


def shortened(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """A config.json with its last layers alone."""
    if "text_config" in config:
        return config | {"text_config": shortened(config["text_config"], layers)}
    kept = min(layers, config["num_hidden_layers"])
    changed: dict[str, Any] = {"num_hidden_layers": kept}
    if config.get("layer_types"):
        changed["layer_types"] = config["layer_types"][-kept:]
    if config.get("per_layer_config"):
        dropped = config["num_hidden_layers"] - kept
        own = {int(layer) - dropped: settings for layer, settings in config["per_layer_config"].items()}
        changed["per_layer_config"] = {str(layer): settings for layer, settings in own.items() if layer >= 0}
    return config | changed
