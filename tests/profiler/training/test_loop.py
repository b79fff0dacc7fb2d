import dataclasses

import pytest
import torch
from transformers import DynamicCache

from profiler.training import loop
from profiler.training.drafter import denoising_loss
from profiler.training.loop import Recipe, grow, network, train
from profiler.training.verifier import next_token_loss

pytestmark = pytest.mark.usefixtures("restored_torch")

SMALL = Recipe(title="small", loss=next_token_loss, steps=5, layers=1, intermediate=16, drill_share=0.3)
GROWING = dataclasses.replace(SMALL, layers=2, grow_at=3, grown_layers=3)
DRAFTER = dataclasses.replace(SMALL, loss=denoising_loss)


def interrupted(recipe, at):
    """The recipe, stopped before step `at`."""

    def loss(model, batch, step, generator):
        if step == at:
            raise KeyboardInterrupt
        return recipe.loss(model, batch, step, generator)

    return dataclasses.replace(recipe, loss=loss)


@pytest.mark.parametrize(
    ("recipe", "saved_every", "stopped_at"),
    [(SMALL, 2, 3), (GROWING, 2, 3), (GROWING, 3, 3), (GROWING, 4, 4), (DRAFTER, 2, 4)],
    ids=["verifier", "before growing", "at growing", "after growing", "drafter"],
)
def test_an_interrupted_training_ends_with_the_same_weights_to_the_bit(
    recipe, saved_every, stopped_at, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "_SAVE_EVERY", saved_every)
    whole = train(recipe, seed=3, state_file=tmp_path / "whole.pt", line=0).state_dict()

    with pytest.raises(KeyboardInterrupt):
        train(interrupted(recipe, stopped_at), seed=3, state_file=tmp_path / "cut.pt", line=0)
    torch.rand(7)  # what another program draws meanwhile must not matter
    resumed = train(recipe, seed=3, state_file=tmp_path / "cut.pt", line=0).state_dict()

    assert resumed.keys() == whole.keys()
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_a_resumed_training_does_not_repeat_what_was_done(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_SAVE_EVERY", 2)
    steps = []

    def noted(model, batch, step, generator):
        steps.append(step)
        return SMALL.loss(model, batch, step, generator)

    with pytest.raises(KeyboardInterrupt):
        train(interrupted(dataclasses.replace(SMALL, loss=noted), 3), seed=0, state_file=tmp_path / "s.pt", line=0)
    train(dataclasses.replace(SMALL, loss=noted), seed=0, state_file=tmp_path / "s.pt", line=0)

    assert steps == [0, 1, 2, 2, 3, 4]


def test_the_seed_decides_the_weights(tmp_path):
    first, again, other = (
        train(SMALL, seed=seed, state_file=tmp_path / "none.pt", line=0).state_dict() for seed in (1, 1, 2)
    )

    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_a_training_lowers_its_loss(tmp_path):
    losses = []

    def noted(model, batch, step, generator):
        loss = SMALL.loss(model, batch, step, generator)
        losses.append(loss.item())
        return loss

    model = train(dataclasses.replace(SMALL, loss=noted, steps=40), seed=0, state_file=tmp_path / "none.pt", line=0)

    assert losses[-1] < losses[0] - 0.3
    assert not model.training


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 3), (8, 14), (3, 6), (4, 14), (1, 5)])
def test_a_grown_network_computes_the_same_function(old, new):
    torch.manual_seed(0)
    model = network(old, intermediate=16).eval()
    tokens = torch.randint(3, 60, (2, 12))
    with torch.no_grad():
        before = model(input_ids=tokens).logits
        grown = grow(model, new).eval()
        after = grown(input_ids=tokens).logits
        cache = DynamicCache()
        grown(input_ids=tokens[:, :6], cache=cache)
        cached = grown(input_ids=tokens[:, 6:], cache=cache).logits

    assert len(grown.model.layers) == new == grown.config.num_hidden_layers
    assert torch.equal(before, after)
    assert grown.lm_head.weight is grown.model.embed_tokens.weight
    torch.testing.assert_close(cached, before[:, 6:], rtol=0, atol=1e-5)  # each layer has its own place in the cache


def test_the_new_layers_of_a_grown_network_can_learn():
    torch.manual_seed(0)
    grown = grow(network(1, intermediate=16), 2)
    grown(input_ids=torch.randint(3, 60, (1, 8))).logits.square().mean().backward()

    assert grown.model.layers[1].self_attn.o_proj.weight.grad.abs().max() > 0
