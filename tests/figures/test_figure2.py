import math

import numpy as np
import pytest
from matplotlib.patches import Polygon

from figures import figure2
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.theorem1 import ExactMatch

P, Q = np.array([0.55, 0.4, 0.05]), np.array([0.2, 0.1, 0.7])
RULES = [CactusAcceptance(budget=0.1), LinearAcceptance(leniency=0.25)]


@pytest.fixture(scope="module")
def axis():
    return figure2.draw(P, Q, 0.3, RULES).axes[0]


def law(place):
    """The distribution drawn at a place: heights over the sides of a triangle of side 1, each as a share of its own."""
    x, y = place
    third = y / (math.sqrt(3) / 2)
    second = x - third / 2
    return np.array([1 - second - third, second, third])


def marked(axis, label):
    (line,) = [line for line in axis.lines if line.get_label() == label]
    return law(line.get_xydata()[0])


def test_the_optimal_target_lies_on_the_segment_at_the_deviation(axis):
    np.testing.assert_allclose(marked(axis, "optimal target of Theorem 1"), P + 0.3 / 0.65 * (Q - P))


def test_linear_acceptance_emits_its_target(axis):
    np.testing.assert_allclose(marked(axis, "emitted under linear:0.25"), 0.75 * P + 0.25 * Q)


def test_cactus_emits_a_law_between_p_and_q(axis):
    emitted = marked(axis, "emitted under cactus:0.1")

    assert (np.minimum(P, Q) - 1e-12 <= emitted).all()
    assert (emitted <= np.maximum(P, Q) + 1e-12).all()
    assert not np.allclose(emitted, P)


def test_the_box_holds_the_laws_between_p_and_q_and_no_others(axis):
    (box,) = [patch for patch in axis.patches if isinstance(patch, Polygon)]
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.ones(3), 2000)
    between = ((np.minimum(P, Q) <= laws) & (laws <= np.maximum(P, Q))).all(axis=1)
    places = laws @ np.array([[0, 0], [1, 0], [0.5, math.sqrt(3) / 2]])

    assert 0 < between.sum() < 2000
    np.testing.assert_array_equal(box.get_path().contains_points(places), between)


def test_the_outline_is_the_deviation(axis):
    """Every vertex of a contour that is drawn lies at the deviation, to the width of the grid behind it."""
    outlines = [each for each in axis.collections if not each.get_fill()] or axis.collections[-1:]
    vertices = np.concatenate([path.vertices for path in outlines[-1].get_paths() if len(path.vertices)])
    distances = [np.abs(law(vertex) - P).sum() / 2 for vertex in vertices]

    np.testing.assert_allclose(distances, 0.3, atol=1 / 240)


def test_every_rule_is_drawn_where_it_accepts_and_deviates_and_the_line_is_the_bound():
    rules = {"linear": [LinearAcceptance(leniency=x) for x in (0, 0.5, 1)], "exact match": [ExactMatch()]}
    bound, linear, match = figure2.draw_bound(P, Q, rules).axes[0].lines

    np.testing.assert_allclose(bound.get_xydata(), [[0, 0.35], [0.65, 1]])
    np.testing.assert_allclose(linear.get_xydata(), [[0, 0.35], [0.325, 0.675], [0.65, 1]], atol=1e-12)
    np.testing.assert_allclose(match.get_xydata(), [[0, P @ Q]], atol=1e-12)
