"""Each check must be able to come out the other way: what it checks is broken, and the verdict changes."""

import numpy as np
import pytest

from theory import crossover, proposition1, symbolic
from theory.claims import crossover as claims
from theory.claims.claim import Verdict

CLAIM = {claim.statement: claim for claim in claims.CLAIMS}
RANGES = CLAIM["For every block a further step is faster within one range of deviations, and nowhere else"]
NEVER_FALLS = CLAIM["As quality is given up, the fastest effort never falls (long blocks)"]
OWNER = CLAIM["One effort owns the whole frontier exactly if no other gains more than its round takes longer"]
PAPER = CLAIM["One effort gives the whole frontier of the paper's pair"]


def test_a_wrong_formula_fails_its_derivation():
    finding = claims.derived(False, derive=lambda: symbolic.crossover(lambda d, c, next_d, next_c: next_d))

    assert finding.verdict == Verdict.FAILS
    assert "both are equally fast" in finding.counterexample


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("BISECTIONS", 6),
        ("tokens_per_round", lambda rate, size: proposition1.tokens_per_round(rate, size) - 1),
        ("_best_deviation", lambda divergence, next_divergence, size: np.zeros_like(divergence)),
    ],
    ids=["coarse", "no bonus token", "best where lossless"],
)
def test_a_wrong_range_shows_on_the_grid(name, wrong, monkeypatch):
    monkeypatch.setattr(crossover, name, wrong)
    finding = RANGES.check(False)

    assert finding.verdict == Verdict.FAILS
    assert finding.worst_error > claims.RESOLUTION
    assert "c' = " in finding.counterexample


@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_wrong_condition_names_a_wrong_owner(factor, monkeypatch):
    right = crossover._largest_gain
    monkeypatch.setattr(crossover, "_largest_gain", lambda d, other, size: right(d, other, size) * factor)

    assert OWNER.check(False).verdict == Verdict.FAILS


def test_efforts_in_reverse_order_fall(monkeypatch):
    right = claims._speed
    monkeypatch.setattr(claims, "_speed", lambda deviation, d, c, size: right(deviation, d[::-1], c[::-1], size))

    assert NEVER_FALLS.check(False).verdict == Verdict.FAILS


def test_equal_divergences_would_leave_one_owner(monkeypatch):
    monkeypatch.setattr(claims, "PAPER", (0.566,) * 4)

    finding = PAPER.check(False)
    assert finding.verdict == Verdict.HOLDS
    assert np.isfinite(crossover.largest_gain(0.566, 0.36, 512))
