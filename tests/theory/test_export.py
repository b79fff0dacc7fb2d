import csv
import json
import math
from itertools import pairwise

import numpy as np
import pytest

from tests.recordings import make_rounds, record_pair
from theory import export
from theory.acceptance import LinearAcceptance, parse_rule
from theory.calibration import Calibration, calibrate, without_divergence
from theory.export import positions, vllm_config
from theory.rounds import Rounds

LOSSLESS = LinearAcceptance(leniency=0)
NAN = math.nan


def test_positions_by_hand():
    """Three rounds of ratios (1, 1/2), (1/2, 1/2) and, cut by the limit after its first slot, (1/4, -)."""
    rounds = make_rounds(
        3,
        2,
        drafted=[2, 2, 1],
        p_drafted=[[0.5, 0.25], [0.25, 0.25], [0.125, NAN]],
        q_drafted=[[0.5, 0.5]] * 2 + [[0.5, NAN]],
    )
    rates = positions(rounds, LOSSLESS)

    assert rates.rounds.tolist() == [3, 2]
    assert rates.acceptance_rate == pytest.approx([1.75 / 3, 0.75 / 1.5])
    assert rates.survival_rate == pytest.approx([1.75 / 3, 1.75 / 3 * 0.5])


def test_nothing_is_learnt_behind_the_end_of_a_text():
    rounds = make_rounds(2, 3, eos_slot=[1, 0], q_drafted=[[0.5, 1.0, 1.0], [1.0, 1.0, 1.0]])
    rates = positions(rounds, LOSSLESS)

    assert rates.rounds.tolist() == [2, 1]
    assert rates.acceptance_rate == pytest.approx([0.75, 0.5])


def test_a_position_that_is_never_reached_accepts_nothing():
    rounds = make_rounds(1, 3, p_drafted=[[0.5, 0.0, 0.5]])

    assert positions(rounds, LOSSLESS).acceptance_rate.tolist() == [1, 0, 0]
    assert positions(rounds, LOSSLESS).survival_rate.tolist() == [1, 0, 0]


@pytest.mark.parametrize("label", ["linear:0", "linear:0.5", "cactus:0.5"])
def test_whole_blocks_survive_as_the_product_of_their_slots(label):
    """Against the definition: the mean over rounds of the product of the acceptance probabilities so far."""
    rng = np.random.default_rng(0)
    p, q = rng.random((2, 40, 5))
    rule = parse_rule(label)
    rates = positions(make_rounds(40, 5, p_drafted=p, q_drafted=q), rule)
    products = [[math.prod(rule.probability(p, q)[row, : slot + 1]) for slot in range(5)] for row in range(40)]

    assert rates.survival_rate == pytest.approx(np.mean(products, axis=0))


def test_blocks_cut_by_a_limit_do_not_bias_the_rates():
    """All slots accept with .7; blocks are cut at random lengths, so the plain mean over rounds is too low.

    2,000 rounds: the standard error of the survival at slot 3 is about .008, 5 of them are the tolerance (false alarm
    6e-7).
    """
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    rng = np.random.default_rng(1)
    whole = record_pair(p, q, 2000, 1, 4, rng, LOSSLESS)
    drafted = rng.integers(1, 5, size=2000)
    kept = whole.slot < drafted[:, None]
    cut = {name: np.where(kept, getattr(whole, name), NAN) for name in ("p_drafted", "q_drafted", "divergence")}
    rounds = make_rounds(2000, 4, drafted=drafted, accepted=np.minimum(whole.accepted, drafted), **cut)

    assert positions(rounds, LOSSLESS).survival_rate[2] == pytest.approx(0.7**3, abs=0.04)
    assert (rounds.accepted >= 3).mean() < 0.7**3 - 0.1, "the plain mean"


def test_vllm_rates_keep_what_vllm_asks_of_them():
    """One for each drafted token, in [0, 1], never rising; the mean accepted length follows from them."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    rounds = record_pair(p, q, 400, 1, 6, np.random.default_rng(2), LOSSLESS)
    config = vllm_config(positions(rounds, LOSSLESS))
    rates = config["synthetic_acceptance_rates"]

    assert config["rejection_sample_method"] == "synthetic"
    assert config["num_speculative_tokens"] == len(rates) == 6
    assert all(0 <= later <= earlier <= 1 for earlier, later in pairwise(rates))
    # the recorded tests are one realisation: 400 rounds, 5 standard errors of the accepted length
    assert sum(rates) == pytest.approx(rounds.accepted.mean(), abs=5 * rounds.accepted.std() / 20)


@pytest.fixture
def run(tmp_path):
    cells = [
        make_rounds(
            2, 3, effort=[effort] * 2, draft_seconds=[0.001 * effort] * 2, verify_seconds=[0.01] * 2,
            q_drafted=np.full((2, 3), 1.0),
        )
        for effort in (1, 2)
    ]  # fmt: skip
    again = make_rounds(1, 3, replica=[1], draft_seconds=[0.5], verify_seconds=[0.5], p_drafted=[[0.0] * 3])
    rounds = Rounds.concatenate([*cells, again])
    rounds.write(tmp_path / "rounds.parquet")
    calibration = calibrate(rounds, block_size=3, identity={}, exactness=("joint", "joint"))
    calibration.to_json(tmp_path / "calibration.json")
    return tmp_path


def test_the_command_writes_a_file_for_each_effort(run, capsys):
    assert export.main([str(run), "--format", "vllm"]) == 0

    written = json.loads((run / "vllm-K2-linear-0.json").read_text())
    assert written["synthetic_acceptance_rates"] == [0.5, 0.25, 0.125]
    assert capsys.readouterr().out.split() == [str(run / f"vllm-K{effort}-linear-0.json") for effort in (1, 2)]


def test_the_command_writes_a_table(run):
    assert export.main([str(run), "--rules", "linear:0,linear:1", "--out", str(run / "new")]) == 0

    rows = list(csv.DictReader((run / "new" / "positions.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 3
    assert rows[0] == {
        "effort": "1", "rule": "linear:0", "position": "1", "acceptance_rate": "0.5", "survival_rate": "0.5",
        "rounds": "2", "draft_seconds": rows[0]["draft_seconds"], "verify_seconds": "0.01", "overhead_seconds": "",
    }  # fmt: skip
    assert float(rows[0]["draft_seconds"]) == pytest.approx(0.001)
    assert rows[3]["rule"] == "linear:1"
    assert rows[3]["survival_rate"] == "1.0"


def test_O65_a_newer_recording_is_refused(run, capsys):
    path = run / "calibration.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))

    assert export.main([str(run)]) == 2
    message = capsys.readouterr().err
    assert "schema version" in message
    assert "got 99" in message
    assert "record it again" in message


def test_times_alone_say_nothing_about_acceptance(run, capsys):
    path = run / "calibration.json"
    without_divergence(Calibration.from_json(path)).to_json(path)

    assert export.main([str(run)]) == 2
    assert "times alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--rules", "greedy:1"], "must be linear:"), ([], "calibration.json")]
)
def test_errors_are_one_line(run, capsys, arguments, message):
    where = run if arguments else run / "nowhere"

    assert export.main([str(where), *arguments]) == 2
    assert message in capsys.readouterr().err
