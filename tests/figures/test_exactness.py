"""The figures of exactness show the tables that they were given."""

import numpy as np
import pytest

from figures import exactness
from theory.exactness import Bias, Price, mean_interval

ORDERS = np.repeat(["left_to_right", "entropy", "confidence"], 2)
EFFORTS = np.tile([1, 4], 3)


def test_laws_are_written_in_their_squares() -> None:
    figure = exactness.draw_laws({"right": np.full((2, 2), 0.25), "wrong": np.array([[0.5, 0.125], [0.375, 0]])})

    assert [axis.get_title() for axis in figure.axes] == ["right", "wrong"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["0.5", "0.125", "0.375", "0"]
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), [[0.5, 0.125], [0.375, 0]])


def test_bias_is_shown_for_each_order_with_its_interval_and_what_was_not_measured_is_not() -> None:
    rng = np.random.default_rng(0)
    first, pair = rng.normal(0, 0.01, (6, 12)), rng.normal(0, 0.02, (6, 12))
    pair[5] = np.nan
    figure = exactness.draw_bias(Bias(order=ORDERS, effort=EFFORTS, first=first, pair=pair))

    for axis, values, shown in ((figure.axes[0], first, [2, 2, 2]), (figure.axes[1], pair, [2, 2, 1])):
        marks = [each for each in axis.containers if each.get_label() in ORDERS]
        assert [each.get_label() for each in marks] == ["left_to_right", "entropy", "confidence"]
        assert [len(each.lines[0].get_ydata()) for each in marks] == shown
        drawn = np.concatenate([each.lines[0].get_ydata() for each in marks])
        mean, low, high = mean_interval(values[: len(drawn)])
        np.testing.assert_allclose(drawn, mean)
        segments = np.concatenate([each.lines[2][0].get_segments() for each in marks])
        np.testing.assert_allclose(segments[:, :, 1], np.stack([low, high], axis=1))


@pytest.mark.parametrize("orders", [["entropy"], ["left_to_right", "entropy"]])
def test_the_price_has_a_panel_for_each_order_with_bars_predicted_and_points_measured(orders: list[str]) -> None:
    order, effort = np.repeat(orders, 2), np.tile([1, 4], len(orders))
    names = ["ratio", "ratio_low", "ratio_high", "coupled", "coupled_low", "coupled_high"]
    names += ["ratio_predicted", "coupled_predicted", "coupled_least"]
    steps = dict(zip(names, [0.8, 0.78, 0.83, 0.7, 0.66, 0.72, 0.81, 0.71, 0.68], strict=True))
    columns = {name: value + 0.01 * np.arange(len(order)) for name, value in steps.items()}
    figure = exactness.draw_price(Price(order=order, effort=effort, **columns))

    assert len(figure.axes) == len(orders)
    for axis, name in zip(figure.axes, orders, strict=True):
        rows = order == name
        assert name in axis.get_title(loc="left")
        bars = np.reshape([bar.get_height() for bar in axis.patches], (2, -1))
        np.testing.assert_allclose(bars, [columns["ratio_predicted"][rows], columns["coupled_predicted"][rows]])
        points = [each for each in axis.containers if each.get_label().startswith("_")]
        drawn = [each.lines[0].get_ydata() for each in points]
        np.testing.assert_allclose(drawn, [columns["ratio"][rows], columns["coupled"][rows]])
        ends = [[segment[:, 1] for segment in each.lines[2][0].get_segments()] for each in points]
        np.testing.assert_allclose(ends[1], np.stack([columns["coupled_low"][rows], columns["coupled_high"][rows]], 1))
