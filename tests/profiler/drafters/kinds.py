"""A tiny pair of each family of drafters, and of each kind where a family has several."""

from pathlib import Path

from profiler.pairs.families import FAMILIES
from tests.profiler import tiny_checkpoints as tiny

BLOCK = 4
KINDS = {
    "masked": ("masked", "", tiny.qwen2, [1, 3]),
    "block": ("block", "confidence = 0.5", tiny.qwen3, [1, 3]),
    "uniform": ("uniform", "final_temperature = 0.4", tiny.diffusion_gemma, [1, 3]),
    "lora": ("lora", "rank = 2\nalpha = 3.0", tiny.qwen3, [1, 3]),
    "dflash": ("feature", 'variant = "dflash"\ntemperature = 0.0', tiny.dflash, [1]),
    "dspark": ("feature", 'variant = "dspark"', tiny.dspark, [1]),
    "early_exit": ("early_exit", "", tiny.early_exit, [1, 3]),
    "autoregressive": ("autoregressive", "", tiny.qwen2, [1]),
}
"""Family, settings, network and efforts of each kind."""
VERIFIERS = {"uniform": tiny.gemma4, "early_exit": tiny.llama}
OWN_CODE = {"masked": "Dream", "block": "sdar"}


def write_pair(kind: str, folder: Path) -> Path:
    """The TOML file of a pair of that kind, its checkpoints beside it."""
    family, settings, drafter, _ = KINDS[kind]
    verifier = VERIFIERS.get(family, tiny.qwen3)(seed=2)
    path = tiny.pair_file(
        folder,
        f'family = "{family}"\n{settings}',
        drafter=drafter(seed=1),
        verifier=verifier,
        block_size=BLOCK,
        mask=FAMILIES[family].uses_mask and family != "early_exit",
    )
    if family in OWN_CODE:
        tiny.name_own_code(folder / "drafter", OWN_CODE[family], mask_token_id=tiny.MASK_ID)
    if family == "lora":
        tiny.write_adapter(verifier, folder / "drafter/adapter", rank=2, seed=5)
    return path
