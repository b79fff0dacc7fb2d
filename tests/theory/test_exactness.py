import math

import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from tests import strategies
from theory.distances import total_variation
from theory.exactness import cross_fitted_distance, mean_interval

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
    distance = total_variation(OTHER, P)
    means = [estimates(OTHER, draws, 2000, 1).mean() for draws in (5, 50, 5000)]

    assert means[0] < 0.8 * distance
    assert means == sorted(means)
    assert means[-1] == pytest.approx(distance, rel=0.01)


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
