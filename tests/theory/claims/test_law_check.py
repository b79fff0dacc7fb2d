"""Each check must be able to come out the other way: what it checks is broken, and the verdict changes."""

import numpy as np
import pytest
from scipy import stats

from theory import law_check, mistakes
from theory.claims import law_check as claims
from theory.claims.claim import Verdict

MISTAKES, PASSES, RATE, DISTANCE, SHOWS = claims.CLAIMS


def test_a_sampler_that_is_right_is_no_mistake(monkeypatch):
    right = mistakes.known_mistakes()[0]
    monkeypatch.setattr(
        mistakes,
        "known_mistakes",
        lambda: [mistakes.Mistake(name="none", wrong=right.right, right=right.right, target=right.target)],
    )

    finding = MISTAKES.check(False)
    assert finding.verdict == Verdict.FAILS
    assert "none: 0 of 20 runs found" in finding.counterexample


def test_a_sampler_that_is_wrong_does_not_pass(monkeypatch):
    wrong = mistakes.known_mistakes()[0]
    monkeypatch.setattr(
        mistakes,
        "known_mistakes",
        lambda: [mistakes.Mistake(name="", wrong=wrong.wrong, right=wrong.wrong, target=wrong.target)],
    )

    assert PASSES.check(False).verdict == Verdict.FAILS


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_wrong_number_of_degrees_of_freedom_is_found(shift, monkeypatch):
    exact = law_check.special.chdtrc
    monkeypatch.setattr(law_check.special, "chdtrc", lambda freedom, value: exact(max(freedom + shift, 0.5), value))

    assert RATE.check(False).verdict == Verdict.FAILS


def test_p_values_that_are_not_uniform_are_found(monkeypatch):
    right = law_check.g_test
    monkeypatch.setattr(law_check, "g_test", lambda counts, target: right(counts, target) ** 1.5)

    assert PASSES.check(False).verdict == Verdict.FAILS


def test_pearsons_statistic_has_not_the_stated_rate(monkeypatch):
    def pearson(counts, target):
        expected = target * counts.sum(axis=-1, keepdims=True)
        return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(axis=-1), target.size - 1)

    monkeypatch.setattr(law_check, "g_test", pearson)

    finding = RATE.check(False)
    assert finding.verdict == Verdict.FAILS
    assert finding.worst_error > 5


def test_a_distance_that_is_too_short_is_found(monkeypatch):
    distance = law_check.detectable_distance
    monkeypatch.setattr(law_check, "detectable_distance", lambda law, draws: 0.9 * distance(law, draws))

    assert DISTANCE.check(False).verdict == Verdict.FAILS


def test_a_rule_that_changes_the_law_shows_in_it(monkeypatch):
    monkeypatch.setattr(mistakes.ExactMatch, "residual", lambda self, p, q, drafted: np.broadcast_to(p, (3, 3)))

    assert SHOWS.check(False).verdict == Verdict.HOLDS
