import math
from itertools import accumulate, product
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given, target
from hypothesis import strategies as st
from mpmath import MPContext
from scipy import stats

from tests import strategies
from theory.acceptance import accept_prefix
from theory.proposition1 import (
    accepted_length_law,
    accepted_length_variance,
    beta_survival,
    law_from_survival,
    survival,
    tokens_from_survival,
    tokens_per_round,
    tokens_per_round_derivative,
)

EPS = np.finfo(float).eps
FALSE_ALARM = 1e-6  # of each comparison with a simulation; a fixed seed makes it one decision, not a repeated one
ROUNDS = 100_000
TINY = 1e-290
EXACT = MPContext()  # its own precision, which no other test sees
EXACT.dps = 100


def largest_error(results, exact) -> float:
    """Largest relative error against exact values, in units of eps; the target of Hypothesis's search.

    What lies near the underflow has no relative precision and need only be tiny.
    """
    worst = 0.0
    for result, expected in zip(np.atleast_1d(results), exact, strict=True):
        error = abs(EXACT.mpf(float(result)) - expected)
        worst = max(worst, float(error / expected) / EPS if expected > TINY else math.inf if error > TINY else 0.0)
    target(worst)
    return worst


def exact_law(rate: float, block_size: int) -> list:
    """Law of the accepted length, position by position."""
    reach, law = EXACT.mpf(1), []
    for _ in range(block_size):
        law.append(reach * (1 - EXACT.mpf(rate)))
        reach *= EXACT.mpf(rate)
    return [*law, reach]


def deviates(tokens, expected: float) -> bool:
    """Whether simulated tokens of rounds have another mean than expected, at the stated false-alarm rate."""
    score = (np.mean(tokens) - expected) / (np.std(tokens) / math.sqrt(len(tokens)))
    return bool(abs(score) > stats.norm.ppf(1 - FALSE_ALARM / 2))


def simulated_rounds(acceptance, seed: int):
    """Tokens of rounds that Algorithm 1 runs with these acceptance probabilities, ``(rounds, B) -> (rounds,)``."""
    return 1 + accept_prefix(acceptance, np.random.default_rng(seed).random(acceptance.shape))


@pytest.mark.parametrize(
    ("rate", "block_size", "tokens"), [(1.0, 512, 513), (0.0, 512, 1), (0.8, 5, 3.68928), (0.5, 4, 1.9375)]
)
def test_O67_power_sum_needs_no_branch_at_one(rate, block_size, tokens):
    assert tokens_per_round(rate, block_size) == pytest.approx(tokens, rel=4 * block_size * EPS)


def test_O68_power_sum_close_to_one(xp: ModuleType):
    rates = xp.asarray([1 - 1e-12, 1 - 1e-9, 1 - 1e-6, 0.999], dtype=xp.float64)
    expected = [512.9999998686749, 512.9998686720261, 512.8686943666804, 401.4568568559078]

    np.testing.assert_allclose(np.asarray(tokens_per_round(rates, 512)), expected, rtol=1e-12)


class TestAgainstHundredDigits:
    """All roundings of a sum over B positions, each of a few eps, stay below 4 B eps."""

    @given(strategies.acceptance_rates, strategies.long_blocks)
    @example(1 - 1e-9, 512)
    @example(1 - 1e-12, 512)
    @example(1 - EPS / 2, 512)
    def test_tokens(self, rate, block_size):
        expected = EXACT.mpf(1)
        for _ in range(block_size):  # Horner's rule
            expected = expected * EXACT.mpf(rate) + 1

        assert largest_error(tokens_per_round(rate, block_size), [expected]) <= 4 * block_size

    @given(strategies.acceptance_rates, strategies.long_blocks, st.integers(0, 4))
    @example(1 - 1e-12, 512, 1)
    @example(1 - EPS / 2, 512, 2)
    @example(0.5, 2, 3)
    def test_derivatives(self, rate, block_size, order):
        expected = EXACT.mpf(0)
        for n in range(block_size, order - 1, -1):
            expected = expected * EXACT.mpf(rate) + math.perm(n, order)
        result = tokens_per_round_derivative(rate, block_size, order=order)

        assert largest_error(result, [expected]) <= 4 * block_size

    @given(strategies.acceptance_rates, strategies.long_blocks)
    @example(1 - 1e-12, 512)
    @example(1 - EPS / 2, 512)
    def test_law(self, rate, block_size):
        law = accepted_length_law(rate, block_size)

        assert largest_error(law, exact_law(rate, block_size)) <= 4 * block_size

    @given(strategies.acceptance_rates, strategies.long_blocks)
    @example(1 - EPS / 2, 512)
    @example(1 - 1e-12, 512)
    @example(1e-100, 3)
    def test_variance(self, rate, block_size):
        law = exact_law(rate, block_size)
        mean = sum(n * chance for n, chance in enumerate(law))
        expected = sum(n * n * chance for n, chance in enumerate(law)) - mean**2
        result = accepted_length_variance(accepted_length_law(rate, block_size))

        assert largest_error(result, [expected]) <= 4 * block_size

    @given(
        strategies.acceptance_rates, st.sampled_from([1.0, 0.25, 1e-6, 1e6]) | st.floats(1e-9, 1e9), st.integers(1, 64)
    )
    @example(1 - 1e-12, 2.0, 512)
    def test_moments_of_a_beta_law(self, rate, concentration, block_size):
        total = EXACT.mpf(concentration)
        factors = [(EXACT.mpf(rate) * total + j) / (total + j) for j in range(block_size)]
        result = beta_survival(rate, concentration, block_size)

        assert largest_error(result, accumulate(factors, lambda a, b: a * b)) <= 4 * block_size


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_against_all_outcomes_of_a_round(rate):
    block_size = 4
    law = np.zeros(block_size + 1)
    for outcome in product((True, False), repeat=block_size):
        probability = np.prod([rate if accepted else 1 - rate for accepted in outcome])
        law[int(np.cumprod(outcome).sum())] += probability
    length = np.arange(block_size + 1)

    tolerance = 4 * block_size * EPS
    np.testing.assert_allclose(accepted_length_law(rate, block_size), law, rtol=tolerance)
    assert tokens_per_round(rate, block_size) == pytest.approx(1 + law @ length, rel=tolerance)
    assert accepted_length_variance(law) == pytest.approx(law @ length**2 - (law @ length) ** 2, abs=tolerance)


@pytest.mark.parametrize(("leniency", "tokens"), [(0, 1.77), (0.8, 8.83), (0.9, 17.7), (1, 513)])
def test_the_paper_divergence_at_one_step(leniency, tokens):
    result = tokens_per_round(1 - (1 - leniency) * 0.566, 512)

    assert float(f"{float(result):.3g}") == tokens


class TestSurvival:
    @given(strategies.acceptance_rates, strategies.block_sizes)
    def test_equal_positions_are_proposition_1(self, rate, block_size):
        chances = survival(np.full(block_size, rate))
        tolerance = 4 * block_size * EPS

        assert tokens_from_survival(chances) == pytest.approx(tokens_per_round(rate, block_size), rel=tolerance)
        np.testing.assert_allclose(law_from_survival(chances), accepted_length_law(rate, block_size), atol=tolerance)

    @given(strategies.joint_outcomes())
    def test_any_dependence_against_all_outcomes(self, joint):
        block_size = joint.ndim
        chances, tokens = np.zeros(block_size), 0.0
        for outcome in product((0, 1), repeat=block_size):
            accepted = int(np.cumprod(outcome).sum())
            chances[:accepted] += joint[outcome]
            tokens += joint[outcome] * (1 + accepted)
        tolerance = 4 * joint.size * EPS

        assert tokens_from_survival(chances) == pytest.approx(tokens, rel=tolerance)
        assert law_from_survival(chances) @ np.arange(1, block_size + 2) == pytest.approx(tokens, rel=tolerance)

    @given(strategies.acceptance_rates, st.floats(1e-6, 1e6), strategies.block_sizes)
    def test_jensen_a_shared_rate_never_lowers_the_tokens(self, rate, concentration, block_size):
        shared = tokens_from_survival(beta_survival(rate, concentration, block_size))
        alike = tokens_per_round(rate, block_size)

        assert shared >= alike * (1 - 4 * block_size * EPS)
        if block_size > 1 and 0.1 < rate < 0.9 and concentration < 10:
            assert shared > alike * 1.0001

    def test_a_shared_rate_between_its_limits(self):
        rate, block_size = 0.7, 6
        tokens = [float(tokens_from_survival(beta_survival(rate, c, block_size))) for c in (1e-9, 1, 4, 1e9)]

        assert tokens == sorted(tokens, reverse=True)
        assert tokens[0] == pytest.approx(1 + rate * block_size, rel=1e-7)
        assert tokens[-1] == pytest.approx(tokens_per_round(rate, block_size), rel=1e-7)

    def test_values_in_every_library(self, xp: ModuleType):
        acceptance = xp.asarray([[0.5, 0.5, 1.0], [1.0, 0.25, 0.0]], dtype=xp.float64)
        chances = survival(acceptance)

        assert np.asarray(chances).tolist() == [[0.5, 0.25, 0.25], [1.0, 0.25, 0.0]]
        assert np.asarray(tokens_from_survival(chances)).tolist() == [2.0, 2.25]
        assert np.asarray(law_from_survival(chances)).tolist() == [[0.5, 0.25, 0.0, 0.25], [0.0, 0.75, 0.25, 0.0]]

    def test_a_block_without_tokens_gives_the_verifier_alone(self, xp: ModuleType):
        nothing = xp.zeros((2, 0), dtype=xp.float64)

        assert np.asarray(tokens_from_survival(nothing)).tolist() == [1.0, 1.0]
        assert np.asarray(law_from_survival(nothing)).tolist() == [[1.0], [1.0]]

    def test_what_was_not_measured_stays_unknown(self):
        chances = survival(np.array([0.5, math.nan, 0.5]))

        np.testing.assert_array_equal(chances, [0.5, math.nan, math.nan])
        assert np.isnan(tokens_from_survival(chances))


class TestMonteCarlo:
    """Simulated rounds of Algorithm 1. Each comparison rejects a right formula with probability FALSE_ALARM."""

    def test_independent_rates_of_one_mean(self):
        block_size = 6
        rates = np.random.default_rng(1).beta(0.8, 0.4, (ROUNDS, block_size))
        tokens = simulated_rounds(rates, seed=2)
        rate = 2 / 3

        assert not deviates(tokens, tokens_per_round(rate, block_size))
        assert deviates(tokens, tokens_per_round(rate, block_size) - 1), "the bonus token left out"
        assert deviates(tokens, tokens_per_round(rate, block_size + 1)), "one position too many"
        assert deviates(tokens, tokens_from_survival(beta_survival(rate, 1.2, block_size))), "one rate for the round"

    def test_the_law_of_the_accepted_length(self):
        block_size, rate = 4, 0.6
        accepted = simulated_rounds(np.full((ROUNDS, block_size), rate), seed=3) - 1
        counts = np.bincount(accepted, minlength=block_size + 1)
        law = accepted_length_law(rate, block_size)

        assert stats.chisquare(counts, ROUNDS * law).pvalue > FALSE_ALARM
        assert stats.chisquare(counts, ROUNDS * accepted_length_law(rate + 0.01, block_size)).pvalue < FALSE_ALARM

    def test_one_rate_shared_by_a_round(self):
        block_size, rate, concentration = 6, 2 / 3, 1.2
        shared = np.random.default_rng(4).beta(rate * concentration, (1 - rate) * concentration, (ROUNDS, 1))
        tokens = simulated_rounds(np.repeat(shared, block_size, axis=1), seed=5)

        assert not deviates(tokens, tokens_from_survival(beta_survival(rate, concentration, block_size)))
        assert not deviates(tokens, 1 + np.mean(shared ** np.arange(1, block_size + 1), axis=0).sum())
        assert deviates(tokens, tokens_per_round(rate, block_size)), "Proposition 1 does not hold here"
        assert deviates(tokens, tokens_from_survival(beta_survival(rate, 2 * concentration, block_size)))

    def test_rates_that_follow_one_another(self):
        """A chain in which a good position makes the next one good: the mean of products is what counts."""
        rng = np.random.default_rng(6)
        rates = np.empty((ROUNDS, 5))
        good = rng.random(ROUNDS) < 0.5
        for position in range(5):
            good = np.where(rng.random(ROUNDS) < 0.9, good, ~good)
            rates[:, position] = np.where(good, 0.95, 0.3)
        tokens = simulated_rounds(rates, seed=7)
        chain = np.array([[0.9, 0.1], [0.1, 0.9]])
        state, chances = np.array([0.5, 0.5]), []
        for _ in range(5):
            state = (state @ chain) * np.array([0.95, 0.3])
            chances.append(state.sum())

        assert not deviates(tokens, tokens_from_survival(np.array(chances)))
        assert deviates(tokens, tokens_from_survival(survival(rates.mean(axis=0)))), "product of the means"


class TestEdges:
    def test_shape_and_precision_follow_the_input(self, xp: ModuleType):
        rates = xp.asarray([[0.5], [0.25]], dtype=xp.float32)
        law = accepted_length_law(rates, 2)
        results = [tokens_per_round(rates, 2), tokens_per_round_derivative(rates, 2), accepted_length_variance(law)]
        by_survival = [function(rates) for function in (survival, tokens_from_survival, law_from_survival)]

        assert all(each.dtype == xp.float32 for each in [*results, *by_survival, law, beta_survival(rates, 2.0, 2)])
        assert np.asarray(results[0]).tolist() == [[1.75], [1.3125]]
        assert np.asarray(results[1]).tolist() == [[2.0], [1.5]]
        assert np.asarray(law).tolist() == [[[0.5, 0.25, 0.25]], [[0.75, 0.1875, 0.0625]]]
        assert np.asarray(results[2]).tolist() == [[0.6875], [0.33984375]]
        np.testing.assert_allclose(np.asarray(beta_survival(rates, 2.0, 2))[0], [[0.5, 1 / 3]], rtol=1e-6)

    def test_whole_numbers_count_as_reals(self):
        assert tokens_per_round(1, 3).dtype == np.float64
        assert beta_survival(0, 1, 3).dtype == np.float64

    @pytest.mark.parametrize(
        "function",
        [
            tokens_per_round,
            tokens_per_round_derivative,
            accepted_length_law,
            lambda rate, block_size: beta_survival(rate, 1, block_size),
        ],
    )
    def test_blocks_are_not_empty(self, function):
        with pytest.raises(ValueError, match="`block_size` must be at least 1, got 0; it counts the drafted tokens"):
            function(0.5, 0)

    def test_orders_of_a_derivative(self):
        with pytest.raises(ValueError, match="`order` must not be negative, got -1; 0 is the expectation itself"):
            tokens_per_round_derivative(0.5, 3, order=-1)

    @pytest.mark.parametrize("concentration", [0, -1, math.nan, math.inf])
    def test_concentration_outside_its_range(self, concentration):
        with pytest.raises(ValueError, match=f"`concentration` must be positive and finite, got {concentration}"):
            beta_survival(0.5, concentration, 3)
