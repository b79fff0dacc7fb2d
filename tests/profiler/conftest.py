"""The pairs that the tests decode with: two tiny networks with random weights, and the embedded pair."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from profiler import pairs
from profiler.pairs import Pair
from profiler.training.checkpoints import write_checkpoint
from profiler.training.loop import network

EMBEDDED = Path(pairs.__file__).parent / "embedded"
TINY = """
description = "Random weights, for tests."
block_size = 8
efforts = [1, 2, 4]
threads = 1

[drafter]
family = "masked"
checkpoint = "drafter"
order = "left_to_right"
shifted = true
causal_prefix = true

[verifier]
checkpoint = "verifier"
top_p = 0.95

[task]
name = "word_problems"
token_limit = 24
"""


@pytest.fixture
def no_gradients():
    """As within `decode`."""
    with torch.inference_mode():
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The networks are small; a second thread only makes times noisy."""
    torch.set_num_threads(1)


@pytest.fixture
def restored_torch() -> Iterator[None]:
    """Undo what training does to torch as a whole: its seed, its threads, and subnormal numbers flushed to zero."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def tiny_pair_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The TOML file of a pair with checkpoints beside it; do not write there.

    Plain random weights give distributions that are nearly uniform and nearly equal. Embeddings and layers are scaled
    up for contrast, and both networks share the direction that the value bias of the last layer adds to every output:
    their distributions agree by a little more than half.
    """
    folder = tmp_path_factory.mktemp("tiny")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        drafter, verifier = network(2, intermediate=64), network(3, intermediate=64)
        for model in (drafter, verifier):
            for name, weights in model.named_parameters():
                if "layers" in name and weights.ndim == 2:
                    weights.mul_(5)
        verifier.model.embed_tokens.weight.normal_(std=0.24)
        noise = torch.randn_like(verifier.model.embed_tokens.weight)
        drafter.model.embed_tokens.weight.copy_(verifier.model.embed_tokens.weight + 0.05 * noise)
        last, other = verifier.model.layers[-1].self_attn, drafter.model.layers[-1].self_attn
        last.v_proj.bias.normal_(std=5)
        other.v_proj.bias.copy_(last.v_proj.bias)
        other.o_proj.weight.copy_(last.o_proj.weight)
    write_checkpoint(drafter, folder / "drafter")
    write_checkpoint(verifier, folder / "verifier")
    path = folder / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def tiny_pair(tiny_pair_file: Path) -> Pair:
    return pairs.load(str(tiny_pair_file), device="cpu")


@pytest.fixture(scope="session")
def embedded_pair() -> Pair:
    missing = [name for name in ("drafter", "verifier") if not (EMBEDDED / name / "model.safetensors").exists()]
    if missing:
        pytest.skip(f"{EMBEDDED} lacks {', '.join(missing)}; make embedded-pair trains them")
    return pairs.load("embedded", device="cpu")


@pytest.fixture(params=["tiny", "embedded"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Each of the two pairs in turn."""
    return request.getfixturevalue(f"{request.param}_pair")
