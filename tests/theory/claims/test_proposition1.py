"""Each check must be able to come out the other way: what it checks is broken, and the verdict changes."""

import numpy as np
import pytest

from theory import acceptance, proposition1, symbolic
from theory.claims import proposition1 as claims
from theory.claims.claim import Verdict

CLAIM = {claim.statement: claim for claim in claims.CLAIMS}
FLOATS = [claim for claim in claims.CLAIMS if claim.statement.endswith("within 4 B eps, without a branch at α = 1")]
SIMULATED = [claim for claim in claims.CLAIMS if claim.statement.startswith("Algorithm 1 accepts as many tokens")]
ANY_DEPENDENCE = CLAIM["Expected tokens are 1 + S(1) + ... + S(B) whatever the dependence"]
EQ_9_WHATEVER = CLAIM["Eq. 9 holds whatever the dependence between the positions of a round"]
SHARED_AS_INDEPENDENT = CLAIM["A rate shared by a round leaves the law of the accepted length as in Proposition 1"]


def test_a_wrong_formula_fails_its_derivation():
    finding = claims.derived(False, derive=lambda: symbolic.long_blocks(lambda rate: 2 / (1 - rate)))

    assert finding.verdict == Verdict.FAILS
    assert "limit of the sum" in finding.counterexample


@pytest.mark.parametrize(
    ("claim", "name"),
    list(zip(FLOATS, ("tokens_per_round", "accepted_length_law", "accepted_length_variance"), strict=True)),
    ids=["tokens", "law", "variance"],
)
def test_an_error_in_the_tenth_digit_shows(claim, name, monkeypatch):
    right = getattr(proposition1, name)
    monkeypatch.setattr(proposition1, name, lambda *given: right(*given) * (1 + 1e-10))
    finding = claim.check(False)

    assert finding.verdict == Verdict.FAILS
    assert 5e-11 < finding.worst_error < 2e-10


def test_the_closed_form_loses_the_digits_that_the_power_sum_keeps(monkeypatch):
    def closed_form(rate, size):
        return size + 1 if rate == 1 else (1 - rate ** (size + 1)) / (1 - rate)

    monkeypatch.setattr(proposition1, "tokens_per_round", closed_form)

    assert FLOATS[0].check(False).verdict == Verdict.FAILS


def test_the_second_moment_less_the_squared_mean_loses_the_variance(monkeypatch):
    def uncentred(law):
        length = np.arange(len(law))
        return law @ length**2 - (law @ length) ** 2

    monkeypatch.setattr(proposition1, "accepted_length_variance", uncentred)

    assert FLOATS[2].check(False).verdict == Verdict.FAILS


def test_a_survival_form_without_the_bonus_token_fails(monkeypatch):
    monkeypatch.setattr(proposition1, "tokens_from_survival", lambda survival: survival.sum(axis=-1))

    assert ANY_DEPENDENCE.check(False).verdict == Verdict.FAILS


def test_moments_without_spread_would_make_eq_9_hold(monkeypatch):
    monkeypatch.setattr(proposition1, "beta_survival", lambda rate, concentration, size: rate ** np.arange(1, size + 1))

    assert EQ_9_WHATEVER.check(False).verdict == Verdict.HOLDS


@pytest.mark.parametrize("claim", SIMULATED, ids=["independent", "shared", "chain"])
def test_an_inclusive_last_position_shows_in_the_simulation(claim, monkeypatch):
    """A block whose last token is never tested."""
    right = acceptance.accept_prefix
    monkeypatch.setattr(acceptance, "accept_prefix", lambda rates, uniforms: right(rates[:, :-1], uniforms[:, :-1]))
    finding = claim.check(False)

    assert finding.verdict == Verdict.FAILS
    assert finding.p_value < 1e-6


def test_independent_rates_would_leave_the_law(monkeypatch):
    check = SHARED_AS_INDEPENDENT.check.func

    finding = check(False, rates=claims._independent, survival=claims._independent_survival)
    assert finding.verdict == Verdict.HOLDS
