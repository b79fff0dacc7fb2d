import pytest
import torch

from profiler.distillation import blocks
from theory.distances import total_variation


def test_rows_see_the_known_text_and_their_own_block():
    known = torch.tensor([2, 4])
    both = [blocks.visible(known, 5, 3, causal=causal)[0, 0] == 0 for causal in (False, True)]

    assert both[0].shape == (6, 11)
    assert both[0][0].tolist() == [True] * 2 + [False] * 3 + [True] * 3 + [False] * 3
    assert both[0][5].tolist() == [True] * 4 + [False] * 4 + [True] * 3
    assert both[1][4].tolist() == [True] * 4 + [False] * 4 + [True] * 2 + [False]


def test_anchors_have_an_answer_behind_them(sampled):
    for sample in sampled:
        anchors = blocks.random_anchors(sample, 300, torch.Generator().manual_seed(0))
        assert anchors.min() == sample.start - 1
        assert anchors.max() == len(sample.tokens) - 2


def test_weights_fade_from_the_first_drafted_slot():
    assert blocks.weights(torch.tensor([-1, 0, 1, 2])).tolist() == pytest.approx([0, 1, 0.7, 0.49])


def test_the_distance_ends_at_total_variation_and_begins_at_cross_entropy():
    logits = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    p = torch.tensor([[0.6, 0.3, 0.1, 0.0, 0.0], [0.0, 0.5, 0.0, 0.5, 0.0]])
    ids = torch.arange(5).expand(2, -1)
    weight = torch.tensor([1.0, 0.5])
    q = logits.softmax(dim=-1)

    variation = total_variation(p.double().numpy(), q.double().numpy())
    assert blocks.distance(logits, ids, p, weight, progress=1).item() == pytest.approx(
        (variation[0] + 0.5 * variation[1]) / 1.5, abs=1e-6
    )
    entropy = torch.nn.functional.cross_entropy(logits[:1], p[:1]).item()
    assert blocks.distance(logits[:1], ids[:1], p[:1], weight[:1], progress=0).item() == pytest.approx(entropy)


def test_a_token_that_cannot_be_drafted_counts_as_distance():
    ids, p = torch.tensor([[-1, 0]]), torch.tensor([[0.4, 0.6]])
    certain = torch.tensor([[50.0, 0.0]])

    assert blocks.distance(certain, ids, p, torch.ones(1), progress=1).item() == pytest.approx(0.4)
    assert blocks.distance(certain[:0], ids[:0], p[:0], torch.ones(0), progress=1).item() == 0
