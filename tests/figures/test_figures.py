"""Each figure shows the data that it was given."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from figures import __main__ as command
from figures import cactus, figure3, figure4, figure6, rules, style
from tests.recordings import make_requests, make_rounds
from theory.acceptance import LinearAcceptance
from theory.calibration import Calibration, calibrate, without_divergence
from theory.measurements import Measurements, measure
from theory.prediction import predict, predict_divergence
from theory.rounds import Rounds

RULES = [LinearAcceptance(leniency=value) for value in (0.0, 0.5, 1.0)]


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    rng = np.random.default_rng(0)
    cells = [
        make_rounds(
            20, 8,
            effort=np.full(20, effort), passes=np.full(20, effort), divergence=np.full((20, 8), 0.5 / effort),
            draft_seconds=0.001 * (1 + effort) + 1e-5 * rng.random(20), verify_seconds=0.01 + 1e-4 * rng.random(20),
            overhead_seconds=np.full(20, 1e-4), ended=["eos"] * 20, eos_slot=np.zeros(20, int),
        )
        for effort in (1, 2, 3)
    ]  # fmt: skip
    return Rounds.concatenate(cells)


@pytest.fixture(scope="module")
def calibration(rounds: Rounds) -> Calibration:
    return calibrate(rounds, block_size=8, identity={}, exactness=("joint",) * 3)


@pytest.fixture(scope="module")
def measurements() -> Measurements:
    cells = [(effort, rule.label) for effort in (1, 2, 3) for rule in RULES]
    rounds = [make_rounds(4, 8, effort=np.full(4, e), rule=[r] * 4, divergence=np.full((4, 8), 0.3)) for e, r in cells]
    requests = [
        make_requests(
            4,
            effort=np.full(4, e),
            rule=[r] * 4,
            seconds=0.1 * e + 0.01 * np.arange(4),
            correct=(np.arange(4) < e).astype(float),
        )
        for e, r in cells
    ]
    return measure(Rounds.concatenate(rounds), type(requests[0]).concatenate(requests))


def test_figure_3_draws_the_replay_through_the_measured_points(calibration, measurements):
    prediction, replayed = predict(calibration, RULES), predict_divergence({1: 0.3}, RULES, block_size=4)
    plain, dashed = figure3.draw(prediction, measurements), figure3.draw(prediction, measurements, replayed)
    left, right = dashed.axes[:2]

    assert not [line for line in left.lines if line.get_linestyle() == "--"]
    (line,) = [line for line in right.lines if line.get_linestyle() == "--"]
    order = np.argsort(replayed.agreement)
    np.testing.assert_array_equal(line.get_xdata(), replayed.agreement[order])
    np.testing.assert_array_equal(line.get_ydata(), replayed.acceptance_rate[order])
    assert "dashed" in right.get_title(loc="left")
    assert "dashed" not in plain.axes[1].get_title(loc="left")


def test_figure3_has_four_lettered_panels_with_a_line_for_each_effort(
    calibration: Calibration, measurements: Measurements
) -> None:
    figure = figure3.draw(predict(calibration, RULES), measurements)

    assert [axis.get_title(loc="left")[:3] for axis in figure.axes] == ["(a)", "(b)", "(c)", "(d)"]
    for axis in figure.axes:
        assert len(axis.containers) == 3


def test_figure3_draws_the_line_of_theorem_1(calibration: Calibration) -> None:
    (axis,) = figure3.draw_acceptance(predict(calibration, RULES)).axes
    line = axis.containers[0][0]

    np.testing.assert_allclose(line.get_xdata(), [0.5, 0.75, 1.0])
    np.testing.assert_allclose(line.get_ydata(), [1.0, 0.75, 0.5])


def test_figure3_calls_a_bound_a_bound() -> None:
    prediction = predict_divergence({1: 0.5, 2: 0.25}, RULES, block_size=8, round_seconds={1: 0.1, 2: 0.2})
    (bounded,) = figure3.draw_throughput(prediction, bound="H200 SXM").axes
    (measured,) = figure3.draw_throughput(prediction).axes

    assert bounded.get_title() == "bound by the roofline of H200 SXM, not measured"
    assert "upper bound" in bounded.get_ylabel()
    assert "bound" not in measured.get_title() + measured.get_ylabel()
    np.testing.assert_allclose(
        np.sort(bounded.containers[0][0].get_ydata()), np.sort(prediction.tokens_per_second[prediction.effort == 1])
    )


def test_figure4_fills_the_frontier_and_hollows_the_rest(measurements: Measurements) -> None:
    figure = figure4.draw(measurements)
    markers = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"]
    hollow = sum(len(line.get_xdata()) for line in markers if line.get_markerfacecolor() == "none")
    shown = sum(len(line.get_xdata()) for line in markers)

    assert shown == 9
    assert 0 <= hollow < 9


def test_figure6_puts_the_fit_through_the_draft_times(rounds: Rounds, calibration: Calibration) -> None:
    assert calibration.latency is not None
    axis = figure6.draw(rounds, calibration.latency).axes[0]
    fit = next(line for line in axis.lines if line.get_label() == "a + bK")

    np.testing.assert_allclose(np.interp(2.0, fit.get_xdata(), fit.get_ydata()), 3.0, rtol=0.02)


def test_cactus_shows_where_taylor_underspends_and_overspends() -> None:
    axis = cactus.draw(points=201).axes[0]
    mesh = axis.collections[0]
    corners = mesh.get_coordinates()
    p, budget = corners[0, :, 0], corners[:, 0, 1]

    def shown(at_p: float, at_budget: float) -> float:
        row, column = np.searchsorted(budget, at_budget) - 1, np.searchsorted(p, at_p) - 1
        return float(mesh.get_array()[row, column])

    assert shown(0.01, 1.0) == pytest.approx(np.log2(0.279), abs=0.1)
    assert shown(0.9, 0.05) == pytest.approx(np.log2(0.084 / 0.05), abs=0.1)
    assert shown(0.5, 2e-3) == pytest.approx(0, abs=0.02)
    assert shown(0.9, 1.0) == 0, "both variants raise to 1"


def test_colours_and_markers_tell_efforts_apart() -> None:
    efforts = [4, 1, 2, 4, 8]

    assert len(set(style.effort_colours(efforts).values())) == 4
    assert len(set(style.effort_markers(efforts).values())) == 4


def test_the_command_draws_what_the_run_folders_hold(
    tmp_path: Path,
    rounds: Rounds,
    calibration: Calibration,
    measurements: Measurements,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds.write(tmp_path / "rounds.parquet")
    calibration.to_json(tmp_path / "calibration.json")
    measurements.write(tmp_path / "measurements.parquet")

    assert command.main([str(tmp_path), str(tmp_path), "--out", str(tmp_path / "drawn")]) == 0
    assert capsys.readouterr().out.endswith(rules.gain_lines(rounds) + "\n")
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == [
        "cactus.png",
        "figure3.png",
        "figure4.png",
        "figure6.png",
        "rules.png",
    ]


def test_the_command_names_a_folder_that_is_not_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path), str(tmp_path)]) == 2
    assert "calibration.json" in capsys.readouterr().err


def test_the_command_names_a_calibration_of_times_alone(
    tmp_path: Path,
    rounds: Rounds,
    calibration: Calibration,
    measurements: Measurements,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds.write(tmp_path / "rounds.parquet")
    without_divergence(calibration).to_json(tmp_path / "calibration.json")
    measurements.write(tmp_path / "measurements.parquet")

    assert command.main([str(tmp_path), str(tmp_path), "--out", str(tmp_path / "drawn")]) == 2
    assert "must have d_K, got one of times alone" in capsys.readouterr().err


def test_a_saved_figure_is_not_blank(tmp_path: Path, measurements: Measurements) -> None:
    empty = style.save(Figure(), tmp_path / "empty.png")
    drawn = style.save(figure4.draw(measurements), tmp_path / "figures" / "drawn.png")

    assert drawn.stat().st_size > 3 * empty.stat().st_size
