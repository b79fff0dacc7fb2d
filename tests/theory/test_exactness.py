import math

import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from tests import strategies
from theory.distances import total_variation
from theory.exactness import cross_fitted_distance, mean_interval, visible_bias

EPS = np.finfo(float).eps
P = np.array([0.5, 0.3, 0.15, 0.05])
OTHER = np.array([0.3, 0.4, 0.1, 0.2])


def estimates(law, draws, runs, seed):
    """Two independent halves of counted draws, many times over."""
    rng = np.random.default_rng(seed)
    halves = rng.multinomial(draws, law, size=(runs, 2)) / draws
    return np.array([cross_fitted_distance(one, two, P) for one, two in halves])


@given(strategies.pairs())
def test_without_noise_the_estimate_is_the_distance(pair):
    p, q = pair

    assert cross_fitted_distance(q, q, p) == pytest.approx(total_variation(p, q), abs=32 * EPS)


def test_its_mean_is_zero_where_there_is_no_bias_and_the_plain_distance_is_not():
    """Student's t at a false alarm of 1e-6; the plain distance of the pooled halves is what noise alone makes it."""
    found = estimates(P, 50, 4000, 0)
    plain = np.abs(np.random.default_rng(0).multinomial(100, P, size=4000) / 100 - P).sum(axis=1) / 2

    assert stats.ttest_1samp(found, 0).pvalue > 1e-6
    assert stats.ttest_1samp(plain, 0).pvalue < 1e-6


def test_its_mean_approaches_the_distance_from_below():
    """The means have standard errors of .005, .0014 and .0001; every comparison leaves ten of them."""
    distance = total_variation(OTHER, P)
    means = [estimates(OTHER, draws, 2000, 1).mean() for draws in (5, 50, 5000)]

    assert means[0] < 0.8 * distance
    assert means == sorted(means)
    assert means[-1] == pytest.approx(distance, rel=0.01)


def test_the_visible_bias_moves_the_mean_by_half_an_interval():
    """36 estimates from 2 x 200 coins: what is called visible is shown as half the interval of such means, to a tenth.

    The mean over 20,000 runs has a standard error of 2 % of that: a false alarm in 2e6.
    """
    coin, rng = np.array([0.5, 0.5]), np.random.default_rng(5)

    def found(bias):
        halves = rng.multinomial(200, coin + np.array([bias, -bias]), size=(20_000, 2)) / 200
        return np.array([cross_fitted_distance(one, two, coin) for one, two in halves])

    none = found(0.0)
    alike = np.resize(none, 36) / np.std(np.resize(none, 36), ddof=1) * none.std()  # 36 with the spread of them all
    _, low, high = mean_interval(alike)

    assert 0.02 < visible_bias(alike) < 0.04
    assert found(visible_bias(alike)).mean() == pytest.approx((high - low) / 2, rel=0.1)


def test_nothing_is_invisible_without_noise_and_nothing_known_of_one_estimate():
    assert visible_bias([0.25, 0.25, 0.25]) == 0
    assert math.isnan(visible_bias([0.1]))


def test_laws_of_any_shape_are_compared():
    law = np.outer(P, OTHER)

    assert cross_fitted_distance(law, law, np.outer(P, P)) == pytest.approx(total_variation(P, OTHER))


def test_a_mean_comes_with_students_interval():
    mean, low, high = mean_interval([[1.0, 2.0, 6.0], [5.0, 5.0, 5.0]])

    reach = stats.t.ppf(0.975, 2) * math.sqrt(7 / 3)
    np.testing.assert_allclose(mean, [3, 5])
    np.testing.assert_allclose(low, [3 - reach, 5])
    np.testing.assert_allclose(high, [3 + reach, 5])


def test_one_value_has_no_interval():
    mean, low, high = mean_interval([0.25])

    assert mean == 0.25
    assert math.isnan(low)
    assert math.isnan(high)
