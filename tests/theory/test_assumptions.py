from dataclasses import replace

import numpy as np
import pytest

from tests.recordings import make_requests, make_rounds
from tests.theory.test_comparison import measured
from tests.theory.test_prediction import linear, paper_calibration
from theory.acceptance import CactusAcceptance
from theory.assumptions import START, lift_assumptions, split_error
from theory.calibration import calibrate
from theory.measurements import measure
from theory.prediction import predict


def guesses(*speeds):
    """Predictions of two lossless cells with these speeds, and one token a round."""
    one = predict(paper_calibration(), linear(0))
    rows = [np.array([*each, 1.0, 1.0]) for each in speeds]
    return {f"step {i}": replace(one, tokens_per_second=row, tokens_per_round=np.ones(4)) for i, row in enumerate(rows)}


def test_shares_by_hand():
    """Measured 1 and 1. Eq. 7 says 4 and 1/2; the first step halves the one, the second doubles the other."""
    split = split_error(guesses([4, 0.5], [2, 0.5], [2, 1]), measured([1, 1]))
    doubling = np.log(2)

    assert split.lifted == ("step 1", "step 2")
    assert split.effort.tolist() == [1, 2]
    np.testing.assert_allclose(split.step, [[doubling, 0], [0, -doubling]], atol=1e-15)
    assert split.share == pytest.approx([1 / 3, 1 / 3])
    assert split.share_left == pytest.approx(1 / 3)
    assert (split.share_left_tokens, split.share_left_seconds) == (pytest.approx(0), pytest.approx(1 / 3))
    assert split.median == pytest.approx([1.75, 0.75, 0.5])
    assert split.maximum == pytest.approx([3, 1, 1])


def test_a_step_that_makes_things_worse_has_a_negative_share():
    split = split_error(guesses([2, 2], [4, 4], [1, 1]), measured([1, 1]))

    assert split.share == pytest.approx([-1, 2])
    assert split.share_left == pytest.approx(0)


@pytest.mark.parametrize("seed", range(3))
def test_shares_and_what_is_left_add_up(seed):
    rng = np.random.default_rng(seed)
    split = split_error(guesses(*rng.uniform(0.1, 9, size=(5, 2))), measured(rng.uniform(0.1, 9, size=2)))

    assert split.share.sum() + split.share_left == pytest.approx(1)
    assert split.share_left == pytest.approx(split.share_left_tokens + split.share_left_seconds)
    np.testing.assert_allclose(
        split.step.sum(axis=0), np.log(1 + split.relative_error[0]) - np.log(1 + split.relative_error[-1])
    )


def recorded_pair(accepts, prompts, rng, *, effort=1, **columns):
    """Lossless rounds whose slots accept with these probabilities, independently, and the requests they make up."""
    width, rounds_each = len(accepts), 20
    count = prompts * rounds_each
    tests = rng.random((count, width)) < accepts
    accepted = np.cumprod(tests, axis=1).sum(axis=1)
    rounds = make_rounds(
        count, width, prompt=[f"prompt {row // rounds_each}" for row in range(count)],
        round=np.arange(count) % rounds_each, effort=np.full(count, effort), accepted=accepted,
        p_drafted=np.tile(accepts, (count, 1)), q_drafted=np.ones((count, width)),
        divergence=np.tile(1 - np.array(accepts), (count, 1)), ended=([""] * 19 + ["eos"]) * prompts,
        draft_seconds=np.full(count, 0.001), verify_seconds=np.full(count, 0.01),
        overhead_seconds=np.full(count, 0.001), **columns,
    )  # fmt: skip
    tokens = np.bincount(np.arange(count) // rounds_each, weights=rounds.emitted).astype(int)
    requests = make_requests(prompts, tokens=tokens, seconds=np.full(prompts, 0.012 * rounds_each))
    return rounds, requests


def test_each_assumption_is_charged_with_its_own_error():
    """Slots accept with .95, .5, .5, .05, independently; every round takes 1 ms outside the forwards.

    The rate of all reached slots together cannot give the tokens per round, the rates by slot do, and nothing else is
    wrong but the overhead. 4,000 rounds know the tokens per round to 1 %.
    """
    rounds, requests = recorded_pair([0.95, 0.5, 0.5, 0.05], 200, np.random.default_rng(0))
    calibration = calibrate(rounds, block_size=4, identity={}, exactness=("joint",))
    steps = lift_assumptions(calibration, rounds, [*linear(0), CactusAcceptance(budget=1)], anchored=False)
    measurements = measure(rounds, requests)
    tokens = split_error(steps, measurements, quantity="tokens_per_round")
    speed = split_error(steps, measurements)

    assert list(steps) == [START, *tokens.lifted]
    assert len(tokens.lifted) == 4
    assert tokens.rule.tolist() == ["linear:0"], "Eq. 7 knows no Cactus"
    assert abs(tokens.relative_error[0, 0]) > 0.03
    assert np.abs(tokens.relative_error[1:]).max() < 0.01
    assert tokens.share[0] == pytest.approx(1, abs=0.3)
    assert speed.relative_error[-1, 0] == pytest.approx(0, abs=0.01)
    assert speed.step[-1, 0] == pytest.approx(np.log(12 / 11), abs=1e-9), "the overhead"


def test_without_timing_only_tokens_can_be_split():
    steps = guesses([2, 2], [1, 1])
    steps["step 1"] = replace(steps["step 1"], tokens_per_second=np.full(4, np.nan))

    perfect = split_error(steps, measured([1, 1]), quantity="tokens_per_round")

    assert perfect.relative_error.tolist() == [[0, 0], [0, 0]]
    assert np.isnan(perfect.share).all(), "there is no error to share"
    with pytest.raises(ValueError, match="must be predicted and measured in all cells, got NaN in tokens_per_second"):
        split_error(steps, measured([1, 1]))


def test_an_anchor_lifts_the_last_assumption():
    rng = np.random.default_rng(1)
    rounds, _ = recorded_pair([0.9, 0.5], 3, rng)
    lenient, _ = recorded_pair([0.8, 0.6], 3, rng, rule=["linear:1"] * 60)
    calibration = calibrate(rounds, block_size=2, identity={}, exactness=("joint",))
    steps = lift_assumptions(calibration, type(rounds).concatenate([rounds, lenient]), linear(0, 1), anchored=True)

    assert list(steps)[-1] == "prefixes that leniency leaves alone"
    assert list(steps.values())[-1].model == "anchored"


def test_blocks_run_on_until_their_end_is_believed():
    """Every draft is accepted and begins with the end of the text: 1 token a round, or 3 as Eq. 7 counts."""
    rounds = make_rounds(4, 2, accepted=[2] * 4, emitted=[1] * 4, ended=["eos"] * 4, eos_slot=[0] * 4)
    calibration = calibrate(rounds, block_size=2, identity={}, exactness=("joint",))
    steps = lift_assumptions(calibration, rounds, linear(0), anchored=False)

    assert steps["positions independent of each other"].tokens_per_round.tolist() == [3]
    assert steps["blocks never cut by end or limit"].tokens_per_round.tolist() == [1]
