import math
from types import ModuleType

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import elementwise, minimize_scalar

from tests import strategies
from theory.crossover import largest_gain, owns_whole_frontier, paying_deviations, tokens_at_deviation

PAPER = np.array([0.566, 0.517, 0.424, 0.360])  # d_K for K = 1..4
RESOLUTION = 1e-9  # of deviations and of relative gains: what 512 terms of rounding leave, with room
GRID = np.linspace(0, 1, 2001)

block_sizes = st.sampled_from([1, 2, 3, 4, 5, 16, 64, 512]) | st.integers(1, 32)


def speed(deviation, divergence, seconds, block_size):
    """Tokens per second from Eq. 6, 7 and 9, by Horner's rule or as the limit: the oracle of this file."""
    rate = np.minimum(1 - divergence + deviation, 1)
    with np.errstate(divide="ignore"):
        tokens = 1 / (1 - rate) if block_size == math.inf else np.polyval(np.ones(block_size + 1), rate)
    return tokens / seconds


def gain_on_a_grid(divergence, next_divergence, block_size):
    """Largest gain in tokens over deviations: a dense grid, then a minimiser around its best point."""

    def loss(deviation):
        return -speed(deviation, next_divergence, 1, block_size) / speed(deviation, divergence, 1, block_size)

    grid = np.append(GRID, next_divergence)
    best = grid[np.argmin(loss(grid))]
    near = minimize_scalar(loss, bounds=(max(best - 1e-3, 0), min(best + 1e-3, 1)), options={"xatol": 1e-12})
    return max(-loss(grid).min(), -near.fun)


class TestTokens:
    def test_values_in_every_library(self, xp: ModuleType):
        deviations = xp.asarray([0.0, 0.25, 0.5, 0.75], dtype=xp.float64)

        assert np.asarray(tokens_at_deviation(deviations, 0.5, 2)).tolist() == [1.75, 2.3125, 3.0, 3.0]
        assert np.asarray(tokens_at_deviation(deviations, 0.5, math.inf)).tolist() == [2.0, 4.0, math.inf, math.inf]
        assert float(tokens_at_deviation(0.25, 0.5, 2)) == 2.3125

    @given(strategies.leniencies, st.floats(0, 1), block_sizes)
    def test_a_leniency_spends_its_share_of_the_divergence(self, leniency, divergence, block_size):
        expected = speed(0, (1 - leniency) * divergence, 1, block_size)

        assert tokens_at_deviation(leniency * divergence, divergence, block_size) == pytest.approx(
            expected, rel=RESOLUTION
        )

    @pytest.mark.parametrize(("deviation", "divergence"), [(0, 0.01), (0.3, 0.32), (0, 1), (0.9, 0.95)])
    def test_long_blocks_approach_the_limit(self, deviation, divergence):
        limit = tokens_at_deviation(deviation, divergence, math.inf)

        assert tokens_at_deviation(deviation, divergence, 5_000) == pytest.approx(limit, rel=RESOLUTION)


class TestPayingDeviations:
    def test_values_in_every_library(self, xp: ModuleType):
        next_seconds = xp.asarray([1.5, 2.0, 3.0, 5.0], dtype=xp.float64)
        first, last = paying_deviations(0.5, 1.0, 0.25, next_seconds, math.inf)

        assert np.asarray(first).tolist() == [0.0, 0.0, 0.125, 0.1875]
        assert np.asarray(last).tolist() == [0.5] * 4

        first, last = paying_deviations(0.5, 1.0, 0.25, next_seconds, 1)  # from (1.75 + ε) / (1.5 + ε) = 1.1 on
        assert np.isnan(np.asarray(first)).all()
        assert np.isnan(np.asarray(last)).all()

    def test_one_drafted_token_solved_by_hand(self):
        first, last = paying_deviations(0.5, 1.0, 0.25, 1.125, 1)  # (1.75 + ε) = 1.125 (1.5 + ε) at ε = .5 > d'
        inside = paying_deviations(0.5, 1.0, 0.25, 1.15, 1)  # (1.75 + ε) = 1.15 (1.5 + ε) at ε = 1/6

        assert (float(first), float(last)) == (0, pytest.approx(2 / 1.125 - 1.5, abs=RESOLUTION))
        assert (float(inside[0]), float(inside[1])) == (0, pytest.approx(1 / 6, abs=RESOLUTION))

    @pytest.mark.parametrize("block_size", [4, math.inf])
    def test_the_unit_of_time_does_not_matter(self, block_size):
        seconds = paying_deviations(0.9, 1.0, 0.4, 2.5, block_size)
        milliseconds = paying_deviations(0.9, 1000.0, 0.4, 2500.0, block_size)

        assert 0 < seconds[0] < seconds[1]
        np.testing.assert_allclose(milliseconds, seconds, atol=RESOLUTION)

    def test_a_draw_does_not_pay(self):
        assert np.isnan(paying_deviations(1.0, 1.0, 0.5, 1.5, 1)).all()

    def test_a_gain_that_peaks_inside(self):
        """Two drafted tokens: the next effort pays from the middle of the range on, and not to its own end."""
        first, last = paying_deviations(0.95, 1.0, 0.85, 1.12, 2)

        assert 0 < first < last < 0.85

    @given(st.floats(1e-3, 1), st.floats(0, 0.999), st.floats(1e-3, 3), block_sizes | st.just(math.inf))
    @example(0.95, 0.9, 0.08, 2)
    @example(0.566, 0.6, 1.0, 512)
    def test_against_a_dense_grid(self, divergence, share, extra, block_size):
        next_divergence, next_seconds = share * divergence, 1 + extra
        first, last = (
            float(end) for end in paying_deviations(divergence, 1.0, next_divergence, next_seconds, block_size)
        )
        ours, theirs = (speed(GRID, d, c, block_size) for d, c in ((divergence, 1.0), (next_divergence, next_seconds)))
        inside = (first + RESOLUTION < GRID) & (last - RESOLUTION > GRID)
        outside = ~((first - RESOLUTION < GRID) & (last + RESOLUTION > GRID))

        assert (theirs[inside] > ours[inside] * (1 - RESOLUTION)).all()
        assert (theirs[outside] <= ours[outside] * (1 + RESOLUTION)).all()

    @settings(max_examples=40)
    @given(st.floats(0.05, 1), st.floats(0, 0.9), st.floats(0.05, 0.95), st.integers(4, 64))
    def test_against_scipy_root_finding(self, divergence, share, place, block_size):
        next_divergence = share * divergence
        next_seconds = 1 + place * (gain_on_a_grid(divergence, next_divergence, block_size) - 1)

        def advantage(deviation):
            theirs, ours = (speed(deviation, d, 1, block_size) for d in (next_divergence, divergence))
            return theirs - next_seconds * ours

        first, last = paying_deviations(divergence, 1.0, next_divergence, next_seconds, block_size)
        end = elementwise.find_root(advantage, (next_divergence, divergence))
        expected = 0.0
        if advantage(0) < 0:
            expected = float(elementwise.find_root(advantage, (0, next_divergence)).x)

        assert float(last) == pytest.approx(float(end.x), abs=RESOLUTION)
        assert float(first) == pytest.approx(expected, abs=RESOLUTION)

    @pytest.mark.parametrize(("next_divergence", "next_seconds"), [(0.3, 1.5), (0.3, 2.5), (0.4, 9)])
    def test_the_limit_is_that_of_long_blocks(self, next_divergence, next_seconds):
        block_size = 5_000
        limit, end = paying_deviations(0.5, 1.0, next_divergence, next_seconds, math.inf)
        first, last = paying_deviations(0.5, 1.0, next_divergence, next_seconds, block_size)

        assert float(first) == pytest.approx(float(limit), abs=RESOLUTION)
        assert end - next_seconds / block_size < last < end

    @pytest.mark.parametrize("block_size", [1, 16, math.inf])
    def test_an_effort_that_does_not_draft_better_never_pays(self, block_size):
        assert np.isnan(paying_deviations(0.4, 1.0, 0.4, 1.1, block_size)).all()
        assert np.isnan(paying_deviations(0.4, 1.0, 0.5, 1.1, block_size)).all()

    def test_the_paper_divergences_against_the_price_of_a_step(self):
        """Four steps against one, B = 512: cheap ones pay from the lossless end on, dear ones only when lenient."""
        prices = np.array([1.5, 1.6, 2.0, 50.0, 105.6, 105.7])
        first, last = paying_deviations(PAPER[0], 1.0, PAPER[3], prices, 512)

        np.testing.assert_allclose(first[:3], [0, (0.36 * 1.6 - 0.566) / 0.6, 0.154], atol=RESOLUTION)
        assert (np.diff(first[:5]) > 0).all()
        assert (np.diff(last[:5]) < 0).all()
        assert first[4] == pytest.approx(0.36, abs=1e-3)
        assert np.isnan(first[5])


class TestLargestGain:
    def test_values_in_every_library(self, xp: ModuleType):
        divergence = xp.asarray([[0.5], [1.0]], dtype=xp.float64)
        next_divergence = xp.asarray([0.25, 0.75], dtype=xp.float64)

        gains = [np.asarray(largest_gain(divergence, next_divergence, b)) for b in (1, 4, math.inf)]

        np.testing.assert_allclose(gains[0], [[1.75 / 1.5, 1], [1.75, 1.25]], rtol=RESOLUTION)
        whole, half, small = 5, sum(0.75**n for n in range(5)), sum(0.25**n for n in range(5))
        np.testing.assert_allclose(gains[1], [[whole / half, 1], [whole / small, whole / half]], rtol=RESOLUTION)
        assert gains[2].tolist() == [[math.inf, 0.5 / 0.75], [math.inf, math.inf]]

    def test_without_divergence_the_limit_is_a_draw(self):
        assert largest_gain(0.0, 0.0, math.inf) == 1
        assert largest_gain(0.0, 0.25, math.inf) == 0

    @given(st.floats(0, 1), st.floats(0, 1), block_sizes)
    @example(0.95, 0.85, 2)
    @example(0.99, 0.9, 3)
    def test_against_a_dense_grid_and_a_minimiser(self, divergence, next_divergence, block_size):
        expected = gain_on_a_grid(divergence, next_divergence, block_size)

        assert largest_gain(divergence, next_divergence, block_size) == pytest.approx(expected, rel=RESOLUTION)

    @given(st.floats(1e-3, 1), st.floats(0, 0.999), st.integers(4, 512))
    def test_from_four_tokens_on_the_best_is_where_the_next_effort_accepts_everything(self, d, share, block_size):
        expected = speed(share * d, share * d, 1, block_size) / speed(share * d, d, 1, block_size)

        assert largest_gain(d, share * d, block_size) == pytest.approx(expected, rel=RESOLUTION)

    def test_three_tokens_are_too_few_for_that(self):
        at_the_end = speed(0.1, 0.1, 1, 3) / speed(0.1, 0.3, 1, 3)

        assert largest_gain(0.3, 0.1, 3) > at_the_end * 1.001


class TestSoleOwner:
    def test_values_in_every_library(self, xp: ModuleType):
        divergence = xp.asarray([[0.5, 0.25], [0.5, 0.25], [0.5, 0.5]], dtype=xp.float64)
        seconds = xp.asarray([[1.0, 1.5], [1.0, 2.5], [1.0, 1.1]], dtype=xp.float64)

        bounded, endless = (np.asarray(owns_whole_frontier(divergence, seconds, b)).tolist() for b in (3, math.inf))

        assert bounded == [[True, False], [True, False], [True, False]]
        assert endless == [[False, True], [False, False], [True, False]]

    @settings(max_examples=40)  # each runs a minimiser for every pair of efforts
    @given(strategies.effort_ladders(), block_sizes)
    def test_exactly_the_efforts_that_no_other_beats_at_any_deviation(self, ladder, block_size):
        divergence, seconds = ladder
        gain = np.array([[gain_on_a_grid(d, n, block_size) for n in divergence] for d in divergence])
        margin = gain * seconds[:, None] / seconds[None, :]
        assume((np.abs(margin - 1) > RESOLUTION).all(where=~np.eye(len(seconds), dtype=bool)))
        deviations = np.unique(np.concatenate([GRID, divergence]))
        speeds = speed(deviations[:, None], divergence, seconds, block_size)
        never_beaten = (speeds >= speeds.max(axis=1, keepdims=True) * (1 - 1e-12)).all(axis=0)
        owns = owns_whole_frontier(divergence, seconds, block_size)

        assert owns.sum() <= 1
        assert (never_beaten | ~owns).all(), "an owner is beaten nowhere"
        for effort in np.flatnonzero(~owns):
            assert (margin[effort] > 1).any(), "the others are beaten where another effort gains most"

    @given(strategies.effort_ladders())
    def test_in_the_limit_the_smallest_divergence_and_the_smallest_product(self, ladder):
        divergence, seconds = ladder
        cost = divergence * seconds
        assume(np.ptp(np.sort(cost)[:2]) > RESOLUTION * cost.max())
        gaps = np.diff(np.sort(divergence))  # the grid ends a millionth before the smallest divergence
        assume(((gaps == 0) | (gaps > 1e-3 * divergence.max())).all())
        deviations = GRID[:, None] * divergence.min() * (1 - 1e-6)
        speeds = speed(deviations, divergence, seconds, math.inf)
        never_beaten = (speeds >= speeds.max(axis=1, keepdims=True) * (1 - 1e-12)).all(axis=0)
        owns = owns_whole_frontier(divergence, seconds, math.inf)

        assert owns.tolist() == never_beaten.tolist()
        assert owns.tolist() == ((divergence == divergence.min()) & (cost == cost.min())).tolist()

    @settings(max_examples=40)
    @given(st.floats(0.01, 1), st.floats(0, 0.99), block_sizes)
    def test_the_condition_is_sharp(self, divergence, share, block_size):
        pair = np.array([divergence, share * divergence])
        gain = float(largest_gain(*pair, block_size))
        for next_seconds, pays in ((gain * (1 + RESOLUTION), False), (gain * (1 - RESOLUTION), True)):
            first, _ = paying_deviations(pair[0], 1.0, pair[1], next_seconds, block_size)

            assert owns_whole_frontier(pair, np.array([1.0, next_seconds]), block_size).tolist() == [not pays, False]
            assert np.isnan(first) != pays


class TestEdges:
    @pytest.mark.parametrize("divergence", [-0.1, 1.1, math.nan])
    def test_divergence_outside_its_range(self, divergence):
        for call in (
            lambda: tokens_at_deviation(0, divergence, 4),
            lambda: largest_gain(0.5, divergence, 4),
            lambda: largest_gain(divergence, 0.5, 4),
            lambda: paying_deviations(divergence, 1, 0.5, 2, 4),
            lambda: paying_deviations(0.5, 1, divergence, 2, 4),
            lambda: owns_whole_frontier(np.array([0.5, divergence]), np.array([1, 2]), 4),
        ):
            with pytest.raises(ValueError, match=r"`divergence` must lie in \[0, 1\], got .*; leave out what was not"):
                call()

    @pytest.mark.parametrize("block_size", [0, 2.5, -math.inf, math.nan])
    def test_blocks_hold_whole_tokens(self, block_size):
        message = f"`block_size` must be a whole number from 1 on, or math.inf, got {block_size}; it counts drafted"
        with pytest.raises(ValueError, match=message):
            largest_gain(0.5, 0.25, block_size)

    def test_deviations_are_not_negative(self):
        with pytest.raises(ValueError, match=r"`deviation` must not be negative, got -0\.1; 0 is lossless"):
            tokens_at_deviation(-0.1, 0.5, 4)

    @pytest.mark.parametrize(("seconds", "next_seconds"), [(1, 1), (2, 1), (0, 1), (-1, 1), (math.nan, 1)])
    def test_a_further_step_takes_time(self, seconds, next_seconds):
        message = (
            f"`next_round_seconds` must be longer than `round_seconds`, and that positive, got {next_seconds} after"
        )
        with pytest.raises(ValueError, match=message):
            paying_deviations(0.5, seconds, 0.25, next_seconds, 4)

    def test_a_round_takes_time(self):
        with pytest.raises(ValueError, match=r"`round_seconds` must be positive, got \[0\. 1\.\]; a round takes time"):
            owns_whole_frontier(np.array([0.5, 0.25]), np.array([0, 1]), 4)

    def test_precision_follows_the_arrays_whatever_stands_beside_them(self, xp: ModuleType):
        single = xp.asarray([0.5, 0.25], dtype=xp.float32)
        whole = xp.asarray([1, 2])

        assert largest_gain(single, 0.25, 4).dtype == xp.float32
        assert paying_deviations(0.5, whole, 0.25, 3, 4)[0].dtype == xp.float64
        assert owns_whole_frontier(single, whole, 4).shape == (2,)
