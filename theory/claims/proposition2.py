"""Claims about Proposition 2: what lossless verification of a multi-step draft keeps, and what it does not."""

import numpy as np

from theory import proposition2
from theory.acceptance import LinearAcceptance
from theory.claims.claim import Claim, Finding, Method, Verdict
from theory.distances import total_variation

TOLERANCE = 1e-14
"""Rounding of sums over at most eight tokens and six proposals."""


def _one_position(thorough: bool) -> Finding:
    rng = np.random.default_rng(2)
    instances, worst = (4000 if thorough else 400), 0.0
    for _ in range(instances):
        size, outcomes = int(rng.integers(2, 9)), int(rng.integers(1, 7))
        concentration = rng.choice([0.1, 1.0])
        p, weights = rng.dirichlet(np.full(size, concentration)), rng.dirichlet(np.ones(outcomes))
        proposals = rng.dirichlet(np.full(size, concentration), outcomes)
        law = proposition2.verified_law(LinearAcceptance(leniency=0), p, proposals, weights)
        worst = max(worst, float(total_variation(law, p)))
    return Finding(
        verdict=Verdict.HOLDS if worst <= TOLERANCE else Verdict.FAILS,
        covered=f"{instances} random laws of Q on up to 6 values, V = 2..8",
        worst_error=worst,
    )


CLAIMS = (
    Claim(
        statement="One position, verified against its realised proposal Q, emits the target whatever the law of Q",
        source="Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.HOLDS,
        check=_one_position,
    ),
)
