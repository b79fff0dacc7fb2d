"""Every claim comes out as believed; the other files break what a claim checks and see the verdict change."""

import pytest

from theory import verify
from theory.claims.claim import Verdict


@pytest.mark.parametrize(
    ("part", "claim"), list(verify.collect()), ids=lambda each: getattr(each, "statement", each)[:40]
)
def test_every_verdict_is_the_expected_one(part, claim):
    finding = claim.check(False)

    assert finding.verdict == claim.expected
    assert finding.covered
    assert bool(finding.counterexample) == (claim.expected == Verdict.FAILS)
    assert part != "cactus" or finding.worst_error >= 0
