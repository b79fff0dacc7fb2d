"""The report holds what the run folder holds, needs no network, and escapes what it is given."""

import base64
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from figures import error_split, predicted_frontier
from figures.report import __main__ as command
from figures.report import page
from tests.recordings import make_requests, make_rounds
from theory.acceptance import LinearAcceptance
from theory.assumptions import ErrorSplit
from theory.calibration import Calibration, calibrate, without_divergence
from theory.measurements import Measurements, measure
from theory.planner import recommend
from theory.prediction import predict
from theory.rounds import Rounds

IDENTITY: dict[str, Any] = {
    "settings": {
        "command": "calibrate",
        "prompts": list(range(12)),
        "pair": {"name": "toy", "description": "A toy.", "efforts": [1, 2]},
        "seed": 0,
    },
    "provenance": {"commit": "abc", "device": "cpu", "weights": {"drafter": "1", "verifier": "2"}},
    "mixed": False,
}
RULES = ("linear:0", "linear:0.5", "cactus:1")


class Reader(HTMLParser):
    """Tables as texts and sort values, whatever is fetched, and the text of the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, str]]] = []
        self.sources: list[str] = []
        self.text = ""
        self._cell: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.sources += [str(values[name]) for name in ("src", "href", "action", "data") if name in values]
        if tag == "tr":
            self.rows.append([])
        self._cell = values.get("data-value") if tag == "td" else None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell is not None:
            self.rows[-1].append((data, self._cell))
            self._cell = None


def recorded(rule: str, prompts: int, seed: int, *, timed: bool = True, efforts: tuple[int, ...] = (1, 2)) -> Rounds:
    rng = np.random.default_rng(seed)
    cells = []
    for effort in efforts:
        count = 5 * prompts
        q = rng.uniform(0.2, 1, size=(count, 4))
        p = q * rng.uniform(0.4 + 0.2 * effort, 1.2, size=q.shape)
        times = {"draft_seconds": 0.001 * effort, "verify_seconds": 0.01, "overhead_seconds": 0.001} if timed else {}
        cells += [
            make_rounds(
                count,
                4,
                prompt=[f"{seed}-{row // 5}" for row in range(count)],
                round=np.arange(count) % 5,
                effort=np.full(count, effort),
                rule=[rule] * count,
                accepted=rng.integers(0, 5, size=count),
                p_drafted=np.minimum(p, 1),
                q_drafted=q,
                divergence=np.full(q.shape, 0.4 / effort),
                ended=(["", "", "", "", "eos"]) * prompts,
                **{name: np.full(count, value) * rng.uniform(0.99, 1.01, count) for name, value in times.items()},
            )
        ]  # fmt: skip
    return Rounds.concatenate(cells)


def write_run(folder: Path, rounds: Rounds, identity: dict[str, Any] = IDENTITY) -> Calibration:
    folder.mkdir(parents=True)
    efforts = np.unique(rounds.effort)
    calibration = calibrate(rounds, block_size=4, identity=identity, exactness=("joint",) * efforts.size)
    calibration = replace(calibration, rule_seconds={"cactus": 0.0})
    calibration.to_json(folder / "calibration.json")
    rounds.write(folder / "rounds.parquet")
    manifest = {"settings": identity["settings"], "provenances": {"a": identity["provenance"]}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return calibration


def write_sweep(folder: Path, identity: dict[str, Any] = IDENTITY) -> None:
    folder.mkdir()
    rounds = Rounds.concatenate([recorded(rule, 6, 7) for rule in RULES])
    keys = sorted(set(zip(rounds.prompt.tolist(), rounds.effort.tolist(), rounds.rule.tolist(), strict=True)))
    prompts, efforts, rules = zip(*keys, strict=True)
    requests = make_requests(
        len(keys),
        prompt=prompts,
        effort=efforts,
        rule=rules,
        seconds=np.full(len(keys), 0.1) + 0.001 * np.arange(len(keys)),
    )
    measure(rounds, requests).write(folder / "measurements.parquet")
    manifest = {"settings": {**identity["settings"], "command": "sweep"}, "provenances": {"b": identity["provenance"]}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("results") / "toy"
    write_run(root / "run", recorded("linear:0", 6, 0))
    write_sweep(root / "sweep")
    return root / "run", root / "sweep"


@pytest.fixture(scope="module")
def html(folders: tuple[Path, Path]) -> str:
    return command.report(folders[0], 0.9)


def test_the_page_holds_the_recording_and_the_sweep(html: str, folders: tuple[Path, Path]) -> None:
    calibration = Calibration.from_json(folders[0] / "calibration.json")
    reader = Reader(html)
    shown = {text for row in reader.rows for text, _ in row}

    for divergence in calibration.divergence:
        assert f"{divergence:.3f}" in shown
    for title in (
        "Recommendation",
        "Predicted frontier",
        "Divergence and exactness",
        "Latency",
        "Settings and provenance",
    ):
        assert title in reader.text
    assert "Regret" in reader.text
    assert "without: one rate for all positions" in shown
    assert str(folders[1].resolve()) in reader.text
    assert "abc" in reader.text, "the commit"
    assert "12 of them: 0, 1, 2, 3, 4, 5, 6, 7, …" in reader.text, "the prompts"


def test_the_answer_is_what_the_model_that_assumes_least_recommends(html: str, folders: tuple[Path, Path]) -> None:
    calibration = Calibration.from_json(folders[0] / "calibration.json")
    rounds = Rounds.read(folders[0] / "rounds.parquet")
    rules = [LinearAcceptance(leniency=round(0.1 * step, 1)) for step in range(11)]
    best = recommend(predict(calibration, rules, model="replay", rounds=rounds, overhead=True), minimum_agreement=0.9)
    answer = re.search("<strong>(.*?)</strong>", html)

    assert answer is not None
    assert answer[1].startswith(f"K = {best.effort}, ")
    assert answer[1].endswith("tokens per second predicted")


def test_the_page_needs_no_network_and_is_the_same_each_time(html: str, folders: tuple[Path, Path]) -> None:
    reader = Reader(html)
    images = [source for source in reader.sources if source.startswith("data:image/svg+xml;base64,")]
    links = [source for source in reader.sources if source.startswith("#")]

    assert len(images) == 4
    assert sorted(images + links) == sorted(reader.sources)
    assert "http" not in html
    assert all(base64.b64decode(image.partition(",")[2]).rstrip().endswith(b"</svg>") for image in images)
    assert command.report(folders[0], 0.9) == html


def test_another_run_of_the_sweep_shows_the_spread(html: str, folders: tuple[Path, Path], tmp_path: Path) -> None:
    measured = Measurements.read(folders[1] / "measurements.parquet")
    replace(measured, tokens_per_round=3 * measured.tokens_per_round).write(tmp_path / "measurements.parquet")
    repeated = Reader(command.report(folders[0], 0.9, repeat=tmp_path))
    spreads = [row[5][0] for row in repeated.rows if len(row) == 11]

    assert spreads == ["200.0 %"] * 6
    assert all(row[5][0] != "200.0 %" for row in Reader(html).rows if len(row) == 11)


def test_numbers_are_sorted_by_their_value(html: str) -> None:
    """What the script reads is the number itself, and nothing where there is none."""
    cells = [cell for row in Reader(html).rows for cell in row]
    numbers = [(text, value) for text, value in cells if re.fullmatch(r"[-+]?[0-9.]+( %)?", text)]

    assert len(numbers) > 100
    for text, value in numbers:
        shown, scale = (text[:-2], 0.01) if text.endswith(" %") else (text, 1.0)
        digits = len(shown.partition(".")[2])
        # times are shown in milliseconds and sorted in seconds
        candidates = [float(value) / scale, 1e3 * float(value)]
        assert min(abs(float(shown) - candidate) for candidate in candidates) <= 0.5001 * 10.0**-digits
    assert all(value in ("", "–") for text, value in cells if text == "–")


def test_the_measured_frontier_is_that_of_the_sweep(html: str, folders: tuple[Path, Path]) -> None:
    """Every request is correct, so that the fastest cell alone is on it."""
    measured = Measurements.read(folders[1] / "measurements.parquet")
    fastest = int(np.argmax(measured.tokens_per_second))
    section = html[html.index('id="measured-frontier') : html.index('id="divergence')]
    rows = [row for row in Reader(section).rows if len(row) == 6]

    assert [(row[0][0], row[1][0]) for row in rows] == [(str(measured.effort[fastest]), measured.rule[fastest])]


def test_what_is_inserted_is_escaped(tmp_path: Path) -> None:
    attack = "<script>alert(1)</script>"
    pair = {"name": attack, "description": f'"{attack}', "efforts": [1]}
    identity = {**IDENTITY, "settings": {"pair": pair}, "mixed": True}
    write_run(tmp_path / "run", recorded("linear:0", 3, 1, efforts=(1,)), identity)
    html = command.report(tmp_path / "run", 0.9)

    assert attack not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert html.count("<script>") == 1, "its own"
    assert "were mixed" in html
    assert "No sweep of this pair was found" in html


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    """One prompt, one effort, no times: no intervals, no throughput, and no zeros in their place."""
    write_run(tmp_path / "run", recorded("linear:0", 1, 1, timed=False, efforts=(2,)))
    reader = Reader(command.report(tmp_path / "run", 0.9))
    (row,) = [row for row in reader.rows if len(row) == 8]

    assert row[2] == ("–", "")
    assert reader.text.count("Latency was not measured") == 2
    assert "frontier" not in reader.text


def test_one_prompt_with_times_has_no_intervals(tmp_path: Path) -> None:
    write_run(tmp_path / "run", recorded("linear:0", 1, 1, efforts=(2,)))
    text = Reader(command.report(tmp_path / "run", 0.9)).text

    assert re.search(r"\bnan\b", text, re.IGNORECASE) is None
    assert "tokens per second predicted" in text


def test_times_of_random_weights_are_reported_alone(tmp_path: Path) -> None:
    calibration = without_divergence(write_run(tmp_path / "run", recorded("linear:0", 2, 0)))
    calibration.to_json(tmp_path / "run" / "calibration.json")
    reader = Reader(command.report(tmp_path / "run", 0.9))

    assert "Latency" in reader.text
    assert "Recommendation" not in reader.text
    assert reader.text.count("–") > 10, "d_K is not known"


def test_every_floor_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", recorded("linear:0", 2, 0))

    assert "linear:0:" in command.report(tmp_path / "run", 1.0)
    assert command.main([str(tmp_path / "run"), "--minimum-agreement", "1.5"]) == 2
    assert "must lie in [0, 1], got 1.5" in capsys.readouterr().err


def test_an_anchor_is_used_where_there_is_one(folders: tuple[Path, Path], tmp_path: Path) -> None:
    anchored = Rounds.concatenate([recorded("linear:0", 3, 0), recorded("linear:1", 3, 0)])
    write_run(tmp_path / "run", anchored)
    text = Reader(command.report(tmp_path / "run", 0.9, sweep=folders[1])).text
    without = Reader(command.report(folders[0], 0.9)).text

    for words in ("on the texts of linear:1", "anchored by a second recording", "prefixes that leniency leaves alone"):
        assert words in text
        assert words not in without


def _other(identity: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(identity))
    change(copy)
    return copy


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda identity: identity["settings"]["pair"].update(efforts=[4]), True),
        (lambda identity: identity["settings"]["pair"].update(name="other"), False),
        (lambda identity: identity["settings"].update(format_digest="1"), False),
        (lambda identity: identity["settings"].update(compile="default"), False),
        (lambda identity: identity["settings"].update(compile="off"), True),
        (lambda identity: identity["provenance"].update(device="cuda"), False),
        (lambda identity: identity["provenance"]["weights"].update(drafter="3"), False),
        (lambda identity: identity["provenance"].update(commit="def"), True),
    ],
)
def test_the_sweep_must_be_of_the_same_pair(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], found: bool
) -> None:
    calibration = write_run(tmp_path / "run", recorded("linear:0", 2, 0))
    write_sweep(tmp_path / "sweep", _other(IDENTITY, change))

    assert (command.find_sweep(tmp_path / "run", calibration) is not None) == found


def test_the_newest_run_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main([]) == 2
    assert "there is no calibrated run in results" in capsys.readouterr().err
    for age, name in enumerate(("new", "old")):
        write_run(tmp_path / "results" / "toy" / name, recorded("linear:0", 2, 0))
        os.utime(tmp_path / "results" / "toy" / name / "calibration.json", (1e9 - age, 1e9 - age))

    assert command.main(["--results", "elsewhere"]) == 2
    assert "there is no calibrated run in elsewhere" in capsys.readouterr().err
    assert command.main([]) == 0
    assert capsys.readouterr().out.strip() == str(Path("results/toy/new/report.html"))


def test_a_folder_that_is_not_complete_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path)]) == 2
    assert "calibration.json" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_cells_show_and_sort() -> None:
    assert page.number(0.0123, 1, scale=1e3) == page.Cell("12.3", "0.0123")
    assert page.number(None) == page.number(float("nan")) == page.Cell("–", "")
    assert page.percent(0.123, sign=True) == page.Cell("+12.3 %", "0.123")
    assert page.percent(None) == page.Cell("–", "")
    assert page.interval(0.1, 0.2, 1) == page.Cell("0.1 – 0.2", "0.1")
    assert page.interval(float("nan"), 0.2) == page.interval(None, 0.2) == page.Cell("–", "")
    data = page.table("caption", ("K", "rule<"), [[page.number(1), page.words("a")]], emphasis=0)
    assert [(column.name, column.text) for column in data.columns] == [("K", False), ("rule", True)]
    assert data.rows[0].emphasis


def test_the_frontier_figure_draws_lines_and_measured_cells(folders: tuple[Path, Path]) -> None:
    calibration = Calibration.from_json(folders[0] / "calibration.json")
    measured = Measurements.read(folders[1] / "measurements.parquet")
    prediction = predict(calibration, [LinearAcceptance(leniency=value) for value in (0.0, 0.5, 1.0)])
    (axis,) = predicted_frontier.draw(prediction, measured).axes
    lines = {line.get_label(): line for line in axis.lines}

    assert np.allclose(lines["K = 2"].get_xdata(), [0.8, 0.9, 1.0])
    assert len(axis.containers) == 2, "measured cells of each effort"
    assert len(predicted_frontier.draw(prediction).axes[0].containers) == 0


def test_the_error_figure_shows_the_median_of_each_step() -> None:
    split = ErrorSplit(
        quantity="tokens_per_round", lifted=("a", "b"),
        effort=np.array([1, 2]), rule=np.array(["linear:0", "linear:1"]),
        relative_error=np.array([[0.2, -0.1], [0.1, 0.1], [0.0, 0.02]]), spread=np.array([0.05, 0.07]),
        step=np.zeros((2, 2)), share=np.zeros(2), share_left=0.0, share_left_tokens=0.0, share_left_seconds=0.0,
    )  # fmt: skip
    (axis,) = error_split.draw(split).axes
    unknown = error_split.draw(replace(split, spread=np.full(2, np.nan))).axes[0]

    assert [bar.get_height() for bar in axis.containers[0]] == pytest.approx([15, 10, 1])
    assert [text.get_text() for text in axis.get_xticklabels()] == ["Eq. 7 as printed", "without\na", "without\nb"]
    assert len(unknown.patches) == len(axis.patches) - 1, "no spread is drawn where it is not known"
