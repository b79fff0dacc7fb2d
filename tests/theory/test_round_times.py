from dataclasses import replace

import numpy as np
import pytest

from tests.recordings import make_rounds
from theory.acceptance import LOSSLESS
from theory.calibration import calibrate
from theory.latency import fit_latency
from theory.prediction import predict
from theory.recorded import Resampler
from theory.round_times import resampled_round_seconds, round_seconds
from theory.rounds import Rounds

PROMPTS, EFFORTS = 6, (1, 2, 4)
LAST_DIGITS = 1e-12


def recording(spread):
    """Three rounds of each prompt at each effort, whose times have a level of their own, apart by so much."""
    rng = np.random.default_rng(0)
    level = 1 + spread * rng.normal(size=PROMPTS)
    prompt, effort, index = (axis.ravel() for axis in np.meshgrid(range(PROMPTS), EFFORTS, range(3), indexing="ij"))
    times = {
        "draft_seconds": 1e-3 + 2e-3 * effort,
        "verify_seconds": np.full(prompt.size, 5e-3),
        "overhead_seconds": np.full(prompt.size, 1e-3),
    }
    noise = {name: value * level[prompt] * rng.uniform(0.99, 1.01, prompt.size) for name, value in times.items()}
    labels = np.char.mod("prompt %d", prompt)
    return make_rounds(prompt.size, 2, prompt=labels, effort=effort, round=index, ended=["eos"] * prompt.size, **noise)


def calibrated(rounds):
    return calibrate(rounds, block_size=2, identity={}, exactness=("joint",) * len(np.unique(rounds.effort)))


def drawn(rounds, weights):
    """The rounds of each prompt as often as it was drawn, the copies as prompts of their own."""
    parts = []
    for copy, prompt in enumerate(np.repeat(np.unique(rounds.prompt), weights)):
        part = rounds.select(rounds.prompt == prompt)
        parts.append(Rounds(**{**vars(part), "prompt": np.full(len(part), f"copy {copy}")}))
    return Rounds.concatenate(parts)


@pytest.mark.parametrize("efforts", [EFFORTS, (2, 4), (2,)])
def test_forwards_of_a_resample_take_what_its_own_fit_says(efforts):
    rounds = recording(0.3)
    rounds = rounds.select(np.isin(rounds.effort, efforts))
    resampler = Resampler(rounds, 5, np.random.default_rng(1))
    calibration = calibrated(rounds)
    seconds = resampled_round_seconds(calibration, rounds, resampler, overhead=False)

    for row, weights in enumerate(resampler.weights.astype(int)):
        fit = fit_latency(drawn(rounds, weights))
        expected = [fit.round_seconds(effort) for effort in efforts]
        np.testing.assert_allclose(seconds[row], expected, rtol=LAST_DIGITS)
    np.testing.assert_array_equal(seconds[0], round_seconds(calibration, rounds, overhead=False))


def test_whole_rounds_take_what_they_took_at_their_effort():
    """A verifier that is slower after more steps, and drafts off the line: neither is taken for a line in K."""
    rounds = recording(0.3)
    rounds = replace(rounds, verify_seconds=rounds.verify_seconds * rounds.effort**0.5)
    resampler = Resampler(rounds, 5, np.random.default_rng(1))
    seconds = resampled_round_seconds(calibrated(rounds), rounds, resampler, overhead=True)

    for row, weights in enumerate(resampler.weights.astype(int)):
        own = drawn(rounds, weights)
        whole = own.draft_seconds + own.verify_seconds + own.overhead_seconds
        expected = [np.median(whole[own.effort == effort]) for effort in EFFORTS]
        np.testing.assert_allclose(seconds[row], expected, rtol=LAST_DIGITS)


def test_intervals_of_throughput_know_that_times_differ_between_prompts():
    """All rounds are alike in tokens, so that the interval is that of the times alone."""
    alike, apart = (
        predict(calibrated(rounds), [LOSSLESS], model="replay", rounds=rounds, resamples=200)
        for rounds in (recording(0), recording(0.3))
    )
    reach = [
        (each.tokens_per_second_high - each.tokens_per_second_low) / each.tokens_per_second for each in (alike, apart)
    ]

    assert (reach[0] < 0.02).all()
    assert (reach[1] > 0.2).all()
    np.testing.assert_allclose(apart.tokens_per_round_low, apart.tokens_per_round_high)


def test_rounds_without_times_leave_the_cost_as_it_is():
    rounds = recording(0.3)
    untimed = make_rounds(2, 2, effort=[1, 2])
    resampler = Resampler(untimed, 3, np.random.default_rng(1))
    calibration = calibrated(rounds.select(rounds.effort < 4))
    seconds = resampled_round_seconds(calibration, untimed, resampler, overhead=False)

    np.testing.assert_array_equal(seconds, [round_seconds(calibration, None, overhead=False)] * 4)
