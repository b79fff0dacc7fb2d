import math
from itertools import product
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given, target
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import special
from scipy.optimize import elementwise
from scipy.special import rel_entr

from tests import strategies
from theory.acceptance import (
    CactusAcceptance,
    LinearAcceptance,
    accept_prefix,
    parse_rule,
    raised_probability,
    raised_probability_taylor,
)
from theory.distances import binary_kullback_leibler, overlap, total_variation

EPS = np.finfo(float).eps
LAW_TOLERANCE = 64 * EPS  # products and sums over at most eight tokens
QUOTED = 1e-9  # cases quote ten digits
LOSSLESS = LinearAcceptance(leniency=0)
TINY = float(np.finfo(float).smallest_normal)


def emitted_law(rule, p, q):
    """Law of the emitted token and chance of acceptance, by enumerating every draft: the oracle of this file."""
    law, accepted = np.zeros_like(p), 0.0
    for y in np.flatnonzero(q):
        passes = float(rule.probability(p[y], q[y]))
        law[y] += q[y] * passes
        law += q[y] * (1 - passes) * rule.residual(p, q, np.asarray(y))
        accepted += q[y] * passes
    return law, accepted


class TestPrefix:
    def test_against_the_loop_of_algorithm_1(self, xp: ModuleType):
        rng = np.random.default_rng(0)
        acceptance, uniforms = rng.choice([0, 0.5, 1], (40, 5)), rng.choice([0, 0.25, 0.5, 0.75], (40, 5))
        expected = []
        for a, u in zip(acceptance, uniforms, strict=True):
            k = 0
            while k < 5 and u[k] < a[k]:
                k += 1
            expected.append(k)

        result = accept_prefix(xp.asarray(acceptance), xp.asarray(uniforms))

        assert np.asarray(result).tolist() == expected

    def test_broadcasts_and_takes_empty_blocks(self, xp: ModuleType):
        uniforms = xp.asarray([[[0.1, 0.9]], [[0.9, 0.1]]])

        assert np.asarray(accept_prefix(xp.asarray([0.5, 1.0]), uniforms)).tolist() == [[2], [0]]
        assert int(accept_prefix(xp.asarray([]), xp.asarray([]))) == 0

    def test_nan_rejects(self, xp: ModuleType):
        assert int(accept_prefix(xp.asarray([1.0, math.nan, 1.0]), xp.asarray([0.0, 0.0, 0.0]))) == 1

    def test_O01_a_forbidden_token_is_rejected_even_at_zero(self, xp: ModuleType):
        p, q = xp.asarray([0.0, 1.0]), xp.asarray([0.5, 0.5])
        acceptance = LOSSLESS.probability(p[:1], q[:1])

        assert int(accept_prefix(acceptance, xp.asarray([0.0]))) == 0
        assert np.asarray(LOSSLESS.residual(p, q, xp.asarray(0))).tolist() == [0.0, 1.0]

    def test_O02_a_constant_uniform_shows_in_the_acceptance_rate(self):
        p, q, n = np.array([0.2, 0.8]), np.array([0.8, 0.2]), 20_000
        rng = np.random.default_rng(2)
        drafted = rng.choice(2, size=n, p=q)
        acceptance = LOSSLESS.probability(p[drafted], q[drafted])[:, None]
        tolerance = 0.015  # 4.3 standard deviations of 20 000 trials: a false alarm once in 60 000 seeds

        accepted = accept_prefix(acceptance, rng.random((n, 1)))
        emitted = np.where(accepted == 1, drafted, 1)

        assert accepted.mean() == pytest.approx(0.4, abs=tolerance)
        assert (emitted == 0).mean() == pytest.approx(0.2, abs=tolerance)
        assert accept_prefix(acceptance, np.zeros((n, 1))).mean() == 1


class TestEmittedLaw:
    @given(strategies.pairs(), strategies.linear_rules)
    def test_linear_acceptance_emits_its_target(self, pair, rule):
        p, q = pair
        law, accepted = emitted_law(rule, p, q)
        relaxed = rule.target(p, q, np.asarray(0))

        np.testing.assert_allclose(law, relaxed, rtol=0, atol=LAW_TOLERANCE)
        assert accepted == pytest.approx(overlap(relaxed, q), abs=LAW_TOLERANCE)

    @given(strategies.pairs(), strategies.linear_rules)
    def test_linear_acceptance_attains_the_bound_of_theorem_1(self, pair, rule):
        p, q = pair
        _, accepted = emitted_law(rule, p, q)
        deviation = total_variation(rule.target(p, q, np.asarray(0)), p)

        assert deviation == pytest.approx(rule.leniency * total_variation(p, q), abs=LAW_TOLERANCE)
        assert accepted == pytest.approx(1 - total_variation(p, q) + deviation, abs=LAW_TOLERANCE)

    @given(strategies.pairs(), strategies.cactus_rules)
    def test_cactus_trades_acceptance_for_deviation_one_for_one(self, pair, rule):
        p, q = pair
        law, accepted = emitted_law(rule, p, q)

        assert law.sum() == pytest.approx(1, abs=LAW_TOLERANCE)
        assert accepted == pytest.approx(1 - total_variation(p, q) + total_variation(law, p), abs=LAW_TOLERANCE)

    @given(strategies.pairs(), strategies.cactus_rules, st.integers(0, 3))
    def test_cactus_target_is_a_distribution_within_its_budget(self, pair, rule, y):
        p, q = pair
        target_law = rule.target(p, q, np.asarray(y))

        assert target_law.sum() == pytest.approx(1, abs=LAW_TOLERANCE)
        assert target_law[y] >= p[y]
        if rule.solver == "exact":
            spent = binary_kullback_leibler(target_law[y], p[y])
            # γ carries a rounding error, which the slope of the divergence, below 500 here, passes on
            assert spent <= rule.budget + 500 * EPS

    @given(strategies.pairs(), strategies.rules)
    def test_residual_is_a_distribution_over_permitted_tokens(self, pair, rule):
        p, q = pair
        for y in np.flatnonzero(q):
            law = rule.residual(p, q, np.asarray(y))

            assert law.sum() == pytest.approx(1, abs=LAW_TOLERANCE)
            assert (law[rule.target(p, q, np.asarray(y)) == 0] == 0).all()

    @given(strategies.pairs(), strategies.rules)
    def test_what_is_known_of_the_target_is_not_solved_for_again(self, pair, rule):
        p, q = pair
        for y in np.flatnonzero(q):
            known = rule.drafted_target(p[y], q[y])

            assert known == rule.target(p, q, np.asarray(y))[y]
            assert (rule.residual(p, q, np.asarray(y), known) == rule.residual(p, q, np.asarray(y))).all()

    def test_O04_a_greedy_draft_is_scored_as_certain(self):
        p, soft, certain = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.3, 0.1]), np.array([1.0, 0, 0])

        for leniency, expected in ((0.0, 0.5), (0.4, 0.7), (1.0, 1.0)):
            law, accepted = emitted_law(LinearAcceptance(leniency=leniency), p, certain)
            assert accepted == pytest.approx(expected)
            np.testing.assert_allclose(law, (1 - leniency) * p + leniency * certain, atol=LAW_TOLERANCE)
        assert LOSSLESS.probability(p[0], soft[0]) == pytest.approx(0.8333333333), "with the softmax that was not drawn"

    def test_O03_laws_are_those_that_were_sampled(self):
        p, q = np.array([0.625, 0.375, 0, 0]), np.array([0.4, 0.3, 0, 0]) / 0.7
        raw = np.array([0.4, 0.3, 0.2, 0.1])
        law, accepted = emitted_law(LOSSLESS, p, q)

        assert total_variation(p, q) == pytest.approx(0.0535714286, rel=QUOTED)
        assert accepted == pytest.approx(0.9464285714, rel=QUOTED)
        np.testing.assert_allclose(law, p, atol=LAW_TOLERANCE)
        assert (LOSSLESS.probability(p[:2], raw[:2]) == 1).all(), "the raw softmax in the ratio accepts everything"

    def test_O05_acceptance_is_the_overlap_not_the_chance_of_a_match(self):
        p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])
        _, accepted = emitted_law(LOSSLESS, p, q)

        assert accepted == pytest.approx(0.9)
        assert p @ q == pytest.approx(0.36)

    def test_O07_nothing_left_after_rounding_falls_back_to_the_target(self, xp: ModuleType):
        p = xp.asarray([0.5, 0.5, 0.0], dtype=xp.float32)
        q = xp.asarray([0.50000006, 0.5, 0.0], dtype=xp.float32)

        residual = LOSSLESS.residual(p, q, xp.asarray(0))

        assert float(LOSSLESS.probability(p[0], q[0])) < 1
        assert np.asarray(residual).tolist() == [0.5, 0.5, 0.0]

    @pytest.mark.parametrize("rule", [LOSSLESS, CactusAcceptance(budget=1)])
    def test_O10_a_placeholder_id_is_not_the_last_token(self, xp: ModuleType, rule):
        p, q = (xp.asarray(law, dtype=xp.float64) for law in ([0.1, 0.9], [0.6, 0.4]))

        assert np.asarray(rule.target(p, q, xp.asarray(-1))).tolist() == [0.1, 0.9]

    def test_O18_one_hot_laws(self, xp: ModuleType):
        p, q = xp.asarray([0.0, 1.0, 0.0]), xp.asarray([0.0, 0.0, 1.0])

        assert float(total_variation(p, q)) == 1
        assert float(LOSSLESS.probability(p[2], q[2])) == 0
        assert np.asarray(LOSSLESS.residual(p, q, xp.asarray(2))).tolist() == [0.0, 1.0, 0.0]

    @pytest.mark.parametrize("rule", [LinearAcceptance(leniency=0.3), CactusAcceptance(budget=0.5)])
    def test_the_libraries_agree(self, xp: ModuleType, rule):
        rng = np.random.default_rng(3)
        p, q = rng.dirichlet(np.ones(5), (2, 3)), rng.dirichlet(np.ones(5), (2, 3))
        drafted = rng.integers(0, 5, (2, 3))
        ours = [xp.asarray(values) for values in (p, q, drafted)]

        for method in ("target", "residual"):
            expected = getattr(rule, method)(p, q, drafted)
            np.testing.assert_allclose(np.asarray(getattr(rule, method)(*ours)), expected, rtol=8 * EPS)
            assert expected.shape == (2, 3, 5)

    def test_a_token_that_was_not_drafted_has_no_acceptance(self, xp: ModuleType):
        p, q = (xp.asarray(values, dtype=xp.float64) for values in ([0.5, 0.0, 0.5], [0.0, 0.0, 1e-310]))

        assert np.asarray(LOSSLESS.probability(p, q)).tolist() == [0.0, 0.0, 1.0]

    def test_nan_is_not_accepted(self):
        for p, q in ((math.nan, 0.5), (0.5, math.nan)):
            assert np.isnan(LOSSLESS.probability(np.float64(p), np.float64(q)))


class TestRaisedProbability:
    def test_O71_reference_values(self, xp: ModuleType):
        p = [0.3, 0.3, 0.3, 0.3, 1e-8, 1e-8, 1e-8, 1e-30, 0.999999, 0.999999, 0.0, 1.0]
        budget = [0, 0.25, 1, 5, 0.25, 8, 18.420680743952367, 1.0, 0.25, 1e-7, 5, 0.25]
        gamma = [0.3, 0.643128886239, 0.959468268041, 1, 0.018594099399, 0.471837070248, 1, 0.01564268037, 1]
        gamma += [0.99999941246, 0, 1]

        result = raised_probability(xp.asarray(p, dtype=xp.float64), xp.asarray(budget, dtype=xp.float64))

        np.testing.assert_allclose(np.asarray(result), gamma, rtol=QUOTED)
        assert 1 - float(result[9]) == pytest.approx(5.8754e-07, rel=1e-3)

    @given(st.floats(1e-270, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
    @example(0.999999, 1e-7)
    @example(1e-8, 0.999999)
    @example(0.4999999, 1e-5)
    @example(0.125, 1e-83)
    @example(0.5, 5e-324)
    @example(1e-270, 1e-291)
    @example(0.5, 1.5e-28)  # the rise is 64 eps
    @example(0.03990868135475339, 0.7760084388006852)  # six steps are not enough
    def test_the_root_lies_within_rounding_of_fifty_digit_arithmetic(self, p, share):
        self.assert_root(p, -math.log(p) * share)

    @pytest.mark.parametrize(("p", "budget"), [(TINY, 50.0), (TINY, 1e-300), (3e-308, 50.0), (1e-300, 2.2e-315)])
    def test_the_root_at_the_smallest_probabilities_and_rises(self, p, budget):
        self.assert_root(p, budget)

    @pytest.mark.parametrize(("p", "budget"), [(3e-308, 1e-310), (1.016e-300, 6.8e-316), (1.495e-300, 4.05e-317)])
    def test_a_rise_that_is_hardly_a_normal_number_counts_as_none(self, p, budget):
        """The roots are p (1 + 8e-2), p (1 + 4e-8) and p (1 + 7e-9)."""
        assert raised_probability(np.float64(p), budget) == p

    @staticmethod
    def assert_root(p, budget):
        gamma = float(raised_probability(np.float64(p), budget))
        with mp.workdps(50):

            def excess(g):
                g = min(max(g, mpf(p)), 1)
                rest = (1 - g) * (mp.log1p(-g) - mp.log1p(-mpf(p))) if g < 1 else 0
                return g * mp.log(g / mpf(p)) + rest - mpf(budget)

            # the divergence errs by a few eps of the rise, and Newton's step passes that on as eps of p
            reach = mpf(16 * EPS) * mpf(gamma)

            assert excess(mpf(gamma) - reach) <= 0
            assert gamma == 1 or excess(mpf(gamma) + reach) >= 0

    @given(strategies.all_magnitudes, strategies.budgets | st.floats(0, 1))
    @example(1e-300, 50.0)
    @example(1e-300, 690.7755278982137)  # the next float is -log p
    @example(4e-277, 636.0)
    def test_the_budget_is_spent_to_twelve_decimals(self, p, budget):
        gamma = float(raised_probability(np.float64(p), budget))
        with mp.workdps(50):
            g, r = mpf(gamma), mpf(p)
            spent = g * mp.log(g / r) + ((1 - g) * (mp.log1p(-g) - mp.log1p(-r)) if gamma < 1 else 0)
            left = abs(spent - min(budget, -mp.log(r)))
        target(float(left))

        assert p <= gamma <= 1
        assert left <= 1e-12

    def test_against_scipy_root_finding_over_all_magnitudes(self):
        rng = np.random.default_rng(7)
        p = np.concatenate([10 ** rng.uniform(-300, 0, 2000), 1 - 10 ** rng.uniform(-15, 0, 1000)])
        budget = np.minimum(50, -np.log(p) * (1 - 1e-12)) * rng.choice([1, 1e-3, 1e-9], p.size) * rng.random(p.size)

        def excess(log_odds, p, budget):  # γ and 1 - γ both keep their digits in the log-odds of γ
            gain, loss = (special.log_expit(log_odds) - np.log(p), special.log_expit(-log_odds) - np.log1p(-p))
            return special.expit(log_odds) * gain + special.expit(-log_odds) * loss - budget

        start = special.logit(p)
        root = elementwise.find_root(excess, (start, np.full(p.size, 800.0)), args=(p, budget))
        difference = raised_probability(p, budget) - special.expit(root.x)
        slope = root.x - start

        assert root.success.all()
        assert np.abs(difference * slope).max() <= 1e-12

    @given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-3, 0.999))
    def test_against_scipy_root_finding(self, p, share):
        budget = -math.log(p) * share

        def excess(gamma):
            return rel_entr(gamma, p) + rel_entr(1 - gamma, 1 - p) - budget

        root = elementwise.find_root(excess, (p, 1.0))
        result = float(raised_probability(np.float64(p), budget))
        target(abs(result - float(root.x)))

        assert root.success
        # SciPy's divergence errs by some eps; its slope at the root is at least 2 sqrt(budget)
        assert result == pytest.approx(float(root.x), abs=32 * EPS / math.sqrt(budget))

    def test_grows_with_probability_and_budget_and_stays_in_range(self):
        p = np.concatenate([[0], np.logspace(-300, -1, 150), np.linspace(0.1, 1, 150), 1 - np.logspace(-1, -16, 50)])
        p.sort()
        budget = np.concatenate([[0], np.logspace(-12, 2, 200)])
        gamma = raised_probability(p[:, None], budget)

        assert ((gamma >= p[:, None]) & (gamma <= 1)).all()
        assert (gamma[:, 0] == p).all()
        assert (np.diff(gamma, axis=0) >= -8 * EPS * gamma[1:]).all()
        assert (np.diff(gamma, axis=1) >= -8 * EPS * gamma[:, 1:]).all()

    @pytest.mark.parametrize(("p", "budget", "gamma"), [(0, 3, 0), (1, 0, 1), (0.2, 1.7, 1), (1e-310, 700, 1e-310)])
    def test_corners(self, p, budget, gamma):
        assert raised_probability(np.float64(p), budget) == gamma

    def test_single_precision_is_solved_in_double_and_returned_as_it_came(self, xp: ModuleType):
        p = xp.asarray([1e-8, 0.3, 0.99999994, 1.0], dtype=xp.float32)
        result = raised_probability(p, 0.25)
        wide = raised_probability(xp.astype(p, xp.float64), 0.25)

        assert result.dtype == xp.float32
        np.testing.assert_array_equal(np.asarray(result), np.asarray(wide).astype(np.float32))

    def test_huge_budgets_do_not_overflow(self):
        assert raised_probability(np.array([0.0, 1e-270, 0.5]), 1e300).tolist() == [0, 1, 1]

    def test_taylor_is_the_published_formula(self, xp: ModuleType):
        p = xp.asarray([0.0, 0.1, 0.5, 1.0], dtype=xp.float64)

        result = np.asarray(raised_probability_taylor(p, 0.02))

        np.testing.assert_allclose(result, [0, 0.16, 0.6, 1], rtol=8 * EPS)
        assert float(raised_probability_taylor(np.float64(0.5), 8)) == 1
        rule = CactusAcceptance(budget=0.02, solver="taylor")
        assert np.asarray(rule.probability(p, p * 0 + 0.8)).tolist() == pytest.approx([0, 0.2, 0.75, 1])

    @given(st.floats(0.5, 1, exclude_max=True), strategies.budgets)
    def test_taylor_is_an_upper_bound_from_one_half_on(self, p, budget):
        exact, taylor = raised_probability(np.float64(p), budget), raised_probability_taylor(np.float64(p), budget)

        assert taylor >= exact * (1 - 8 * EPS)


class TestSettings:
    @pytest.mark.parametrize(
        ("rule", "label"),
        [
            (LinearAcceptance(leniency=0.25), "linear:0.25"),
            (LinearAcceptance(leniency=-0.0), "linear:0"),
            (LinearAcceptance(leniency=1), "linear:1"),
            (CactusAcceptance(budget=1), "cactus:1"),
            (CactusAcceptance(budget=1e-12), "cactus:1e-12"),
            (CactusAcceptance(budget=20, solver="taylor"), "cactus-taylor:20"),
        ],
    )
    def test_labels_can_be_read_back(self, rule, label):
        assert rule.label == label
        assert parse_rule(label) == rule

    def test_O63_equal_settings_have_equal_labels(self):
        assert LinearAcceptance(leniency=0.1 * 3).label == LinearAcceptance(leniency=0.3).label

    @given(strategies.rules)
    def test_a_label_is_canonical(self, rule):
        assert parse_rule(rule.label).label == rule.label

    @pytest.mark.parametrize("leniency", [1.2, -0.1, math.nan, math.inf])
    def test_leniency_outside_its_range(self, leniency):
        with pytest.raises(ValueError, match=rf"`leniency` must lie in \[0, 1\], got {leniency}; 0 is lossless"):
            LinearAcceptance(leniency=leniency)

    @pytest.mark.parametrize("budget", [-1, math.nan, math.inf])
    def test_budget_outside_its_range(self, budget):
        with pytest.raises(ValueError, match=f"`budget` must be finite and not negative, got {budget}; 0 is lossless"):
            CactusAcceptance(budget=budget)

    def test_unknown_solver(self):
        with pytest.raises(ValueError, match=r"`solver` must be .* got 'newton'"):
            CactusAcceptance(budget=1, solver="newton")

    @pytest.mark.parametrize(
        "label", [f"{kind}{rest}" for kind, rest in product(("linear", "cactus", "other"), ("", ":", ":x", ":nan"))]
    )
    def test_unreadable_labels(self, label):
        with pytest.raises(ValueError, match=r"^`label` must be linear:LENIENCY"):
            parse_rule(label)
