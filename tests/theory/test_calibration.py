import json
import math

import numpy as np
import pytest

from tests.recordings import make_rounds, record_pair
from theory.acceptance import LinearAcceptance
from theory.calibration import Calibration, calibrate, without_divergence
from theory.rounds import Rounds

EPS = np.finfo(float).eps
IDENTITY = {"pair": "embedded", "revisions": {"drafter": "a1"}, "temperature": 0.7}


def two_prompts(**columns):
    """Prompt a: slots .2, .4 reached and .9 not; prompt b: .6 reached in each of two rounds, the second timed out."""
    default = {
        "prompt": ["a", "b", "b"],
        "round": [0, 0, 1],
        "accepted": [1, 0, 0],
        "ended": ["eos", "", "limit"],
        "divergence": [[0.2, 0.4, 0.9], [0.6, 0.1, 0.1], [0.6, 0.1, 0.1]],
    }
    return make_rounds(3, 3, **(default | columns))


def calibrated(rounds, exactness=("joint",), **settings):
    return calibrate(rounds, **({"block_size": 3, "identity": IDENTITY, "exactness": exactness} | settings))


def test_divergence_is_averaged_over_reached_slots_and_clustered_by_prompt():
    calibration = calibrated(two_prompts())
    # mean 1.8 / 4; deviations of the prompts' totals .6 - 2 * .45 and 1.2 - 2 * .45
    error = math.sqrt(2 / 1 * (0.3**2 + 0.3**2)) / 4

    assert calibration.divergence == (pytest.approx(0.45, rel=8 * EPS),)
    assert calibration.divergence_se == (pytest.approx(error, rel=16 * EPS),)
    assert calibration.divergence_all_slots == (pytest.approx(3.1 / 9, rel=8 * EPS),)
    assert (calibration.rounds, calibration.prompts) == ((3,), (2,))
    assert calibration.tokens_per_round == (pytest.approx(4 / 3),)
    assert calibration.tokens_per_request == 2.0
    assert 0 <= calibration.divergence_low[0] < 0.45 < calibration.divergence_high[0] <= 1


def test_reached_slots_of_an_independent_pair_give_its_total_variation():
    """The mean acceptance at reached slots equals 1 - d_K; with 6 000 slots the two agree within 5 standard errors."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    rounds = record_pair(p, q, 60, 50, 4, np.random.default_rng(6), LinearAcceptance(leniency=0))
    calibration = calibrated(rounds, block_size=4)
    slots = rounds.reached.sum()
    rate = np.minimum(rounds.accepted, 4).sum() / slots

    assert calibration.divergence[0] == pytest.approx(0.3)
    assert rate == pytest.approx(1 - calibration.divergence[0], abs=5 * math.sqrt(0.7 * 0.3 / slots))


def test_efforts_are_kept_apart_and_the_duplicate_is_left_out():
    low, high = two_prompts(effort=[1] * 3), two_prompts(effort=[4] * 3, divergence=np.full((3, 3), 0.1))
    again = two_prompts(replica=[1] * 3, divergence=np.full((3, 3), 1.0))
    calibration = calibrated(Rounds.concatenate([high, again, low]), exactness=("joint", "none"))

    assert calibration.efforts == (1, 4)
    assert calibration.divergence == pytest.approx((0.45, 0.1))
    assert calibration.exactness == ("joint", "none")


def test_an_anchor_leaves_the_divergence_and_shows_its_shift():
    """Slots .3, .5, .9 of each round of the anchor are drawn as p / q = 1, so that a lossless test reaches them all."""
    same = {"p_drafted": np.full((3, 3), 0.5), "q_drafted": np.full((3, 3), 0.5)}
    anchor = two_prompts(rule=["linear:1"] * 3, accepted=[3] * 3, divergence=[[0.3, 0.5, 0.9]] * 3, **same)
    calibration = calibrated(Rounds.concatenate([anchor, two_prompts()]))
    alone = calibrated(two_prompts())

    assert calibration.divergence == alone.divergence
    assert calibration.rounds == alone.rounds
    assert calibration.tokens_per_request == alone.tokens_per_request
    assert (calibration.anchor_rule, calibration.anchor_divergence) == ("linear:1", (pytest.approx(1.7 / 3),))
    assert (alone.anchor_rule, alone.anchor_divergence) == (None, None)
    assert not any("d_K shifts" in text for text in alone.warnings)


@pytest.mark.parametrize(
    ("shifts", "warned"),
    [
        ([0.1, 0.12, 0.08, 0.1, 0.11, 0.09], True),
        ([-0.1, -0.12, -0.08, -0.1, -0.11, -0.09], True),
        ([0.02, 0.03, 0.02, 0.02, 0.03, 0.02], False),  # told apart, but less than a tenth
        ([0.3, -0.1, 0.3, -0.1, 0.3, -0.1], False),  # as large on average, by chance
    ],
)
def test_a_shift_that_is_large_and_no_chance_is_worth_a_warning(shifts, warned):
    """Prompts differ among each other by more than either recording does: they are paired."""
    levels = np.array([0.3, 0.5, 0.4, 0.6, 0.45, 0.75])[:, None]
    lossless = make_rounds(6, 1, divergence=levels)
    anchor = make_rounds(6, 1, rule=["linear:1"] * 6, divergence=levels + np.array(shifts)[:, None])
    warnings = calibrated(Rounds.concatenate([lossless, anchor]), block_size=1).warnings
    (found,) = [text for text in warnings if "d_K shifts" in text] or [""]

    assert (f"0.500 -> {0.5 + np.mean(shifts):.3f} (effort 1)" in found) == warned


def test_O72_O73_one_prompt_has_no_standard_error():
    calibration = calibrated(two_prompts().select([1, 2]))

    assert calibration.divergence_se == (None,)
    assert (calibration.divergence_low, calibration.divergence_high) == ((None,), (None,))
    assert any("one prompt" in warning for warning in calibration.warnings)


def test_latency_that_was_not_measured_is_said():
    calibration = calibrated(two_prompts())

    assert calibration.latency is None
    assert any("latency was not measured" in warning for warning in calibration.warnings)


def test_texts_that_were_not_finished_have_no_length():
    one_finished = two_prompts(accepted=[2, 0, 0], ended=["eos", "", ""])

    assert calibrated(one_finished).tokens_per_request == 3.0
    assert calibrated(two_prompts(ended=["", "", ""])).tokens_per_request is None


@pytest.mark.parametrize(
    ("rounds", "settings", "message"),
    [
        (
            two_prompts(rule=["linear:0", "linear:1", "linear:0.5"]),
            {},
            r"and at most one other rule, got .*'linear:0.5'",
        ),
        (two_prompts(rule=["cactus:0"] * 3), {}, r"recorded at linear:0 and .* got \['cactus:0'\]"),
        (two_prompts().select([False] * 3), {}, "recorded at linear:0 and at most one other rule, got none"),
        (two_prompts(), {"block_size": 2}, "`block_size` must cover every block, got 2 for a block of 3"),
        (
            two_prompts(),
            {"exactness": ("joint", "none")},
            r"`exactness` must have one entry for each of the efforts \[1\]",
        ),
        (
            Rounds.concatenate([two_prompts(), two_prompts(rule=["linear:1"] * 3, effort=[2] * 3)]),
            {},
            "`rounds` must hold effort 1 under the second rule too, got none; record it",
        ),
        (make_rounds(1, 3, drafted=[0]), {}, "must have drafted slots at effort 1, got none"),
    ],
)
def test_recordings_that_do_not_define_a_divergence(rounds, settings, message):
    with pytest.raises(ValueError, match=message):
        calibrated(rounds, **settings)


def timed_calibration():
    rounds = [
        two_prompts(effort=[k] * 3, draft_seconds=[0.001 * k + 0.002] * 3, verify_seconds=[0.01] * 3) for k in (1, 2, 4)
    ]
    return calibrated(Rounds.concatenate(rounds), exactness=("joint", "none", "none"))


@pytest.mark.parametrize(
    ("passes", "told"),
    [
        ({1: [1] * 20, 4: [4] * 20}, ""),
        ({1: [1] * 20, 4: [4] * 18 + [1, 2]}, ""),  # the last blocks of two texts
        ({1: [1] * 20, 4: [4] * 17 + [1] * 3}, "3.55 (effort 4)"),
        ({1: [8] * 20, 4: [2] * 20}, "8.00 (effort 1), 2.00 (effort 4)"),
        ({1: [8] * 20}, ""),  # one effort has no b
    ],
)
def test_passes_that_are_not_the_effort_are_told_beside_their_time(passes, told):
    """Under the second rule too, whose rounds the times are fitted to, but not in the duplicate."""
    parts = []
    for k, counts in passes.items():
        times = {"draft_seconds": [0.01 * k] * 20, "verify_seconds": [0.01] * 20}
        cell = {"effort": [k] * 20, **times}
        parts += [make_rounds(20, 1, passes=counts, rule=[rule] * 20, **cell) for rule in ("linear:0", "linear:1")]
        parts.append(make_rounds(20, 1, passes=[9] * 20, replica=[1] * 20, **cell))
    whole = calibrated(Rounds.concatenate(parts), block_size=1, exactness=("joint",) * len(passes))
    expected = [f"latency: passes of a draft on average: {told}; b is the time of an effort, not of a pass"]

    for calibration in (whole, without_divergence(whole)):
        assert [text for text in calibration.warnings if "passes" in text] == expected * bool(told)


def test_written_and_read_back(tmp_path):
    calibration = timed_calibration()
    calibration.to_json(tmp_path / "calibration.json")

    assert Calibration.from_json(tmp_path / "calibration.json") == calibration


def test_identity_is_copied():
    identity = {"nested": {"revision": "a"}}
    calibration = calibrated(two_prompts(), identity=identity)
    identity["nested"]["revision"] = "b"

    assert calibration.identity == {"nested": {"revision": "a"}}


def test_O60_json_holds_no_nan(tmp_path):
    path = tmp_path / "calibration.json"
    calibrated(two_prompts(), identity={"temperature": math.nan, "top_k": math.inf}).to_json(path)
    document = json.loads(path.read_text(), parse_constant=pytest.fail)

    assert document["identity"] == {"temperature": None, "top_k": None}
    assert document["flags"] == ["identity.temperature_nan", "identity.top_k_inf"]
    assert Calibration.from_json(path).identity == {"temperature": None, "top_k": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d | {"schema_version": 3, "mood": 1},
            "schema version 2, got 3 .missing fields: none; unknown fields: mood",
        ),
        (
            lambda d: {k: v for k, v in d.items() if k != "efforts"} | {"schema_version": 0},
            "got 0 .missing fields: efforts",
        ),
        (lambda d: {k: v for k, v in d.items() if k != "schema_version"}, "schema version 2, got none"),
        (lambda d: d | {"latency": {"verify_seconds": 1.0}}, "missing fields: efforts, rounds_per_effort"),
        (lambda d: [d], "must hold a JSON object, got list"),
    ],
)
def test_O65_other_schemas_are_refused_by_name(tmp_path, change, message):
    path = tmp_path / "calibration.json"
    timed_calibration().to_json(path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))

    with pytest.raises(ValueError, match=message) as error:
        Calibration.from_json(path)
    assert str(path) in str(error.value)


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "calibration.json"
    path.write_text('{"schema_version": 2, "effo')

    with pytest.raises(ValueError, match=r"calibration.json is not JSON"):
        Calibration.from_json(path)


class TestAuditOfCommitSteps:
    """Slots 0 and 1 of prompt a are reached, and slot 0 of each round of b; one of the four was committed early."""

    @staticmethod
    def found(guarantee, **columns):
        columns = {"commit_step": [[1, 0, 0], [0, 1, 1], [0, 0, 0]], **columns}
        warnings = calibrated(two_prompts(**columns), exactness=(guarantee,)).warnings
        return [warning for warning in warnings if "committed before an earlier one" in warning]

    def test_early_commits_are_said(self):
        (warning,) = self.found("first_token")

        assert warning.startswith("effort 1: 25 % of the reached slots")
        assert "claim" not in warning

    def test_they_contradict_a_claim_of_joint_exactness(self):
        (warning,) = self.found("joint")

        assert "against the drafter's claim of joint exactness" in warning

    def test_certain_drafts_are_exact_in_any_order(self):
        assert self.found("joint", q_drafted=np.ones((3, 3))) == []

    def test_commits_in_order_are_not_worth_a_word(self):
        assert self.found("joint", commit_step=[[0, 1, 2], [0, 0, 0], [0, 1, 1]]) == []


def test_times_alone_are_no_divergence_and_survive_a_file(tmp_path):
    efforts = np.repeat([1, 2, 3], 4)
    rounds = make_rounds(
        12, 3, effort=efforts, draft_seconds=0.01 * efforts, verify_seconds=np.full(12, 0.02), ended=["eos"] * 12
    )
    whole = calibrate(rounds, block_size=3, identity={}, exactness=("joint",) * 3)
    times = without_divergence(whole)
    times.to_json(tmp_path / "calibration.json")

    for name in ("divergence", "divergence_se", "divergence_low", "divergence_high", "divergence_all_slots"):
        assert getattr(times, name) == (None, None, None)
        assert None not in getattr(whole, name)
    assert times.tokens_per_request is None
    assert times.latency == whole.latency
    assert times.rounds == whole.rounds
    assert "d_K was not measured" in times.warnings[0]
    assert Calibration.from_json(tmp_path / "calibration.json") == times
