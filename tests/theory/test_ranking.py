from itertools import combinations

import numpy as np
import pytest

from theory.ranking import rank

MEASURED = np.array([1.0, 2.0, 2.02, 4.0])


def resampled(noise, seed=0):
    """Speeds whose common factor varies by 10 %, and each by itself by `noise`."""
    rng = np.random.default_rng(seed)
    return MEASURED * np.exp(rng.normal(0, 0.1, (200, 1)) + rng.normal(0, noise, (200, 4)))


def test_what_all_configurations_share_hides_no_difference():
    """Noise of 1.4 % between two configurations hides 1 %, the common 10 % hide nothing."""
    ranking = rank(MEASURED[[0, 2, 1, 3]], MEASURED, resampled(0.01))

    assert ranking.resolved == pytest.approx(5 / 6)
    assert ranking.kendall_tau == pytest.approx(4 / 6)
    assert ranking.kendall_tau_resolved == 1


@pytest.mark.parametrize("seed", range(3))
def test_tau_of_resolved_pairs_counts_right_and_wrong_ones(seed):
    predicted = np.random.default_rng(seed).permutation(MEASURED)
    pairs = [pair for pair in combinations(range(4), 2) if pair != (1, 2)]
    signs = [np.sign((predicted[i] - predicted[j]) * (MEASURED[i] - MEASURED[j])) for i, j in pairs]

    assert rank(predicted, MEASURED, resampled(0.01)).kendall_tau_resolved == pytest.approx(np.mean(signs))


def test_the_ceiling_is_what_the_measurement_reaches_against_itself():
    """The closest two of four change places in about a quarter of the resamples: tau 1 or 2/3."""
    draws = resampled(0.01)
    swapped = np.mean(draws[:, 1] > draws[:, 2])

    assert 0.1 < swapped < 0.4
    assert rank(MEASURED, MEASURED, draws).ceiling == pytest.approx(1 - swapped / 3)
    assert rank(MEASURED, MEASURED, resampled(1e-9)).ceiling == 1


def test_equal_configurations_are_not_told_apart():
    same = np.ones(3)

    assert rank(np.array([1.0, 2.0, 3.0]), same, np.ones((5, 3)) * 2).resolved == 0
