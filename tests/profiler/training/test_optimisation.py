import pytest
import torch
from torch import nn

from profiler.training import optimisation
from profiler.training.loop import network
from profiler.training.optimisation import Schedule

STEPS = 1000


@pytest.fixture
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return network(1, intermediate=16)


def rates(schedule):
    return [optimiser.param_groups[0]["lr"] for optimiser in schedule._optimisers]


def test_muon_trains_the_matrices_of_the_layers_and_adamw_all_the_rest(model):
    muon, adamw = Schedule(model, steps=STEPS)._optimisers
    ids = [{id(each) for group in optimiser.param_groups for each in group["params"]} for optimiser in (muon, adamw)]

    assert ids[0] | ids[1] == {id(each) for each in model.parameters()}
    assert not ids[0] & ids[1]
    assert all(each.ndim == 2 for group in muon.param_groups for each in group["params"])
    assert id(model.model.embed_tokens.weight) in ids[1]
    assert id(model.model.layers[0].mlp.down_proj.weight) in ids[0]


@pytest.mark.parametrize(("done", "scale"), [(0, 0.01), (49, 0.5), (99, 0.901), (500, 0.5), (999, 0.001)])
def test_rates_rise_over_a_hundred_steps_and_fall_to_zero_at_the_end(model, done, scale):
    schedule = Schedule(model, steps=STEPS, done=done)
    schedule.step()

    assert rates(schedule) == pytest.approx([optimisation._MATRIX_RATE * scale, optimisation._RATE * scale])


def test_a_step_clips_and_clears_the_gradient(model, monkeypatch):
    clipped = []
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda parameters, limit: clipped.append((len(parameters), limit)))
    schedule = Schedule(model, steps=STEPS)
    model(input_ids=torch.tensor([[5, 6]])).logits.sum().backward()
    before = model.model.layers[0].mlp.down_proj.weight.clone()

    schedule.step()

    assert clipped == [(len(list(model.parameters())), 1.0)]
    assert all(each.grad is None for each in model.parameters())
    assert not torch.equal(model.model.layers[0].mlp.down_proj.weight, before)
