import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theory.frontier import hypervolume_ratio, pareto_frontier

# few values, so that ties on one axis and equal points are common
points = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


def undominated(points):
    """Definition of the Pareto set, by comparing every two points."""
    return {i for i, (x, y) in enumerate(points) if not any(u >= x and v >= y and (u > x or v > y) for u, v in points)}


def test_O75_a_tie_on_one_axis_is_dominated():
    speed, quality = [12, 7, 9, 9], [0.6, 0.6, 0.7, 0.65]

    assert pareto_frontier(speed, quality).index.tolist() == [2, 0]


def test_O76_equal_points_are_both_kept():
    assert pareto_frontier([9, 9, 8], [0.7, 0.7, 0.6]).index.tolist() == [0, 1]


def test_O77_order_does_not_matter():
    cost, quality = np.array([1, 1, 2, 2, 3, 3]), np.array([0.5, 0.4, 0.45, 0.7, 0.7, 0.2])
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(6)
        frontier = pareto_frontier(-cost[order], quality[order])
        kept = sorted(zip(-frontier.speed, frontier.quality, strict=True))

        assert kept == [(1, 0.5), (2, 0.7)]


@given(points)
def test_against_the_definition(points):
    frontier = pareto_frontier(*zip(*points, strict=True), effort=range(len(points)))

    assert set(frontier.index.tolist()) == undominated(points)
    assert (np.diff(frontier.speed) >= 0).all()
    assert (np.diff(frontier.quality) <= 0).all()
    assert [points[i] for i in frontier.index] == list(zip(frontier.speed, frontier.quality, strict=True))
    assert frontier.owner.tolist() == frontier.index.tolist()
    assert len(frontier) == len(frontier.index)


def test_owner_is_the_effort_of_each_point():
    frontier = pareto_frontier([1, 2, 3, 2], [3, 2, 1, 1], effort=[4, 2, 1, 8])

    assert frontier.owner.tolist() == [4, 2, 1]
    assert pareto_frontier([1], [1]).owner is None


@pytest.mark.parametrize("unusable", [np.nan, np.inf])
def test_unusable_points_are_named(unusable):
    with pytest.raises(ValueError, match=r"must be finite numbers, got other values at \[1, 2\]; leave out"):
        pareto_frontier([1, unusable, 2], [1, 1, unusable])
    with pytest.raises(ValueError, match="must be finite numbers, got none"):
        pareto_frontier([], [])


def test_hypervolume_by_hand():
    joint, single = pareto_frontier([1, 3], [2, 1]), pareto_frontier([1], [2])

    assert hypervolume_ratio(joint, single, (0, 0)) == pytest.approx(4 / 2)
    with pytest.raises(ValueError, match="`reference` must lie below a point of `other`"):
        hypervolume_ratio(joint, single, (2, 0))
