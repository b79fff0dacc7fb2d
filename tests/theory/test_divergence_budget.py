import math
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from tests import strategies
from theory import divergence_budget
from theory.acceptance import raised_probability, raised_probability_taylor
from theory.divergence_budget import raise_within

EPS = np.finfo(float).eps
TINY = 2 * np.finfo(float).smallest_normal  # rises below count as none
REACH = 4 * EPS  # rounding of γ, and of a divergence where its slope is smallest
CONVEX = {
    "kullback_leibler": lambda t: t * mp.log(t) if t else mpf(0),
    "reverse_kullback_leibler": lambda t: -mp.log(t) if t else mp.inf,
    "chi_square": lambda t: (t - 1) ** 2,
    "squared_hellinger": lambda t: (mp.sqrt(t) - 1) ** 2 / 2,
    "total_variation": lambda t: abs(t - 1) / 2,
}
COSTS = [getattr(divergence_budget, name) for name in CONVEX]
by_name = pytest.mark.parametrize("name", CONVEX)
budgets = strategies.budgets | st.floats(-300, 0).map(lambda exponent: 10**exponent)


@by_name
@given(p=strategies.all_magnitudes, budget=budgets)
@example(p=1e-300, budget=50.0)
@example(p=1e-300, budget=5e-324)
@example(p=2**-53, budget=1e-300)
@example(p=1 - 2**-53, budget=50.0)
def test_the_budget_runs_out_within_rounding_of_the_result(name, p, budget):
    gamma = float(raise_within(np.float64(p), budget, getattr(divergence_budget, name)))
    with mp.workdps(700):  # 1 - p holds its digits for every p
        exact = mpf(p)

        def spent(raised):
            return exact * CONVEX[name](raised / exact) + (1 - exact) * CONVEX[name]((1 - raised) / (1 - exact))

        low, high = gamma * (1 - mpf(REACH)), gamma * (1 + mpf(REACH)) + mpf(TINY)

        assert p <= gamma <= 1
        assert spent(max(low, exact)) <= budget
        assert gamma == 1 or spent(min(high, mpf(1))) >= budget
        assert gamma < 1 or spent(mpf(1)) <= budget * (1 + REACH)


@by_name
@given(p=strategies.all_magnitudes, share=st.floats(-1, 1))
def test_a_cost_is_what_the_convex_function_says(name, p, share):
    rise = -share * p if share < 0 else share * (1 - p)
    with mp.workdps(700):
        expected = float(mpf(p) * CONVEX[name](1 + mpf(rise) / mpf(p)))
    rounding = 8 * EPS * (abs(expected) + abs(rise)) + 4 * 5e-324  # and of subnormal terms

    assert getattr(divergence_budget, name)(np.float64(rise), np.float64(p)) == pytest.approx(expected, abs=rounding)


@given(strategies.all_magnitudes, budgets)
def test_relative_entropy_is_what_newtons_method_solves(p, budget):
    assert raise_within(np.float64(p), budget) == pytest.approx(raised_probability(np.float64(p), budget), rel=16 * EPS)


@given(strategies.all_magnitudes, budgets)
def test_closed_forms(p, budget):
    p = np.float64(p)
    chi_square = raise_within(p, 2 * budget, divergence_budget.chi_square)
    distance = raise_within(p, budget, divergence_budget.total_variation)

    assert chi_square == pytest.approx(raised_probability_taylor(p, budget), rel=16 * EPS)
    assert distance == pytest.approx(min(p + budget, 1), rel=REACH)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(("p", "budget", "gamma"), [(0, 3, 0), (1, 0.2, 1), (0.3, 0, 0.3), (1e-310, 3, 1e-310)])
def test_corners(cost, p, budget, gamma):
    assert raise_within(np.float64(p), budget, cost) == gamma


@pytest.mark.parametrize(
    ("cost", "whole"),
    [
        (divergence_budget.kullback_leibler, -math.log(0.3)),
        (divergence_budget.chi_square, 0.7 / 0.3),
        (divergence_budget.squared_hellinger, 1 - math.sqrt(0.3)),
        (divergence_budget.total_variation, 0.7),
        (divergence_budget.reverse_kullback_leibler, math.inf),
    ],
)
def test_where_certainty_is_within_the_budget(cost, whole):
    assert raise_within(np.float64(0.3), whole * (1 + 8 * EPS), cost) == 1
    assert raise_within(np.float64(0.3), min(whole, 1e300) * (1 - 8 * EPS), cost) < 1


def test_a_divergence_of_ones_own():
    def jensen_shannon(rise, p):
        ratio = 1 + rise / p
        log = np.log(np.where(ratio > 0, ratio, 1))
        return p * (ratio * log - (1 + ratio) * np.log((1 + ratio) / 2)) / 2

    p, q = np.array([0.2, 0.8]), np.array([0.5, 0.5])
    middle = (p + q) / 2
    budget = (p @ np.log(p / middle) + q @ np.log(q / middle)) / 2

    assert raise_within(np.float64(0.2), budget, jensen_shannon) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("cost", COSTS)
def test_libraries_and_leading_axes(xp: ModuleType, cost):
    p, budget = [[1e-300], [0.3], [1 - 1e-9], [0.0], [1.0]], [0.0, 0.1, 1.0, 50.0]
    expected = raise_within(np.array(p), np.array(budget), cost)

    result = raise_within(xp.asarray(p, dtype=xp.float64), xp.asarray(budget, dtype=xp.float64), cost)

    assert expected.shape == (5, 4)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=16 * EPS)
    assert raise_within(xp.asarray([0.3], dtype=xp.float32), 0.1, cost).dtype == xp.float32


def test_no_step_depends_on_the_data():
    torch = pytest.importorskip("torch")
    shapes_without_values = torch.empty(5, device="meta")

    assert raise_within(shapes_without_values, 0.5).shape == (5,)
    assert raised_probability(shapes_without_values, 0.5).shape == (5,)
