import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import nnls

from tests.recordings import make_rounds
from tests.strategies import token_laws
from theory.estimates import clustered_median
from theory.latency import fit_latency, fit_line, rounds_per_request, tokens_per_second

EPS = np.finfo(float).eps
FIT_TOLERANCE = 1e-12  # a two-parameter fit to well-scaled numbers keeps twelve digits


def timed(effort, draft_seconds, **columns):
    count = len(effort)
    default = {
        "prompt": [f"{row}" for row in range(count)],
        "effort": effort,
        "draft_seconds": draft_seconds,
        "verify_seconds": np.full(count, 0.02),
        "overhead_seconds": np.full(count, 0.001),
    }
    return make_rounds(count, 1, **(default | columns))


def test_O37_no_time_is_not_infinite_speed():
    assert math.isnan(tokens_per_second(12, 0.0))
    assert math.isnan(tokens_per_second(12, math.nan))
    np.testing.assert_array_equal(tokens_per_second([12, 12], [0.0, 2.0]), [math.nan, 6.0])


def test_O37_draft_times_below_the_clock_are_refused():
    with pytest.raises(ValueError, match="below the clock's resolution"):
        fit_line([1, 1, 2], [0.0, 0.0, 0.1])


def test_O38_a_negative_intercept_is_fixed_at_zero():
    efforts, seconds = np.array([1, 2, 4, 8]), np.array([1.0, 5.2, 14.1, 31.5])
    line = fit_line(efforts, seconds)

    assert stats.linregress(efforts, seconds).intercept == pytest.approx(-3.426087, abs=1e-6)
    assert line.flags == ("negative_intercept",)
    assert line.draft_intercept_seconds == 0
    assert line.draft_slope_seconds == pytest.approx(3.762353, abs=1e-6)
    assert line.draft_intercept_seconds_se is None
    assert all(line.draft_seconds(effort) > 0 for effort in (0.1, 1, 100))


def test_a_negative_slope_is_fixed_at_zero():
    line = fit_line([1, 2, 3], [2.1, 2.0, 1.9])

    assert line.flags == ("negative_slope",)
    assert (line.draft_intercept_seconds, line.draft_slope_seconds) == (pytest.approx(2), 0)


def test_a_coefficient_whose_interval_holds_zero_is_flagged():
    efforts, seconds = [1, 2, 3, 4], [2.0, 2.4, 1.9, 2.5]
    line, expected = fit_line(efforts, seconds), stats.linregress(efforts, seconds)

    assert expected.pvalue > 0.05
    assert line.flags == ("slope_not_significant",)
    assert fit_line(efforts, [1.1, 2.0, 3.1, 3.9]).flags == ("intercept_not_significant",)
    assert fit_line(efforts, [3.1, 4.0, 5.1, 5.9]).flags == ()


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=6))
def test_constrained_fit_against_scipy(seconds):
    efforts = np.arange(1, len(seconds) + 1)
    line = fit_line(efforts, seconds)
    (intercept, slope), _ = nnls(np.stack([np.ones(efforts.size), efforts], axis=1), np.array(seconds))

    assert line.draft_intercept_seconds == pytest.approx(intercept, abs=1e-10)
    assert line.draft_slope_seconds == pytest.approx(slope, abs=1e-10)


def test_O39_one_pause_does_not_move_the_fit():
    effort = np.repeat([1, 2, 3, 4], 5)
    seconds = (20 + 3.0 * effort) * 1e-3
    seconds[0] = 0.9
    line = fit_line(effort, seconds)

    assert line.draft_intercept_seconds == pytest.approx(0.020, rel=FIT_TOLERANCE)
    assert line.draft_slope_seconds == pytest.approx(0.003, rel=FIT_TOLERANCE)
    assert stats.linregress(effort, seconds).slope == pytest.approx(-0.04962, rel=1e-3), "raw times turn it around"


def test_standard_errors_and_fit_quality_against_scipy():
    efforts, seconds = [1, 2, 3, 4, 6], [4.1, 5.9, 8.3, 9.8, 14.1]
    line, expected = fit_line(efforts, seconds), stats.linregress(efforts, seconds)

    assert line.draft_slope_seconds == pytest.approx(expected.slope, rel=FIT_TOLERANCE)
    assert line.draft_intercept_seconds == pytest.approx(expected.intercept, rel=FIT_TOLERANCE)
    assert line.draft_slope_seconds_se == pytest.approx(expected.stderr, rel=FIT_TOLERANCE)
    assert line.draft_intercept_seconds_se == pytest.approx(expected.intercept_stderr, rel=FIT_TOLERANCE)
    assert line.r_squared == pytest.approx(expected.rvalue**2, rel=FIT_TOLERANCE)
    assert line.draft_seconds(3) - line.draft_median_seconds[2] == pytest.approx(-line.residuals[2], abs=1e-12)


def test_efforts_weigh_by_their_rounds():
    effort, seconds = [1] * 9 + [2, 3], [2.0] * 9 + [3.0, 5.0]
    slope, intercept = np.polyfit([1, 2, 3], [2, 3, 5], 1, w=np.sqrt([9, 1, 1]))
    line = fit_line(effort, seconds)

    assert line.rounds_per_effort == (9, 1, 1)
    assert line.draft_slope_seconds == pytest.approx(slope, rel=FIT_TOLERANCE)
    assert line.draft_intercept_seconds == pytest.approx(intercept, rel=FIT_TOLERANCE)


def test_two_efforts_give_a_line_without_errors():
    line = fit_line([1, 2], [1.0, 1.5])

    assert line.flags == ("two_efforts",)
    assert (line.draft_intercept_seconds, line.draft_slope_seconds) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (line.draft_intercept_seconds_se, line.draft_slope_seconds_se, line.r_squared) == (None, None, None)


def test_one_effort_is_known_at_that_effort_only():
    line = fit_line([2, 2, 2], [1.0, 1.5, 1.25])

    assert line.flags == ("one_effort",)
    assert line.draft_slope_seconds is None
    assert line.draft_seconds(2) == 1.25
    with pytest.raises(ValueError, match="`effort` must be 2, the only one recorded, got 3"):
        line.draft_seconds(3)


def test_effort_counts_steps():
    with pytest.raises(ValueError, match="`effort` must be positive, got 0"):
        fit_line([1, 2], [1.0, 1.5]).draft_seconds(0)


def test_times_of_a_round():
    fit = fit_latency(timed([1, 2, 3], [1.0, 2.0, 3.0], verify_seconds=[5.0, 6.0, 100.0]))

    assert fit.verify_seconds == 6.0
    assert fit.verify_seconds_se == clustered_median([5.0, 6.0, 100.0], ["0", "1", "2"])[1]
    assert fit.overhead_seconds == 0.001
    assert (fit.prefill_seconds, fit.prefill_seconds_se, fit.noise_floor) == (None, None, None)


def test_O40_prefill_is_kept_apart():
    fit = fit_latency(timed([1, 1], [1.0, 1.0], round=[0, 1], prompt=["a", "a"], prefill_seconds=[2.0, math.nan]))

    assert (fit.prefill_seconds, fit.prefill_seconds_se) == (2.0, None)
    assert fit.verify_seconds == 0.02


def test_noise_floor_is_the_difference_of_a_cell_from_its_duplicate():
    prompts, replicas = ["a", "b", "a", "a", "b"], [0, 0, 0, 1, 1]
    draft = [1.0, 1.0, 2.0, 1.25, 1.25]
    fit = fit_latency(timed([1, 1, 2, 1, 1], draft, prompt=prompts, replica=replicas, verify_seconds=[1.5] * 5))

    assert fit.noise_floor == pytest.approx(2.75 / 2.5 - 1, rel=8 * EPS)
    assert fit.rounds_per_effort == (2, 1), "the duplicate is not fitted"


def test_noise_floor_is_taken_within_the_prompts_that_were_decoded_twice():
    draft, prompts, replicas = [1.0, 1.25, 9.0, 9.0], ["a", "a", "b", "c"], [0, 1, 0, 0]
    fit = fit_latency(timed([1] * 4, draft, prompt=prompts, replica=replicas, verify_seconds=[1.5] * 4))

    assert fit.noise_floor == pytest.approx(2.75 / 2.5 - 1, rel=8 * EPS)


def test_times_that_were_not_measured():
    unknown = [math.nan] * 2

    assert fit_latency(timed([1, 2], unknown, verify_seconds=unknown)) is None
    assert fit_latency(timed([1, 2], [1.0, 2.0], overhead_seconds=unknown)).overhead_seconds is None
    with pytest.raises(ValueError, match="`draft_seconds` must be measured in every round, got 1 of 2 not measured"):
        fit_latency(timed([1, 2], [1.0, math.nan]))
    with pytest.raises(ValueError, match="`verify_seconds` must be measured in every round, got 2 of 2 not measured"):
        fit_latency(timed([1, 2], [1.0, 2.0], verify_seconds=unknown))


@given(token_laws(), st.integers(1, 6))
def test_rounds_of_a_request_by_enumerating_every_sequence_of_rounds(law, length):
    def enumerate_rounds(lacking, chance):
        """Sum over every way to fill the text of its chance times its rounds."""
        if lacking <= 0:
            return 0.0
        return chance + sum(enumerate_rounds(lacking - k, chance * law[k - 1]) for k in range(1, law.size + 1))

    mean = np.arange(1, law.size + 1) @ law

    assert rounds_per_request(law, [length]) == pytest.approx(enumerate_rounds(length, 1.0), rel=1e-12)
    assert length / mean - 1e-12 <= rounds_per_request(law, [length]) <= (length + law.size - 1) / mean + 1e-12


def test_the_last_round_of_a_request_is_cut():
    whole_blocks = [0, 0, 0, 1]

    assert rounds_per_request(whole_blocks, [9]) == 3
    assert rounds_per_request(whole_blocks, [9, 4]) == 2
    np.testing.assert_array_equal(rounds_per_request([whole_blocks, [1, 0, 0, 0]], [9]), [3, 9])
    with pytest.raises(ValueError, match="`lengths` must be at least 1, got none"):
        rounds_per_request(whole_blocks, [])
    with pytest.raises(ValueError, match=r"`lengths` must be at least 1, got \[3, 0\]"):
        rounds_per_request(whole_blocks, [3, 0])


def test_time_of_a_round():
    fit = fit_latency(timed([1, 2, 3], [1.0, 2.0, 3.0]))

    assert fit.round_seconds(2) == pytest.approx(2.02)
    assert fit.round_seconds(2, block=1, context=10) == pytest.approx(2.02)
    assert fit.round_seconds(2, overhead=True) == pytest.approx(2.021)
    with pytest.raises(ValueError, match=r"`block` must lie in \[1, 1\]"):
        fit.round_seconds(2, block=8, context=10)
    unknown = fit_latency(timed([1, 2], [1.0, 2.0], overhead_seconds=[math.nan] * 2))
    with pytest.raises(ValueError, match="`overhead` must be False where it was not measured"):
        unknown.round_seconds(1, overhead=True)
