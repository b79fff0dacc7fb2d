import numpy as np
import pytest

from benchmarks.blends import errors_by_blend
from tests.recordings import make_requests, record_breaking_pair
from theory.acceptance import LOSSLESS, LinearAcceptance
from theory.calibration import calibrate
from theory.measurements import measure
from theory.prediction import predict
from theory.rounds import Rounds

WHOLE, HALF = LinearAcceptance(leniency=1), LinearAcceptance(leniency=0.5)


def test_every_blend_is_exact_at_its_ends_and_the_shipped_one_is_that_of_predictions():
    rng = np.random.default_rng(0)
    tables = [record_breaking_pair(100, 4, 40, rng, rule) for rule in (LOSSLESS, HALF, WHOLE)]
    both = Rounds.concatenate([tables[0], tables[2]])
    requests = [make_requests(100, prompt=np.unique(each.prompt), rule=each.rule[:100]) for each in tables]
    measured = measure(Rounds.concatenate(tables), type(requests[0]).concatenate(requests))
    errors = errors_by_blend(both, measured, token_limit=40)
    calibration = calibrate(both, block_size=4, token_limit=40, identity={}, exactness=("joint",))

    assert measured.rule.tolist() == ["linear:0", "linear:0.5", "linear:1"]
    names = {
        "replay of the lossless rounds": "replay",
        "strange tokens, chance 0.5, as in predictions": "anchored",
    }
    for words, model in names.items():
        prediction = predict(calibration, [LOSSLESS, HALF, WHOLE], model=model, rounds=both, resamples=1)
        assert errors[words] == pytest.approx(prediction.tokens_per_round / measured.tokens_per_round - 1)
    for words in errors.keys() - {"replay of the lossless rounds"}:
        assert errors[words][2] == pytest.approx(errors["mixed by leniency"][2])
    assert all(each[0] == pytest.approx(errors["mixed by leniency"][0]) for each in errors.values())


def test_a_chance_near_0_is_the_share_of_strange_tokens():
    """At the smallest chance the blend no longer depends on it: the shift is proportional."""
    rng = np.random.default_rng(1)
    tables = [record_breaking_pair(50, 4, 40, rng, rule) for rule in (LOSSLESS, WHOLE)]
    requests = make_requests(50, prompt=np.unique(tables[0].prompt), rule=["linear:0.5"] * 50)
    swept = record_breaking_pair(50, 4, 40, rng, HALF)
    errors = errors_by_blend(Rounds.concatenate(tables), measure(swept, requests), token_limit=40)
    chances = [errors[words][0] for words in errors if words.startswith("strange")]

    assert chances[0] != pytest.approx(chances[1], rel=1e-3)
    assert (np.diff(chances) < 0).all(), "a larger chance, more text like that of the lenient recording, shorter rounds"
