"""Both drafters on a tiny verifier: what their losses measure is what their drafters do, and training lowers it."""

import copy
import itertools

import pytest
import torch
from safetensors.torch import save_file
from transformers import DynamicCache

from profiler.distillation import blocks, early_exit, lora
from profiler.distillation.loop import Recipe, train
from profiler.drafters.early_exit_network import EarlyExitNetwork, prefix_of
from profiler.drafters.lora import GatedAdapter
from tests.profiler.distillation.conftest import SAMPLING, VOCABULARY

RANK, ALPHA = 4, 8.0


def early_exit_parts(verifier, sampled):
    own = copy.deepcopy(verifier)
    ids = early_exit.likeliest_ids(sampled, 200, VOCABULARY)
    network = EarlyExitNetwork.copied_from(own, layers=2, head_ids=ids).requires_grad_(True)
    return network, list(network.parameters()), early_exit.denoising_loss(network, own, SAMPLING.temperature)


def lora_parts(verifier, sampled):
    weights = lora.untrained(verifier, RANK, seed=0)
    loss = lora.noise_loss(verifier, weights, rank=RANK, alpha=ALPHA, sampling=SAMPLING)
    return weights, list(weights.values()), loss


both = pytest.mark.parametrize("parts", [early_exit_parts, lora_parts])


def mean_loss(loss, sampled):
    with torch.no_grad():
        return sum(loss(sample, 1.0, torch.Generator().manual_seed(9)).item() for sample in sampled) / len(sampled)


@both
def test_training_lowers_the_loss(parts, verifier, sampled, tmp_path):
    _, parameters, loss = parts(verifier, sampled)
    before = mean_loss(loss, sampled)
    recipe = Recipe(title="test", steps=30, batch=2, rate=1e-2)
    train(parameters, loss, sampled, recipe, seed=0, state_file=tmp_path / "state.pt")

    assert mean_loss(loss, sampled) < before - 0.05


@both
def test_a_killed_run_ends_in_the_same_weights(parts, verifier, sampled, tmp_path, monkeypatch):
    monkeypatch.setattr("profiler.distillation.loop._SAVE_EVERY", 2)
    recipe = Recipe(title="test", steps=5, batch=1, rate=1e-2)

    def run(name, calls=None):
        _, parameters, loss = parts(verifier, sampled)
        counter = itertools.count()

        def interrupted(*arguments):
            if next(counter) == calls:
                raise KeyboardInterrupt
            return loss(*arguments)

        train(parameters, interrupted, sampled, recipe, seed=3, state_file=tmp_path / name)
        return parameters

    whole = run("whole.pt")
    with pytest.raises(KeyboardInterrupt):
        run("killed.pt", calls=3)
    resumed = run("killed.pt")
    assert all(torch.equal(one, other) for one, other in zip(whole, resumed, strict=True))


def test_an_early_exit_is_trained_on_the_rows_that_it_drafts_from(verifier, sampled):
    """One block alone after the verifier's own cache, as the drafter runs it, gives the logits of the packed pass."""
    network, _, _ = early_exit_parts(verifier, sampled)
    embeddings, sample = verifier.get_input_embeddings().weight, sampled[1]
    anchors = torch.tensor([sample.start - 1, sample.start + 2])
    places = anchors[:, None] + torch.arange(3)
    ids = torch.where(torch.arange(3) == 0, sample.tokens[places], network.config.mask_token_id)
    cache = DynamicCache()
    verifier(input_ids=sample.tokens[None], cache=cache)
    packed = network(
        network.rows(ids, embeddings).flatten(0, 1)[None],
        positions=places.flatten()[None],
        prefix=prefix_of(cache, 2),
        mask=blocks.visible(anchors, len(sample.tokens), 3, causal=False),
    )[0].unflatten(0, (2, 3))
    for anchor, block, hidden in zip(anchors.tolist(), ids, packed, strict=True):
        cache = DynamicCache()
        verifier(input_ids=sample.tokens[None, :anchor], cache=cache)
        alone = network(
            network.rows(block, embeddings)[None],
            positions=torch.arange(anchor, anchor + 3)[None],
            prefix=prefix_of(cache, 2),
        )
        torch.testing.assert_close(hidden, alone[0], atol=1e-5, rtol=1e-4)


def test_the_untrained_adapter_loads_and_changes_nothing(verifier, tmp_path):
    weights = lora.untrained(verifier, RANK, seed=0)
    save_file({name: weight.detach() for name, weight in weights.items()}, tmp_path / "adapter.safetensors")
    ids = torch.arange(5)[None]
    plain = verifier(input_ids=ids).logits
    with GatedAdapter(verifier, dict(weights), rank=RANK, alpha=ALPHA).open_from(1):
        adapted = verifier(input_ids=ids).logits

    assert torch.equal(plain, adapted)
    assert lora.untrained(verifier, RANK, seed=0).keys() == weights.keys()
    assert any(weight.abs().sum() > 0 for weight in weights.values())


def test_the_likeliest_ids_are_those_of_the_answers(sampled):
    ids = early_exit.likeliest_ids(sampled, 100, VOCABULARY)
    mass = torch.zeros(VOCABULARY)
    for sample in sampled:
        mass.index_add_(0, sample.target_ids.flatten(), sample.target_probs.flatten())

    assert ids.tolist() == sorted(set(ids.tolist()))
    left_out = torch.ones(VOCABULARY, dtype=torch.bool).index_fill(0, ids, False)
    assert mass[left_out].max() <= mass[ids].min()
