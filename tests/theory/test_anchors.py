from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recordings import make_rounds, record_breaking_pair
from theory import recorded
from theory.acceptance import LOSSLESS, CactusAcceptance, LinearAcceptance
from theory.anchors import CHANGES, FAMILIAR, blend, familiar_tokens
from theory.calibration import calibrate
from theory.prediction import predict
from theory.replay import replay
from theory.rounds import Rounds

EPS = np.finfo(float).eps
WHOLE = LinearAcceptance(leniency=1)


def two_requests(**columns):
    """Prompt a in two rounds of 3 and 1 tokens, given in the wrong order; prompt b in one of 2. p = .1, q = .5."""
    default = {
        "prompt": ["a", "a", "b"],
        "round": [1, 0, 0],
        "accepted": [0, 2, 1],
        "ended": ["eos", "", "eos"],
        "p_drafted": np.full((3, 2), 0.1),
    }
    return make_rounds(3, 2, **(default | columns))


def test_familiar_tokens_by_hand():
    """The rule accepts with λ + (1 - λ) .2 = .6, the lossless test with .2, of which twice as much is familiar.

    A round then holds .2 (1 + .6) strange tokens among 1 + .6 + .36.
    """
    rate = (0.6 - FAMILIAR * 0.2) * 1.6 / 1.96
    expected = [1 * np.exp(-CHANGES * 3.5 * rate), 3 * np.exp(-CHANGES * 1.5 * rate), 2 * np.exp(-CHANGES * rate)]

    np.testing.assert_allclose(familiar_tokens(two_requests(), LinearAcceptance(leniency=0.5)), expected, rtol=16 * EPS)


def test_efforts_of_a_prompt_are_texts_of_their_own():
    both = Rounds.concatenate([two_requests(), two_requests(effort=[2] * 3)])

    np.testing.assert_array_equal(familiar_tokens(both, WHOLE), np.tile(familiar_tokens(two_requests(), WHOLE), 2))


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10))
def test_leniency_leaves_less_familiar(first, second, seed):
    rounds = record_breaking_pair(3, 3, 12, np.random.default_rng(seed), LOSSLESS)
    less, more = (familiar_tokens(rounds, LinearAcceptance(leniency=leniency)) for leniency in sorted((first, second)))

    assert (more >= 0).all()
    assert (more <= less + 1e-12).all()
    assert (less <= rounds.emitted + 1e-12).all()


def test_a_rule_that_never_accepts_the_impossible_stays_familiar():
    """Cactus raises no token from 0, and at this budget none from .3 to twice as much."""
    rule = CactusAcceptance(budget=0.1)
    likely = two_requests(p_drafted=np.full((3, 2), 0.3))
    impossible = record_breaking_pair(20, 4, 30, np.random.default_rng(1), LOSSLESS)

    assert rule.probability(np.array(0.3), np.array(0.5)) > 0.9
    np.testing.assert_array_equal(familiar_tokens(likely, rule), likely.emitted)
    np.testing.assert_array_equal(familiar_tokens(impossible, rule), impossible.emitted)
    assert (familiar_tokens(impossible, LinearAcceptance(leniency=0.1)) < impossible.emitted).any()


def means(*tokens):
    """Means a round of recordings with 3 reached slots, 2 accepted, and the given tokens a round and request."""
    return np.array([[3.0, 2.0, 0.1, each, 10 * each] for each in tokens])


def test_a_blend_shares_text_and_not_rounds():
    """Half of the text takes a round for each 2 tokens, half for each 4: a round has 1 / (.5 / 2 + .5 / 4) tokens."""
    mixed = blend(means(4.0), means(2.0), familiar=np.array([0.6]), familiar_anchor=np.array([0.2]))

    assert mixed[0, 3] == pytest.approx(1 / (0.5 / 2 + 0.5 / 4))
    assert mixed[0, 4] == pytest.approx(30)
    np.testing.assert_allclose(mixed[0, :3], [3, 2, 0.1])


def test_a_blend_does_not_extrapolate_and_needs_no_anchor_that_strays():
    lossless, lenient = means(4.0, 4.0, 4.0), means(2.0, 2.0, 2.0)
    mixed = blend(lossless, lenient, familiar=np.array([0.1, 1.0, 1.0]), familiar_anchor=np.array([0.5, 0.5, 1.0]))

    np.testing.assert_allclose(mixed[:, 3], [2, 4, 4])


def test_the_ends_are_the_recordings_themselves():
    rng = np.random.default_rng(2)
    rounds = [record_breaking_pair(30, 4, 40, rng, rule) for rule in (LOSSLESS, WHOLE)]
    both = Rounds.concatenate(rounds)
    calibration = calibrate(both, block_size=4, token_limit=40, identity={}, exactness=("joint",))
    prediction = predict(calibration, [LOSSLESS, WHOLE], model="anchored", rounds=both, resamples=10)

    for row, (recording, rule) in enumerate(zip(rounds, (LOSSLESS, WHOLE), strict=True)):
        expected = replay(recording, rule, token_limit=40)
        assert prediction.tokens_per_round[row] == pytest.approx(expected.emitted.mean())
        assert prediction.agreement[row] == pytest.approx(1 - expected.spent.sum() / expected.reached.sum())


@pytest.mark.parametrize("leniency", [0.1, 0.25, 0.5, 0.75])
def test_where_texts_break_for_good_the_anchor_mends_what_replay_misses(leniency, monkeypatch):
    """In this pair every strange word changes what follows, and what follows is alike, whatever led to it.

    400 requests of 100 tokens each, standard errors below 1 %. Told so, the blend is within 5 % of the measured tokens
    per round. With one half in place of 1 it is off by up to 13 %, where replay of the lossless rounds is off by 18 to
    50 % and a mixture of the two recordings by leniency by 6 to 40 %.
    """
    rng, rule = np.random.default_rng(3), LinearAcceptance(leniency=leniency)
    lossless, lenient, measured = (record_breaking_pair(400, 4, 100, rng, each) for each in (LOSSLESS, WHOLE, rule))
    both = Rounds.concatenate([lossless, lenient])
    calibration = calibrate(both, block_size=4, token_limit=100, identity={}, exactness=("joint",))
    truth = measured.emitted.mean()

    def error(model):
        return predict(calibration, [rule], model=model, rounds=both, resamples=1).tokens_per_round[0] / truth - 1

    replayed, half = error("replay"), error("anchored")
    monkeypatch.setattr(recorded, "familiar_tokens", partial(familiar_tokens, changes=1.0))
    told = error("anchored")
    mixed = (
        (1 - leniency) * (1 + replayed) + leniency * replay(lenient, rule, token_limit=100).emitted.mean() / truth - 1
    )

    assert abs(told) < 0.05
    assert abs(half) < 0.14
    assert replayed > max(0.15, 3 * half)
    assert mixed > max(0.05, 1.5 * half)
