from fractions import Fraction
from itertools import product
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given, target
from hypothesis import strategies as st

from theory.proposition1 import tokens_per_round

EPS = np.finfo(float).eps


def exact_power_sum(rate: float, block_size: int) -> Fraction:
    """Eq. 9 in rational arithmetic, by Horner's rule."""
    total = Fraction(1)
    for _ in range(block_size):
        total = total * Fraction(rate) + 1
    return total


@pytest.mark.parametrize(
    ("rate", "block_size", "tokens"), [(1.0, 512, 513), (0.0, 512, 1), (0.8, 5, 3.68928), (0.5, 4, 1.9375)]
)
def test_O67_power_sum_needs_no_branch_at_one(rate, block_size, tokens):
    assert tokens_per_round(rate, block_size) == pytest.approx(tokens, rel=4 * block_size * EPS)


def test_O68_power_sum_close_to_one(xp: ModuleType):
    rates = xp.asarray([1 - 1e-12, 1 - 1e-9, 1 - 1e-6, 0.999], dtype=xp.float64)
    expected = [512.9999998686749, 512.9998686720261, 512.8686943666804, 401.4568568559078]

    np.testing.assert_allclose(np.asarray(tokens_per_round(rates, 512)), expected, rtol=1e-12)


@given(st.sampled_from([0.5, 1.0, 0.0]) | st.floats(0, 1), st.integers(1, 64))
@example(1 - 1e-9, 512)
def test_against_rational_arithmetic(rate, block_size):
    expected = exact_power_sum(rate, block_size)
    error = float(abs(Fraction(float(tokens_per_round(rate, block_size))) - expected) / expected) / EPS
    target(error)

    assert error <= 4 * block_size


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_against_all_outcomes_of_a_round(rate):
    block_size = 4
    expected = 0.0
    for outcome in product((True, False), repeat=block_size):
        probability = np.prod([rate if accepted else 1 - rate for accepted in outcome])
        expected += probability * (1 + int(np.cumprod(outcome).sum()))

    assert tokens_per_round(rate, block_size) == pytest.approx(expected, rel=4 * block_size * EPS)


@pytest.mark.parametrize(("leniency", "tokens"), [(0, 1.77), (0.8, 8.83), (0.9, 17.7), (1, 513)])
def test_the_paper_divergence_at_one_step(leniency, tokens):
    result = tokens_per_round(1 - (1 - leniency) * 0.566, 512)

    assert float(f"{float(result):.3g}") == tokens


def test_shape_and_precision_follow_the_input(xp: ModuleType):
    rates = xp.asarray([[0.5], [0.25]], dtype=xp.float32)
    result = tokens_per_round(rates, 2)

    assert result.dtype == xp.float32
    assert np.asarray(result).tolist() == [[1.75], [1.3125]]


def test_blocks_are_not_empty():
    with pytest.raises(ValueError, match="`block_size` must be at least 1, got 0"):
        tokens_per_round(0.5, 0)
