"""Checkpoint folders to a Pair: native transformers classes only, and the two tokenizers compared id by id."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from profiler.drafters.masked import MaskedDrafter
from profiler.pairs.pair import Pair
from profiler.pairs.spec import ModelSpec, PairSpec, read
from profiler.timing import choose_device
from profiler.verifier import Verifier


def load(pair: str | PairSpec, *, device: str = "auto") -> Pair:
    """The pair called by name or TOML path, on a device.

    Raises ValueError where a checkpoint is missing, the tokenizers differ, or the mask token is not known.
    """
    spec = read(pair) if isinstance(pair, str) else pair
    if spec.drafter.family != "masked":
        raise ValueError(f"{spec.name}: `family` must be masked, got {spec.drafter.family!r}")
    target = choose_device(device)
    if spec.threads:
        torch.set_num_threads(spec.threads)
    drafter_tokenizer = _load_tokenizer(spec, spec.drafter)
    tokenizer = _load_tokenizer(spec, spec.verifier)
    drafter_model = _load_model(spec, spec.drafter, target)
    verifier_model = _load_model(spec, spec.verifier, target)
    mask = mask_id(drafter_model.config, drafter_tokenizer)
    banned = banned_ids(drafter_tokenizer, tokenizer)
    banned[mask] = True
    needed = int((~banned).nonzero().max()) + 1
    for name, model in (("drafter", drafter_model), ("verifier", verifier_model)):
        rows = int(model.config.vocab_size)
        if rows < needed:
            raise ValueError(f"{spec.name}: the {name} has {rows} output rows for {needed} token ids; check its files")
    drafter = MaskedDrafter(
        drafter_model,
        mask_id=mask,
        banned=banned.to(target),
        sampling=spec.drafter.sampling,
        order=spec.drafter.order,
        shifted=spec.drafter.shifted,
        causal_prefix=spec.drafter.causal_prefix,
        confidence=spec.drafter.confidence,
    )
    return Pair(
        spec=spec,
        drafter=drafter,
        verifier=Verifier(verifier_model, banned=banned.to(target), sampling=spec.verifier.sampling),
        tokenizer=tokenizer,
        device=target,
        vocabulary_size=len(banned),
        stop_ids=_stop_ids(verifier_model, tokenizer),
        weights={"drafter": _fingerprint(spec, spec.drafter), "verifier": _fingerprint(spec, spec.verifier)},
    )


def banned_ids(drafter: PreTrainedTokenizerBase, verifier: PreTrainedTokenizerBase) -> torch.Tensor:
    """Ids (V,) that neither model may sample: the mask token, and what only one of the two tokenizers has.

    V is the larger tokenizer's size; output rows beyond it are padding. An id that stands for two different tokens
    makes the pair unusable and is refused (case O08).
    """
    tokens = [{index: token for token, index in each.get_vocab().items()} for each in (drafter, verifier)]
    size = max(max(ids) for ids in tokens) + 1
    shared = tokens[0].keys() & tokens[1].keys()
    different = sorted(index for index in shared if tokens[0][index] != tokens[1][index])
    if different:
        first = different[0]
        raise ValueError(
            f"drafter and verifier disagree on {len(different)} of {size} token ids (first: {first}, "
            f"{tokens[0][first]!r} and {tokens[1][first]!r}); a pair must share one tokenizer"
        )
    banned = torch.ones(size, dtype=torch.bool)
    banned[list(shared)] = False
    for tokenizer in (drafter, verifier):
        if tokenizer.mask_token_id is not None:
            banned[tokenizer.mask_token_id] = True
    return banned


def mask_id(config: Any, tokenizer: PreTrainedTokenizerBase) -> int:
    """The drafter's mask token; a wrong one is an ordinary token to the model, so doubt is refused (case O23)."""
    configured, written = getattr(config, "mask_token_id", None), tokenizer.mask_token_id
    if configured is not None and written is not None and configured != written:
        raise ValueError(f"the drafter's config says mask_token_id {configured}, its tokenizer {written}; correct one")
    known = written if configured is None else configured
    if known is None:
        raise ValueError("neither the drafter's config nor its tokenizer names a mask token; set mask_token_id in one")
    return int(known)


def _location(spec: PairSpec, model: ModelSpec) -> str:
    beside = spec.folder / model.checkpoint
    return str(beside) if beside.is_dir() else model.checkpoint


def _load_tokenizer(spec: PairSpec, model: ModelSpec) -> PreTrainedTokenizerBase:
    """The tokenizer.json as it stands: AutoTokenizer would choose a class by the model's type and override it."""
    try:
        return PreTrainedTokenizerFast.from_pretrained(_location(spec, model), revision=model.revision)
    except (OSError, ValueError) as error:
        raise ValueError(_not_loaded(spec, model, "tokenizer", error)) from error


def _load_model(spec: PairSpec, model: ModelSpec, device: torch.device) -> PreTrainedModel:
    try:
        loaded, report = AutoModelForCausalLM.from_pretrained(
            _location(spec, model),
            revision=model.revision,
            dtype=getattr(torch, model.dtype),
            attn_implementation="sdpa",
            output_loading_info=True,
        )
        if report["missing_keys"]:
            raise ValueError(f"weights are missing, {sorted(report['missing_keys'])[0]} among them")
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise ValueError(_not_loaded(spec, model, "model", error)) from error
    return loaded.to(device).eval()


def _not_loaded(spec: PairSpec, model: ModelSpec, part: str, error: Exception) -> str:
    reason = str(error).strip().split("\n")[0]
    return f"{spec.name}: no {part} at {model.checkpoint!r} (a folder beside the pair's TOML, or a hub name): {reason}"


def _stop_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The verifier's stop tokens: its generation config's and its tokenizer's."""
    configured = model.generation_config.eos_token_id
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(index for index in (*ids, tokenizer.eos_token_id) if index is not None)


def _fingerprint(spec: PairSpec, model: ModelSpec) -> str:
    """What the weights are: a digest of a local folder's safetensors, else the hub name with its revision."""
    folder = Path(_location(spec, model))
    if not folder.is_dir():
        return f"{model.checkpoint}@{model.revision}"
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return f"sha256:{digest.hexdigest()[:16]}"
