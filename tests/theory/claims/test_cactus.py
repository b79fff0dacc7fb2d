"""Each check says what is expected, and something else once the formula behind it is wrong."""

import pytest

from theory import acceptance, divergence_budget
from theory.claims.cactus import CLAIMS
from theory.claims.claim import Verdict


def verdict(words):
    (claim,) = (each for each in CLAIMS if words in each.statement)
    return claim.check(False).verdict


@pytest.mark.parametrize("words", ["to 1e-12", "Eight Newton steps"])
def test_too_few_steps_are_found(monkeypatch, words):
    monkeypatch.setattr(acceptance, "NEWTON_STEPS", 4)

    assert verdict(words) == Verdict.FAILS


@pytest.mark.parametrize("words", ["to 1e-12", "Eight Newton steps"])
def test_probabilities_that_count_as_zero_are_found(monkeypatch, words):
    right = acceptance.raised_probability
    monkeypatch.setattr(acceptance, "raised_probability", lambda p, budget: right(p * (p > 1e-276), budget))

    assert verdict(words) == Verdict.FAILS


@pytest.mark.parametrize(
    "wrong", [lambda gamma, p: 0.9 * gamma, lambda gamma, p: 1 - gamma, lambda gamma, p: 0 * gamma + p]
)
def test_wrong_corners_are_found(monkeypatch, wrong):
    right = acceptance.raised_probability
    monkeypatch.setattr(acceptance, "raised_probability", lambda p, budget: wrong(right(p, budget), p))

    assert verdict("γ grows") == Verdict.FAILS


def test_an_exact_variant_would_spend_its_budget(monkeypatch):
    monkeypatch.setattr(acceptance, "raised_probability_taylor", acceptance.raised_probability)

    assert verdict("The Taylor variant spends") == Verdict.HOLDS
    assert verdict("chi-square budget") == Verdict.FAILS


def test_a_taylor_variant_with_another_slope_changes_sides(monkeypatch):
    right = acceptance.raised_probability_taylor
    monkeypatch.setattr(acceptance, "raised_probability_taylor", lambda p, budget: right(p, 1.3 * budget))

    assert verdict("Taylor underspends") == Verdict.FAILS


def test_a_bisection_that_stops_early_is_found(monkeypatch):
    monkeypatch.setattr(divergence_budget, "ARITHMETIC_STEPS", 30)

    assert verdict("One bisection") == Verdict.FAILS
