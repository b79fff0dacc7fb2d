"""Every claim comes out as believed, and a broken formula changes the verdict."""

import numpy as np
import pytest

from theory import coupled
from theory.claims.claim import Verdict
from theory.claims.coupled import CLAIMS
from theory.distances import overlap, total_variation

FORMULA, SORTED, BOUNDS, KEYED, REDRAWN = CLAIMS


def test_the_counterexample_says_the_numbers():
    assert "equal symbols come out with 0.3625 each, unequal ones with 0.1375" in REDRAWN.check(False).counterexample


def lower_bound(p, q):
    distance = total_variation(p, q)
    return (1 - distance) / (1 + distance)


@pytest.mark.parametrize(
    ("claims", "broken"),
    [
        ((FORMULA, SORTED, BOUNDS), overlap),
        ((FORMULA, SORTED, BOUNDS), lower_bound),
        ((FORMULA, SORTED, BOUNDS), lambda p, q: np.sum(p * q)),
        ((BOUNDS,), lambda p, q: overlap(p, q) + 1e-9),
        ((SORTED,), lambda p, q: original(p, q) * (1 + 1e-9)),
    ],
)
def test_a_wrong_formula_is_refuted(monkeypatch, claims, broken):
    monkeypatch.setattr(coupled, "coupled_acceptance", broken)

    assert [claim.check(False).verdict for claim in claims] == [Verdict.FAILS] * len(claims)


original = coupled.coupled_acceptance


@pytest.mark.parametrize(
    "broken",
    [
        lambda probs, noise: np.argmax(probs + 0 * noise, axis=-1),
        lambda probs, noise: np.argmax(probs * np.exp(noise), -1) // 2,
    ],
)
def test_a_wrong_race_is_seen_in_the_law(monkeypatch, broken):
    monkeypatch.setattr(coupled, "coupled_token", broken)

    assert KEYED.check(False).verdict == Verdict.FAILS


def test_tokens_that_are_kept_although_they_are_not_the_verifiers_are_seen(monkeypatch):
    monkeypatch.setattr(coupled, "_kept", lambda drafted, own: np.ones_like(own, dtype=bool))

    assert KEYED.check(False).verdict == Verdict.FAILS


def test_noise_that_is_kept_is_seen_as_kept(monkeypatch):
    law = coupled.coupled_pair_law
    monkeypatch.setattr(coupled, "coupled_pair_law", lambda *laws, **_: law(*laws))
    assert REDRAWN.check(False).verdict == Verdict.HOLDS

    monkeypatch.setattr(coupled, "coupled_pair_law", lambda *laws, **_: law(*laws, redrawn=True))
    assert KEYED.check(False).verdict == Verdict.FAILS
