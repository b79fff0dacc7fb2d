from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from theory.acceptance import LinearAcceptance
from theory.distances import total_variation
from theory.proposition2 import Exactness, exactness, verified_law

LOSSLESS = LinearAcceptance(leniency=0)
LAW_TOLERANCE = 1e-14  # products and sums over a handful of tokens and proposals


@st.composite
def random_proposals(draw):
    """A verifier, the values of the random proposal, and their probabilities."""
    size = draw(st.integers(2, 5))
    p = draw(strategies.distributions(size))
    values = draw(st.lists(strategies.distributions(size), min_size=1, max_size=5))
    return p, np.array(values), draw(strategies.distributions(len(values))) if len(values) > 1 else np.ones(1)


@given(random_proposals())
def test_one_position_is_exact_whatever_the_law_of_the_proposal(case):
    p, proposals, weights = case

    np.testing.assert_allclose(verified_law(LOSSLESS, p, proposals, weights), p, rtol=0, atol=LAW_TOLERANCE)


@given(random_proposals(), strategies.leniencies)
def test_leniency_mixes_the_mean_proposal_in(case, leniency):
    p, proposals, weights = case
    law = verified_law(LinearAcceptance(leniency=leniency), p, proposals, weights)

    np.testing.assert_allclose(law, (1 - leniency) * p + leniency * weights @ proposals, rtol=0, atol=LAW_TOLERANCE)


def test_a_replacement_from_the_wrong_law_is_not_exact():
    class FromTheTarget(LinearAcceptance):
        def residual(self, p, q, drafted):
            return p + 0 * q

    p, proposals, weights = np.array([0.5, 0.3, 0.2]), np.array([[0.2, 0.2, 0.6], [0.9, 0.1, 0]]), np.array([0.5, 0.5])

    assert total_variation(verified_law(FromTheTarget(leniency=0), p, proposals, weights), p) > 0.04


def test_the_libraries_agree(xp: ModuleType):
    rng = np.random.default_rng(1)
    case = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4), 3), rng.dirichlet(np.ones(3))
    rule = LinearAcceptance(leniency=0.3)

    law = verified_law(rule, *(xp.asarray(values) for values in case))

    np.testing.assert_allclose(np.asarray(law), verified_law(rule, *case), rtol=1e-14)


@pytest.mark.parametrize(
    ("order", "effort", "greedy", "guarantee"),
    [
        ("entropy", 1, False, Exactness.JOINT),
        ("left_to_right", 4, False, Exactness.JOINT),
        ("confidence", 4, True, Exactness.JOINT),
        ("entropy", 2, False, Exactness.FIRST_TOKEN),
        ("margin", 2, False, Exactness.FIRST_TOKEN),
        ("max_probability", 3, False, Exactness.FIRST_TOKEN),
        ("confidence", 2, False, Exactness.NONE),
    ],
)
def test_what_a_commit_order_guarantees(order, effort, greedy, guarantee):
    assert exactness(order, effort, greedy=greedy) == guarantee
