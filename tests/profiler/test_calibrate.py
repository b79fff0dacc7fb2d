import errno
import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
import torch
from safetensors.torch import load_file, save_file

from figures.report import __main__ as report
from profiler import calibrate, cli, pairs
from tests.profiler.commands import TORN, Command, Interruptions, copy_pair, steady
from theory.calibration import Calibration
from theory.rounds import Rounds

FEW = ("--prompts", "2", "--efforts", "1,2", "--run", "mine")
REQUESTS = 2 * 7  # two prompts, two efforts at two leniencies; the first effort again, also under two kinds of Cactus
FILES = {"manifest.json", "journal.jsonl", "rounds.parquet", "calibration.json"}


@pytest.fixture
def command(tiny_pair_file, tmp_path, capsys):
    return Command(calibrate.main, tiny_pair_file, tmp_path / "results", capsys)


@pytest.fixture
def interruptions(monkeypatch):
    return Interruptions(monkeypatch)


@pytest.fixture
def own_pair(tiny_pair_file, tmp_path):
    return copy_pair(tiny_pair_file, tmp_path / "pair")


def test_a_calibration_writes_its_files_and_prints_what_follows(command):
    printed = command(*FEW)

    assert {path.name for path in command.run("mine").iterdir()} >= FILES
    assert len(command.rows("mine")) == REQUESTS
    for word in ("d_K", "95 % interval", "draft", "verify", "frontier", "Recommended: K =", "calibration.json"):
        assert word in printed
    calibration = Calibration.from_json(command.run("mine") / "calibration.json")
    rounds = Rounds.read(command.run("mine") / "rounds.parquet")
    assert calibration.efforts == (1, 2)
    assert calibration.prompts == (2, 2)
    assert sum(calibration.rounds) == ((rounds.replica == 0) & (rounds.rule == "linear:0")).sum()
    assert calibration.anchor_rule == "linear:1"
    assert json.loads((command.run("mine") / "prediction.json").read_text())["model"] == "anchored"
    assert calibration.exactness == ("joint", "joint")
    assert calibration.block_size == 8
    assert calibration.latency is not None
    assert set(calibration.rule_seconds) == {"cactus", "cactus-taylor"}


def test_only_the_first_prompts_are_decoded_twice(command, monkeypatch):
    monkeypatch.setattr(calibrate, "TWICE", 1)
    command(*FEW)
    rows = command.rows("mine")

    assert len(rows) == REQUESTS - 3
    assert {row["prompt"] for row in rows if row["replica"]} == {rows[0]["prompt"]}
    whole = [(row["prompt"], row["effort"], row["rule"], row["replica"]) for row in rows]
    assert len(set(whole)) == len(whole)


def test_a_recorded_calibration_fits_its_schema_and_gives_a_report(command):
    command(*FEW)
    run = command.run("mine")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "calibration.schema.json").read_text())

    jsonschema.Draft202012Validator(schema).validate(json.loads((run / "calibration.json").read_text()))
    assert report.main([str(run)]) == 0
    assert "Recommendation" in (run / "report.html").read_text()


def test_too_few_prompts_for_the_asked_precision_end_with_the_number_needed(command):
    error = command(*FEW, "--precision", "0.001", code=2)

    assert re.search(r"tokens per round \+- .* from 2 prompts; need \+- 0.1%: record \d+", error)
    assert (command.run("mine") / "prediction.json").exists()
    assert "known to +- " in command(*FEW, "--precision", "10000")


def test_without_an_anchor_leniency_0_is_replayed(command):
    command(*FEW, "--anchor-leniency", "none")

    assert {row["rule"] for row in command.rows("mine") if row["replica"] == 0} == {"linear:0"}
    assert Calibration.from_json(command.run("mine") / "calibration.json").anchor_rule is None
    assert json.loads((command.run("mine") / "prediction.json").read_text())["model"] == "replay"


def test_a_calibration_carries_its_identity(command):
    command(*FEW)
    identity = Calibration.from_json(command.run("mine") / "calibration.json").identity

    assert identity["settings"]["seed"] == 0
    assert identity["settings"]["pair"]["name"] == "tiny"
    assert set(identity["provenance"]) >= {"commit", "versions", "weights", "device"}


@pytest.mark.parametrize("efforts", [("--efforts", "4,1"), ()], ids=["option", "description"])
def test_efforts_in_any_order_keep_their_exactness(command, own_pair, efforts):
    own_pair.write_text(own_pair.read_text().replace("efforts = [1, 2, 4]", "efforts = [4, 1, 4]"))
    command.pair = own_pair
    command("--prompts", "2", *efforts, "--order", "entropy", "--run", "mine")
    calibration = Calibration.from_json(command.run("mine") / "calibration.json")

    assert dict(zip(calibration.efforts, calibration.exactness, strict=True)) == {1: "joint", 4: "first_token"}


def test_the_same_command_takes_its_run_up_again_and_decodes_nothing(command, interruptions):
    printed = command(*FEW)
    decoded, journal = interruptions.decoded, (command.run("mine") / "journal.jsonl").read_bytes()

    again = command(*FEW)

    assert interruptions.decoded == decoded
    assert (command.run("mine") / "journal.jsonl").read_bytes() == journal
    assert again == printed


def test_without_a_name_the_run_is_named_after_its_settings(command, interruptions):
    options = FEW[:4]
    command(*options)
    decoded = interruptions.decoded
    command(*options)
    command(*options, "--seed", "1")

    assert interruptions.decoded == 2 * decoded
    assert len(list((command.out / "tiny").iterdir())) == 2


@pytest.mark.parametrize("recorded", [0, 1, 4])
def test_ctrl_c_keeps_what_was_recorded_and_the_same_command_completes_it(command, interruptions, recorded):
    command(*FEW[:4], "--run", "whole")
    warmup = interruptions.decoded - REQUESTS
    interruptions.left = warmup + recorded

    command(*FEW, code=130)

    assert len(command.rows("mine")) == recorded
    assert (command.run("mine") / "rounds.parquet").exists() == (recorded > 0)
    if recorded:
        assert len(Rounds.read(command.run("mine") / "rounds.parquet")) > 0
    interruptions.left = -1
    command(*FEW)
    assert {path.name for path in command.run("mine").iterdir()} >= FILES
    assert [steady(row) for row in command.rows("mine")] == [steady(row) for row in command.rows("whole")]


def test_fresh_records_again(command, interruptions):
    command(*FEW)
    decoded = interruptions.decoded

    command(*FEW, "--fresh")

    assert interruptions.decoded == 2 * decoded
    assert len(command.rows("mine")) == REQUESTS


def test_another_seed_gives_another_recording(command):
    command(*FEW)
    command(*FEW[:4], "--run", "other", "--seed", "1")

    assert command.rows("mine")[0]["prompt"] != command.rows("other")[0]["prompt"]
    assert command.rows("mine")[0]["text"] != command.rows("other")[0]["text"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--efforts", "0"), "--efforts must lie in [1, 8], got 0"),
        (("--efforts", "1,9"), "--efforts must lie in [1, 8], got 9"),
        (("--efforts", "one"), "--efforts must be numbers separated by commas, got 'one'"),
        (("--efforts", ","), "--efforts must"),
        (("--prompts", "0"), "--prompts must be at least 1, got 0"),
        (("--block-size", "-1"), "--block-size must be at least 0, got -1; 0 is the remaining canvas"),
        (("--prompts", "two"), "--prompts must be a number or a file that exists, got two"),
        (("--pair", "dream"), "`pair` must be a TOML file or one of "),
        (("--pair", "none.toml"), "`pair` must be a file that exists, got none.toml"),
        (("--device", "tpu"), "`device` must be auto, cpu or cuda[:index], got 'tpu'"),
        (("--seed", "-1"), "`seed` must lie in [0, 2**63), got -1"),
        (("--anchor-leniency", "0"), "--anchor-leniency must be one number above 0, or none, got 0"),
        (("--anchor-leniency", "0.5,1"), "must be one number above 0, or none, got 0.5,1"),
        (("--anchor-leniency", "some"), "--anchor-leniency must be numbers separated by commas, got 'some'"),
        (("--anchor-leniency", "2"), "`leniency` must lie in [0, 1], got 2.0"),
        (("--minimum-agreement", "1.5"), "`minimum_agreement` must lie in [0, 1], got 1.5"),
    ],
)
def test_impossible_options_are_one_line_with_exit_code_2(command, options, message):
    assert message in command("--prompts", "2", *options, code=2)


@pytest.mark.parametrize("options", [("--effort", "1"), ("--sample", "two"), ("--order", "random")])
def test_unknown_options_are_refused_with_exit_code_2(options):
    with pytest.raises(SystemExit, match="2"):
        calibrate.main(list(options))


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit, match="0"):
        calibrate.main(["--help"])

    printed = capsys.readouterr().out
    shared = "pair efforts prompts device order block-size out run fresh allow-mixed seed"
    own = "anchor-leniency precision minimum-agreement"
    assert all(f"--{option}" in printed for option in f"{shared} {own}".split())
    assert "python -m profiler.calibrate" in printed


def test_a_run_of_other_settings_is_refused_and_left_alone(command):
    command(*FEW)
    before = (command.run("mine") / "journal.jsonl").read_bytes()

    error = command(*FEW, "--seed", "1", code=2)

    assert "was recorded with other settings: " in error
    assert "seed (0, now 1)" in error
    assert (command.run("mine") / "journal.jsonl").read_bytes() == before


def test_O66_a_run_of_another_device_or_code_is_refused_unless_mixing_is_allowed(command, monkeypatch):
    command(*FEW)
    journal = command.run("mine") / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    original = cli.provenance
    monkeypatch.setattr(cli, "provenance", lambda pair: original(pair) | {"device": "NVIDIA H200"})

    error = command(*FEW, code=2)
    assert "device ('cpu, 1 threads', now 'NVIDIA H200')" in error
    assert "--allow-mixed" in error
    assert len(command.rows("mine")) == REQUESTS - 1

    command(*FEW, "--allow-mixed")
    assert len({row["provenance"] for row in command.rows("mine")}) == 2
    assert Calibration.from_json(command.run("mine") / "calibration.json").identity["mixed"]


def test_a_half_written_run_folder_is_refused(command):
    command.run("mine").mkdir(parents=True)
    (command.run("mine") / "journal.jsonl").write_text("{}\n")

    assert "has no manifest.json: it is no run folder; choose another --run" in command(*FEW, code=2)


def test_a_damaged_manifest_is_refused_and_the_rows_stay(command):
    command(*FEW)
    manifest = command.run("mine") / "manifest.json"
    manifest.write_text(manifest.read_text()[:50])

    assert "manifest.json is damaged" in command(*FEW, code=2)
    assert len(command.rows("mine")) == REQUESTS


def test_O61_a_torn_last_line_is_recorded_again(command, interruptions):
    command(*FEW)
    journal = command.run("mine") / "journal.jsonl"
    whole = journal.read_bytes()
    rows = [steady(row) for row in command.rows("mine")]
    journal.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]) + TORN)

    command(*FEW)

    assert [steady(row) for row in command.rows("mine")] == rows
    assert (command.run("mine") / "journal.torn").read_bytes().strip() == TORN


def test_O11_nan_logits_end_the_recording_and_keep_the_earlier_rows(command, own_pair):
    command.pair = own_pair
    command(*FEW[:2], "--efforts", "1", "--run", "good")
    weights = own_pair.parent / "drafter/model.safetensors"
    tensors = load_file(weights)
    tensors["model.norm.weight"] *= torch.nan
    save_file(tensors, weights, metadata={"format": "pt"})

    error = command(*FEW, code=2)

    assert "the drafter's logits are NaN at slot 0 of round 0" in error
    assert "load it in float32 or check the checkpoint" in error
    assert len(command.rows("good")) == 2 * 5


def test_O08_tokenizers_that_differ_are_refused(command, own_pair):
    path = own_pair.parent / "drafter/tokenizer.json"
    content = json.loads(path.read_text())
    words = content["model"]["vocab"]
    words["pens"], words["books"] = words["books"], words["pens"]
    path.write_text(json.dumps(content))
    command.pair = own_pair

    assert "drafter and verifier disagree on 2 of" in command(*FEW, code=2)


def test_a_missing_checkpoint_is_refused(command, own_pair):
    (own_pair.parent / "verifier").rename(own_pair.parent / "elsewhere")
    command.pair = own_pair

    assert "tiny: no tokenizer at 'verifier'" in command(*FEW, code=2)


@pytest.mark.parametrize("taken", [0, 100])
def test_a_full_disk_loses_nothing_that_was_recorded_before(command, monkeypatch, taken):
    """The third record meets a disk that has room for `taken` bytes more."""
    command(*FEW[:4], "--run", "whole")
    records = []

    def write(descriptor, data, write=os.write):
        if data.startswith(b'{"prompt"'):
            records.append(data)
            if len(records) > 2:
                if not taken:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return write(descriptor, data[:taken])
        return write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        error = command(*FEW, code=2)

    assert "No space left on device" in error or "the disk took 100 of" in error
    assert len(Rounds.read(command.run("mine") / "rounds.parquet")) > 0
    command(*FEW)
    assert [steady(row) for row in command.rows("mine")] == [steady(row) for row in command.rows("whole")]


def test_a_folder_that_cannot_be_written_is_one_line(command, tmp_path):
    (tmp_path / "results").write_text("a file")

    assert "results" in command(*FEW, code=2)


def test_the_named_pairs_are_listed_with_what_they_need_and_nothing_is_recorded(command):
    printed = command("--list-pairs")

    rows = [line.split()[:2] for line in printed.splitlines()]
    for name in pairs.names():
        family = pairs.read(name).drafter.family
        assert [name, family + "*" * (family in ("feature", "early_exit"))] in rows
    assert "82 GB" in printed
    assert "not measured" in printed
    assert not command.out.exists()


def test_prompts_of_a_file_are_recorded_and_named_in_the_manifest(command, tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Ann has {n} pens .", "id": n}) + "\n" for n in (1, 2, 3)))
    command("--prompts", str(file), "--sample", "2", "--efforts", "1", "--run", "mine")

    manifest = json.loads((command.run("mine") / "manifest.json").read_text())
    chosen = manifest["settings"]["prompts"]
    assert len(chosen) == 2
    assert {row["prompt"] for row in command.rows("mine")} == set(chosen) < {"1", "2", "3"}
    assert {row["request"]["correct"] for row in command.rows("mine")} == {None}, "no answer to hold them against"


def test_prompts_of_an_unscored_task_are_neither_right_nor_wrong(command, own_pair, tmp_path):
    own_pair.write_text(own_pair.read_text().replace('"word_problems"', '"own"'))
    command.pair = own_pair
    file = tmp_path / "mine.txt"
    file.write_text("Ann has 1 pens .\n")
    command("--prompts", str(file), "--efforts", "1", "--run", "mine")

    assert {row["request"]["correct"] for row in command.rows("mine")} == {None}
    assert "give it with --prompts FILE" in command("--efforts", "1", code=2)


def test_two_checkpoint_folders_and_a_file_of_prompts_are_enough(command, tiny_pair_file, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("Ann has 1 pens .\nBen has 2 books .\n")
    folders = [str(tiny_pair_file.parent / name) for name in ("drafter", "verifier")]
    given = ("--drafter", folders[0], "--verifier", folders[1], "--block-size", "4", "--token-limit", "8")
    printed = command(*given, "--prompts", str(file), "--run", "mine")

    calibration = Calibration.from_json(command.out / "drafter-verifier" / "mine" / "calibration.json")
    assert calibration.efforts == (1, 2, 4)
    assert calibration.block_size == 4
    assert "Recommended: K =" in printed
