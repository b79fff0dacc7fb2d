import math
from fractions import Fraction

import numpy as np
import pytest

from theory.law_check import FALSE_ALARM, g_test
from theory.proposition2 import Trajectories
from theory.toys import ORDERS, RationalLossless, ToyDrafter, commit_counts, late_first, random_denoiser


def eagerness(order: str, slot: int, law: np.ndarray, drawn: int) -> float:
    """How soon a slot wants to be committed."""
    largest = sorted(law, reverse=True)
    return {
        "left_to_right": -slot,
        "right_to_left": slot,
        "max_probability": largest[0],
        "margin": largest[0] - largest[1],
        "entropy": sum(share * math.log(share) for share in law),
        "certainty": largest[0],
        "confidence": law[drawn],
        "redraw": 0,
    }[order]


def denoise(table: np.ndarray, order: str, steps: int, rng: np.random.Generator) -> tuple[tuple, tuple]:
    """One draft, step by step and draw by draw: what `ToyDrafter` enumerates."""
    block, size = table.shape[-2:]
    canvas, committed = [size] * block, [-1] * block
    for step in range(steps):
        laws = table[tuple(canvas)]
        drawn = [int(rng.choice(size, p=law)) for law in laws]
        masked = [slot for slot in range(block) if canvas[slot] == size or order == "redraw"]
        eager = {slot: eagerness(order, slot, laws[slot], drawn[slot]) for slot in masked}
        ranked = sorted(masked, key=eager.__getitem__, reverse=True)
        count = commit_counts(block, steps)[step]
        if order in ("confidence", "certainty"):
            count = max(1, sum(score > 0.5 for score in eager.values()))
        if order == "redraw" or step == steps - 1:
            count = len(masked)
        for slot in ranked[:count]:
            canvas[slot], committed[slot] = drawn[slot], step
    return tuple(canvas), tuple(committed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("effort", [2, 3])
def test_trajectories_are_those_of_a_drafter_that_draws(order, effort):
    rng = np.random.default_rng(1)
    denoiser = random_denoiser(rng, 3 if order == "certainty" else 2)  # of two tokens one always has 1/2
    found = ToyDrafter(denoiser=denoiser, order=order, effort=effort)((), 3)
    expected = {}
    for chance, tokens, steps in zip(found.probability, found.tokens, found.commit_step, strict=True):
        key = tuple(tokens.tolist()), tuple(steps.tolist())
        expected[key] = expected.get(key, 0) + chance

    draws = [denoise(denoiser((), 3), order, effort, rng) for _ in range(2000)]
    counts = np.array([draws.count(key) for key in expected])
    law = np.array(list(expected.values()))

    assert law.sum() == pytest.approx(1)
    assert counts.sum() == 2000, "nothing happens that was not enumerated"
    assert g_test(counts, law) > FALSE_ALARM


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("effort", [1, 2, 3, 5])
def test_trajectories_are_complete_and_carry_what_was_drawn_from(order, effort):
    found = ToyDrafter(denoiser=random_denoiser(np.random.default_rng(2), 3), order=order, effort=effort)((1,), 3)
    drawn = np.take_along_axis(found.proposals, found.tokens[..., None], axis=-1)

    assert isinstance(found, Trajectories)
    assert found.probability.sum() == pytest.approx(1)
    assert (found.tokens < 3).all(), "no mask is left"
    assert (drawn > 0).all()
    np.testing.assert_allclose(found.proposals.sum(axis=-1), 1)
    assert found.commit_step.max() <= min(effort, 3) - 1


def test_steps_share_the_slots():
    assert [commit_counts(*case) for case in ((3, 1), (3, 2), (8, 3), (4, 4))] == [[3], [2, 1], [3, 3, 2], [1] * 4]


def test_a_denoiser_gives_the_same_laws_again_and_others_elsewhere():
    denoiser = random_denoiser(np.random.default_rng(3), 2)

    assert denoiser((0,), 2) is denoiser((0,), 2)
    assert (denoiser((0,), 2) != denoiser((1,), 2)).any()


def test_kinds_of_denoisers():
    rng = np.random.default_rng(4)
    certain = random_denoiser(rng, 3, certain=True)((), 2)
    causal = random_denoiser(rng, 3, causal=True)((), 2)
    rational = random_denoiser(rng, 3, rational=True)((), 2)

    assert ((certain == 1).sum(axis=-1) == 1).all()
    assert (certain.sum(axis=-1) == 1).all()
    assert (causal[:, :, 0] == causal[:1, :1, 0]).all(), "the first slot reads nothing of the block"
    assert (causal[:, :, 1] == causal[:, :1, 1]).all()
    assert (causal[0, 0, 1] != causal[1, 0, 1]).any(), "the second one reads the first"
    assert (rational.sum(axis=-1) == Fraction(1)).all()


def test_the_rule_in_fractions():
    p, q = (np.array([[Fraction(n, 10) for n in law]]) for law in ((2, 8), (8, 2)))

    assert RationalLossless().probability(p, q).tolist() == [[Fraction(1, 4), 1]]
    assert RationalLossless().residual(p, q, np.array([0])).tolist() == [[0, 1]]
    assert RationalLossless().residual(p, p, np.array([0])).tolist() == p.tolist()


def test_the_drafter_of_the_example_copies_its_second_symbol():
    found = late_first(Fraction)[0]((), 2)
    equal = found.tokens[:, 0] == found.tokens[:, 1]

    assert found.commit_step.tolist() == [[1, 0]] * len(found.tokens)
    assert found.probability[equal].sum() == Fraction(19, 20)
