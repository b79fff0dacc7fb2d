import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from tests import strategies
from theory import law_check, mistakes
from theory.law_check import FALSE_ALARM, POWER, check_law, detectable_distance, g_test

DRAWS = 20_000
UNIFORM = np.full(4, 0.25)


def drawing_from(law):
    """A sampler of independent outcomes."""
    return lambda rng, draws: rng.choice(len(law), size=draws, p=law)


class TestStatistic:
    def test_against_a_plain_g_test(self):
        """SciPy's power divergence, with Williams' correction written out for four equal cells."""
        counts = np.array([260, 230, 275, 235])
        statistic, _ = stats.power_divergence(counts, lambda_="log-likelihood")
        expected = stats.chi2.sf(statistic / (1 + (4 * 4 - 1) / (6 * 1000 * 3)), 3)

        assert g_test(counts, UNIFORM) == pytest.approx(expected, rel=1e-10)

    def test_runs_are_judged_one_by_one(self):
        counts = np.random.default_rng(1).multinomial(1000, UNIFORM, (2, 3))

        assert g_test(counts, UNIFORM).shape == (2, 3)
        assert g_test(counts, UNIFORM)[1, 2] == g_test(counts[1, 2], UNIFORM)

    def test_an_impossible_outcome_is_found_at_once(self):
        law = np.array([0.5, 0.5, 0.0])

        assert g_test(np.array([500, 499, 1]), law) == 0
        assert g_test(np.array([500, 500, 0]), law) == 1
        assert g_test(np.array([0, 99, 1]), np.array([0.0, 1.0, 0.0])) == 0
        assert g_test(np.array([0, 100, 0]), np.array([0.0, 1.0, 0.0])) == 1

    @pytest.mark.parametrize(
        ("law", "cells"),
        [
            ([0.5, 0.3, 0.2], 3),
            ([0.495, 0.495, 0.005, 0.005], 3),  # the rare ones together expect 10
            ([0.5, 0.495, 0.003, 0.002], 2),  # too few even together: they join the rarest common one
            ([0.99, 0.01, 0.0], 2),
            ([1.0, 0.0], 1),
        ],
    )
    def test_rare_outcomes_count_together(self, law, cells):
        target = np.array(law)
        found = law_check._cells(target, 1000)

        assert len(found) == cells
        assert (found @ target * 1000 >= law_check.LEAST_EXPECTED * (1 - 1e-12)).all()
        assert found.sum(axis=0).tolist() == (target > 0).astype(float).tolist(), "each outcome is in one cell"

    def test_outcomes_that_are_too_rare_join_the_rarest_common_one(self):
        found = law_check._cells(np.array([0.5, 0.3, 0.195, 0.005]), 1000)

        assert found.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]]

    @pytest.mark.parametrize(
        "target", [[0.3, 0.3, 0.4], [0.05, 0.05, 0.9], [0.02, 0.3, 0.68], [0.02, 0.02, 0.96], [0.015, 0.005, 0.98]]
    )
    def test_the_false_alarm_rate_is_the_stated_one(self, target):
        """Exactly, over every count of three outcomes: within a factor of two, where Pearson's test is off by 45."""
        draws, law = 500, np.array(target)
        first, second = np.divmod(np.arange((draws + 1) ** 2), draws + 1)
        counts = np.stack([first, second, draws - first - second], axis=1)[first + second <= draws]
        chance = np.exp(stats.multinomial.logpmf(counts, draws, law))
        p_values = g_test(counts, law)

        assert chance.sum() == pytest.approx(1)
        for rate in (0.05, 0.01, 1e-3, 1e-4, FALSE_ALARM):
            assert 0.5 <= chance[p_values <= rate].sum() / rate <= 2

    def test_the_rate_holds_for_a_vocabulary_of_rare_tokens(self):
        """1,000 outcomes that expect 10 draws each; without the correction there are three times as many alarms."""
        law = np.full(1000, 1e-3)
        alarms = (g_test(np.random.default_rng(2).multinomial(10_000, law, 1500), law) <= 0.01).sum()

        assert stats.binomtest(int(alarms), 1500, 0.01).pvalue > FALSE_ALARM


class TestDetectableDistance:
    @pytest.mark.parametrize("law", [[0.5, 0.5], [0.25] * 4, [0.05] * 20])
    def test_the_hardest_law_at_this_distance_is_found_as_often_as_stated(self, law):
        """Half of the mass gives to the other half: found in 99 % of 4,000 runs, within 5 standard errors."""
        target = np.array(law)
        distance = detectable_distance(target, DRAWS)
        half = np.arange(target.size) < target.size // 2
        wrong = target * np.where(half, 1 + 2 * distance, 1 - 2 * distance)
        found = (g_test(np.random.default_rng(3).multinomial(DRAWS, wrong, 4000), target) <= FALSE_ALARM).mean()

        assert abs(wrong - target).sum() / 2 == pytest.approx(distance)
        assert found == pytest.approx(POWER, abs=5 * math.sqrt(POWER * (1 - POWER) / 4000))
        assert law_check.power(wrong, target, DRAWS) == pytest.approx(POWER, abs=2e-3)

    def test_against_the_noncentral_chi_square_law(self):
        distance = detectable_distance(UNIFORM, DRAWS)
        critical = stats.chi2.isf(FALSE_ALARM, 3)

        assert stats.ncx2.sf(critical, 3, 4 * DRAWS * distance**2) == pytest.approx(POWER, rel=1e-9)
        assert distance == pytest.approx(0.02726, rel=1e-3)

    @given(strategies.distributions(4), strategies.distributions(4))
    def test_no_law_beyond_it_is_harder_to_find(self, target, wrong):
        distance, detectable = abs(target - wrong).sum() / 2, detectable_distance(target, DRAWS)
        assume(distance > detectable)
        assume(not ((target > 0) & (DRAWS * target < 10)).any())  # no outcomes are merged
        moved = target + detectable / distance * (wrong - target)

        assert law_check.power(moved, target, DRAWS) >= POWER - 1e-6

    def test_a_certain_outcome_is_missed_only_if_no_draw_leaves_it(self):
        distance = detectable_distance(np.array([0.0, 1.0]), 500)

        assert (1 - distance) ** 500 == pytest.approx(1 - POWER)
        assert law_check.power(np.array([distance, 1 - distance]), np.array([0.0, 1.0]), 500) == pytest.approx(POWER)

    def test_it_shrinks_with_the_root_of_the_draws(self):
        ratio = detectable_distance(UNIFORM, 1000) / detectable_distance(UNIFORM, 100_000)

        assert ratio == pytest.approx(10)

    def test_power_counts_impossible_outcomes(self):
        target, wrong = np.array([0.5, 0.5, 0.0]), np.array([0.4999, 0.4999, 0.0002])

        assert law_check.power(wrong, target, 10_000) == pytest.approx(1 - 0.9998**10_000, abs=1e-5)
        assert law_check.power(np.array([0.3, 0.6, 0.1]), target, 10_000) == 1


class TestCheck:
    def test_a_right_and_a_wrong_sampler(self):
        law = np.array([0.1, 0.2, 0.3, 0.4])
        right = check_law(drawing_from(law), law, draws=DRAWS, rng=np.random.default_rng(4))
        wrong = check_law(drawing_from(law[::-1]), law, draws=DRAWS, rng=np.random.default_rng(4))

        assert right.passes
        assert (right.draws, right.impossible, right.false_alarm) == (DRAWS, 0, FALSE_ALARM)
        assert right.detectable == detectable_distance(law, DRAWS)
        assert not wrong.passes

    def test_a_target_of_any_shape(self):
        law = np.array([[0.1, 0.2], [0.3, 0.4]])
        found = check_law(drawing_from(law.reshape(-1)), law, draws=2000, rng=np.random.default_rng(5))

        assert found.passes

    def test_an_impossible_outcome_fails_and_is_counted(self):
        found = check_law(drawing_from([0.999, 0.001]), [1.0, 0.0], draws=DRAWS, rng=np.random.default_rng(6))

        assert not found.passes
        assert found.p_value == 0
        assert 0 < found.impossible < 60

    def test_the_false_alarm_rate_is_a_choice(self):
        """10,150 of 20,000 coins show heads: p = .034."""

        def check(**rate):
            return check_law(
                lambda rng, draws: (np.arange(draws) < 10_150) * 1,
                [0.5, 0.5],
                draws=20_000,
                rng=np.random.default_rng(0),
                **rate,
            )

        assert check().passes
        assert not check(false_alarm=0.05).passes
        assert check(false_alarm=0.05).detectable < check().detectable

    @pytest.mark.parametrize("target", [[0.5, 0.6], [1.5, -0.5], [math.nan, 1.0]])
    def test_O11_a_target_that_is_no_distribution(self, target):
        with pytest.raises(ValueError, match="`target` must be a distribution"):
            check_law(drawing_from([0.5, 0.5]), target, draws=100, rng=np.random.default_rng(0))

    @pytest.mark.parametrize("outcome", [-1, 2])
    def test_O10_outcomes_that_do_not_exist(self, outcome):
        with pytest.raises(ValueError, match=rf"`sampler` must give outcomes in \[0, 2\), got {outcome}"):
            check_law(lambda rng, draws: np.full(draws, outcome), [0.5, 0.5], draws=100, rng=np.random.default_rng(0))

    def test_another_number_of_outcomes(self):
        with pytest.raises(ValueError, match=r"`sampler` must give 100 outcomes, got the shape \(3,\)"):
            check_law(lambda rng, draws: np.zeros(3, int), [0.5, 0.5], draws=100, rng=np.random.default_rng(0))

    @pytest.mark.parametrize("rate", [0.0, 1.0, math.nan])
    def test_an_impossible_rate(self, rate):
        with pytest.raises(ValueError, match=r"`false_alarm` must lie in \(0, 1\)"):
            check_law(drawing_from([0.5, 0.5]), [0.5, 0.5], draws=100, rng=np.random.default_rng(0), false_alarm=rate)

    @pytest.mark.parametrize(("law", "draws", "enough"), [([0.99, 0.01], 100, 1000), ([0.25] * 4, 15, 40)])
    def test_too_few_draws_to_tell_anything(self, law, draws, enough):
        with pytest.raises(ValueError, match=f"two outcomes expect 10 draws each, got {draws}; {enough} are enough"):
            check_law(drawing_from(law), law, draws=draws, rng=np.random.default_rng(0))
        assert check_law(drawing_from(law), law, draws=enough, rng=np.random.default_rng(0)).passes


@pytest.mark.parametrize("mistake", mistakes.known_mistakes(), ids=lambda each: each.name)
class TestKnownMistakes:
    """The right sampler passes, and the wrong one is found with probability .99 at these draws: 20 runs, and the power
    that follows from their frequencies."""

    def test_the_right_sampler_passes(self, mistake):
        rng = np.random.default_rng(8)

        assert all(check_law(mistake.right, mistake.target, draws=DRAWS, rng=rng).passes for _ in range(5))

    def test_the_wrong_sampler_is_found(self, mistake):
        outcomes = mistake.wrong(np.random.default_rng(9), 20 * DRAWS).reshape(20, DRAWS)
        counts = np.stack([np.bincount(run, minlength=mistake.target.size) for run in outcomes])

        assert (g_test(counts, mistake.target) <= FALSE_ALARM).all()
        assert law_check.power(counts.sum(axis=0) / counts.sum(), mistake.target, DRAWS) > POWER


class TestSamplers:
    """What each wrong sampler emits, as the cases say.

    Every tolerance is five standard errors of its share or more: a false alarm below 6e-7 each.
    """

    @staticmethod
    def law(name, draws=400_000):
        (mistake,) = (each for each in mistakes.known_mistakes() if name in each.name)
        return np.bincount(mistake.wrong(np.random.default_rng(10), draws), minlength=mistake.target.size) / draws

    @pytest.mark.parametrize(
        ("name", "law"),
        [
            ("accepts always (O02)", [0.8, 0.2]),
            ("raw instead of warped q (O03)", [0.5714285714, 0.4285714286, 0, 0]),
            ("soft q for a greedy draft (O04)", [0.8333333333, 0, 0.1666666667]),
            ("one Gumbel vector", [0.05, 0.214, 0.426, 0.31]),
        ],
    )
    def test_O02_O03_O04_O06_emitted_laws(self, name, law):
        np.testing.assert_allclose(self.law(name), law, atol=0.004)

    def test_O06_one_uniform_number_is_the_draft_the_test_and_the_replacement(self):
        """Every number of a fine grid, by a loop over the definition."""
        p, q = [0.05, 0.25, 0.4, 0.3], [0.7, 0.2, 0.05, 0.05]
        excess = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
        expected = np.zeros(4)
        for uniform in (np.arange(20_000) + 0.5) / 20_000:
            y = int(np.searchsorted(np.cumsum(q), uniform))
            rejected = uniform >= p[y] / q[y]
            expected[np.searchsorted(np.cumsum(excess) / sum(excess), uniform) if rejected else y] += 1 / 20_000

        np.testing.assert_allclose(self.law("one uniform number"), expected, atol=0.004)

    def test_O05_exact_match_accepts_too_little_and_emits_the_target(self):
        outcomes = self.law("exact match").reshape(2, 3)

        assert outcomes[1].sum() == pytest.approx(0.36, abs=0.004)
        np.testing.assert_allclose(outcomes.sum(axis=0), [0.5, 0.3, 0.2], atol=0.004)

    def test_O06_the_right_sampler_at_the_draws_of_the_case(self):
        p, q = np.array([0.05, 0.25, 0.4, 0.3]), np.array([0.7, 0.2, 0.05, 0.05])
        outcomes = mistakes.VerifiedToken(p=p, proposal=q)(np.random.default_rng(11), 200_000)

        np.testing.assert_allclose(np.bincount(outcomes) / 200_000, p, atol=0.006)

    def test_O16_acceptance_counts_drafts_alone(self):
        """The outcomes of accepted drafts have the mass 1 - TV; replacements are in the other half."""
        p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])
        sampler = mistakes.VerifiedToken(p=p, proposal=q, acceptance=True)

        assert sampler.target[3:].sum() == pytest.approx(0.9)
        assert sampler.target.sum() == pytest.approx(1)
        assert (sampler(np.random.default_rng(12), 100_000) >= 3).mean() == pytest.approx(0.9, abs=0.005)

    @given(strategies.pairs(), st.integers(0, 2**32 - 1))
    def test_no_sampler_draws_what_the_verifier_rules_out(self, pair, seed):
        p, q = pair
        emitted = mistakes.VerifiedToken(p=p, proposal=q)(np.random.default_rng(seed), 100)

        assert (p[emitted] > 0).all()
