from dataclasses import replace

import numpy as np
import pytest

from tests.recordings import make_requests, make_rounds
from tests.theory.test_prediction import linear, paper_calibration
from theory.comparison import compare
from theory.measurements import measure
from theory.prediction import predict


def measured(tokens_per_second):
    """Cells of efforts 1.. at leniency 0, measured at the given speeds and one token a round."""
    count = len(tokens_per_second)
    effort = np.arange(1, count + 1)
    requests = make_requests(
        count, prompt=["a"] * count, effort=effort, seconds=10 / np.asarray(tokens_per_second, float)
    )
    return measure(make_rounds(count, 2, prompt=["a"] * count, effort=effort), requests)


def test_cells_are_matched_by_effort_and_rule():
    comparison = compare(predict(paper_calibration(), linear(0.5, 0)), measured([50, 40]))

    assert comparison.effort.tolist() == [1, 2]
    assert comparison.rule.tolist() == ["linear:0", "linear:0"]
    assert len(comparison) == 2


def test_errors_are_relative_to_the_measurement():
    prediction = predict(paper_calibration(), linear(0))
    speeds = prediction.tokens_per_second / [1.5, 1, 0.5, 1]
    comparison = compare(prediction, measured(speeds))

    assert comparison.relative_error_tokens_per_second == pytest.approx([0.5, 0, -0.5, 0])
    assert (comparison.median_error, comparison.maximum_error) == (pytest.approx(0.25), pytest.approx(0.5))
    assert comparison.relative_error_tokens_per_round == pytest.approx(prediction.tokens_per_round - 1)
    assert comparison.tokens_per_second_inside.tolist() == [False, True, False, True]
    assert not comparison.tokens_per_round_inside.any()


def test_rank_correlation():
    prediction = predict(paper_calibration(), linear(0))

    assert compare(prediction, measured(prediction.tokens_per_second * 3)).kendall_tau == pytest.approx(1)
    assert compare(prediction, measured(1 / prediction.tokens_per_second)).kendall_tau == pytest.approx(-1)
    assert np.isnan(compare(prediction, measured([50])).kendall_tau)


def test_without_timing_only_the_tokens_are_compared():
    prediction = predict(replace(paper_calibration(), latency=None), linear(0))
    comparison = compare(prediction, measured([50, 40]))

    assert np.isnan(comparison.median_error)
    assert np.isfinite(comparison.relative_error_tokens_per_round).all()


def test_nothing_in_common():
    with pytest.raises(ValueError, match="must share a cell, got none; predict the rules of the sweep"):
        compare(predict(paper_calibration(), linear(0.5)), measured([50]))
