import numpy as np
import pytest

from tests.recordings import record_breaking_pair
from theory.acceptance import LOSSLESS, CactusAcceptance, CoupledAcceptance, LinearAcceptance
from theory.calibration import calibrate
from theory.models import best_model, predict_best, predict_by_all
from theory.rounds import Rounds

HALF = LinearAcceptance(leniency=0.5)
RULES = [HALF, CactusAcceptance(budget=1), CoupledAcceptance()]


def recorded(*rules):
    rng = np.random.default_rng(1)
    return Rounds.concatenate([record_breaking_pair(5, 3, 10, rng, rule) for rule in rules])


@pytest.mark.parametrize(
    ("rules", "models"),
    [
        ([LOSSLESS], ["iid", "position", "replay"]),
        ([LOSSLESS, LinearAcceptance(leniency=1)], ["iid", "position", "replay", "anchored"]),
    ],
)
def test_each_model_predicts_what_it_can(rules, models):
    rounds = recorded(*rules)
    calibration = calibrate(rounds, block_size=3, token_limit=10, identity={}, exactness=("joint",))
    predictions = predict_by_all(calibration, rounds, RULES, resamples=5)

    assert list(predictions) == models
    assert best_model(rounds) == models[-1]
    for name, prediction in predictions.items():
        assert prediction.model == name
        assert prediction.rule.tolist() == ["linear:0.5"] + ([] if name == "iid" else ["cactus:1"])


def test_rules_that_no_model_predicts_give_none():
    rounds = recorded(LOSSLESS)
    calibration = calibrate(rounds, block_size=3, token_limit=10, identity={}, exactness=("joint",))

    assert predict_by_all(calibration, rounds, [CoupledAcceptance()]) == {}
    assert "iid" not in predict_by_all(calibration, rounds, [CactusAcceptance(budget=1)], resamples=5)


def test_overhead_is_added_where_it_was_measured_but_for_equation_7():
    rounds = recorded(LOSSLESS)
    count = len(rounds)
    times = {"draft_seconds": 0.1, "verify_seconds": 0.2, "overhead_seconds": 0.1}
    timed = Rounds(**(vars(rounds) | {name: np.full(count, value) for name, value in times.items()}))
    calibration = calibrate(timed, block_size=3, token_limit=10, identity={}, exactness=("joint",))
    predictions = predict_by_all(calibration, timed, [HALF], resamples=5)
    seconds = {name: each.tokens_per_round[0] / each.tokens_per_second[0] for name, each in predictions.items()}

    assert seconds["iid"] == pytest.approx(0.3)
    assert seconds["position"] == pytest.approx(0.4)


def test_the_best_prediction_is_the_last_of_all():
    rounds = recorded(LOSSLESS, LinearAcceptance(leniency=1))
    calibration = calibrate(rounds, block_size=3, token_limit=10, identity={}, exactness=("joint",))
    best = predict_best(calibration, rounds, RULES[:2], resamples=5)
    last = list(predict_by_all(calibration, rounds, RULES, resamples=5).values())[-1]

    assert best.model == "anchored"
    np.testing.assert_array_equal(best.tokens_per_round, last.tokens_per_round)
