import json

import pytest
import torch

from profiler import calibrate
from profiler.latency import random_prompts
from tests.profiler.commands import Command
from tests.profiler.pairs import test_random_weights
from tests.profiler.pairs.test_random_weights import small as small
from theory.acceptance import LinearAcceptance
from theory.calibration import Calibration
from theory.prediction import predict, predict_divergence
from theory.rounds import Rounds

TIMED = ("--weights", "random", "--prompts", "2", "--run", "mine", "--latency.prompt-tokens", "12")


@pytest.fixture
def command(small, tmp_path, capsys):
    def run(*options, code=0, **shape):
        path = small(**shape)
        run.command = Command(calibrate.main, path, tmp_path / "results", capsys)
        return run.command(*options, code=code)

    return run


def read(command):
    folder = command.command.run("mine")
    return Calibration.from_json(folder / "calibration.json"), Rounds.read(folder / "rounds.parquet")


@pytest.mark.parametrize("shape", [{}, {"causal": "true"}, {"block": 0}, {"kind": "gemma4_text"}])
def test_times_are_measured_without_checkpoints_and_d_K_is_not(command, shape):
    printed = command(*TIMED, "--latency.rounds", "3", **shape)
    calibration, rounds = read(command)

    assert calibration.latency is not None
    assert calibration.latency.efforts == (1, 2)
    assert calibration.latency.verify_seconds > 0
    assert calibration.latency.overhead_seconds > 0
    nothing = (None, None)
    for name in ("divergence", "divergence_se", "divergence_low", "divergence_all_slots", "tokens_per_round"):
        assert getattr(calibration, name) == nothing
    assert calibration.tokens_per_request is None
    stored = json.loads((command.command.run("mine") / "calibration.json").read_text())
    assert stored["divergence"] == [None, None]
    assert "d_K: not measured" in printed
    assert "0.000" not in printed
    assert "Lower bounds" in printed
    assert set(rounds.round) <= {0, 1, 2}
    assert set(rounds.prefix_length[rounds.round == 0]) == {12}
    assert not (command.command.run("mine") / "prediction.json").exists()


def test_an_architecture_without_bounds_is_timed_all_the_same(command, monkeypatch):
    monkeypatch.setitem(test_random_weights.CONFIGS, "mistral", test_random_weights.COMMON)
    printed = command(*TIMED, "--latency.rounds", "2", kind="mistral")
    calibration, _ = read(command)

    assert calibration.latency.verify_seconds > 0
    (told,) = [line for line in printed.splitlines() if "ower bounds" in line]
    assert told.startswith("No lower bounds: `config` must have a model_type of llama, ")
    assert "got 'mistral'" in told


def test_the_remaining_canvas_is_drafted_at_its_full_length(command):
    command(*TIMED, "--latency.rounds", "2", block=0)
    _, rounds = read(command)

    assert set(rounds.drafted[rounds.round == 0]) == {16}
    assert set(rounds.passes[rounds.effort == 2]) == {2}


def test_what_was_not_measured_cannot_be_predicted_from_but_its_times_can(command):
    command(*TIMED, "--latency.rounds", "3")
    calibration, _ = read(command)
    lossless = [LinearAcceptance(leniency=0)]

    with pytest.raises(ValueError, match="must have d_K, got one of times alone"):
        predict(calibration, lossless)
    fit = calibration.latency
    seconds = {effort: fit.draft_seconds(effort) + fit.verify_seconds for effort in calibration.efforts}
    prediction = predict_divergence({1: 0.5, 2: 0.25}, lossless, block_size=4, round_seconds=seconds)
    assert prediction.tokens_per_second[0] == pytest.approx((1 + 0.5 + 0.25 + 0.125 + 0.0625) / seconds[1])


def test_the_manifest_says_that_the_weights_are_random(command):
    command(*TIMED, "--latency.rounds", "2", "--latency.layers", "1")
    manifest = json.loads((command.command.run("mine") / "manifest.json").read_text())
    origin = next(iter(manifest["provenances"].values()))

    assert manifest["settings"]["weights"] == "random"
    assert manifest["settings"]["layers"] == 1
    assert origin["weights"] == {"drafter": "random, seed 0", "verifier": "random, seed 0"}


def test_a_recording_says_that_its_forwards_were_compiled(command, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda forward, **options: forward)
    printed = command(*TIMED, "--latency.rounds", "2", "--compile", "default")
    calibration, _ = read(command)
    manifest = json.loads((command.command.run("mine") / "manifest.json").read_text())

    assert manifest["settings"]["compile"] == calibration.identity["settings"]["compile"] == "default"
    assert "\nBoth forwards were compiled by torch (--compile default).\n" in printed
    assert "compiled" not in command(*TIMED, "--latency.rounds", "2", "--run", "plain")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--latency.rounds", "0"), "`rounds` must be at least 1, got 0"),
        (("--latency.prompt-tokens", "0"), "`prompt_tokens` must be at least 1, got 0"),
        (("--latency.layers", "-1"), "`layers` must be at least 0, got -1"),
        (("--prompts", "0"), "--prompts must be a number from 1 on with --weights random, got 0"),
        (("--prompts", "mine.txt"), "--prompts must be a number from 1 on with --weights random, got mine.txt"),
    ],
)
def test_impossible_options_are_refused(command, options, message):
    assert message in command("--weights", "random", *options, code=2)


def test_random_prompts_are_those_of_their_seed():
    prompts = random_prompts(3, 20, 50, seed=1)

    assert prompts == random_prompts(3, 20, 50, seed=1) != random_prompts(3, 20, 50, seed=2)
    assert all(len(prompt.text.split()) == 20 for prompt in prompts)
    assert {0 <= int(number) < 50 for prompt in prompts for number in prompt.text.split()} == {True}
