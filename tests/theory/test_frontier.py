import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from theory.frontier import effort_gain, frontier_probability, hypervolume_ratio, pareto_frontier

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


@given(points)
def test_stretches_against_every_floor(points):
    """The owner at a floor is the fastest above it, the better, then the smaller effort where equal."""
    efforts = [1 + i % 3 for i in range(len(points))]
    stretches = pareto_frontier(*zip(*points, strict=True), effort=efforts).stretches()
    best = max(quality for _, quality in points)

    for floor in np.arange(0, best + 0.5, 0.5):
        speed, _, owner = min(
            (-speed, -quality, effort)
            for (speed, quality), effort in zip(points, efforts, strict=True)
            if quality >= floor
        )
        (stretch,) = [
            each
            for each in stretches
            if floor <= each.best_quality and (each.next_quality is None or floor > each.next_quality)
        ]
        assert stretch.effort == owner
        assert stretch.slowest <= -speed <= stretch.fastest


def test_neighbours_of_one_effort_are_one_stretch():
    first, second = pareto_frontier([1, 2, 3, 4], [4, 3, 2, 1], effort=[4, 4, 1, 1]).stretches()

    assert (first.effort, first.best_quality, first.next_quality) == (4, 4.0, 2.0)
    assert (second.effort, second.best_quality, second.next_quality) == (1, 2.0, None)
    assert (first.slowest, first.fastest, second.slowest, second.fastest) == (1.0, 2.0, 3.0, 4.0)
    with pytest.raises(ValueError, match="`effort` must be given to `pareto_frontier`, got none"):
        pareto_frontier([1], [1]).stretches()


@given(points)
def test_gain_of_effort_against_counted_squares(points):
    """Integer points above (0, 0) dominate whole unit squares, which can be counted."""
    speed, quality = np.array(points).T + 1
    efforts = np.array([1 + i % 2 for i in range(len(points))])
    gain = effort_gain(speed, quality, efforts, reference=(0, 0))

    def squares(chosen):
        return sum(any(speed[i] > x and quality[i] > y for i in chosen) for x in range(5) for y in range(5))

    everything, fixed = range(len(points)), np.flatnonzero(efforts == 1)
    assert gain.hypervolume_ratio == pytest.approx(squares(everything) / squares(fixed))
    assert gain.hypervolume_ratio >= 1 - 1e-12
    assert (efforts[gain.fixed.index] == 1).all()
    assert [tuple(p) for p in zip(speed[gain.fixed.index], quality[gain.fixed.index], strict=True)] == list(
        zip(gain.fixed.speed, gain.fixed.quality, strict=True)
    )


def test_gain_of_effort_needs_the_fixed_one():
    with pytest.raises(ValueError, match=r"`fixed_effort` must be one of \[2, 4\], got 1; record it"):
        effort_gain([1, 2], [2, 1], [2, 4], reference=(0, 0))


def test_probability_of_the_frontier_is_a_share_of_draws():
    """Two draws by hand: b beats a in the first alone, c is never dominated; NaN is never on the frontier."""
    speed = [[1, 2, 3, np.nan], [2, 1, 3, 9]]
    quality = [[1, 2, 0, 9], [3, 2, 0, np.nan]]

    assert frontier_probability(speed, quality).tolist() == [0.5, 0.5, 1, 0]


def test_probability_against_the_definition():
    draws = np.random.default_rng(0).integers(0, 4, size=(50, 6, 2))
    expected = np.mean([[i in undominated(draw.tolist()) for i in range(6)] for draw in draws], axis=0)

    np.testing.assert_allclose(frontier_probability(draws[..., 0], draws[..., 1]), expected)


@pytest.mark.parametrize("shape", [(3,), (0, 3)])
def test_probability_needs_draws(shape):
    with pytest.raises(ValueError, match=r"must have shape \(draws, configurations\), got"):
        frontier_probability(np.ones(shape), np.ones(shape))


def test_probability_of_separated_points_under_noise():
    """Two points with speeds N(1, s) and N(1.1, s) and equal quality: the faster wins with probability Φ(.1 / (s √2)).

    4,000 draws, so the tolerance is 4 standard errors, left by chance in 1 of 16,000 seeds.
    """
    speed = np.random.default_rng(0).normal([1.0, 1.1], 0.1, size=(4000, 2))
    chance = stats.norm.cdf(0.1 / (0.1 * math.sqrt(2)))

    probability = frontier_probability(speed, np.ones((4000, 2)))

    assert probability[1] == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / 4000))
    assert probability.sum() == pytest.approx(1)
