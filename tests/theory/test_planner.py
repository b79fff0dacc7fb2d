from dataclasses import replace

import numpy as np
import pytest

from tests.theory.test_prediction import latency, linear, paper_calibration
from theory.planner import recommend
from theory.prediction import predict

GRID = linear(*np.linspace(0, 1, 11))


@pytest.mark.parametrize("floor", [0, 0.5, 0.8, 0.9, 1])
def test_the_fastest_configuration_above_the_floor(floor):
    prediction = predict(paper_calibration(), GRID)
    choice = recommend(prediction, minimum_agreement=floor)
    feasible = prediction.agreement >= floor

    assert choice.tokens_per_second == prediction.tokens_per_second[feasible].max()
    assert choice.agreement >= floor
    others = feasible & (prediction.effort != choice.effort)
    assert choice.runner_up.tokens_per_second == prediction.tokens_per_second[others].max()
    assert choice.runner_up.effort != choice.effort
    assert str(choice.runner_up.effort) in choice.reason


def test_a_tie_goes_to_the_smaller_effort_and_the_better_agreement():
    calibration = paper_calibration(latency=latency(b=0.0), divergence=(0.5,) * 4)

    assert recommend(predict(calibration, GRID), minimum_agreement=0.9).effort == 1
    flat = predict(calibration, linear(1, 0))
    tied = replace(flat, tokens_per_second=np.ones(8))
    assert recommend(tied, minimum_agreement=0).agreement == 1


def test_one_effort_has_no_runner_up():
    calibration = paper_calibration(efforts=(2,), divergence=(0.5,), divergence_low=(0.4,), divergence_high=(0.6,))

    assert recommend(predict(calibration, GRID)).runner_up is None


def test_a_floor_out_of_reach_names_the_best_available():
    prediction = predict(paper_calibration(), linear(1))

    with pytest.raises(ValueError, match=r"got 0.99; the best available is 0.640 at effort 4, linear:1"):
        recommend(prediction)
    with pytest.raises(ValueError, match=r"`minimum_agreement` must lie in \[0, 1\], got 1.5"):
        recommend(prediction, minimum_agreement=1.5)


def test_throughput_must_be_predicted():
    with pytest.raises(ValueError, match="latency was not measured; calibrate with timing"):
        recommend(predict(paper_calibration(latency=None), GRID))
