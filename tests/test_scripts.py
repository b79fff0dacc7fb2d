"""The script for a GPU, on a CPU with a small pair: everything but the device is the same. And `make calibrate`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.profiler.pairs.test_named import write as write  # a fixture
from theory.calibration import Calibration
from theory.rounds import Rounds

ROOT = Path(__file__).parents[1]


def run(**environment):
    command = [str(ROOT / "scripts/gpu_check.sh")]
    settings = os.environ | {"PYTHON": sys.executable, "DEVICE": "cpu", "TESTS": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=False, env=settings | environment, capture_output=True, text=True, timeout=200)


def test_the_gpu_check_writes_a_calibration_of_times_for_a_pair(write, tmp_path):
    """The second of its two pairs, shrunk: a fixed number of steps, four efforts, whole blocks after 200 tokens."""
    out, pair = tmp_path / "out", write("sdar-8b-qwen3-8b")
    pair.write_text(pair.read_text().replace("token_limit = 20", "token_limit = 60"))
    done = run(PAIRS=str(pair), OUT=str(out), PROMPTS="1", ROUNDS="3")

    assert done.returncode == 0, done.stderr
    calibration = Calibration.from_json(out / "sdar-8b-qwen3-8b.json")
    assert calibration.efforts == (1, 2, 4, 8)
    assert calibration.latency.draft_slope_seconds is not None
    assert calibration.divergence == (None,) * 4
    rounds = Rounds.read(out / "runs/sdar-8b-qwen3-8b/check/rounds.parquet")
    assert (rounds.passes == rounds.effort).all()
    assert (rounds.drafted == 16).all()
    assert not any("passes" in warning for warning in calibration.warnings)
    assert "Lower bounds" in (out / "sdar-8b-qwen3-8b.txt").read_text()


def test_the_gpu_check_says_so_if_a_pair_fails(tmp_path):
    done = run(PYTHON="false", PAIRS="one.toml two", OUT=str(tmp_path / "out"))

    assert done.returncode == 1
    assert "one failed" in done.stderr
    assert "two failed" in done.stderr
    assert not list((tmp_path / "out").glob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "results"),
    [("", "results"), ("--prompts 2 --out X/y --seed 1", "X/y"), ("--out=X", "X"), ("--out 'two words'", "two words")],
)
def test_make_calibrate_reports_the_run_where_it_was_put(arguments, results, tmp_path):
    """With a Python that prints the command instead."""
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    python.chmod(0o755)
    (tmp_path / "venv/.runtime").touch()
    command = ["make", "-s", "calibrate", f"VENV={tmp_path / 'venv'}", f"ARGS={arguments}"]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True, timeout=20)

    assert done.stdout.endswith(f"<-m><figures.report><--results><{results}>")
