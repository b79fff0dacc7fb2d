import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import nnls

from tests.strategies import weighted_points
from theory.estimates import (
    bootstrap_interval,
    bootstrap_weights,
    clustered_median,
    clustered_ratio,
    nonnegative_fit,
    paired_difference,
    resampled_medians,
    significant,
    student_interval,
    weighted_fit,
    wilson_interval,
)

EPS = np.finfo(float).eps


def test_clustered_ratio_by_hand():
    # prompts a: (3, 4), b: (1, 4), c: (2, 2); ratio 6 / 10, deviations .6, -1.4, .8
    numerator, denominator, prompt = [1, 2, 1, 2], [2, 2, 4, 2], ["a", "a", "b", "c"]

    ratio, error = clustered_ratio(numerator, denominator, prompt)

    assert ratio == pytest.approx(0.6, rel=4 * EPS)
    assert error == pytest.approx(math.sqrt(3 / 2 * (0.36 + 1.96 + 0.64)) / 10, rel=16 * EPS)


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=2, max_size=20))
def test_a_paired_difference_of_means_is_the_mean_of_differences(pairs):
    first, second = np.array(pairs).T
    one, cluster = np.ones(len(pairs)), np.arange(len(pairs))
    difference, error = paired_difference((first, one, cluster), (second, one, cluster))

    assert difference == pytest.approx(np.mean(second - first), abs=128 * EPS)
    assert error == pytest.approx(stats.sem(second - first), abs=128 * EPS)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20))
def test_clusters_of_one_give_the_error_of_a_mean(values):
    mean, error = clustered_ratio(values, np.ones(len(values)), np.arange(len(values)))

    assert mean == pytest.approx(np.mean(values), abs=64 * EPS)
    assert error == pytest.approx(stats.sem(values), abs=64 * EPS)


@pytest.mark.parametrize("values", [[0.5], [1]])
def test_O72_O73_one_cluster_has_no_standard_error(values):
    ratio, error = clustered_ratio(values, [1], ["only"])

    assert ratio == values[0]
    assert math.isnan(error)
    assert all(math.isnan(bound) for bound in student_interval(ratio, error, 1))


def test_nothing_observed_is_not_zero():
    assert all(math.isnan(value) for value in clustered_ratio([], [], []))
    assert all(math.isnan(value) for value in clustered_ratio([0, 0], [0, 0], ["a", "b"]))


def test_clustering_covers_what_independence_does_not():
    """Rounds of one prompt share a level; over 400 repetitions 95 % intervals must cover the truth 95 % of the time.

    The count of covering intervals is binomial: below 350 or above 398 it has chance under 1e-7 at 95 %. Treating
    rounds as independent covers about half the time, and fails.
    """
    rng = np.random.default_rng(4)
    prompts, rounds, repetitions = 40, 25, 400
    prompt = np.repeat(np.arange(prompts), rounds)
    covered = {"clustered": 0, "independent": 0}
    for _ in range(repetitions):
        values = 0.4 + np.repeat(rng.normal(0, 0.1, prompts), rounds) + rng.normal(0, 0.1, prompts * rounds)
        for name, cluster in (("clustered", prompt), ("independent", np.arange(values.size))):
            estimate = clustered_ratio(values, np.ones(values.size), cluster)
            low, high = student_interval(*estimate, np.unique(cluster).size)
            covered[name] += low <= 0.4 <= high

    assert stats.binom.cdf(349, repetitions, 0.95) < 1e-7
    assert stats.binom.sf(398, repetitions, 0.95) < 1e-7
    assert 350 <= covered["clustered"] <= 398
    assert covered["independent"] < 350


def test_O74_wilson_interval_has_width_at_the_ends():
    successes_and_trials = [(0, 25), (10, 10), (198, 198), (131, 164), (1, 1)]
    expected = [(0.0, 0.133192), (0.722467, 1.0), (0.980968, 1.0), (0.730906, 0.852979), (0.206549, 1.0)]

    for case, interval in zip(successes_and_trials, expected, strict=True):
        assert wilson_interval(*case) == pytest.approx(interval, abs=1e-6)


@given(st.integers(1, 500).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_wilson_interval_against_scipy(case):
    expected = stats.binomtest(*case).proportion_ci(0.95, method="wilson")

    assert wilson_interval(*case) == pytest.approx((expected.low, expected.high), abs=64 * EPS)


def test_a_resampled_median_is_that_of_the_rows_as_often_as_their_clusters():
    rng = np.random.default_rng(5)
    values, member = rng.normal(size=30), rng.integers(0, 6, 30)
    weights = np.concatenate([bootstrap_weights(6, 40, rng), np.zeros((1, 6))])
    medians = resampled_medians(values, member, weights)

    for found, weight in zip(medians, weights.astype(int), strict=True):
        repeated = np.repeat(values, weight[member])
        assert found == np.median(repeated) if repeated.size else math.isnan(found)


def test_the_error_of_a_median_knows_that_rounds_of_a_prompt_are_alike():
    """Over 100 samples of 40 prompts the error agrees with the scatter of medians within 25 %, three times its 7 %.

    Prompts differ by as much as rounds do; taking rounds as independent gives less than half of it.
    """
    rng, prompt = np.random.default_rng(6), np.repeat(np.arange(40), 25)
    samples = rng.normal(0, 1, (100, 40)).repeat(25, axis=1) + rng.normal(0, 1, (100, 1000))
    medians, errors = np.array([clustered_median(sample, prompt) for sample in samples]).T
    _, independent = clustered_median(samples[0], np.arange(1000))

    assert errors.mean() == pytest.approx(medians.std(), rel=0.25)
    assert independent < errors.mean() / 2


def test_one_cluster_has_a_median_without_an_error():
    median, error = clustered_median([2.5, 3.5], ["only", "only"])

    assert median == 3
    assert math.isnan(error)


@given(weighted_points())
def test_fit_with_nonnegative_coefficients_against_scipy(points):
    design, values, weights = points
    coefficients, errors = nonnegative_fit(*points)
    roots = np.sqrt(weights)
    expected, _ = nnls(design * roots[:, None], values * roots)

    np.testing.assert_allclose(coefficients, expected, atol=1e-9)
    assert (np.isnan(errors) == (coefficients == 0)).all() or np.isfinite(errors).all()


def test_weighted_fit_against_polyfit():
    x, y, weights = np.arange(5.0), np.array([1.0, 3.1, 4.9, 7.2, 8.8]), np.array([1, 5, 2, 2, 1])
    coefficients, errors = weighted_fit(np.stack([np.ones(5), x], axis=1), y, weights)
    expected, covariance = np.polyfit(x, y, 1, w=np.sqrt(weights), cov=True)

    np.testing.assert_allclose(coefficients, expected[::-1])
    np.testing.assert_allclose(errors, np.sqrt(np.diag(covariance))[::-1])


def test_significance_is_a_t_test():
    error, freedom = 0.5, 3
    edge = stats.t.ppf(0.975, freedom) * error

    assert significant(1.001 * edge, error, freedom)
    assert significant(-1.001 * edge, error, freedom)
    assert not significant(0.999 * edge, error, freedom)
    assert not significant(100.0, math.nan, freedom)
    assert not significant(100.0, error, 0)


def test_a_bootstrap_counts_every_cluster_once_in_row_0_and_draws_as_many_in_the_others():
    weights = bootstrap_weights(5, 200, np.random.default_rng(1))

    assert weights.shape == (201, 5)
    assert (weights[0] == 1).all()
    assert (weights.sum(axis=1) == 5).all()
    # 1 000 binomial counts of mean 1 and variance .8: 5 standard errors
    assert weights[1:].mean() == pytest.approx(1)
    assert weights[1:].var() == pytest.approx(0.8, abs=5 * 0.8 * math.sqrt(3 / 1000))


def test_the_bootstrap_interval_of_a_mean_is_students():
    """Percentiles of 20 000 resamples of 12 values that lie symmetrically; unstretched they would be 15 % narrower."""
    half = np.random.default_rng(2).normal(size=6)
    values = np.concatenate([half, 2 - half])
    draws = bootstrap_weights(12, 20_000, np.random.default_rng(3)) @ values / 12
    low, high = bootstrap_interval(draws, 12)
    expected = student_interval(values.mean(), values.std(ddof=1) / math.sqrt(12), 12)

    assert (low, high) == pytest.approx(expected, abs=0.03 * (expected[1] - expected[0]))


def test_the_bootstrap_interval_of_a_ratio_holds_the_truth_as_often_as_it_says():
    """1 000 data sets of 15 clusters, whose sizes go with their ratios: coverage of .95 within 5 standard errors.

    Unstretched percentiles cover .90, and fail.
    """
    rng = np.random.default_rng(4)
    size = rng.integers(2, 9, size=(15, 1000))
    total = size * (0.4 + 0.05 * size) + rng.normal(size=size.shape)
    truth = np.mean([n * (0.4 + 0.05 * n) for n in range(2, 9)]) / 5
    weights = bootstrap_weights(15, 1000, rng)
    low, high = bootstrap_interval(weights @ total / (weights @ size), 15)

    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.95, abs=5 * math.sqrt(0.95 * 0.05 / 1000))


def test_O72_O73_one_cluster_has_no_bootstrap_interval():
    assert np.isnan(bootstrap_interval(np.ones((4, 2)), 1)).all()
