import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.recordings import make_requests, make_rounds
from tests.strategies import planned_cells
from tests.theory.test_prediction import latency, linear, paper_calibration
from theory.measurements import measure
from theory.planner import recommend
from theory.prediction import predict

GRID = linear(*np.linspace(0, 1, 11))
LIMITS = [("minimum_agreement", floor) for floor in (0, 0.5, 0.8, 0.9, 1)] + [("maximum_seconds", 1.0)]


def scored(prediction, correct):
    """Measurements that scored the prediction's cells: this many of 50 prompts correct in each."""
    prompts = [f"{i}" for i in range(50)]
    cells = list(zip(prediction.effort.tolist(), prediction.rule.tolist(), correct, strict=True))
    rounds = [make_rounds(50, 1, prompt=prompts, effort=[effort] * 50, rule=[rule] * 50) for effort, rule, _ in cells]
    requests = [
        make_requests(50, prompt=prompts, effort=[e] * 50, rule=[r] * 50, correct=(np.arange(50) < n).astype(float))
        for e, r, n in cells
    ]
    return measure(type(rounds[0]).concatenate(rounds), type(requests[0]).concatenate(requests))


@pytest.mark.parametrize("caution", [0, 1])
@pytest.mark.parametrize(("name", "limit"), LIMITS)
def test_the_fastest_configuration_within_a_limit(name, limit, caution):
    """Against one pass over all cells; caution moves the limit to the worse ends of the intervals."""
    prediction = predict(paper_calibration(), GRID)
    best = recommend(prediction, caution=caution, **{name: limit})
    suffix, speed = ("_low", "_high") if caution else ("", ""), prediction.tokens_per_second
    if name == "minimum_agreement":
        feasible = getattr(prediction, f"agreement{suffix[0]}") >= limit
    else:
        feasible = getattr(prediction, f"seconds_per_request{suffix[1]}") <= limit
    row = max(np.flatnonzero(feasible), key=lambda i: speed[i])

    assert (best.effort, best.rule) == (prediction.effort[row], prediction.rule[row])
    assert best.tokens_per_second == prediction.tokens_per_second[row]
    assert best.agreement == prediction.agreement[row]
    assert best.seconds_per_request == prediction.seconds_per_request[row]
    others = feasible & (prediction.effort != best.effort)
    if others.any():
        assert best.runner_up.tokens_per_second == speed[others].max()
        assert best.runner_up.effort != best.effort
        assert f"effort {best.runner_up.effort}" in best.reason


def test_a_ceiling_holds_at_the_slow_end():
    """At leniency 0 the fastest takes its 95 % interval around the ceiling: fast enough as estimated, not surely so."""
    prediction = predict(paper_calibration(), linear(0))
    row = int(np.argmin(prediction.seconds_per_request))
    ceiling = (prediction.seconds_per_request[row] + prediction.seconds_per_request_high.min()) / 2

    assert prediction.seconds_per_request[row] < ceiling < prediction.seconds_per_request_high.min()
    assert recommend(prediction, maximum_seconds=ceiling, caution=0).effort == prediction.effort[row]
    with pytest.raises(ValueError, match="`maximum_seconds` must be within reach"):
        recommend(prediction, maximum_seconds=ceiling)


def test_without_limits_the_fastest_of_all():
    prediction = predict(paper_calibration(), GRID)

    assert recommend(prediction, caution=0).tokens_per_second == prediction.tokens_per_second.max()
    assert recommend(prediction).reason.startswith("fastest of 44 configurations;")


def test_a_tie_goes_to_the_better_agreement_and_then_to_the_smaller_effort():
    calibration = paper_calibration(latency=latency(b=0.0), divergence=(0.5,) * 4)
    alike = replace(calibration, divergence_low=(0.4,) * 4, divergence_high=(0.6,) * 4)
    tied = replace(predict(alike, linear(1, 0)), tokens_per_second=np.ones(8))

    assert (recommend(tied).effort, recommend(tied).agreement) == (1, 1)
    assert recommend(predict(alike, GRID), minimum_agreement=0.9).effort == 1


def drawn(speeds, agreement, noise):
    """Effort 1 at these speeds and agreements; resamples move all speeds by 20 % together, and each alone by noise."""
    count, rng = len(speeds), np.random.default_rng(0)
    calibration = paper_calibration(efforts=(1,), divergence=(0.5,), divergence_low=(0.5,), divergence_high=(0.5,))
    alone = predict(calibration, linear(*np.linspace(0, 1, count)))
    speeds, quality = np.array(speeds, float), np.array(agreement, float)
    draws = speeds * (1 + 0.2 * rng.normal(size=(500, 1)) + noise * rng.normal(size=(500, count)))
    values = {"tokens_per_second": speeds, "agreement": quality, "agreement_low": quality}
    return replace(alone, **values, prompts=np.full(count, 50), draws={"tokens_per_second": draws})


def test_what_resampled_prompts_do_not_tell_apart_is_a_tie():
    """101 against 100: a tie if the two scatter by 5 % each, and none if they move together to a thousandth."""
    unsure, sure = (drawn([100, 101], [1, 0.99], noise) for noise in (0.05, 0.001))

    assert recommend(unsure).rule == "linear:0"
    assert "not told apart from the fastest and of better agreement" in recommend(unsure).reason
    assert recommend(unsure, caution=0).rule == "linear:1", "estimates as they are"
    assert recommend(sure).rule == "linear:1"
    assert "told apart" not in recommend(sure).reason
    assert recommend(replace(unsure, prompts=np.ones(2, int))).rule == "linear:1", "one prompt tells no spread"


def test_what_another_beats_is_never_recommended():
    """The second is better known, but slower and poorer than the first."""
    prediction = drawn([210.1, 209.9, 150], [1, 0.995, 1], 0.05)
    low = replace(prediction, tokens_per_second_low=np.array([150.0, 209, 150]))

    assert recommend(low, minimum_agreement=0.99).rule == "linear:0"


@given(planned_cells())
def test_what_is_recommended_is_on_the_frontier_of_what_keeps_the_limit(cells):
    speeds, agreement, noise, floor = cells
    prediction = drawn(speeds, agreement, noise)
    best = recommend(prediction, minimum_agreement=floor)
    beaten = (
        (prediction.agreement >= floor)
        & (prediction.tokens_per_second >= best.tokens_per_second)
        & (prediction.agreement >= best.agreement)
        & ((prediction.tokens_per_second > best.tokens_per_second) | (prediction.agreement > best.agreement))
    )

    assert best.agreement >= floor
    assert not beaten.any()


def test_rules_beyond_the_anchor_are_left_out():
    grid = predict(paper_calibration(), linear(0, 0.5, 1))
    anchored = replace(grid, model="anchored", extrapolated=np.tile([False, False, True], 4))
    best = recommend(anchored, minimum_agreement=0.1)

    assert best.rule == "linear:0.5"
    assert best.reason.endswith("left out: 4 beyond the anchor, whose texts were not recorded")
    with pytest.raises(ValueError, match="`prediction` must have a rule within the anchor, got none; record one with"):
        recommend(anchored.select(np.flatnonzero(anchored.extrapolated)))


def test_without_an_anchor_a_lenient_setting_comes_with_a_word():
    lenient, lossless = (recommend(predict(paper_calibration(), linear(x)), caution=0) for x in (1, 0))

    assert "of which none was recorded" in lenient.reason
    assert "recorded" not in lossless.reason


def test_a_ceiling_counts_the_forward_of_the_prompt():
    prediction = replace(predict(paper_calibration(), linear(0)), prefill_seconds=0.5)
    best = recommend(prediction, maximum_seconds=prediction.seconds_per_request_high.min() + 0.5001)

    assert best.completion_seconds == best.seconds_per_request + 0.5
    with pytest.raises(ValueError, match="`maximum_seconds` must be within reach"):
        recommend(prediction, maximum_seconds=prediction.seconds_per_request_high.min() + 0.4999)


def test_one_effort_has_no_runner_up():
    calibration = paper_calibration(efforts=(2,), divergence=(0.5,), divergence_low=(0.4,), divergence_high=(0.6,))

    assert recommend(predict(calibration, GRID), minimum_agreement=0.99).runner_up is None


def test_the_penalty_is_what_certainty_would_gain():
    """At a floor of .8, d_1 = .566 allows leniency .35 as estimated, and .34 at the worse end, .586."""
    prediction = predict(
        paper_calibration(efforts=(1,), divergence=(0.566,), divergence_low=(0.546,), divergence_high=(0.586,)),
        linear(0.34, 0.35),
    )
    careful, bold = (recommend(prediction, minimum_agreement=0.8, caution=caution) for caution in (1, 0))

    assert (careful.rule, bold.rule) == ("linear:0.34", "linear:0.35")
    assert careful.uncertainty_penalty == pytest.approx(bold.tokens_per_second / careful.tokens_per_second - 1)
    assert "certainty about the estimates would allow" in careful.reason
    assert bold.uncertainty_penalty == 0
    assert "certainty" not in bold.reason


def test_without_intervals_the_estimate_has_to_do():
    unknown = (None,) * 4
    prediction = predict(paper_calibration(divergence_low=unknown, divergence_high=unknown), GRID)
    prediction = replace(prediction, prefill_seconds=0.1)

    assert vars(recommend(prediction, caution=1)) == vars(recommend(prediction, caution=0))


def test_accuracy_is_taken_from_measurements():
    prediction = predict(paper_calibration(), linear(0, 1))
    correct = [50, 20, 50, 30, 50, 40, 50, 45]
    best = recommend(prediction, minimum_accuracy=0.8, measurements=scored(prediction, correct), caution=0)

    assert (best.effort, best.rule) == (3, "linear:1"), "effort 1 and 2 are faster there, but too often wrong"
    assert "measured accuracy of at least 0.8" in best.reason
    # 40 of 50 is .8 exactly, but its 95 % interval reaches down to .67; 50 of 50 reaches down to .93
    assert recommend(prediction, minimum_accuracy=0.8, measurements=scored(prediction, correct)).rule == "linear:0"


def test_cells_that_were_not_scored_are_no_candidates():
    prediction = predict(paper_calibration(), linear(0, 1))
    some = scored(prediction, [50] * 8).select([0, 2])
    best = recommend(prediction, minimum_accuracy=0.5, measurements=some)

    assert (best.effort, best.rule) in list(zip(some.effort, some.rule, strict=True))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"minimum_agreement": 0.99},
            r"`minimum_agreement` must be within reach, got 0.99; .* 0.620 at effort 4, linear:1",
        ),
        (
            {"maximum_seconds": 0.001},
            r"`maximum_seconds` must be within reach, got 0.001; the best available is 0\.\d+ at",
        ),
        ({"minimum_agreement": 1.5}, r"`minimum_agreement` must lie in \[0, 1\], got 1.5; 1 asks for lossless text"),
        ({"minimum_accuracy": -1}, r"`minimum_accuracy` must lie in \[0, 1\], got -1; it is a share"),
        ({"caution": 2}, r"`caution` must lie in \[0, 1\], got 2"),
        ({"minimum_accuracy": 0.5}, "`measurements` must be given with `minimum_accuracy` 0.5, got None"),
    ],
)
def test_limits_that_cannot_be_kept_are_named(limits, message):
    with pytest.raises(ValueError, match=message):
        recommend(predict(paper_calibration(), linear(1)), **limits)


def test_limits_that_exclude_each_other():
    prediction = predict(paper_calibration(), linear(0, 1))
    fastest = prediction.seconds_per_request_high.min()

    with pytest.raises(
        ValueError, match=r"`minimum_agreement` 0.99 and `maximum_seconds` .* must be within reach together"
    ):
        recommend(prediction, minimum_agreement=0.99, maximum_seconds=fastest)


def test_a_limit_on_what_is_not_known():
    unfinished = predict(paper_calibration(tokens_per_request=None), linear(0))

    assert math.isnan(recommend(unfinished).seconds_per_request)
    with pytest.raises(ValueError, match="`maximum_seconds` must be about something known, got 1: no cell has it"):
        recommend(unfinished, maximum_seconds=1)
    with pytest.raises(ValueError, match="latency was not measured; calibrate with timing"):
        recommend(predict(paper_calibration(latency=None), GRID))
