"""What a claim of the theory is, and what a check of it found."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import SupportsFloat

import numpy as np


class Method(StrEnum):
    """How a claim is checked; none of them evaluates the formula under test twice."""

    SYMBOLIC = "symbolic"
    LINEAR_PROGRAM = "linear program"
    SMT = "SMT"
    ENUMERATION = "enumeration"
    EXACT_ARITHMETIC = "exact arithmetic"
    NUMERICAL = "numerical"
    MONTE_CARLO = "Monte Carlo"


class Verdict(StrEnum):
    """What a check says of a claim. A solver that gives up leaves it undecided, which is neither."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"

    @classmethod
    def of(cls, holds: object) -> "Verdict":
        """Return the verdict of a check that decides."""
        return cls.HOLDS if holds else cls.FAILS


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    verdict
        Whether the claim held wherever it was looked at.
    covered
        What was looked at, such as ``"2,000 pairs, V = 2..64"``.
    worst_error, p_value
        The largest departure from the claim, or the p-value of a statistical test; None where there is none. A NaN
        says that what was checked computes nothing, and no verdict with it is as expected.
    counterexample
        Where the claim fails, in one line.
    """

    verdict: Verdict
    covered: str
    worst_error: float | None = None
    p_value: float | None = None
    counterexample: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement, where it stands, and an independent check of it.

    Attributes
    ----------
    statement, source
        The claim in one line, and its place, such as ``"Theorem 1"`` or ``"Eq. 9"``.
    method
        How it is checked.
    expected
        What the project believes: some claims that are commonly made are expected to fail.
    check
        Runs the check; its argument asks for the thorough version.
    """

    statement: str
    source: str
    method: Method
    expected: Verdict
    check: Callable[[bool], Finding]


def largest(departures: Iterable[SupportsFloat]) -> float:
    """Return the largest of some departures from a claim; NaN if one is NaN, which Python's `max` would lose."""
    return float(np.max([float(departure) for departure in departures]))
