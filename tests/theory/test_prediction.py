import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.recordings import make_rounds
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.calibration import Calibration, calibrate, without_divergence
from theory.latency import LatencyFit
from theory.prediction import predict, predict_divergence

EPS = np.finfo(float).eps
PAPER_DIVERGENCE = (0.566, 0.517, 0.424, 0.360)  # Section 3.3, K = 1..4
LOSSLESS = LinearAcceptance(leniency=0)


def latency(*, a=0.004, b=0.002, verify=0.026, overhead=None, efforts=(1, 2, 3, 4)):
    return LatencyFit(
        efforts=efforts,
        rounds_per_effort=(10,) * len(efforts),
        draft_median_seconds=tuple(a + b * effort for effort in efforts),
        draft_intercept_seconds=a,
        draft_intercept_seconds_se=None,
        draft_slope_seconds=b,
        draft_slope_seconds_se=None,
        residuals=(0.0,) * len(efforts),
        r_squared=1.0,
        flags=(),
        verify_seconds=verify,
        verify_seconds_se=None,
        verify_base_seconds=verify,
        verify_base_seconds_se=None,
        verify_slot_seconds=None,
        verify_slot_seconds_se=None,
        verify_context_seconds=None,
        verify_context_seconds_se=None,
        verify_blocks=(512, 512),
        verify_contexts=(10, 10),
        verify_r_squared=None,
        verify_flags=("block_not_spanned", "context_not_spanned"),
        overhead_seconds=overhead,
        overhead_seconds_se=None,
        prefill_seconds=None,
        prefill_seconds_se=None,
        noise_floor=None,
    )


def paper_calibration(**changes):
    calibration = Calibration(
        identity={},
        block_size=512,
        token_limit=None,
        efforts=(1, 2, 3, 4),
        divergence=PAPER_DIVERGENCE,
        divergence_se=(0.01,) * 4,
        divergence_low=tuple(d - 0.02 for d in PAPER_DIVERGENCE),
        divergence_high=tuple(d + 0.02 for d in PAPER_DIVERGENCE),
        divergence_all_slots=PAPER_DIVERGENCE,
        tokens_per_round=(1.0,) * 4,
        rounds=(10,) * 4,
        prompts=(5,) * 4,
        tokens_per_request=100.0,
        anchor_rule=None,
        anchor_divergence=None,
        latency=latency(),
        exactness=("joint", "none", "none", "none"),
        warnings=(),
    )
    return replace(calibration, **changes)


def linear(*leniencies):
    return [LinearAcceptance(leniency=leniency) for leniency in leniencies]


def test_the_paper_lossless_acceptance_rates():
    prediction = predict(paper_calibration(), [LOSSLESS])

    assert prediction.acceptance_rate == pytest.approx((0.434, 0.483, 0.576, 0.640), abs=4 * EPS)
    assert (prediction.agreement == 1).all()


def test_the_paper_lines_of_figure_3a():
    prediction = predict(paper_calibration(), linear(0, 0.25, 1))

    for effort, divergence in zip((1, 2, 3, 4), PAPER_DIVERGENCE, strict=True):
        rows = prediction.effort == effort
        # Theorem 1: what is given up in agreement is gained in acceptance
        gained = prediction.acceptance_rate[rows] - (1 - divergence)
        np.testing.assert_allclose(gained, 1 - prediction.agreement[rows], atol=8 * EPS)
        assert prediction.acceptance_rate[rows][-1] == 1
        assert prediction.agreement[rows][-1] == pytest.approx(1 - divergence, abs=4 * EPS)


def test_cells_are_efforts_by_rules():
    prediction = predict(paper_calibration(), linear(0, 0.5))

    assert prediction.effort.tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert prediction.rule.tolist() == ["linear:0", "linear:0.5"] * 4
    assert len(prediction) == 8


def test_equation_7_by_hand():
    calibration = paper_calibration(block_size=2, efforts=(3,), divergence=(0.4,), divergence_low=(0.3,),
                                    divergence_high=(0.5,), latency=latency(a=0.01, b=0.02, verify=0.03))  # fmt: skip
    prediction = predict(calibration, linear(0.5))
    # α = 1 - .5 * .4 = .8; 1 + .8 + .64 tokens in .01 + 3 * .02 + .03 seconds
    speed = 2.44 / 0.1

    assert prediction.tokens_per_round[0] == pytest.approx(2.44, rel=8 * EPS)
    assert prediction.tokens_per_second[0] == pytest.approx(speed, rel=16 * EPS)


@pytest.mark.parametrize(("length", "rounds"), [(1.0, 1.0), (2.0, 1.2), (3.0, 1.4), (2.5, 1.3)])
def test_a_request_takes_whole_rounds(length, rounds):
    """A round adds 1, 2, 3 tokens with chance .2, .16, .64: m(2) = 1 + .2, m(3) = 1 + .2 m(2) + .16 m(1)."""
    calibration = paper_calibration(block_size=2, efforts=(3,), divergence=(0.4,), divergence_low=(0.3,),
                                    divergence_high=(0.5,), latency=latency(a=0.01, b=0.02, verify=0.03),
                                    tokens_per_request=length)  # fmt: skip
    prediction = predict(calibration, linear(0.5))

    assert prediction.seconds_per_request[0] == pytest.approx(rounds * 0.1, rel=16 * EPS)
    assert prediction.seconds_per_request_low[0] <= prediction.seconds_per_request[0]


def test_O41_the_verifier_counts_at_the_block_it_verifies():
    one, block = latency(a=0.01, b=0.0, verify=0.020), latency(a=0.01, b=0.0, verify=0.026)
    calibration = paper_calibration(block_size=15, efforts=(1,), divergence=(0.2,), divergence_low=(0.2,),
                                    divergence_high=(0.2,))  # fmt: skip
    speeds = [predict(replace(calibration, latency=fit), [LOSSLESS]).tokens_per_second[0] for fit in (block, one)]

    assert predict(calibration, [LOSSLESS]).tokens_per_round[0] == pytest.approx(4.8592625116, rel=1e-10)
    assert speeds == pytest.approx([134.979514, 161.975417], rel=1e-8)


def test_intervals_follow_the_divergence():
    prediction = predict(paper_calibration(), linear(0, 0.5, 1))

    for name in ("acceptance_rate", "agreement", "tokens_per_round", "tokens_per_second", "seconds_per_request"):
        low, value, high = (getattr(prediction, f"{name}{end}") for end in ("_low", "", "_high"))
        assert (low <= value).all()
        assert (value <= high).all()
    assert prediction.acceptance_rate_low[0] == pytest.approx(1 - 0.586)
    assert prediction.agreement_high[1] == pytest.approx(1 - 0.5 * 0.546)
    assert (prediction.tokens_per_round_low[prediction.rule == "linear:1"] == 513).all(), "nothing is uncertain there"


def test_one_prompt_gives_no_interval():
    calibration = paper_calibration(divergence_low=(None,) * 4, divergence_high=(None,) * 4)
    prediction = predict(calibration, [LOSSLESS])

    assert np.isnan(prediction.tokens_per_second_low).all()
    assert not np.isnan(prediction.tokens_per_second).any()


def test_throughput_without_timing_is_unknown_not_zero():
    prediction = predict(paper_calibration(latency=None), linear(0, 1))

    assert np.isnan(prediction.tokens_per_second).all()
    assert np.isnan(prediction.seconds_per_request).all()
    assert not np.isnan(prediction.tokens_per_round).any()


def test_overhead_is_added_on_request():
    calibration = paper_calibration(latency=latency(overhead=0.01))
    plain, full = (predict(calibration, [LOSSLESS], overhead=overhead) for overhead in (False, True))

    assert plain.tokens_per_second[0] * 0.032 == pytest.approx(full.tokens_per_second[0] * 0.042)
    for fit in (None, latency()):
        with pytest.raises(ValueError, match="`overhead` must be False"):
            predict(paper_calibration(latency=fit), [LOSSLESS], overhead=True)


def test_an_unknown_length_leaves_the_request_unknown():
    assert np.isnan(predict(paper_calibration(tokens_per_request=None), [LOSSLESS]).seconds_per_request).all()


def test_rules_and_models_outside_equation_6():
    with pytest.raises(ValueError, match="`rules` must be linear for the model iid, got cactus:1; use replay"):
        predict(paper_calibration(), [LOSSLESS, CactusAcceptance(budget=1)])
    with pytest.raises(ValueError, match=r"`model` must be one of .*, got 'best'"):
        predict(paper_calibration(), [LOSSLESS], model="best")


def test_json_has_null_for_what_is_unknown(tmp_path):
    path = tmp_path / "prediction.json"
    predict(paper_calibration(latency=None), [LOSSLESS]).to_json(path)
    document = json.loads(path.read_text(), parse_constant=pytest.fail)

    assert document["rule"] == ["linear:0"] * 4
    assert document["tokens_per_second"] == [None] * 4
    assert "tokens_per_second_nan" in document["flags"]
    assert math.isclose(document["acceptance_rate"][0], 0.434)


def test_known_times_give_the_throughput_of_published_distances():
    rules = [LinearAcceptance(leniency=0), LinearAcceptance(leniency=1)]
    prediction = predict_divergence({1: 0.5, 3: 0.25}, rules, block_size=2, round_seconds={1: 0.5, 3: 2.0})

    np.testing.assert_allclose(prediction.tokens_per_second, [1.75 / 0.5, 3 / 0.5, 2.3125 / 2, 3 / 2])


@pytest.mark.parametrize("seconds", [{1: 0.5}, {1: 0.5, 3: 0.0}])
def test_times_must_be_known_for_each_effort(seconds):
    with pytest.raises(ValueError, match="`round_seconds` must be positive for each effort of `divergence`, got"):
        predict_divergence({1: 0.5, 3: 0.25}, [LinearAcceptance(leniency=0)], block_size=2, round_seconds=seconds)


def test_a_calibration_of_times_alone_is_refused():
    rounds = make_rounds(6, 3, draft_seconds=np.full(6, 0.1), verify_seconds=np.full(6, 0.2))
    times = without_divergence(calibrate(rounds, block_size=3, identity={}, exactness=("joint",)))

    with pytest.raises(ValueError, match="`calibration` must have d_K, got one of times alone"):
        predict(times, [LinearAcceptance(leniency=0)])


def test_the_verifier_is_timed_at_the_lengths_of_the_rounds():
    """Effort 2 was recorded at longer contexts; 1 ms for 100 tokens tells the rounds apart, Eq. 7 takes one number."""
    rounds = make_rounds(6, 2, effort=[1, 1, 1, 2, 2, 2], prefix_length=[100, 200, 300, 1000, 1100, 1200])
    fit = replace(
        latency(a=0, b=0.001, verify=0.02, efforts=(1, 2)), verify_base_seconds=0.01, verify_slot_seconds=0.001,
        verify_context_seconds=1e-5,
    )  # fmt: skip
    calibration = paper_calibration(
        block_size=2, efforts=(1, 2), divergence=(0.5,) * 2, divergence_low=(0.4,) * 2, divergence_high=(0.6,) * 2,
        prompts=(3, 3), latency=fit,
    )  # fmt: skip
    replayed = predict(calibration, [LOSSLESS], model="replay", rounds=rounds, resamples=2)
    printed = predict(calibration, [LOSSLESS])

    # base + 3 positions of the block + context, and the draft
    seconds = [0.01 + 0.003 + 0.002 + 0.001, 0.01 + 0.003 + 0.011 + 0.002]
    np.testing.assert_allclose(replayed.tokens_per_round / replayed.tokens_per_second, seconds)
    np.testing.assert_allclose(printed.tokens_per_round / printed.tokens_per_second, [0.021, 0.022])
