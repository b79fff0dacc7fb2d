from fractions import Fraction

import numpy as np
import pytest
import z3

from theory import proofs
from theory.proofs import (
    Answer,
    acceptance_lies_on_the_line,
    emitted_law_lies_between,
    no_target_beats_the_bound,
    optimal_target_reaches_the_bound,
    residual_covers_the_excess,
)
from theory.theorem1 import RaiseAndRescale, acceptance_rate, best_acceptance, efficiency, emitted_law

THEOREM_1 = [no_target_beats_the_bound, optimal_target_reaches_the_bound]
ONE_LINE = [residual_covers_the_excess, emitted_law_lies_between, acceptance_lies_on_the_line]


def read(proof, name, size):
    """A vector of a counterexample."""
    return np.array([float(proof.counterexample[f"{name}{index}"]) for index in range(size)])


@pytest.mark.parametrize(
    ("prove", "size"),
    [
        (prove, size)
        for sizes, group in (((2, 3, 4), THEOREM_1), ((2, 3), ONE_LINE))
        for prove in group
        for size in sizes
    ],
)
def test_the_statement_holds_for_all_distributions(prove, size):
    proof = prove(size)

    assert proof.answer == Answer.PROVED
    assert proof.counterexample == {}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_target_of_any_deviation_beats_the_bound(size):
    proof = no_target_beats_the_bound(size, within_deviation=False)
    p, q, rival = (read(proof, name, size) for name in "pqt")
    deviation = float(proof.counterexample["ε"])

    assert proof.answer == Answer.REFUTED
    assert np.minimum(rival, q).sum() > best_acceptance(p, q, deviation)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_another_target_of_the_same_deviation_may_fall_short(size):
    proof = optimal_target_reaches_the_bound(size, mixed=False)
    p, q, rival = (read(proof, name, size) for name in "pqt")
    deviation = float(proof.counterexample["λ"]) * np.abs(p - q).sum() / 2

    assert proof.answer == Answer.REFUTED
    assert np.abs(rival - p).sum() / 2 == pytest.approx(deviation)
    assert np.minimum(rival, q).sum() < best_acceptance(p, q, deviation) - 1e-9


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("prove", ONE_LINE)
def test_lowering_the_drafted_token_leaves_the_line(prove, size):
    proof = prove(size, raised=False)
    p, q, gamma, scale = (read(proof, name, size) for name in "pqγs")
    law = emitted_law(RaiseAndRescale(raised=gamma), p, q)
    residual = np.clip(np.where(np.arange(size) == 0, gamma, scale[0] * p) - q, 0, None).sum()
    fails = {
        residual_covers_the_excess: residual < np.clip(q - gamma, 0, None).sum(),
        emitted_law_lies_between: not min(p[0], q[0]) <= law[0] <= max(p[0], q[0]),
        acceptance_lies_on_the_line: efficiency(RaiseAndRescale(raised=gamma), p, q) < 1 - 1e-9,
    }

    assert proof.answer == Answer.REFUTED
    assert (gamma < p).any()
    assert fails[prove]


def test_the_solver_may_run_out_of_time():
    proof = emitted_law_lies_between(4, seconds=0.02)

    assert proof.answer == Answer.UNDECIDED
    assert proof.counterexample == {}


def test_the_formulas_of_the_proofs_and_of_the_array_code_agree():
    gamma, p, q = [0.75, 0.5, 0.5], [0.5, 0.25, 0.25], [0.125, 0.25, 0.625]
    rule = RaiseAndRescale(raised=np.array(gamma))
    law, accepted = emitted_law(rule, np.array(p), np.array(q)), acceptance_rate(rule, np.array(p), np.array(q))
    terms = proofs._RaiseAndRescale.unknown(3)
    given = [
        x == str(value)
        for names, values in ((terms.p, p), (terms.q, q), (terms.gamma, gamma))
        for x, value in zip(names, values, strict=True)
    ]
    solver = z3.Solver()
    solver.add(*terms.hypotheses(raised=True), *terms.weights(), *given)

    assert solver.check() == z3.sat
    for token in range(3):
        assert float(proofs._fraction(solver.model().evaluate(terms.emitted(token)))) == pytest.approx(law[token])
    assert accepted == pytest.approx(np.minimum(gamma, q).sum())


def test_an_irrational_value_is_rounded():
    root = z3.Real("root")
    solver = z3.Solver()
    solver.add(root * root == 2, root > 0)
    solver.check()

    assert abs(proofs._fraction(solver.model()[root]) ** 2 - 2) < Fraction(1, 10**19)
