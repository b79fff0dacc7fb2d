import numpy as np
import pytest

from benchmarks import accuracy
from tests.profiler.conftest import one_thread, tiny_pair_file
from tests.recordings import make_requests, make_rounds
from theory.acceptance import LOSSLESS
from theory.calibration import calibrate
from theory.measurements import measure
from theory.prediction import predict

__all__ = ["one_thread", "tiny_pair_file"]
SECONDS = {"draft_seconds": 0.1, "verify_seconds": 0.3, "overhead_seconds": 0.1}


def timed(count, factor=1.0, **columns):
    return make_rounds(count, 2, **{name: factor * np.full(count, value) for name, value in SECONDS.items()}, **columns)


def test_it_records_sweeps_and_compares_all_models(tiny_pair_file, tmp_path, capsys):
    grid = ["--leniency", "0,1", "--cactus", "0.5", "--repeat", "1"]
    accuracy.main(
        ["--pair", str(tiny_pair_file), "--prompts", "2", "--sweep-prompts", "2", "--out", str(tmp_path), *grid]
    )
    printed = capsys.readouterr().out.split("Accuracy of")[1]

    for text in ("Eq. 6-7", "replay between the two", "2.0 % / 8.0 %", "Two runs of 1 prompts", "K = 4", "cactus:0.5"):
        assert text in printed
    assert "nan" not in printed


def test_one_clock_takes_out_the_machine_and_its_pauses():
    """Rounds of prompt 0 take twice as long as recorded, of prompt 1 four times; one of each paused."""
    recorded = timed(3)
    calibration = calibrate(recorded, block_size=2, identity={}, exactness=("joint",))
    prediction = predict(calibration, [LOSSLESS], model="replay", rounds=recorded, overhead=True, resamples=2)
    prompts = {"prompt": ["prompt 0"] * 4 + ["prompt 1"] * 3, "round": [0, 1, 2, 3, 0, 1, 2]}
    swept = timed(7, factor=np.repeat([2.0, 4.0], [4, 3]), **prompts)
    swept.draft_seconds[[1, 5]] = 100.0
    requests = make_requests(2, seconds=np.full(2, 50.0))
    slower, steady = accuracy.one_clock(prediction, measure(swept, requests), swept)

    assert slower == pytest.approx(4)
    assert steady.tokens_per_second[0] == pytest.approx(steady.tokens_per_round[0] / 0.5)


def test_forwards_are_drafts_verifications_and_prefills():
    rounds = make_rounds(3, 2, prompt=["a", "a", "b"], round=[0, 1, 0], passes=[2, 2, 1])

    assert accuracy.forwards(rounds) == 5 + 3 + 2
