"""The script for a GPU, tried on a CPU with a small pair: everything but the device is the same."""

import os
import subprocess
import sys
from pathlib import Path

from tests.profiler.pairs.test_named import write as write  # a fixture
from theory.calibration import Calibration

ROOT = Path(__file__).parents[1]


def run(**environment):
    command = [str(ROOT / "scripts/gpu_check.sh")]
    settings = os.environ | {"PYTHON": sys.executable, "DEVICE": "cpu", "TESTS": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=False, env=settings | environment, capture_output=True, text=True, timeout=200)


def test_the_gpu_check_writes_a_calibration_of_times_for_a_pair(write, tmp_path):
    """The second of its two pairs, shrunk: a fixed number of steps, four efforts."""
    out = tmp_path / "out"
    done = run(PAIRS=str(write("sdar-8b-qwen3-8b")), OUT=str(out), PROMPTS="1", ROUNDS="2")

    assert done.returncode == 0, done.stderr
    calibration = Calibration.from_json(out / "sdar-8b-qwen3-8b.json")
    assert calibration.efforts == (1, 2, 4, 8)
    assert calibration.latency.draft_slope_seconds is not None
    assert calibration.divergence == (None,) * 4
    assert "Lower bounds" in (out / "sdar-8b-qwen3-8b.txt").read_text()


def test_the_gpu_check_says_so_if_a_pair_fails(tmp_path):
    done = run(PYTHON="false", PAIRS="one.toml two", OUT=str(tmp_path / "out"))

    assert done.returncode == 1
    assert "one failed" in done.stderr
    assert "two failed" in done.stderr
    assert not list((tmp_path / "out").glob("*.json"))
