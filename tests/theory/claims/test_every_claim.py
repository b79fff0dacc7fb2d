"""Every claim comes out as believed; the other files break what a claim checks and see the verdict change."""

import math

import pytest

from theory import (
    acceptance,
    coupled,
    crossover,
    divergence_budget,
    law_check,
    proposition1,
    proposition2,
    theorem1,
    verify,
)
from theory.claims.claim import Verdict, largest

CLAIMS = list(verify.collect())
WATCHED = [
    (theorem1, "best_acceptance", ["The optimum of Eq. 4"]),
    (theorem1, "optimal_target", ["The optimum of Eq. 4", "is nearest to q"]),
    (theorem1, "emitted_law", ["No rule accepts", "Every rule that raises", "Every rule accepts exactly"]),
    (theorem1, "acceptance_rate", ["No rule accepts", "Every rule that raises", "Every rule accepts exactly"]),
    (acceptance, "raised_probability", ["to 1e-12", "Eight Newton steps", "γ grows"]),
    (acceptance, "raised_probability_taylor", ["The Taylor variant spends", "Taylor underspends", "for a chi-square"]),
    (divergence_budget, "raise_within", ["for a chi-square", "One bisection"]),
    (coupled, "coupled_acceptance", ["agree with chance", "V log V form", "The chance lies between"]),
    (coupled, "coupled_pair_law", ["keyed by position", "redrawn after a rejection"]),
    (proposition1, "tokens_per_round", ["Expected tokens in float64", "Eq. 9 holds whatever"]),
    (proposition1, "accepted_length_law", ["The law of the accepted length in float64"]),
    (proposition1, "accepted_length_variance", ["Its variance in float64"]),
    (proposition1, "tokens_from_survival", ["1 + S(1)", "Eq. 9 holds whatever"]),
    (proposition1, "beta_survival", ["one Beta rate for the round", "Eq. 9 holds whatever"]),
    (proposition2, "verified_law", ["One position", "With leniency λ one position"]),
    (proposition2, "text_law", ["commits from left to right", "is jointly exact", "of any multi-step draft is exact"]),
    (proposition2, "text_law", ["for every order that looks", "The mean proposal", "The recorded exactness"]),
    (crossover, "tokens_per_round", ["For every block", "owns the whole frontier", "the paper's pair"]),
    (crossover, "_largest_gain", ["For every block", "owns the whole frontier", "the paper's pair"]),
    (crossover, "paying_deviations", ["For every block", "never falls", "the paper's pair"]),
    (law_check, "power", ["finds each known mistake"]),
    (law_check, "detectable_distance", ["at its detectable distance"]),
]
"""What computes a number that a claim is about, and words of these claims."""


@pytest.mark.parametrize(("part", "claim"), CLAIMS, ids=lambda each: getattr(each, "statement", each)[:40])
def test_every_verdict_is_the_expected_one(part, claim):
    finding = claim.check(False)

    assert finding.verdict == claim.expected
    assert finding.covered
    assert bool(finding.counterexample) == (claim.expected == Verdict.FAILS)
    assert part != "cactus" or finding.worst_error >= 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("module", "name", "words"), WATCHED)
def test_what_computes_nan_leaves_no_verdict_as_expected(monkeypatch, module, name, words):
    right = getattr(module, name)

    def spoilt(*given, **settings):
        result = right(*given, **settings)
        return tuple(each * math.nan for each in result) if isinstance(result, tuple) else result * math.nan

    monkeypatch.setattr(module, name, spoilt)
    listed = [(part, claim) for part, claim in CLAIMS if any(each in claim.statement for each in words)]
    assert len(listed) == len(words)

    assert [row.claim.statement for row in verify.check(listed, thorough=False) if row.expected] == []


def test_the_largest_departure_keeps_nan_wherever_it_stands():
    assert largest(iter([0.0, -1, 2])) == 2
    assert math.isnan(largest([math.nan, 1.0]))
    assert math.isnan(largest([1.0, math.nan, 2.0]))
