import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from profiler.distillation import samples
from profiler.sampling import Sampling

VOCABULARY, STOP = 300, 2
SAMPLING = Sampling(temperature=0.7, top_p=0.9)
PROMPTS = [[1, *range(3, 3 + length)] for length in (5, 9, 3, 7)]


@pytest.fixture(scope="session")
def verifier():
    """A sharp little Llama with random weights and grouped heads."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        initializer_range=0.4,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval().requires_grad_(False)


@pytest.fixture(scope="session")
def sampled(verifier, tmp_path_factory):
    """The samples of four prompts, in two shards."""
    folder = tmp_path_factory.mktemp("samples")
    write(verifier, folder)
    return samples.read_samples(folder)


def write(verifier, folder, **settings):
    options = {"sampling": SAMPLING, "stop_ids": frozenset({STOP}), "token_limit": 16, "size": 3, "seed": 0}
    samples.write_shards(verifier, PROMPTS, folder, **options | settings)
