import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests import strategies
from tests.recordings import make_rounds
from theory.rounds import Rounds, acceptance_rate, accepted_fraction, accepted_reached, tokens_per_round


def test_O15_tokens_per_round_counts_what_was_kept():
    rounds = make_rounds(
        2, 5, accepted=[3, 5], emitted=[4, 3], eos_slot=[-1, 2], ended=["", "eos"], prompt=["a", "a"], round=[0, 1]
    )

    assert tokens_per_round(rounds) == 3.5


def test_O16_the_bonus_token_is_in_neither_part_of_the_fraction():
    rounds = [make_rounds(1, 4, accepted=[accepted]) for accepted in (0, 1, 4)]

    assert [accepted_fraction(each) for each in rounds] == [0.0, 0.25, 1.0]
    assert [acceptance_rate(each) for each in rounds] == [0.0, 0.5, 1.0]


def test_reached_slots():
    rounds = make_rounds(
        5,
        4,
        drafted=[4, 4, 4, 2, 0],
        accepted=[0, 4, 4, 1, 0],
        eos_slot=[-1, -1, 1, -1, -1],
        emitted=[1, 5, 2, 2, 1],
        ended=["", "", "eos", "", "limit"],
    )

    assert rounds.reached.sum(axis=1).tolist() == [1, 4, 2, 2, 0]
    assert accepted_reached(rounds).tolist() == [0, 4, 2, 1, 0]


def test_rates_without_rounds_are_unknown():
    none = make_rounds(0, 4)

    assert all(math.isnan(rate(none)) for rate in (acceptance_rate, accepted_fraction, tokens_per_round))


@given(strategies.recordings())
def test_reached_against_a_loop_over_slots(rounds: Rounds):
    for row in range(len(rounds)):
        expected = []
        for slot in range(rounds.drafted[row]):
            expected.append(slot)
            if slot >= rounds.accepted[row] or slot == rounds.eos_slot[row]:
                break

        assert np.flatnonzero(rounds.reached[row]).tolist() == expected


@given(strategies.recordings())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_written_and_read_back(tmp_path, rounds: Rounds):
    rounds.write(tmp_path / "rounds.parquet")
    again = Rounds.read(tmp_path / "rounds.parquet")

    for name, values in vars(rounds).items():
        np.testing.assert_array_equal(getattr(again, name), values)


HALF = np.full((1, 2), 0.5)
BAD_ROUNDS = [
    ({"accepted": [3]}, "`accepted` must lie between 0 and `drafted`, got 3 in row 0; leave the correction"),
    ({"accepted": [-1], "emitted": [0]}, "`accepted` must lie between 0 and `drafted`, got -1"),
    ({"drafted": [3]}, "`drafted` must lie between 0 and the 2 slots, got 3"),
    ({"eos_slot": [2]}, "`eos_slot` must be a drafted slot or -1, got 2"),
    ({"ended": ["length"]}, "`ended` must be one of .* got length"),
    ({"effort": [0]}, "`effort` must be at least 1, got 0"),
    ({"round": [-1]}, "`round` must not be negative, got -1"),
    ({"rule": ["linear:0.0"]}, "`rule` must be a canonical label, got linear:0.0 in row 0; use `Rule.label`"),
    ({"rule": ["lossless"]}, "`label` must be linear:LENIENCY"),
    ({"emitted": [2]}, "`emitted` must be at most `accepted` .* got 2"),
    ({"accepted": [2], "emitted": [2]}, "`emitted` must be `accepted` . 1 where the text goes on, got 2"),
    ({"accepted": [2], "emitted": [3], "eos_slot": [0], "ended": ["eos"]}, "end with the stop token, got 3"),
    ({"p_drafted": HALF * np.nan}, r"`p_drafted` must lie in \[0, 1\] at drafted slots, got nan .* NaN logits"),
    ({"q_drafted": HALF * 3}, r"`q_drafted` must lie in \[0, 1\] at drafted slots, got 1.5 in row 0, slot 0"),
    ({"divergence": -HALF}, r"`divergence` must lie in \[0, 1\] at drafted slots, got -0.5"),
    ({"drafted": [1], "divergence": HALF}, "`divergence` must be NaN beyond `drafted`, got 0.5 in row 0, slot 1"),
    ({"commit_step": [[0, -1]]}, "`commit_step` must count from 0 .* got -1 in row 0, slot 1"),
    ({"draft_seconds": [-0.5]}, "`draft_seconds` must be finite and not negative, got -0.5 .* monotonic clock"),
    ({"verify_seconds": [math.inf]}, "`verify_seconds` must be finite and not negative, got inf"),
    ({"round": [1], "prefill_seconds": [1.0]}, "`prefill_seconds` must be NaN except in round 0, got 1.0"),
]


@pytest.mark.parametrize(("columns", "message"), BAD_ROUNDS)
def test_rounds_that_cannot_have_happened(columns, message):
    with pytest.raises(ValueError, match=message):
        make_rounds(1, 2, **columns)


def test_sums_in_single_precision_may_leave_the_unit_interval_a_little():
    assert make_rounds(1, 1, divergence=[[1 + 1e-6]]).divergence[0, 0] > 1


def test_O64_rows_appended_twice_are_refused():
    rounds = make_rounds(2, 2)

    with pytest.raises(
        ValueError, match="`round` must occur once for each prompt, effort, rule, replica, got 0 in row 0"
    ):
        Rounds.concatenate([rounds, rounds])
