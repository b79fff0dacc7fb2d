"""A pair's description to a Pair: the two tokenizers compared id by id, the drafter built by its family's module."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from profiler.drafters.draft import Drafter
from profiler.pairs.checkpoints import Checkpoints
from profiler.pairs.families import FAMILIES
from profiler.pairs.pair import Pair
from profiler.pairs.parts import Parts
from profiler.pairs.random_weights import NumberTokenizer
from profiler.pairs.spec import PairSpec, read
from profiler.timing import choose_device
from profiler.verifier import Verifier


def load(
    pair: str | PairSpec,
    *,
    device: str = "auto",
    trust_remote_code: bool = False,
    random: bool = False,
    layers: int = 0,
) -> Pair:
    """The pair called by name or TOML path, on a device.

    With `random` weights no checkpoint is read: times alone mean something then. `layers`, if not 0, keeps the last few
    of both models, to fit a smaller device.

    Raises ValueError where a checkpoint is missing, the tokenizers differ, the mask token is not known, or drafters of
    the family are not built yet.
    """
    spec = read(pair) if isinstance(pair, str) else pair
    family = _family(spec)
    target = choose_device(device)
    if spec.threads:
        torch.set_num_threads(spec.threads)
    checkpoints = Checkpoints(
        pair=spec.name,
        folder=spec.folder,
        device=target,
        trust_remote_code=trust_remote_code,
        random=random,
        layers=layers,
    )
    if random:
        drafter_tokenizer = tokenizer = NumberTokenizer()
    else:
        tokenizer = checkpoints.tokenizer(spec.verifier)
        shared = spec.drafter.tokenizer == spec.verifier.checkpoint
        drafter_tokenizer = tokenizer if shared else checkpoints.tokenizer(spec.drafter)
    configs = {"drafter": checkpoints.config(spec.drafter), "verifier": checkpoints.config(spec.verifier)}
    rows = {name: int(config.get_text_config().vocab_size) for name, config in configs.items()}
    banned = torch.zeros(min(rows.values()), dtype=torch.bool) if random else banned_ids(drafter_tokenizer, tokenizer)
    mask = mask_id(configs["drafter"], drafter_tokenizer) if spec.drafter.uses_mask else None
    if mask is not None:
        banned[mask : mask + 1] = True  # nothing where both tokenizers end before it
    _require_rows(spec, rows, banned)
    banned = banned.to(target)
    model = checkpoints.model(spec.verifier)
    verifier = Verifier(model, banned=banned, sampling=spec.verifier.sampling)
    drafter: Drafter = family.build(
        Parts(
            spec=spec.drafter,
            checkpoints=checkpoints,
            verifier=verifier,
            banned=banned,
            mask_id=mask,
            block_size=spec.block_size,
        )
    )
    return Pair(
        spec=spec,
        drafter=drafter,
        verifier=verifier,
        tokenizer=tokenizer,
        drafter_tokenizer=drafter_tokenizer,
        device=target,
        vocabulary_size=len(banned),
        stop_ids=frozenset() if random else _stop_ids(model, tokenizer),
        weights={"drafter": checkpoints.fingerprint(spec.drafter), "verifier": checkpoints.fingerprint(spec.verifier)},
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
    """The drafter's mask token; a wrong one is an ordinary token to the model, so doubt is refused (case O23).

    DFlash keeps it in a table of its own in its config.
    """
    own = getattr(config, "dflash_config", None) or {}
    configured, written = getattr(config, "mask_token_id", None), tokenizer.mask_token_id
    configured = own.get("mask_token_id") if configured is None else configured
    if configured is not None and written is not None and configured != written:
        raise ValueError(f"the drafter's config says mask_token_id {configured}, its tokenizer {written}; correct one")
    known = written if configured is None else configured
    if known is None:
        raise ValueError("neither the drafter's config nor its tokenizer names a mask token; set mask_token_id in one")
    return int(known)


def _family(spec: PairSpec) -> Any:
    """The module of the drafter's family; one that is not built yet is refused before anything is loaded."""
    built = [name for name in FAMILIES if importlib.util.find_spec(f"profiler.drafters.{name}")]
    if spec.drafter.family not in built:
        raise ValueError(
            f"{spec.name}: drafters of the family {spec.drafter.family!r} are not built yet, built are "
            f"{', '.join(built)}; its description and its latency bounds can be used"
        )
    return importlib.import_module(f"profiler.drafters.{spec.drafter.family}")


def _require_rows(spec: PairSpec, rows: Mapping[str, int], banned: torch.Tensor) -> None:
    """Refuse a model whose output head lacks ids that both tokenizers have."""
    needed = int((~banned).nonzero().max()) + 1
    for name, count in rows.items():
        if count < needed:
            raise ValueError(f"{spec.name}: the {name} has {count} output rows for {needed} token ids; check its files")


def _stop_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The verifier's stop tokens: its generation config's and its tokenizer's."""
    configured = model.generation_config.eos_token_id
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(index for index in (*ids, tokenizer.eos_token_id) if index is not None)
