import dataclasses

import numpy as np
import pytest

from profiler import summary
from tests.recordings import make_requests, make_rounds
from theory.calibration import calibrate
from theory.measurements import measure

IDENTITY = {"settings": {}, "provenance": {}}


def recorded(**columns):
    """Three prompts with two rounds each."""
    return make_rounds(
        6,
        4,
        prompt=[f"prompt {row // 2}" for row in range(6)],
        round=[0, 1] * 3,
        accepted=[0, 1, 2, 3, 4, 0],
        **columns,
    )


def test_a_table_is_aligned_to_the_right_of_its_columns():
    lines = summary.table(("K", "rule"), [("1", "linear:0.25"), ("12", "-")]).splitlines()

    assert lines == ["   K         rule", "   1  linear:0.25", "  12            -"]


def test_a_table_without_rows_is_its_header():
    assert summary.table(("K", "rule"), []) == "  K  rule"


def test_a_calibration_without_times_says_so_and_warns():
    printed = summary.calibration(calibrate(recorded(), block_size=4, identity=IDENTITY, exactness=("joint",)))

    assert "Latency: not measured." in printed
    assert "warning: " in printed
    assert "0.500" in printed
    assert "nan" not in printed


def test_a_single_prompt_has_a_dash_for_an_interval():
    rounds = recorded().select(np.arange(2))
    printed = summary.calibration(calibrate(rounds, block_size=4, identity=IDENTITY, exactness=("joint",)))

    assert "[-, -]" in printed


def test_times_are_printed_in_milliseconds():
    efforts = np.repeat([1, 2], 6)
    rounds = type(recorded()).concatenate([recorded(), recorded(effort=np.full(6, 2), passes=np.full(6, 2))])
    timed = dataclasses.replace(
        rounds,
        draft_seconds=0.001 + 0.002 * efforts,
        verify_seconds=np.full(12, 0.008),
        overhead_seconds=np.full(12, 5e-4),
    )
    result = calibrate(timed, block_size=4, identity=IDENTITY, exactness=("joint", "joint"))
    printed = summary.calibration(result)

    for text in ("a + bK = 1.00", "2.00", "c_v = 8.00", "0.50"):
        assert text in printed


def test_measurements_show_the_verifier_alone_and_dashes_for_what_was_not_measured():
    rounds = recorded()
    prompts = np.unique(rounds.prompt)
    fast = make_requests(3, prompt=prompts)
    alone = make_requests(3, prompt=prompts, effort=np.zeros(3, int), correct=np.full(3, np.nan))
    requests = type(fast).concatenate([alone, fast])
    first, second, prefill = summary.measurements(measure(rounds, requests), 0.0126).splitlines()[2:]

    assert first.split()[:4] == ["0", "verifier", "alone", "-"]
    assert first.endswith("- [-, -]")
    assert second.split()[:2] == ["1", "linear:0"]
    assert "1.000 [0.439, 1.000]" in second
    assert prefill == "s/request counts the rounds; the forward of a prompt adds 0.013 s."


@pytest.mark.parametrize("names", [["b.json", "a.parquet"]])
def test_the_files_of_a_run_are_listed_in_order(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()

    assert summary.files(tmp_path).strip() == f"Files in {tmp_path}: a.parquet, b.json"
