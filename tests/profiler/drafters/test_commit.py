import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.drafters.commit import ORDERS, SCHEDULES, THRESHOLDS, choose_slots, commit_counts, slot_scores

BY_COUNT = [order for order in ORDERS if order not in THRESHOLDS]


def test_steps_commit_equal_shares_and_the_first_ones_the_remainder():
    assert commit_counts(8, 3) == [3, 3, 2]
    assert commit_counts(8, 1) == [8]
    assert commit_counts(8, 8) == [1] * 8
    assert commit_counts(7, 4) == [2, 2, 2, 1]


@pytest.mark.parametrize(
    ("block", "steps", "counts"),
    [
        (512, 1, [512]),
        (512, 2, [255, 257]),
        (512, 3, [170, 170, 172]),
        (512, 4, [127, 128, 128, 129]),
        (32, 1, [32]),
        (32, 2, [15, 17]),
        (32, 3, [10, 10, 12]),
        (32, 4, [7, 8, 8, 9]),
        (16, 8, [1, 2, 2, 2, 2, 2, 2, 3]),
        (4, 4, [0, 1, 1, 2]),
    ],
)
def test_dreams_schedule_commits_what_its_own_sampler_does(block, steps, counts):
    """Counts that Dream's published sampler was seen to commit."""
    assert commit_counts(block, steps, "linear_time") == counts


@settings(max_examples=200)
@given(block=st.integers(1, 600), schedule=st.sampled_from(SCHEDULES), data=st.data())
def test_every_schedule_commits_every_slot_once(block, schedule, data):
    steps = data.draw(st.integers(1, block))
    counts = commit_counts(block, steps, schedule)

    assert len(counts) == steps
    assert sum(counts) == block
    assert min(counts) >= 0


@settings(max_examples=200)
@given(block=st.integers(1, 64), data=st.data())
def test_equal_steps_commit_every_slot_once_and_each_at_least_one(block, data):
    counts = commit_counts(block, data.draw(st.integers(1, block)))

    assert sum(counts) == block
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)
    assert min(counts) >= 1


def test_scores_prefer_what_each_order_is_named_after():
    probs = torch.tensor([[0.6, 0.4, 0.0], [0.5, 0.25, 0.25], [0.34, 0.33, 0.33]])
    drawn = torch.tensor([0.4, 0.25, 0.34])
    best = {order: slot_scores(order, probs, drawn).argsort(descending=True).tolist() for order in ORDERS}

    assert best["left_to_right"] == [0, 1, 2]
    assert best["entropy"] == [0, 1, 2]
    assert best["margin"] == [1, 0, 2]
    assert best["max_probability"] == [0, 1, 2]
    assert best["certainty"] == [0, 1, 2]
    assert best["confidence"] == [0, 2, 1]


def test_scores_are_the_quantities_they_are_named_after():
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.0, 1.0, 0.0]])
    drawn = torch.tensor([0.3, 1.0])

    nats = -sum(x * math.log(x) for x in (0.6, 0.3, 0.1))
    assert slot_scores("entropy", probs, drawn).tolist() == pytest.approx([-nats, 0])
    assert slot_scores("margin", probs, drawn).tolist() == pytest.approx([0.3, 1])
    assert slot_scores("max_probability", probs, drawn).tolist() == pytest.approx([0.6, 1])
    assert slot_scores("certainty", probs, drawn).tolist() == pytest.approx([0.6, 1])
    assert slot_scores("confidence", probs, drawn).tolist() == pytest.approx([0.3, 1])


@pytest.mark.parametrize("order", ORDERS)
def test_only_order_confidence_looks_at_the_value_that_was_drawn(order):
    probs = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    scores = [slot_scores(order, probs, drawn) for drawn in (torch.rand(6), torch.zeros(6), torch.ones(6))]

    assert all(torch.equal(scores[0], other) for other in scores[1:]) == (order != "confidence")


@settings(max_examples=200)
@given(
    order=st.sampled_from(BY_COUNT),
    scores=st.lists(st.floats(-5, 5), min_size=6, max_size=6),
    masked=st.lists(st.booleans(), min_size=6, max_size=6).filter(any),
    data=st.data(),
)
def test_a_step_commits_the_most_eager_masked_slots_and_as_many_as_asked(order, scores, masked, data):
    masked, scores = torch.tensor(masked), torch.tensor(scores)
    count = data.draw(st.integers(1, int(masked.sum())))

    chosen = choose_slots(order, scores, masked, count=count, confidence=1.0, last=False)

    assert int(chosen.sum()) == count
    assert not (chosen & ~masked).any()
    left = masked & ~chosen
    assert not left.any() or scores[chosen].min() >= scores[left].max()


@pytest.mark.parametrize("order", ORDERS)
def test_the_last_step_commits_all_that_is_left(order):
    masked = torch.tensor([True, False, True])

    chosen = choose_slots(order, torch.tensor([0.1, 0.9, 0.2]), masked, count=1, confidence=0.99, last=True)

    assert torch.equal(chosen, masked)


@pytest.mark.parametrize(
    ("conf", "masked", "committed"),
    [
        ([0.95, 0.4, 0.3], [1, 1, 1], [0]),
        ([0.5, 0.4, 0.3], [1, 1, 1], [0]),
        ([0.3, 0.4, 0.5], [1, 1, 1], [2]),
        ([0.95, 0.4, 0.97], [1, 1, 1], [0, 2]),
        ([0.95, 0.4, 0.3], [0, 1, 1], [1]),
        ([0.9, 0.4, 0.3], [1, 1, 1], [0]),
        ([0.9, 0.95, 0.3], [1, 1, 1], [1]),
    ],
)
@pytest.mark.parametrize("order", THRESHOLDS)
def test_O30_no_slot_below_the_threshold_is_committed_except_the_best_when_none_passes(order, conf, masked, committed):
    masked = torch.tensor(masked, dtype=torch.bool)

    chosen = choose_slots(order, torch.tensor(conf), masked, count=2, confidence=0.9, last=False)

    assert chosen.nonzero()[:, 0].tolist() == committed


@pytest.mark.parametrize("order", ["entropy", "certainty"])
def test_of_equally_eager_slots_the_leftmost_come_first(order):
    """Distributions that a warp has made one-hot are all equally certain."""
    masked, scores = torch.tensor([False] + [True] * 30), torch.zeros(31)

    chosen = choose_slots(order, scores, masked, count=1, confidence=0.5, last=False)

    assert chosen.nonzero()[:, 0].tolist() == [1]


def test_O32_a_step_may_have_nothing_to_commit():
    scores, masked = torch.tensor([0.3, 0.9]), torch.tensor([True, True])

    assert commit_counts(3, 2) == [2, 1]
    assert not choose_slots("entropy", scores, masked, count=0, confidence=1.0, last=False).any()
    assert not choose_slots("entropy", scores, ~masked, count=1, confidence=1.0, last=False).any()
    assert not choose_slots("entropy", scores, ~masked, count=1, confidence=1.0, last=True).any()
