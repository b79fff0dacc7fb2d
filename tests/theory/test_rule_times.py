from dataclasses import replace

import numpy as np
import pytest

from tests.recordings import make_rounds
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.calibration import Calibration, calibrate
from theory.coupled import CoupledAcceptance
from theory.models import best_model, predict_best, predict_by_all, timed_rules
from theory.planner import recommend
from theory.rounds import Rounds
from theory.rule_times import rule_seconds

TIMES = {"draft_seconds": 0.1, "verify_seconds": 0.3}
RULES = [LinearAcceptance(leniency=0), LinearAcceptance(leniency=0.5), CactusAcceptance(budget=2)]


def timed(overhead, **columns):
    count = len(overhead)
    seconds = {name: np.full(count, value) for name, value in TIMES.items()}
    return make_rounds(count, 2, overhead_seconds=np.asarray(overhead, float), **seconds, **columns)


def recorded(extra=(2.0, 2.0, 2.4)):
    """Three prompts whose machine was slower each time; Cactus takes so much longer, in seconds, but for one pause."""
    base = np.array([1.0, 3.0, 5.0])
    prompts = np.repeat(["a", "b", "c"], 3)
    slow = np.repeat(base + extra, 3)
    slow[0] = 100
    return Rounds.concatenate([
        timed(base, prompt=["a", "b", "c"]),
        timed(np.repeat(base, 3), prompt=prompts, round=[0, 1, 2] * 3, replica=[1] * 9),
        timed(slow, prompt=prompts, round=[0, 1, 2] * 3, replica=[1] * 9, rule=["cactus:1"] * 9),
    ])  # fmt: skip


def calibrated(rounds):
    return calibrate(rounds, block_size=2, identity={}, exactness=("joint",))


def test_a_rule_is_timed_within_prompts_and_a_pause_does_not_count():
    seconds, errors = rule_seconds(recorded())

    assert seconds == {"cactus": pytest.approx(2.0)}
    assert errors["cactus"] is not None
    assert errors["cactus"] >= 0


def test_nothing_is_made_up():
    rounds = recorded()

    assert rule_seconds(rounds.select(rounds.replica == 0)) == ({}, {})
    assert rule_seconds(rounds.select(rounds.rule == "linear:0")) == ({}, {})
    assert rule_seconds(rounds.select(rounds.rule == "cactus:1")) == ({}, {}), "nothing to compare with"
    assert rule_seconds(make_rounds(2, 2, replica=[1, 1], rule=["linear:0", "cactus:1"])) == ({}, {}), "no times"
    one = rounds.select(rounds.prompt == "b")
    assert rule_seconds(one) == ({"cactus": pytest.approx(2.0)}, {"cactus": None})


def test_a_prediction_adds_the_time_of_each_kind_of_rule():
    rounds = recorded()
    calibration = calibrated(rounds)
    prediction = predict_best(calibration, rounds, RULES, resamples=2)
    costs = prediction.tokens_per_round / prediction.tokens_per_second

    assert calibration.rule_seconds == {"cactus": pytest.approx(2.0)}
    assert costs - costs[0] == pytest.approx([0, 0, 2])


def test_the_throughput_of_a_kind_that_was_not_timed_is_not_predicted():
    rounds = recorded()
    untimed = replace(calibrated(rounds), rule_seconds=None)
    prediction = predict_best(untimed, rounds, RULES, resamples=2)

    assert np.isnan(prediction.tokens_per_second).tolist() == [False, False, True]
    assert not np.isnan(prediction.tokens_per_round).any()
    with pytest.raises(ValueError, match="got NaN for cactus:2: the time of such rules was not measured; calibrate"):
        recommend(prediction)


def test_only_rules_of_a_kind_that_was_timed_are_predicted_where_times_are():
    rounds = recorded()
    timed_one = calibrated(rounds)
    untimed = replace(timed_one, rule_seconds=None)
    clockless = calibrated(make_rounds(2, 2))

    assert timed_rules(timed_one, [*RULES, CoupledAcceptance()]) == RULES
    assert timed_rules(untimed, RULES) == RULES[:2]
    assert timed_rules(clockless, RULES) == RULES
    assert set(predict_by_all(untimed, rounds, RULES, resamples=2)["replay"].rule) == {"linear:0", "linear:0.5"}


def test_rounds_that_time_a_rule_are_no_anchor():
    rounds = recorded()

    assert best_model(rounds) == "replay"
    assert calibrated(rounds).anchor_rule is None


def test_a_calibration_without_times_of_rules_is_read_as_not_measured(tmp_path):
    """Files of older recordings lack the fields."""
    calibration = calibrated(recorded())
    calibration.to_json(tmp_path / "new.json")
    assert Calibration.from_json(tmp_path / "new.json") == calibration

    bare = replace(calibration, rule_seconds=None, rule_seconds_se=None)
    bare.to_json(tmp_path / "bare.json")
    old = [line for line in (tmp_path / "bare.json").read_text().splitlines() if '"rule_seconds' not in line]
    (tmp_path / "old.json").write_text("\n".join(old))
    assert Calibration.from_json(tmp_path / "old.json") == bare
