from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.recordings import make_requests, make_rounds
from tests.theory.test_prediction import linear, paper_calibration
from theory.comparison import QUANTITIES, compare
from theory.measurements import measure
from theory.prediction import predict


def measured(tokens_per_second, rule="linear:0", divergence=0.5):
    """Cells of efforts 1.. measured at the given speeds, with one token a round and leniency times .5 spent."""
    count = len(tokens_per_second)
    effort = np.arange(1, count + 1)
    speeds = np.asarray(tokens_per_second, float)
    requests = make_requests(count, prompt=["a"] * count, effort=effort, rule=[rule] * count, seconds=10 / speeds)
    slots = np.full((count, 2), divergence)
    return measure(
        make_rounds(count, 2, prompt=["a"] * count, effort=effort, rule=[rule] * count, divergence=slots), requests
    )


def together(*measurements):
    return type(measurements[0]).concatenate(measurements)


def test_cells_are_matched_by_effort_and_rule():
    comparison = compare(predict(paper_calibration(), linear(0.5, 0)), measured([50, 40]))

    assert comparison.effort.tolist() == [1, 2]
    assert comparison.rule.tolist() == ["linear:0", "linear:0"]
    assert len(comparison) == 2
    assert comparison.model == "iid"


def test_errors_are_relative_to_the_measurement():
    prediction = predict(paper_calibration(), linear(0))
    speeds = prediction.tokens_per_second / [1.5, 1, 0.5, 1]
    errors = compare(prediction, measured(speeds)).tokens_per_second

    assert errors.relative == pytest.approx([0.5, 0, -0.5, 0])
    assert (errors.median, errors.maximum) == (pytest.approx(0.25), pytest.approx(0.5))
    assert errors.inside.tolist() == [0, 1, 0, 1]


def test_every_quantity_is_compared():
    comparison = compare(predict(paper_calibration(), linear(0)), measured([50, 40, 30, 20]))

    assert set(QUANTITIES) == {
        "acceptance_rate", "agreement", "tokens_per_round", "tokens_per_second", "seconds_per_request"
    }  # fmt: skip
    for name in QUANTITIES:
        errors = getattr(comparison, name)
        assert errors.predicted.shape == errors.measured.shape == (4,)
    assert comparison.tokens_per_round.relative == pytest.approx(comparison.tokens_per_round.predicted - 1)
    assert not comparison.tokens_per_round.inside.any()
    assert comparison.seconds_per_request.measured == pytest.approx([10 / 50, 10 / 40, 10 / 30, 10 / 20])


@pytest.mark.parametrize("seed", range(5))
def test_rank_correlation_by_counting_pairs(seed):
    prediction = predict(paper_calibration(), linear(0))
    speeds = np.random.default_rng(seed).permutation(4) + 1.0
    score = [
        np.sign((prediction.tokens_per_second[i] - prediction.tokens_per_second[j]) * (speeds[i] - speeds[j]))
        for i, j in combinations(range(4), 2)
    ]

    assert compare(prediction, measured(speeds)).tokens_per_second.kendall_tau == pytest.approx(np.mean(score))


def test_one_cell_has_no_ranking():
    assert np.isnan(compare(predict(paper_calibration(), linear(0)), measured([50])).tokens_per_second.kendall_tau)


def test_without_intervals_nothing_is_inside_or_outside():
    unknown = (None,) * 4
    prediction = predict(paper_calibration(divergence_low=unknown, divergence_high=unknown), linear(0))

    assert np.isnan(compare(prediction, measured([50, 40])).tokens_per_second.inside).all()


def test_an_error_below_the_spread_says_nothing():
    """Two prompts at 8 and 12 tokens a second: the standard error is 2 of 9.6, so an error of 30 % could be chance."""
    rounds = make_rounds(2, 2, prompt=["a", "b"])
    measurements = measure(rounds, make_requests(2, prompt=["a", "b"], seconds=[10 / 8, 10 / 12]))
    prediction = predict(paper_calibration(), linear(0))
    near = replace(prediction, tokens_per_second=np.full(4, 9.6 * 1.3))
    far = replace(prediction, tokens_per_second=np.full(4, 9.6 * 1.5))
    errors = compare(near, measurements).tokens_per_second

    assert errors.measured == pytest.approx([9.6])
    assert errors.spread == pytest.approx(1.959964 * measurements.tokens_per_second_se / 9.6)
    assert 0.3 < errors.spread[0] < 0.5
    for factor, spread in ((1.1, errors.spread[0]), (1.9, 0.9)):
        again = replace(measurements, tokens_per_second=factor * measurements.tokens_per_second)
        repeated = compare(near, measurements, runs=(measurements, again)).tokens_per_second
        assert repeated.spread == pytest.approx([spread]), "the larger of the two"
    assert errors.within_spread.tolist() == [True]
    assert compare(far, measurements).tokens_per_second.within_spread.tolist() == [False]


def test_another_run_shows_the_spread():
    prediction = predict(paper_calibration(), linear(0))
    run, again = measured([50, 40, 30]), measured([55, 40])
    errors = compare(prediction, run, runs=(run, again)).tokens_per_second

    assert errors.rerun[:2].tolist() == pytest.approx([0.1, 0])
    assert errors.spread[:2] == pytest.approx([0.1, 0])
    assert np.isnan(errors.spread[2]), "one prompt, not repeated"
    assert not errors.within_spread[2]


def test_two_runs_of_a_part_are_scaled_to_the_whole():
    """A difference of 12 % over one of nine prompts would be 4 % over all."""
    whole = replace(measured([50, 40]), prompts=np.array([9, 9]))
    errors = compare(predict(paper_calibration(), linear(0)), whole, runs=(measured([100]), measured([88])))

    assert errors.tokens_per_second.rerun[0] == pytest.approx(-0.04)
    assert np.isnan(errors.tokens_per_second.rerun[1])


def test_regret_of_a_wrong_order():
    """Measured: effort 2 is the fastest; predicted: effort 1. Both are lossless."""
    prediction = predict(paper_calibration(), linear(0))
    wrong = replace(prediction, tokens_per_second=np.array([9.0, 8, 1, 1]))
    (regret,) = compare(wrong, measured([40, 50, 10, 10]), floors=[1], caution=0).regrets

    assert (regret.recommended.effort, regret.best.effort) == (1, 2)
    assert regret.regret == pytest.approx(0.2)
    assert regret.shortfall == 0
    assert regret.recommended.tokens_per_second == pytest.approx(40), "the measured speed, not the predicted one"


def test_regret_says_where_the_floor_is_missed():
    """At floor .8 the prediction trusts leniency 1 (agreement .9 predicted, .5 measured): fast but too poor."""
    prediction = predict(paper_calibration(), linear(0, 1))
    hopeful = replace(prediction, agreement=np.tile([1.0, 0.9], 4), tokens_per_second=np.tile([1.0, 2.0], 4))
    run = together(measured([40, 30, 20, 10]), measured([60, 50, 40, 30], rule="linear:1"))
    comparison = compare(hopeful, run, floors=[1, 0.8, 0], caution=0)
    strict, loose, free = comparison.regrets

    assert (strict.regret, strict.shortfall) == (0, 0)
    assert loose.shortfall == pytest.approx(0.3)
    assert loose.regret == pytest.approx(1 - 60 / 40), "negative: speed that was bought by missing the floor"
    assert (free.regret, free.shortfall) == (0, 0)
    assert comparison.worst_shortfall == pytest.approx(0.3)
    assert comparison.worst_regret == 0, "what breaks its floor is no bargain"


def test_regret_is_that_of_the_planner_with_its_caution():
    """An agreement of .99 that may be .9 is recommended at .95 by who takes it as it is."""
    prediction = predict(paper_calibration(), linear(0, 1))
    unsure = replace(
        prediction,
        agreement=np.tile([1.0, 0.99], 4),
        agreement_low=np.tile([1.0, 0.9], 4),
        tokens_per_second=np.tile([1.0, 2.0], 4),
        tokens_per_second_low=np.tile([1.0, 2.0], 4),
    )
    run = together(measured([40, 30, 20, 10], divergence=0), measured([60, 50, 40, 30], rule="linear:1", divergence=0))
    (cautious,), (bold,) = (compare(unsure, run, floors=[0.95], **each).regrets for each in ({}, {"caution": 0}))

    assert (cautious.recommended.rule, bold.recommended.rule) == ("linear:0", "linear:1")
    assert cautious.regret == pytest.approx(1 - 40 / 60)
    assert bold.regret == 0


def test_no_regret_without_timing_or_reachable_floors():
    prediction = predict(replace(paper_calibration(), latency=None), linear(0))
    comparison = compare(prediction, measured([50, 40]))

    assert comparison.regrets == ()
    assert np.isnan(comparison.tokens_per_second.median)
    assert np.isfinite(comparison.tokens_per_round.relative).all()
    lenient = compare(predict(paper_calibration(), linear(1)), measured([50, 40], rule="linear:1"), floors=[0.99])
    assert lenient.regrets == ()


def test_nothing_in_common():
    with pytest.raises(ValueError, match="must share a cell, got none; predict the rules of the sweep"):
        compare(predict(paper_calibration(), linear(0.5)), measured([50]))
