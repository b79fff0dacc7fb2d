import json
import shutil

import numpy as np
import pytest

from profiler import calibrate, pairs, sweep
from tests.profiler.commands import Command, Interruptions, steady
from theory.measurements import Measurements
from theory.rounds import Rounds

FEW = ("--prompts", "2", "--efforts", "1,2", "--leniency", "0,1", "--run", "mine")
CELLS = 1 + 2 * 2  # the verifier alone, and two efforts under two rules
FILES = {"manifest.json", "journal.jsonl", "rounds.parquet", "measurements.parquet"}


@pytest.fixture
def command(tiny_pair_file, tmp_path, capsys):
    return Command(sweep.main, tiny_pair_file, tmp_path / "results", capsys)


@pytest.fixture
def calibrated(tiny_pair_file, tmp_path, capsys):
    """A calibration in the folder of the sweep."""
    Command(calibrate.main, tiny_pair_file, tmp_path / "results", capsys)(
        "--prompts", "2", "--efforts", "1,2", "--run", "calibration"
    )
    return tmp_path / "results" / "tiny" / "calibration"


@pytest.fixture
def interruptions(monkeypatch):
    return Interruptions(monkeypatch)


def test_a_sweep_measures_every_cell_and_the_verifier_alone(command):
    printed = command(*FEW, "--cactus", "0.5")

    assert {path.name for path in command.run("mine").iterdir()} >= FILES
    measured = Measurements.read(command.run("mine") / "measurements.parquet")
    assert list(zip(measured.effort.tolist(), measured.rule.tolist(), strict=True)) == [
        (0, "linear:0"),
        *((effort, rule) for effort in (1, 2) for rule in ("cactus:0.5", "linear:0", "linear:1")),
    ]
    assert (measured.prompts == 2).all()
    assert (measured.tokens_per_second > 0).all()
    assert (measured.duplicates == 0).all()
    assert "verifier alone" in printed
    assert "no calibration of this pair and device to compare with" in printed


def labels(options, name, task=""):
    spec = pairs.read(name).for_task(task) if task else pairs.read(name)
    cells = sweep.Settings(**options).cells(spec)
    return {effort: [cell.rule.label for cell in cells if cell.effort == effort] for effort in spec.efforts}


def test_a_pair_that_names_a_grid_is_swept_over_it():
    tenths = ["linear:0", *(f"linear:0.{step}" for step in range(1, 10)), "linear:1"]

    assert labels({}, "dream-qwen2.5-32b") == dict.fromkeys((1, 2, 3, 4), tenths)
    assert labels({"leniency": "0,.5"}, "dream-qwen2.5-32b")[1] == ["linear:0", "linear:0.5"]
    assert labels({}, "embedded")[1] == [f"linear:{value:g}" for value in sweep.LENIENCIES]


def test_budgets_of_the_pair_differ_by_effort():
    found = labels({"leniency": "0", "cactus": "pair"}, "dream-qwen2.5-32b", "humaneval")

    assert {effort: rules[-1] for effort, rules in found.items()} == {
        1: "cactus:6", 2: "cactus:12", 3: "cactus:13", 4: "cactus:15"
    }  # fmt: skip
    assert found[1][:5] == ["linear:0", "cactus:0", "cactus:0.25", "cactus:0.5", "cactus:1"]


def test_a_pair_without_budgets_is_asked_for_numbers():
    with pytest.raises(ValueError, match="--cactus pair: embedded names no budgets for word_problems"):
        labels({"cactus": "pair"}, "embedded")


def test_coupled_verification_is_a_third_rule_and_writes_one_text_at_every_effort(command):
    printed = command(*FEW, "--coupled", "--order", "entropy")

    measured = Measurements.read(command.run("mine") / "measurements.parquet")
    assert [rule for rule, effort in zip(measured.rule, measured.effort, strict=True) if effort == 1] == [
        "coupled", "linear:0", "linear:1"
    ]  # fmt: skip
    coupled = measured.select(measured.rule == "coupled")
    assert (coupled.agreement == 1).all()
    assert (coupled.acceptance_rate > 0).all()
    assert (coupled.acceptance_rate < 1).all()
    texts = {rule: {} for rule in ("coupled", "linear:0")}
    for row in command.rows("mine"):
        if row["effort"] and row["rule"] in texts:
            texts[row["rule"]].setdefault(row["prompt"], set()).add(row["text"])
    assert [len(each) for each in texts["coupled"].values()] == [1, 1]
    assert [len(each) for each in texts["linear:0"].values()] == [2, 2]
    assert "coupled" in printed


def test_leniency_1_is_accepted_always_and_leniency_0_agrees_entirely(command):
    command(*FEW)
    measured = Measurements.read(command.run("mine") / "measurements.parquet")
    cells = {cell: row for row, cell in enumerate(zip(measured.effort.tolist(), measured.rule.tolist(), strict=True))}

    for effort in (1, 2):
        assert measured.acceptance_rate[cells[effort, "linear:1"]] == 1
        assert measured.acceptance_rate[cells[effort, "linear:0"]] < 1
        assert measured.agreement[cells[effort, "linear:0"]] == 1
        assert measured.agreement[cells[effort, "linear:1"]] < 1
        assert (
            measured.tokens_per_round[cells[effort, "linear:1"]] > measured.tokens_per_round[cells[effort, "linear:0"]]
        )
    assert np.isnan(measured.acceptance_rate[cells[0, "linear:0"]])


def test_the_prediction_of_a_calibration_stands_beside_the_measurement(command, calibrated):
    printed = command(*FEW, "--cactus", "0.5")

    assert f"Prediction of {calibrated} against measurement" in printed
    table = printed.split("against measurement")[1].split("Files in")[0]
    cells, models = table.split("Errors of each model")
    rows = [line.split() for line in cells.strip().splitlines()[2:] if line.strip()]
    rules = ("linear:0", "linear:1", "cactus:0.5")
    assert [row[:2] for row in rows] == [[effort, rule] for effort in "12" for rule in rules]
    assert all(row[-1] == ("-" if row[1].startswith("cactus") else "%") for row in rows)
    assert rows[0][-2:] != rows[0][-4:-2]
    for model in ("Eq. 6-7", "one acceptance rate a slot", "replay of the lossless", "between the two recordings"):
        assert model in models


def test_a_calibration_can_be_named(command, calibrated, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.move(calibrated, moved)

    assert "no calibration of this pair" in command(*FEW)
    assert f"Prediction of {moved} against measurement" in command(*FEW, "--calibration", str(moved))


def test_a_named_calibration_of_another_pair_is_refused_and_nothing_is_lost(command, calibrated):
    path = calibrated / "calibration.json"
    path.write_text(path.read_text().replace('"block_size": 8,\n', '"block_size": 4,\n'))
    document = json.loads(path.read_text())
    document["identity"]["settings"]["pair"]["block_size"] = 4
    path.write_text(json.dumps(document))

    error = command(*FEW, "--calibration", str(calibrated), code=2)

    assert "was recorded with other settings: block_size (4, now 8)" in error
    assert len(command.rows("mine")) in (0, 2 * CELLS)
    command(*FEW)
    assert len(command.rows("mine")) == 2 * CELLS


def test_a_named_calibration_that_is_not_there_is_one_line_before_the_sweep(command, tmp_path):
    assert "nowhere" in command(*FEW, "--calibration", str(tmp_path / "nowhere"), code=2)
    assert not list(tmp_path.rglob("journal.jsonl"))


def test_the_same_command_takes_its_run_up_again_and_decodes_nothing(command, interruptions):
    first = command(*FEW)
    decoded = interruptions.decoded

    assert command(*FEW) == first
    assert interruptions.decoded == decoded


def test_prompts_can_be_decoded_twice(command):
    printed = command(*FEW, "--repeat", "1")

    assert "Two runs of 1 prompts differ" in printed
    rows = command.rows("mine")
    assert len(rows) == 2 * CELLS + 4
    first, again = (
        [row["text"] for row in rows if row["replica"] == replica and row["effort"] and row["prompt"].endswith("/0")]
        for replica in (0, 1)
    )
    assert first != again
    assert (Measurements.read(command.run("mine") / "measurements.parquet").prompts == 2).all()


@pytest.mark.parametrize("recorded", [0, 1, 6])
def test_ctrl_c_keeps_what_was_recorded_and_the_same_command_completes_it(command, interruptions, recorded):
    """After one request, only the verifier alone is there, which has no rounds."""
    command(*FEW[:6], "--run", "whole")
    warmup = interruptions.decoded - 2 * CELLS
    interruptions.left = warmup + recorded

    command(*FEW, code=130)

    assert len(command.rows("mine")) == recorded
    interruptions.left = -1
    command(*FEW)
    assert [steady(row) for row in command.rows("mine")] == [steady(row) for row in command.rows("whole")]
    assert {path.name for path in command.run("mine").iterdir()} >= FILES


def test_O63_leniencies_that_differ_by_rounding_are_one_cell(command):
    command("--prompts", "2", "--efforts", "1", "--leniency", f"0.3,{0.1 * 3!r},0.30", "--run", "mine")

    measured = Measurements.read(command.run("mine") / "measurements.parquet")
    assert measured.rule.tolist() == ["linear:0", "linear:0.3"]
    assert len(command.rows("mine")) == 2 * 2


def test_the_rounds_of_a_sweep_can_be_read_without_the_models(command):
    command(*FEW)

    rounds = Rounds.read(command.run("mine") / "rounds.parquet")
    assert set(rounds.effort) == {1, 2}
    assert set(rounds.rule) == {"linear:0", "linear:1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--leniency", "1.2"), "`leniency` must lie in [0, 1], got 1.2"),
        (("--leniency", "-0.1"), "`leniency` must lie in [0, 1], got -0.1"),
        (("--leniency", "nan"), "`leniency` must lie in [0, 1], got nan"),
        (("--leniency", "half"), "--leniency must be numbers separated by commas, got 'half'"),
        (("--repeat", "-1"), "--repeat must be at least 0, got -1"),
        (("--cactus", "-1"), "`budget` must be finite and not negative, got -1.0"),
        (("--cactus", "inf"), "`budget` must be finite and not negative, got inf"),
        (("--leniency", ","), "--leniency"),
        (("--efforts", "0"), "--efforts must lie in [1, 8], got 0"),
        (("--pair", "dream"), "`pair` must be a TOML file or one of "),
    ],
)
def test_impossible_options_are_one_line_with_exit_code_2(command, options, message):
    assert message in command("--prompts", "2", *options, code=2)


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit, match="0"):
        sweep.main(["--help"])

    printed = capsys.readouterr().out
    shared = "pair efforts prompts device order block-size out run fresh allow-mixed seed"
    own = "leniency cactus coupled repeat calibration"
    assert all(f"--{option}" in printed for option in f"{shared} {own}".split())


def test_a_calibrations_run_folder_is_refused(command, calibrated):
    error = command(*FEW[:6], "--run", "calibration", code=2)

    assert "command ('calibrate', now 'sweep')" in error
