import dataclasses
import itertools
import re

import numpy as np
import pytest

from benchmarks import accuracy
from benchmarks.swept import Sweep, one_clock
from tests.profiler.conftest import one_thread, tiny_pair_file
from tests.recordings import make_requests, make_rounds
from theory.acceptance import LOSSLESS, parse_rule
from theory.calibration import Calibration, calibrate
from theory.measurements import measure
from theory.models import predict_best
from theory.prediction import predict
from theory.rounds import Rounds

__all__ = ["one_thread", "tiny_pair_file"]
SECONDS = {"draft_seconds": 0.1, "verify_seconds": 0.3, "overhead_seconds": 0.1}


def timed(count, factor=1.0, **columns):
    return make_rounds(count, 2, **{name: factor * np.full(count, value) for name, value in SECONDS.items()}, **columns)


def run_whole(pair_file, out):
    accuracy.main([
        "--pair", str(pair_file), "--prompts", "2", "--sweep-prompts", "4", "--repeat", "1", "--out", str(out),
        "--leniency", "0,1", "--cactus", "0.5",
    ])  # fmt: skip


def rows(text, title):
    """The cells of the table that follows a title."""
    lines = text.split(title)[1].splitlines()[1:]
    table = list(itertools.takewhile(lambda line: line.startswith("  ") and not line.startswith("  ("), lines))
    return [re.split(r" {2,}", line.strip()) for line in table]


def tau(first, second):
    """Kendall's tau-b, pair by pair."""
    pairs = np.array(list(itertools.combinations(zip(first, second, strict=True), 2)))
    signs = np.sign(pairs[:, 0] - pairs[:, 1])
    return signs.prod(axis=1).sum() / np.sqrt(np.abs(signs).sum(axis=0).prod())


def test_it_records_sweeps_and_tells_what_the_files_say(tiny_pair_file, tmp_path, capsys):
    """Every number of the tables again, from the rounds, with code of its own."""
    run_whole(tiny_pair_file, tmp_path)
    printed = capsys.readouterr().out.split("Accuracy of")[1]
    folders = sorted(tmp_path.rglob("accuracy-*"))
    recorded, swept = (Rounds.read(folder / "rounds.parquet") for folder in folders)
    labels = ["cactus:0.5", "linear:0", "linear:1"]
    prediction = predict_best(
        Calibration.from_json(folders[0] / "calibration.json"), recorded, [parse_rule(label) for label in labels]
    )
    found = Sweep.read(folders[1], prediction)
    speed = dict(zip(zip(found.steady.effort, found.steady.rule, strict=True), found.steady.tokens_per_second,
                     strict=True))  # fmt: skip
    cells = list(zip(prediction.effort.tolist(), prediction.rule.tolist(), strict=True))
    first = swept.select(swept.replica == 0)

    def tokens(effort, rule, prompts):
        return first.emitted[(first.effort == effort) & (first.rule == rule) & np.isin(first.prompt, prompts)].mean()

    prompts = np.unique(first.prompt)
    measured = np.array([tokens(*cell, prompts) for cell in cells])
    taus = (
        tau(prediction.tokens_per_second, [speed[cell] for cell in cells]),
        tau(prediction.tokens_per_round, measured),
    )
    errors = prediction.tokens_per_round / measured - 1
    halves = np.abs([tokens(*cell, prompts[1::2]) / tokens(*cell, prompts[::2]) - 1 for cell in cells])
    best = rows(printed, "All rules:")[-1]

    assert best[:4] == ["replay between the two recordings", str(len(cells)), pair(np.abs(errors)), "2.0 % / 8.0 %"]
    assert (float(best[8]), float(best[12])) == pytest.approx(taus, abs=6e-4)
    assert f"tok/round {pair(halves)}" in printed
    assert "\nPredicted from the sweep's own rounds at linear:0 and linear:1: tok/round " in printed
    shown = {label: each for label, *each in rows(printed, "measurement's own spread):")}
    efforts = np.unique(prediction.effort).tolist()
    for (effort, rule), error in zip(cells, errors, strict=True):
        assert float(shown[rule][efforts.index(effort)].rstrip("~")) == pytest.approx(100 * error, abs=0.06)
    for floor, recommended, fastest, regret, _ in rows(printed, "Regret of the recommendation")[1:]:
        chosen, ideal = (speed[int(words[4]), words.split(", ")[1]] for words in (recommended, fastest))
        reaching = found.steady.agreement >= float(floor)
        assert ideal == found.steady.tokens_per_second[reaching].max()
        assert float(regret.removesuffix(" %")) == pytest.approx(100 * (1 - chosen / ideal), abs=0.06)
    shares = [each[-1] for each in rows(printed, "lifted (linear rules):")[2:]]
    assert sum(int(share.removesuffix("%")) for share in shares) == pytest.approx(100, abs=3)
    for text in ("Eq. 6-7", "Two runs of 1 prompts", "mixed by leniency", "chance 1, the maximal coupling"):
        assert text in printed
    assert "nan" not in printed


def pair(values):
    return f"{100 * np.median(values):.1f} % / {100 * np.max(values):.1f} %"


def test_one_clock_takes_out_the_machine_and_its_pauses():
    """Rounds of prompt 0 take twice as long as recorded, of prompt 1 four times; one of each paused."""
    recorded = timed(3)
    calibration = calibrate(recorded, block_size=2, identity={}, exactness=("joint",))
    prediction = predict(calibration, [LOSSLESS], model="replay", rounds=recorded, overhead=True, resamples=2)
    prompts = {"prompt": ["prompt 0"] * 4 + ["prompt 1"] * 3, "round": [0, 1, 2, 3, 0, 1, 2]}
    swept = timed(7, factor=np.repeat([2.0, 4.0], [4, 3]), **prompts)
    swept.draft_seconds[[1, 5]] = 100.0
    requests = make_requests(2, seconds=np.full(2, 50.0))
    slower, steady = one_clock(prediction, measure(swept, requests), swept)

    assert slower == pytest.approx(4)
    assert steady.tokens_per_second[0] == pytest.approx(steady.tokens_per_round[0] / 0.5)


def test_one_clock_pools_what_does_the_same_work():
    """Rounds of .5 s under one linear rule and .7 s under another are noise: .6 s in both; Cactus has its own."""
    rules = ["linear:0", "linear:1", "cactus:1"]
    recorded = timed(3)
    calibration = calibrate(recorded, block_size=2, identity={}, exactness=("joint",))
    calibration = dataclasses.replace(calibration, rule_seconds={"cactus": 0.0})
    prediction = predict(
        calibration, [parse_rule(each) for each in rules], model="replay", rounds=recorded, overhead=True, resamples=2
    )
    swept = timed(9, factor=np.tile([1.0, 1.4, 2.0], 3), rule=rules * 3, prompt=np.repeat(["a", "b", "c"], 3))
    requests = make_requests(9, rule=rules * 3, prompt=np.repeat(["a", "b", "c"], 3))
    _, steady = one_clock(prediction, measure(swept, requests), swept)

    seconds = dict(zip(steady.rule.tolist(), steady.tokens_per_round / steady.tokens_per_second, strict=True))
    assert seconds["linear:0"] == seconds["linear:1"] == pytest.approx(0.6 / 1.4)
    assert seconds["cactus:1"] == pytest.approx(1 / 1.4)


def test_forwards_are_drafts_verifications_and_prefills():
    rounds = make_rounds(3, 2, prompt=["a", "a", "b"], round=[0, 1, 0], passes=[2, 2, 1])

    assert accuracy.forwards(rounds) == 5 + 3 + 2
