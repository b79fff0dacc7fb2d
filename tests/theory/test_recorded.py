import numpy as np
import pytest

from tests.recordings import make_rounds, record_breaking_pair, record_pair
from theory.acceptance import LOSSLESS, CactusAcceptance, LinearAcceptance
from theory.calibration import calibrate
from theory.coupled import CoupledAcceptance
from theory.prediction import QUANTITIES, predict
from theory.replay import replay
from theory.rounds import Rounds

EPS = np.finfo(float).eps
RULES = [LinearAcceptance(leniency=x) for x in (0, 0.5, 1)] + [CactusAcceptance(budget=0.5)]
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])


def calibrated(rounds, **settings):
    lossless = rounds.select(rounds.rule == LOSSLESS.label)
    settings = {"block_size": rounds.slot.size, "identity": {}, "exactness": ("joint",)} | settings
    return calibrate(lossless, **settings)


def predicted(rounds, rules, **settings):
    return predict(calibrated(rounds), rules, rounds=rounds, **({"resamples": 20} | settings))


def finished(**columns):
    """Prompt a: a round of 2 tokens and one of 1, the text then ended; prompt b: one of 3, ended."""
    default = {"prompt": ["a", "a", "b"], "round": [0, 1, 0], "accepted": [1, 0, 2], "ended": ["", "eos", "eos"]}
    return make_rounds(3, 2, **(default | columns))


def test_replay_averages_over_the_rounds_of_an_effort():
    rng = np.random.default_rng(3)
    rounds = [record_pair(P, Q, 4, 3, 3, rng, LOSSLESS, effort=[effort] * 12) for effort in (1, 2)]
    both = Rounds.concatenate(rounds)
    prediction = predict(calibrated(both, exactness=("joint",) * 2), RULES, model="replay", rounds=both)

    for row in range(8):
        result = replay(rounds[row // 4], RULES[row % 4])
        assert prediction.tokens_per_round[row] == pytest.approx(result.emitted.mean())
        assert prediction.acceptance_rate[row] == pytest.approx(result.accepted.sum() / result.reached.sum())
        assert prediction.agreement[row] == pytest.approx(1 - result.spent.sum() / result.reached.sum())
    assert prediction.effort.tolist() == [1] * 4 + [2] * 4
    assert prediction.rule.tolist() == [rule.label for rule in RULES] * 2
    assert (prediction.prompts == 4).all()


def test_the_limit_of_the_calibration_cuts_replayed_rounds():
    rounds = make_rounds(2, 3, p_drafted=np.ones((2, 3)))

    for limit, cut, tokens in ((2, True, 2), (2, False, 4), (None, True, 4)):
        calibration = calibrated(rounds, token_limit=limit)
        prediction = predict(calibration, [LOSSLESS], model="replay", rounds=rounds, cut=cut)
        assert prediction.tokens_per_round[0] == tokens


def test_rates_by_position_by_hand():
    """Slot 0 is reached three times, slot 1 twice; at leniency .5 half of the distance is accepted."""
    divergence = [[0.2, 0.4], [0.4, 0.9], [0.6, 0.2]]
    prediction = predicted(finished(divergence=divergence), [LinearAcceptance(leniency=0.5)], model="position")
    first, second = 1 - 0.5 * 0.4, 1 - 0.5 * 0.3

    assert prediction.tokens_per_round[0] == pytest.approx(1 + first + first * second)
    assert prediction.acceptance_rate[0] == pytest.approx((first + first * second) / (1 + first))
    assert prediction.agreement[0] == pytest.approx(1 - 0.5 * (0.4 + first * 0.3) / (1 + first))


def test_a_position_that_nothing_reached_takes_the_rate_of_all():
    rounds = make_rounds(2, 2, divergence=[[0.2, 0.9], [0.4, 0.9]])
    prediction = predict(calibrated(rounds, block_size=3), [LOSSLESS], model="position", rounds=rounds)

    assert prediction.tokens_per_round[0] == pytest.approx(1 + 0.7 + 0.7**2 + 0.7**3)


@pytest.mark.parametrize("model", ["position", "replay"])
def test_without_memory_all_models_agree(model):
    """The laws of the pair are alike at every slot and prefix, as Eq. 6-7 assumes; for the rest see the intervals.

    Each value of Eq. 7 lies in the model's 95 % interval; with a fixed seed this is no matter of luck.
    """
    rounds = record_pair(P, Q, 40, 25, 4, np.random.default_rng(4), LOSSLESS)
    linear = RULES[:3]
    iid, prediction = predicted(rounds, linear), predicted(rounds, linear, model=model, resamples=500)

    np.testing.assert_allclose(prediction.agreement, iid.agreement, atol=8 * EPS)
    assert (prediction.tokens_per_round_low - 1e-9 <= iid.tokens_per_round).all()
    assert (iid.tokens_per_round <= prediction.tokens_per_round_high + 1e-9).all()


@pytest.mark.parametrize("model", ["position", "replay"])
def test_rows_of_draws_are_resamples_of_the_prompts(model):
    rounds = record_pair(P, Q, 6, 4, 3, np.random.default_rng(5), LOSSLESS)
    prediction = predicted(rounds, RULES, model=model, resamples=50)
    again = predicted(rounds, RULES, model=model, resamples=50)
    other = predicted(rounds, RULES, model=model, resamples=50, seed=1)

    assert set(prediction.draws) == set(QUANTITIES)
    for name, values in prediction.draws.items():
        assert values.shape == (50, 4), name
        np.testing.assert_array_equal(values, again.draws[name])
    assert (prediction.draws["tokens_per_round"] != other.draws["tokens_per_round"]).any()
    weights = np.random.default_rng(0).multinomial(6, np.full(6, 1 / 6), size=50)[7]
    copies = [rounds.select(rounds.prompt == f"prompt {g}") for g in np.repeat(np.arange(6), weights)]
    drawn = [np.where(each.reached, each.divergence, 0).sum() for each in copies]
    if model == "replay":
        tokens = np.concatenate([replay(each, RULES[1]).emitted for each in copies])
        assert prediction.draws["tokens_per_round"][7, 1] == pytest.approx(tokens.mean())
    else:
        reached = sum(each.reached.sum() for each in copies)
        assert prediction.draws["agreement"][7, 1] == pytest.approx(1 - 0.5 * sum(drawn) / reached)


def test_tokens_per_request_are_those_of_finished_texts():
    rounds = finished(draft_seconds=[0.1] * 3, verify_seconds=[0.4] * 3, p_drafted=np.full((3, 2), 0.25))
    prediction = predicted(rounds, [LOSSLESS], model="replay")

    assert prediction.tokens_per_second[0] == pytest.approx(1.75 / 0.5)
    assert prediction.seconds_per_request[0] == pytest.approx(3 / (1.75 / 0.5))
    unfinished = predicted(finished(ended=["", "", ""]), [LOSSLESS], model="replay")
    assert np.isnan(unfinished.seconds_per_request[0])


def test_O40_prefill_is_no_part_of_decoding():
    """200 tokens in 6 s, 2 of them before the first round."""
    times = {"draft_seconds": [1.0], "verify_seconds": [3.0], "prefill_seconds": [2.0]}
    prediction = predicted(make_rounds(1, 199, accepted=[199], ended=["limit"], **times), [LOSSLESS], model="replay")

    assert prediction.tokens_per_second[0] == pytest.approx(50)
    assert (prediction.seconds_per_request[0], prediction.completion_seconds[0]) == pytest.approx((4, 6))
    assert 200 / prediction.completion_seconds[0] == pytest.approx(33.333333)


@pytest.mark.parametrize("model", ["iid", "position", "replay", "anchored"])
def test_laws_of_the_accepted_length(model):
    """They add up to 1, and in whole blocks the correction or bonus token comes on top of their mean."""
    rng = np.random.default_rng(9)
    lossless, anchor = (record_pair(P, Q, 6, 4, 3, rng, rule) for rule in (LOSSLESS, RULES[2]))
    rounds = Rounds.concatenate([lossless, anchor]) if model == "anchored" else lossless
    prediction = predict(calibrated(lossless, block_size=5), RULES[:3], model=model, rounds=rounds, resamples=2)

    assert prediction.accepted_lengths.shape == (3, 6)
    np.testing.assert_allclose(prediction.accepted_lengths.sum(axis=1), 1)
    np.testing.assert_allclose(1 + prediction.accepted_lengths @ np.arange(6), prediction.tokens_per_round)


def test_rules_that_lead_beyond_what_was_recorded():
    """Without an anchor every lenient rule does, with one at leniency .5 those above."""
    rng = np.random.default_rng(10)
    lossless, anchor = (record_breaking_pair(4, 3, 12, rng, LinearAcceptance(leniency=x)) for x in (0, 0.5))
    rules = [LinearAcceptance(leniency=x) for x in (0, 0.3, 0.5, 0.7)]
    settings = {"model": "anchored", "rounds": Rounds.concatenate([lossless, anchor]), "resamples": 2}

    assert predict(calibrated(lossless), rules, **settings).extrapolated.tolist() == [False] * 3 + [True]
    for model in ("iid", "position", "replay"):
        assert predicted(lossless, rules, model=model).extrapolated.tolist() == [False] + [True] * 3


def test_rates_by_position_take_whole_rounds_to_the_end_of_a_text():
    """Both texts have 3 tokens. With chances .7 and .8, a round adds 1, 2 or 3 with .3, .14 and .56."""
    divergence = [[0.2, 0.2], [0.2, 0.9], [0.5, 0.2]]
    rounds = finished(divergence=divergence, draft_seconds=[0.1] * 3, verify_seconds=[0.4] * 3)
    prediction = predicted(rounds, [LOSSLESS], model="position")
    one, two = 1, 1 + 0.3

    assert prediction.tokens_per_round[0] == pytest.approx(0.3 + 2 * 0.14 + 3 * 0.56)
    assert prediction.seconds_per_request[0] == pytest.approx(0.5 * (1 + 0.3 * two + 0.14 * one))
    unfinished = predicted(finished(ended=["", "", ""]), [LOSSLESS], model="position")
    assert np.isnan(unfinished.seconds_per_request[0])


def test_too_few_prompts_are_reported_with_the_number_needed():
    rounds = record_pair(P, Q, 8, 5, 3, np.random.default_rng(7), LOSSLESS)
    prediction = predicted(rounds, RULES, model="replay", resamples=500)
    prediction.require_precision(0.5)

    with pytest.raises(ValueError, match=r"effort 1, linear:0: .* from 8 prompts; need \+- 2.0%: record \d+") as error:
        prediction.require_precision(0.02)
    needed = int(str(error.value).split()[-1])
    reach = (prediction.tokens_per_round_high - prediction.tokens_per_round_low)[0] / 2 / prediction.tokens_per_round[0]
    assert needed == np.ceil(8 * (reach / 0.02) ** 2)
    with pytest.raises(ValueError, match="got NaN: one prompt has no spread"):
        predicted(rounds.select(rounds.prompt == "prompt 0"), RULES, model="replay").require_precision(0.5)


def test_what_a_recorded_model_needs():
    rounds = finished()
    with pytest.raises(ValueError, match="`rounds` must be given for the model replay, got None"):
        predict(calibrated(rounds), [LOSSLESS], model="replay")
    with pytest.raises(ValueError, match="`rounds` must cover effort 1 at linear:0, got none; record it"):
        predict(calibrated(rounds), [LOSSLESS], model="replay", rounds=finished(effort=[2] * 3))
    with pytest.raises(ValueError, match="`rounds` must hold one recording beside linear:0, got none"):
        predicted(rounds, [LOSSLESS], model="anchored")


@pytest.mark.parametrize("model", ["position", "replay"])
def test_coupled_verification_is_not_predicted_from_scalars(model):
    with pytest.raises(ValueError, match="`rule` must test a ratio, got coupled"):
        predicted(finished(), [CoupledAcceptance()], model=model)
