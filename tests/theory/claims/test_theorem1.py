"""Each check says what is expected, and something else once the formula behind it is wrong."""

import numpy as np
import z3

from theory import acceptance, proofs, theorem1
from theory.acceptance import LinearAcceptance
from theory.claims.claim import Method, Verdict
from theory.claims.theorem1 import CLAIMS


def claims(*words):
    """The claims whose statement, source and method contain all the words."""
    return [c for c in CLAIMS if all(word in f"{c.statement} {c.source} {c.method}" for word in words)]


def verdict(*words):
    (claim,) = claims(*words)
    return claim.check(False).verdict


def test_a_wrong_bound_is_found(monkeypatch):
    monkeypatch.setattr(theorem1, "best_acceptance", lambda p, q, deviation: 1 - np.abs(p - q).sum() / 2)

    assert verdict("The optimum of Eq. 4") == Verdict.FAILS


def test_a_wrong_target_is_found(monkeypatch):
    right = theorem1.optimal_target
    monkeypatch.setattr(theorem1, "optimal_target", lambda p, q, deviation: right(p, q, 0.99 * deviation))

    assert verdict("The optimum of Eq. 4") == Verdict.FAILS


def test_a_point_off_the_way_is_not_the_nearest(monkeypatch):
    right = theorem1.optimal_target
    monkeypatch.setattr(theorem1, "optimal_target", lambda p, q, deviation: np.roll(right(p, q, deviation), 1))

    assert verdict("nearest") == Verdict.FAILS


def test_a_wrong_residual_leaves_the_line(monkeypatch):
    monkeypatch.setattr(acceptance, "replacement_law", lambda target, q: target)
    monkeypatch.setattr(theorem1, "replacement_law", lambda target, q: target)

    assert {claim.check(False).verdict for claim in claims("exactly", "enumeration")} == {Verdict.FAILS}


def test_an_acceptance_that_is_counted_twice_beats_the_bound(monkeypatch):
    right = theorem1.acceptance_rate
    monkeypatch.setattr(theorem1, "acceptance_rate", lambda rule, p, q: 2 * right(rule, p, q))

    assert verdict("No rule accepts more") == Verdict.FAILS


def test_rules_off_the_line_are_needed_for_the_counterexample(monkeypatch):
    lossless = LinearAcceptance(leniency=0)
    for name in ("ExactMatch", "VerifierReplacement"):
        monkeypatch.setattr(theorem1, name, lambda: lossless)
    monkeypatch.setattr(theorem1, "RaiseAndRescale", lambda raised: lossless)

    assert verdict("Every rule accepts exactly") == Verdict.HOLDS


def test_a_solver_that_gives_up_decides_nothing(monkeypatch):
    monkeypatch.setattr(z3.Solver, "check", lambda solver: z3.unknown)

    for claim in claims(Method.SMT):
        finding = claim.check(False)
        assert finding.verdict == Verdict.UNDECIDED
        assert "undecided for V = 2, 3" in finding.covered


def test_a_wrong_formula_is_refuted(monkeypatch):
    monkeypatch.setattr(proofs, "_least", lambda one, other: one)

    assert verdict("Raise and rescale: acceptance") == Verdict.FAILS


def test_what_is_refuted_is_refuted_for_every_size_that_is_named():
    for claim in claims(Method.SMT):
        if claim.expected == Verdict.FAILS:
            covered, refuted = claim.check(False).covered.split("; refuted for ")
            assert covered == f"all distributions, {refuted}"
