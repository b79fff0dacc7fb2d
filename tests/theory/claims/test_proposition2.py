"""Each check must be able to come out the other way: what it checks is broken, and the verdict changes."""

from fractions import Fraction

import numpy as np
import pytest

from theory import proposition2, toys
from theory.acceptance import LinearAcceptance
from theory.claims import proposition2 as claims
from theory.claims.claim import Verdict
from theory.mistakes import ReplaceFromTarget
from theory.proposition2 import Exactness

CLAIM = {claim.statement: claim for claim in claims.CLAIMS}
JOINT = [claim for claim in claims.CLAIMS if claim.statement.startswith("Joint exactness: ")]
ANY_DRAFT = CLAIM["Lossless verification of any multi-step draft is jointly exact"]
ANY_FIRST = CLAIM["The first token of any multi-step draft is exact"]
FIRST = CLAIM["The first token of a multi-step draft is exact for every order that looks at distributions alone"]
MEAN = CLAIM["The mean proposal E[Q] serves verification as well as the realised Q"]
GUARANTEES = CLAIM[
    "The recorded exactness (joint, first_token, none) is what each commit order and effort really keeps"
]
FRACTIONS = CLAIM["Joint exactness of all these classes is an identity of fractions, not of rounded numbers"]


@pytest.mark.parametrize("claim", claims.CLAIMS[:2], ids=lambda claim: claim.statement[:40])
def test_a_wrong_replacement_fails_one_position(claim, monkeypatch):
    monkeypatch.setattr(LinearAcceptance, "residual", ReplaceFromTarget.residual)

    assert claim.check(False).verdict == Verdict.FAILS


@pytest.mark.parametrize("claim", [*JOINT, FIRST], ids=lambda claim: claim.statement[:40])
def test_a_little_leniency_fails_joint_exactness(claim, monkeypatch):
    monkeypatch.setattr(claims, "LOSSLESS", LinearAcceptance(leniency=1e-6))

    finding = claim.check(False)
    assert finding.verdict == Verdict.FAILS
    assert 1e-9 < finding.worst_error < 1e-5


@pytest.mark.parametrize("claim", [*JOINT[1:2], FRACTIONS], ids=["left to right", "fractions"])
def test_another_order_fails_the_claim_of_left_to_right(claim, monkeypatch):
    monkeypatch.setattr(toys.ToyDrafter, "_scores", lambda self, laws, drawn: np.arange(laws.shape[1])[None, None])

    assert claim.check(False).verdict == Verdict.FAILS


def test_an_error_in_the_rule_in_fractions_shows(monkeypatch):
    monkeypatch.setattr(toys.RationalLossless, "probability", lambda self, p, q: np.minimum(p / q, Fraction(1, 2)))

    assert FRACTIONS.check(False).verdict == Verdict.FAILS


def test_exact_drafts_would_refute_the_counterexamples(monkeypatch):
    monkeypatch.setattr(
        toys.ToyDrafter, "_choose", lambda self, laws, drawn, open_slots, count, last: open_slots[:, None]
    )

    assert ANY_DRAFT.check(False).verdict == Verdict.HOLDS
    assert ANY_FIRST.check(False).verdict == Verdict.HOLDS


def test_without_the_mean_the_proposals_are_exact(monkeypatch):
    monkeypatch.setattr(claims, "_averaged", lambda drafter, prefix, block: drafter(prefix, block))

    assert MEAN.check(False).verdict == Verdict.HOLDS


@pytest.mark.parametrize("guarantee", Exactness)
def test_a_wrong_table_of_guarantees_is_found(guarantee, monkeypatch):
    monkeypatch.setattr(proposition2, "exactness", lambda order, effort, greedy: guarantee)

    finding = GUARANTEES.check(False)
    assert finding.verdict == Verdict.FAILS
    assert "K = 1" in finding.counterexample or guarantee == Exactness.JOINT


def test_the_counterexamples_are_exact_numbers():
    joint = ANY_DRAFT.check(False).counterexample

    assert "29/80 = 0.3625" in joint
    assert "11/80 = 0.1375" in joint
    assert "joint TV 0.225" in joint
    assert "7/10 instead of 1/2" in ANY_FIRST.check(False).counterexample
