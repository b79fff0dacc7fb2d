"""Claims about Cactus: the raised probability, its Taylor variant, and budgets of other divergences."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from mpmath import mp, mpf
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import elementwise

from theory import acceptance, divergence_budget
from theory.claims.claim import Claim, Finding, Method, Verdict, largest

TOLERANCE = 1e-12
"""What the divergence of a raised probability may be off its budget, in nats."""
EPS = float(np.finfo(np.float64).eps)
REACH = 4 * EPS
"""Rounding of a raised probability, relative to it."""
DIGITS = 700
"""Decimal digits in which 1 - p is exact for every p here."""
SLACK = 1e-9
"""Rounding of a divergence, relative to budgets from 1e-3 on."""

Numbers: TypeAlias = NDArray[np.float64]
Convex: TypeAlias = Callable[[Any], Any]

DIVERGENCES: tuple[tuple[str, divergence_budget.Cost, Convex], ...] = (
    ("relative entropy", divergence_budget.kullback_leibler, lambda t: t * mp.log(t) if t else mpf(0)),
    ("its reverse", divergence_budget.reverse_kullback_leibler, lambda t: -mp.log(t) if t else mp.inf),
    ("chi-square", divergence_budget.chi_square, lambda t: (t - 1) ** 2),
    ("squared Hellinger", divergence_budget.squared_hellinger, lambda t: (mp.sqrt(t) - 1) ** 2 / 2),
    ("total variation", divergence_budget.total_variation, lambda t: abs(t - 1) / 2),
)
"""Each divergence as the solver has it, and its convex function f as textbooks write it."""


def _digits(thorough: bool) -> Finding:
    """The divergence of the raised probability against its budget, in fifty digits."""
    p, budget = _settings(np.random.default_rng(21), 5000 if thorough else 500)
    gamma = acceptance.raised_probability(p, budget)
    with mp.workdps(50):
        due = [min(mpf(each), -mp.log(start)) for each, start in zip(budget, p, strict=True)]
        off = [abs(_spent(*each) - want) for *each, want in zip(gamma, p, due, strict=True)]
    return _within(largest(off), TOLERANCE, f"{p.size:,} pairs, p in [1e-300, 1 - 1e-16], δ in [0, 50]")


def _root_finder(thorough: bool) -> Finding:
    """The raised probability against SciPy's root finder in the log-odds of γ, where both γ and 1 - γ keep digits."""
    p, budget = _settings(np.random.default_rng(22), 20_000 if thorough else 2000)
    inside = (budget > 0) & (budget < -np.log(p) * (1 - TOLERANCE))
    p, budget = p[inside], budget[inside]

    def excess(log_odds: Numbers, p: Numbers, budget: Numbers) -> Numbers:
        gain, loss = special.log_expit(log_odds) - np.log(p), special.log_expit(-log_odds) - np.log1p(-p)
        return np.asarray(special.expit(log_odds) * gain + special.expit(-log_odds) * loss - budget)

    start = special.logit(p)
    root = elementwise.find_root(excess, (start, np.full(p.size, 800.0)), args=(p, budget)).x
    off = np.abs(acceptance.raised_probability(p, budget) - special.expit(root)) * (root - start)
    return _within(off.max(), TOLERANCE, f"{p.size:,} pairs with a root, p in [1e-300, 1 - 1e-16], δ in (0, 50]")


def _corners_and_order(thorough: bool) -> Finding:
    """Corners, bounds and monotonicity of the raised probability on a grid, all relative to it."""
    points = 600 if thorough else 150
    p = np.concatenate([10 ** np.linspace(-300, -1, points), np.linspace(0.11, 1, points)])[:, None]
    budget = np.concatenate([[0.0], np.geomspace(1e-12, 50, points)])
    gamma = acceptance.raised_probability(p, budget)
    with np.errstate(divide="ignore", invalid="ignore"):  # a probability that is raised to 0 is infinitely wrong
        falls = [(gamma[:-1] / gamma[1:]).max() - 1, (gamma[:, :-1] / gamma[:, 1:]).max() - 1]
        outside = [(p / gamma).max() - 1, gamma.max() - 1]
    corners = [
        np.abs(gamma[:, 0] / p[:, 0] - 1).max(),
        np.abs(gamma[budget >= -np.log(p)] - 1).max(),
        np.abs(acceptance.raised_probability(np.zeros_like(budget), budget)).max(),
    ]
    worst = largest([*falls, *outside, *corners])
    return _within(worst, REACH, f"{p.size} x {budget.size} grid with p = 1, δ = 0 and δ above -log p; p = 0 beside it")


def _taylor(thorough: bool) -> Finding:
    """What the Taylor variant spends of its budget, one example on either side."""
    p, budget = np.array([0.01, 0.9]), np.array([1.0, 0.05])
    gamma = acceptance.raised_probability_taylor(p, budget)
    spent = [float(_spent(*each)) for each in zip(gamma, p, strict=True)]
    off = largest(abs(value - due) / due for value, due in zip(spent, budget, strict=True))
    examples = [f"p = {a:g} it spends {s:.3f} of {b:g}" for a, s, b in zip(p, spent, budget, strict=True)]
    return Finding(
        verdict=Verdict.of(not (off > SLACK)),
        covered="two examples; figures/cactus.py draws the plane",
        worst_error=off,
        counterexample="at " + ", at ".join(examples),
    )


def _taylor_sides(thorough: bool) -> Finding:
    """By how much the Taylor variant leaves the sides that the curvature of Φ gives it."""
    rng = np.random.default_rng(23)
    count = 5000 if thorough else 500
    p, budget = special.expit(rng.uniform(-14, 7, count)), 10 ** rng.uniform(-3, 1.3, count)
    gamma = acceptance.raised_probability_taylor(p, budget)
    share = np.array([float(_spent(*each)) for each in zip(gamma, p, strict=True)]) / np.minimum(budget, -np.log(p))
    over, under = share[p + gamma <= 1] - 1, 1 - share[p >= 0.5]
    worst = largest([over.max(), under.max(), share.max() - 2])
    return _within(worst, SLACK, f"{over.size} pairs with p + γ <= 1 and {under.size} with p >= 1/2, δ in [1e-3, 20]")


def _taylor_is_chi_square(thorough: bool) -> Finding:
    """The raised probability within a budget of chi-square against the Taylor variant."""
    p, budget = _settings(np.random.default_rng(24), 20_000 if thorough else 2000)
    within = divergence_budget.raise_within(p, 2 * budget, divergence_budget.chi_square)
    off = np.abs(within / acceptance.raised_probability_taylor(p, budget) - 1)
    return _within(off.max(), REACH, f"{p.size:,} pairs, p in [1e-300, 1 - 1e-16], δ in [0, 50]")


def _any_divergence(thorough: bool) -> Finding:
    """How far from the raised probability, relative to it, the budget of each divergence runs out."""
    p, budget = _settings(np.random.default_rng(25), 200 if thorough else 25)
    with mp.workdps(DIGITS):
        reach = [
            _reach(mpf(start), mpf(each), mpf(raised), f)
            for _, cost, f in DIVERGENCES
            for start, each, raised in zip(p, budget, divergence_budget.raise_within(p, budget, cost), strict=True)
        ]
    names = ", ".join(name for name, _, _ in DIVERGENCES)
    return _within(largest(reach), REACH, f"{p.size} pairs each of {names}")


def _reach(p: Any, budget: Any, gamma: Any, f: Convex) -> float:
    """The least power of two times γ within which the budget runs out; infinite beyond 2⁻³⁰."""
    for exponent in range(-54, -30):
        low, high = max(gamma * (1 - mpf(2) ** exponent), p), gamma * (1 + mpf(2) ** exponent)
        spent = [p * f(each / p) + (1 - p) * f((1 - each) / (1 - p)) for each in (low, min(high, mpf(1)))]
        if spent[0] <= budget and (high >= 1 or spent[1] >= budget):
            return float(2.0**exponent)
    return float("inf")


def _spent(gamma: float, p: float) -> Any:
    """Φ(γ | p) of Eq. 17 in the working precision of mpmath."""
    raised, start = mpf(float(gamma)), mpf(float(p))
    gain = raised * mp.log(raised / start) if raised else mpf(0)
    left = (1 - raised) * (mp.log1p(-raised) - mp.log1p(-start)) if raised < 1 else 0
    return gain + left


def _settings(rng: np.random.Generator, count: int) -> tuple[Numbers, Numbers]:
    """Probabilities of every magnitude and near 1, with budgets of every size, some at the most that can be spent."""
    p = np.where(rng.random(count) < 0.6, 10 ** rng.uniform(-300, 0, count), 1 - 10 ** rng.uniform(-16, 0, count))
    p = np.clip(p, 1e-300, 1 - 2**-53)
    budget = np.minimum(50, -np.log(p) * rng.choice([0.5, 1, 2], count)) * rng.choice([0, 1, 1e-3, 1e-9], count)
    return p, budget * rng.random(count) ** rng.choice([0, 1], count)


def _within(worst: Any, tolerance: float, covered: str) -> Finding:
    """A claim holds where the largest departure from it is rounding."""
    return Finding(verdict=Verdict.of(worst <= tolerance), covered=covered, worst_error=float(worst))


CLAIMS = tuple(
    Claim(statement=statement, source=source, method=method, expected=expected, check=check)
    for statement, source, method, expected, check in (
        (
            "The raised probability spends its budget δ of Eq. 17 to 1e-12, or all that can be spent",
            "Eq. 17",
            Method.EXACT_ARITHMETIC,
            Verdict.HOLDS,
            _digits,
        ),
        (
            "Eight Newton steps find the root that a bracketing root finder finds",
            "Eq. 17",
            Method.NUMERICAL,
            Verdict.HOLDS,
            _root_finder,
        ),
        (
            "γ grows with p and δ from p at δ = 0 to 1 at δ = -log p, and stays 0 at p = 0",
            "Eq. 17",
            Method.NUMERICAL,
            Verdict.HOLDS,
            _corners_and_order,
        ),
        (
            "The Taylor variant spends its budget",
            "Appendix E",
            Method.EXACT_ARITHMETIC,
            Verdict.FAILS,
            _taylor,
        ),
        (
            "Taylor underspends where p + γ <= 1 and overspends from p = 1/2 on, at most twofold",
            "Appendix E",
            Method.EXACT_ARITHMETIC,
            Verdict.HOLDS,
            _taylor_sides,
        ),
        (
            "The Taylor variant is exact for a chi-square budget of 2 δ",
            "Appendix E",
            Method.NUMERICAL,
            Verdict.HOLDS,
            _taylor_is_chi_square,
        ),
        (
            "One bisection raises within a budget of any f-divergence, to rounding",
            "Appendix E",
            Method.EXACT_ARITHMETIC,
            Verdict.HOLDS,
            _any_divergence,
        ),
    )
)
