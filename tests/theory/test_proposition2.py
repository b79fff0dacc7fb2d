import math
from fractions import Fraction
from itertools import product
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.distances import total_variation
from theory.proposition2 import (
    Exactness,
    committed_early,
    exactness,
    out_of_order_share,
    text_law,
    verified_law,
    verifier_law,
)
from theory.toys import (
    RationalLossless,
    ToyDrafter,
    kept_when_likely,
    late_first,
    random_denoiser,
    random_verifier,
)

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
        ("certainty", 2, False, Exactness.FIRST_TOKEN),
        ("confidence", 2, False, Exactness.NONE),
    ],
)
def test_what_a_commit_order_guarantees(order, effort, greedy, guarantee):
    assert exactness(order, effort, greedy=greedy) == guarantee
    assert greedy or exactness(order, effort) == guarantee, "drafts are not certain unless said"


@pytest.mark.parametrize("order", ["right_to_left", "Entropy", ""])
@pytest.mark.parametrize("settings", [{"effort": 3}, {"effort": 1}, {"effort": 3, "greedy": True}])
def test_an_order_that_nobody_knows_guarantees_nothing(order, settings):
    with pytest.raises(ValueError, match=f"`order` must be one of left_to_right, .*, got '{order}'"):
        exactness(order, **settings)


def emit(drafter, verifier, rule, block_size, length, prefix=(), chance=1):
    """Texts and their chances, token by token and round by round as Algorithm 1 goes: the oracle of `text_law`."""
    if len(prefix) >= length:
        yield prefix[:length], chance
        return
    size, block = len(verifier[0]), min(block_size, length - len(prefix))
    found = drafter(prefix, block)
    for number, drafted in enumerate(found.tokens):
        text, alive = prefix, chance * found.probability[number]
        for slot, token in enumerate(drafted):
            p, q = verifier[len(text)][text], found.proposals[number, slot]
            passes = rule.probability(p[token], q[token])
            residual = rule.residual(p, q, np.asarray(token))
            for other in range(size):
                rejected = alive * (1 - passes) * residual[other]
                if rejected:
                    yield from emit(drafter, verifier, rule, block_size, length, (*text, other), rejected)
            text, alive = (*text, int(token)), alive * passes
        bonus = verifier[len(text)][text] if len(text) < length else [1]
        for token, share in enumerate(bonus):
            if alive * share:
                yield from emit(drafter, verifier, rule, block_size, length, (*text, token), alive * share)


@pytest.mark.parametrize("rule", [LOSSLESS, LinearAcceptance(leniency=0.4), CactusAcceptance(budget=0.5)])
@pytest.mark.parametrize(("order", "block_size"), [("right_to_left", 2), ("confidence", 3), ("left_to_right", 1)])
def test_the_law_of_a_text_is_what_algorithm_1_emits(rule, order, block_size):
    rng = np.random.default_rng(5)
    verifier = random_verifier(rng, 2, 3)
    drafter = ToyDrafter(denoiser=random_denoiser(rng, 2), order=order, effort=2)
    expected = np.zeros((2, 2, 2))
    for text, chance in emit(drafter, verifier, rule, block_size, 3):
        expected[text] += chance

    law = text_law(drafter, verifier, rule, block_size=block_size)

    np.testing.assert_allclose(law, expected, rtol=0, atol=LAW_TOLERANCE)
    assert law.sum() == pytest.approx(1, abs=LAW_TOLERANCE)


def test_the_verifiers_own_texts():
    verifier = random_verifier(np.random.default_rng(6), 3, 3)
    law = verifier_law(verifier)

    for text in product(range(3), repeat=3):
        expected = math.prod(verifier[n][text[:n]][text[n]] for n in range(3))
        assert law[text] == pytest.approx(expected, rel=1e-14)


def test_the_example_in_fractions_and_in_floating_point():
    drafter, verifier = late_first(Fraction)
    law = text_law(drafter, verifier, RationalLossless(), block_size=2)
    drafter, verifier = late_first(float)
    rounded = text_law(drafter, verifier, LOSSLESS, block_size=2)

    assert law.tolist() == [
        [Fraction(3625, 10000), Fraction(1375, 10000)],
        [Fraction(1375, 10000), Fraction(3625, 10000)],
    ]
    assert abs(law - Fraction(1, 4)).sum() / 2 == Fraction(225, 1000)
    assert law.sum(axis=0).tolist() == law.sum(axis=1).tolist() == [Fraction(1, 2)] * 2, "every marginal is right"
    np.testing.assert_allclose(rounded, law.astype(float), rtol=0, atol=LAW_TOLERANCE)


def test_a_token_kept_for_its_value_biases_the_first_token():
    drafter, verifier = kept_when_likely(Fraction)

    assert text_law(drafter, verifier, RationalLossless(), block_size=2).sum(axis=1).tolist() == [
        Fraction(7, 10),
        Fraction(3, 10),
    ]


def test_a_text_of_one_token():
    verifier = random_verifier(np.random.default_rng(9), 3, 1)
    drafter = ToyDrafter(denoiser=random_denoiser(np.random.default_rng(9), 3), order="confidence", effort=2)

    np.testing.assert_allclose(text_law(drafter, verifier, LOSSLESS, block_size=4), verifier[0], atol=LAW_TOLERANCE)


def test_rounds_that_follow_each_other_meet_the_bias_anew():
    """Texts of four tokens: blocks of two from left to right are exact, late slots first are not."""
    rng = np.random.default_rng(7)
    verifier = random_verifier(rng, 2, 4)
    biases = {}
    for order in ("left_to_right", "right_to_left"):
        drafter = ToyDrafter(denoiser=random_denoiser(rng, 2), order=order, effort=2)
        law = text_law(drafter, verifier, LOSSLESS, block_size=2)
        biases[order] = total_variation(law.reshape(-1), verifier_law(verifier).reshape(-1))

    assert biases["left_to_right"] < LAW_TOLERANCE
    assert biases["right_to_left"] > 0.01


class TestAudit:
    STEPS = np.array([[0, 1, 2], [2, 1, 0], [0, 0, 0], [1, 0, 1], [0, 1, -1]])

    def test_slots_that_were_committed_before_an_earlier_one(self):
        early = [[0, 0, 0], [0, 1, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]]

        assert committed_early(self.STEPS).tolist() == [[bool(slot) for slot in row] for row in early]

    @given(st.lists(st.integers(-1, 5), min_size=1, max_size=20))
    def test_blocks_of_any_length(self, steps):
        expected = [any(before > step for before in steps[:slot]) for slot, step in enumerate(steps)]

        assert committed_early(np.array(steps)).tolist() == expected

    def test_only_reached_slots_count(self, xp: ModuleType):
        reached = xp.asarray([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]], dtype=xp.bool)

        assert out_of_order_share(xp.asarray(self.STEPS), reached) == 2 / 11

    def test_nothing_reached_is_not_zero(self, xp: ModuleType):
        assert math.isnan(out_of_order_share(xp.asarray(self.STEPS), xp.zeros((5, 3), dtype=xp.bool)))

    @pytest.mark.parametrize(("order", "early"), [("left_to_right", False), ("entropy", True), ("right_to_left", True)])
    def test_the_audit_knows_the_orders_of_drafters(self, order, early):
        denoiser = random_denoiser(np.random.default_rng(8), 2)
        found = ToyDrafter(denoiser=denoiser, order=order, effort=3)((), 3)

        share = out_of_order_share(found.commit_step, np.ones_like(found.tokens, dtype=bool))
        assert (share > 0) == early
