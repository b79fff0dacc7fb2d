import math
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, target
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import rel_entr

from tests import strategies
from theory.distances import binary_kullback_leibler, kullback_leibler, overlap, total_variation

EPS = np.finfo(float).eps
SUM_TOLERANCE = 32 * EPS  # sums of up to eight terms of at most 1, and the normalisation of the inputs
QUOTED = 1e-9  # cases quote ten digits


@given(strategies.pairs())
def test_total_variation_and_overlap_add_up_to_one(pair):
    p, q = pair

    assert total_variation(p, q) + overlap(p, q) == pytest.approx(1, abs=SUM_TOLERANCE)


@given(strategies.pairs(), strategies.distributions(4))
def test_total_variation_is_a_distance(pair, r):
    p, q = pair
    r = np.resize(np.concatenate([r, np.zeros(4)]), p.shape)

    assert total_variation(p, p) == 0
    assert total_variation(p, q) == total_variation(q, p)
    assert total_variation(p, q) <= total_variation(p, r) + total_variation(r, q) + SUM_TOLERANCE


def test_leading_axes_are_kept(xp: ModuleType):
    p = xp.asarray([[[0.2, 0.8]], [[1.0, 0.0]]], dtype=xp.float64)
    q = xp.asarray([[[0.8, 0.2]], [[0.0, 1.0]]], dtype=xp.float64)

    np.testing.assert_allclose(np.asarray(total_variation(p, q)), [[0.6], [1.0]], atol=SUM_TOLERANCE)
    np.testing.assert_allclose(np.asarray(overlap(p, q)), [[0.4], [0.0]], atol=SUM_TOLERANCE)


def test_O69_relative_entropy_with_zeros(xp: ModuleType):
    p = [[0.5, 0.5, 0], [0.3, 0.3, 0.4], [0, 0.1, 0.9], [1, 0, 0]]
    q = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0.1, 0.1, 0.8], [0.2, 0.3, 0.5]]

    result = kullback_leibler(xp.asarray(p, dtype=xp.float64), xp.asarray(q, dtype=xp.float64))

    np.testing.assert_allclose(np.asarray(result), [0.0, math.inf, 0.1060047321, 1.6094379124], rtol=QUOTED)


def test_O70_binary_relative_entropy_at_the_edges(xp: ModuleType):
    gamma = xp.asarray([1.0, 0.3, 0.0, 1.0, 0.0, 0.2, 0.2], dtype=xp.float64)
    p = xp.asarray([0.3, 0.3, 0.3, 1.0, 0.0, 0.0, 1.0], dtype=xp.float64)

    result = binary_kullback_leibler(gamma, p)

    expected = [1.2039728043, 0.0, 0.3566749439, 0.0, 0.0, math.inf, math.inf]
    np.testing.assert_allclose(np.asarray(result), expected, rtol=QUOTED)


@given(strategies.pairs())
def test_relative_entropy_against_scipy(pair):
    p, q = pair
    expected = rel_entr(p, q).sum()

    # a difference of logarithms errs by eps times their size, at most log(1e-200) here
    assert kullback_leibler(p, q) == pytest.approx(expected, rel=8 * EPS, abs=8 * 500 * EPS)


@given(strategies.probabilities, strategies.probabilities)
def test_binary_relative_entropy_against_fifty_digits(gamma, p):
    if p in (0, 1) or gamma in (0, 1):
        return
    with mp.workdps(50):
        g, r = mpf(gamma), mpf(p)
        expected = g * mp.log(g / r) + (1 - g) * (mp.log1p(-g) - mp.log1p(-r))
        size = g * abs(mp.log(g)) + g * abs(mp.log(r)) + (1 - g) * (abs(mp.log1p(-g)) + abs(mp.log1p(-r)))
    error = abs(float(mpf(float(binary_kullback_leibler(np.float64(gamma), np.float64(p)))) - expected))
    tolerance = 4 * EPS * float(size)
    if tolerance > 0:
        target(error / tolerance)

    assert error <= tolerance


@given(st.sampled_from(["p", "q"]))
def test_nan_is_not_hidden(which):
    p, q = np.array([0.5, 0.5]), np.array([0.2, 0.8])
    {"p": p, "q": q}[which][0] = math.nan

    assert np.isnan(total_variation(p, q))
    assert np.isnan(kullback_leibler(p, q))
    assert np.isnan(binary_kullback_leibler(p[0], q[0]))
