"""Derivations in SymPy: Eq. 6 and 9, what leniency does, long blocks, the crossover; for symbolic B, α and d_K.

Each function returns a `Derivation`: the statement and the steps that it rests on, worked out by SymPy. The formula
that is derived can be replaced: a wrong one leaves a gap. Nothing here is evaluated in floating point.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sympy as sp

Formula: TypeAlias = Callable[..., Any]
"""A formula as a function of SymPy symbols."""

B, N = sp.symbols("B n", integer=True, nonnegative=True)
RATE, LONGER = sp.symbols("alpha x", nonnegative=True)


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """A statement and its steps; it holds if every step does.

    Attributes
    ----------
    statement
        What is derived, as an equation.
    vanishing
        By name, what must be 0 identically: left side minus right side.
    nonnegative
        By name, what must not be negative for any value of its symbols.
    """

    statement: Any
    vanishing: Mapping[str, Any] = field(default_factory=dict)
    nonnegative: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Names of the steps that do not hold, or that SymPy cannot show."""
        left = [name for name, value in self.vanishing.items() if sp.simplify(value) != 0]
        unsure = [
            n for n, value in self.nonnegative.items() if sp.factor(sp.simplify(value)).is_nonnegative is not True
        ]
        return (*left, *unsure)

    @property
    def holds(self) -> bool:
        """Whether no gap is left."""
        return not self.gaps


def tokens_per_round(closed_form: Formula = lambda rate, size: (1 - rate ** (size + 1)) / (1 - rate)) -> Derivation:
    """Derive Eq. 9 by induction over B, from the sum of powers and from the law of the accepted length.

    Parameters
    ----------
    closed_form
        Of the expected tokens, as a function of α and B.
    """
    rate = sp.Symbol("alpha")
    value, longer = closed_form(rate, B), closed_form(rate, B + 1)
    # the law of a longer block differs where the shorter one ended: its last entry splits into two
    step_of_mean = (B + 1) * rate**B * (1 - rate) + (B + 2) * rate ** (B + 1) - (B + 1) * rate**B
    return Derivation(
        statement=sp.Eq(sp.Sum(rate**N, (N, 0, B)), value),
        vanishing={
            "no drafted token": closed_form(rate, sp.Integer(0)) - 1,
            "one more drafted token": longer - value - rate ** (B + 1),
            "its share in the mean of the law": step_of_mean - rate ** (B + 1),
            "all accepted": sp.limit(value, rate, 1) - (B + 1),
        },
    )


def rates_at_leniency(
    target: Formula = lambda p, q, leniency: (1 - leniency) * p + leniency * q,
    acceptance_rate: Formula = lambda divergence, leniency: 1 - (1 - leniency) * divergence,
    agreement: Formula = lambda divergence, leniency: 1 - leniency * divergence,
) -> Derivation:
    """Derive Eq. 6 token by token: what the relaxed target leaves of q, and how far it is from p.

    A token is in excess in the verifier (``p = q + s``) or in the drafter (``q = p + s``); the s of either kind sum to
    the total variation, whose mean over prefixes is d_K. The leniency is ``u / (1 + u)``, u >= 0; 1 is its limit.

    Parameters
    ----------
    target
        Relaxed target of a token, as a function of p, q and λ.
    acceptance_rate, agreement
        Eq. 6, as functions of d_K and λ.
    """
    u, excess, less, divergence = sp.symbols("u s p d_K", nonnegative=True)
    leniency = u / (1 + u)
    in_verifier = target(less + excess, less, leniency)
    in_drafter = target(less, less + excess, leniency)
    rejected, moved = (less + excess - in_drafter) / excess, (in_drafter - less) / excess
    return Derivation(
        statement=sp.Eq(sp.Symbol("alpha_K"), acceptance_rate(divergence, sp.Symbol("lambda"))),
        vanishing={
            "rejected where the drafter has more": 1 - rejected * divergence - acceptance_rate(divergence, leniency),
            "moved where the drafter has more": 1 - moved * divergence - agreement(divergence, leniency),
            "moved where the verifier has more": (less + excess - in_verifier) / excess - moved,
        },
        nonnegative={
            "none rejected where the verifier has more": in_verifier - less,
            "the target stays below the drafter": less + excess - in_drafter,
            "the target stays above the verifier": in_drafter - less,
        },
    )


def effect_of_leniency(
    acceptance_rate: Formula = lambda divergence, leniency: 1 - (1 - leniency) * divergence,
    agreement: Formula = lambda divergence, leniency: 1 - leniency * divergence,
) -> Derivation:
    """Derive that more leniency never lowers acceptance and tokens, and never raises agreement.

    Parameters
    ----------
    acceptance_rate, agreement
        Eq. 6, as functions of d_K and λ.
    """
    divergence, leniency = sp.symbols("d_K lambda", nonnegative=True)
    power = sp.Symbol("n", integer=True, positive=True)
    rises = sp.diff(acceptance_rate(divergence, leniency), leniency)
    more = sp.diff(RATE**power, RATE) * rises
    return Derivation(
        statement=sp.Ge(sp.Derivative(sp.Sum(RATE**N, (N, 0, B)), sp.Symbol("lambda")), 0),
        nonnegative={
            "acceptance rises": rises,
            "each power of it rises": more,
            "agreement falls": -sp.diff(agreement(divergence, leniency), leniency),
        },
    )


def long_blocks(limit: Formula = lambda rate: 1 / (1 - rate)) -> Derivation:
    """Derive the tokens of a round as B grows without bound, for α < 1.

    Parameters
    ----------
    limit
        As a function of α.
    """
    odds = sp.Symbol("x", positive=True)
    rate = 1 / (1 + odds)  # every α in (0, 1)
    divergence, deviation = sp.symbols("d epsilon", positive=True)
    return Derivation(
        statement=sp.Eq(sp.Limit(sp.Sum(sp.Symbol("alpha") ** N, (N, 0, B)), B, sp.oo), limit(sp.Symbol("alpha"))),
        vanishing={
            "limit of the sum": sp.limit(sp.simplify((1 - rate ** (B + 1)) / (1 - rate)), B, sp.oo) - limit(rate),
            "at a deviation": limit(1 - divergence + deviation) - 1 / (divergence - deviation),
        },
    )


def crossover(
    deviation: Formula = lambda d, c, next_d, next_c: (next_d * next_c - d * c) / (next_c - c),
) -> Derivation:
    """Derive where one more denoising step starts to pay, for long blocks.

    With ``d = d' + g`` and ``c' = c + h``, g, h > 0: a step that drafts better and takes longer.

    Parameters
    ----------
    deviation
        ε from which the next effort is faster, as a function of d, c, d', c'.
    """
    next_d, better, c, slower, room = sp.symbols("d' g c h y", positive=True)
    d, next_c = next_d + better, c + slower
    at = sp.Symbol("epsilon")
    advantage = (d - at) * c - (next_d - at) * next_c  # of the reciprocals; positive where the next effort is faster
    start = deviation(d, c, next_d, next_c)
    gain = (d - at) / (next_d - at)
    return Derivation(
        statement=sp.Eq(at, deviation(*sp.symbols("d c d' c'"))),
        vanishing={
            "both are equally fast": advantage.subs(at, start),
            "and nowhere else": sp.Integer(len(sp.solve(advantage, at)) - 1),
            "from the lossless end on if d' c' <= d c": start * (next_c - c) - (next_d * next_c - d * c),
        },
        nonnegative={
            "the gain rises with the deviation": sp.diff(gain, at).subs(at, next_d - room),
            "before the next effort accepts everything": next_d - start,
        },
    )


def convexity(at_one: Formula = lambda size: (size + 1) ** 2 * size * (size - 4) / 12) -> Derivation:
    """Derive that the logarithm of Eq. 9 is convex on [0, 1] exactly from B = 4 on, which makes the gain rise.

    ``N² (log N)'' = N N'' - N'²`` is a polynomial in α whose coefficients are not negative up to some power and
    negative beyond: by Descartes' rule it changes its sign at most once for α > 0, from + to -. So it is
    not negative on [0, 1] exactly if it is not negative at α = 1.

    Parameters
    ----------
    at_one
        Its value at α = 1, as a function of B.
    """
    i, j, degree = sp.symbols("i j s", integer=True, nonnegative=True)
    terms = sp.Symbol("m", positive=True, integer=True)  # the pairs of powers up to B that add up to s > B
    symmetric = (i * (i - 1) + j * (j - 1)) / 2 - i * j
    early = sp.summation(((2 * i - degree) ** 2 - degree) / 2, (i, 0, degree))
    late = sp.summation(((terms - 1 - 2 * i) ** 2 - (2 * B + 1 - terms)) / 2, (i, 0, terms - 1))
    mean = sp.summation(N, (N, 0, B)), sp.summation(N * (N - 1), (N, 0, B))
    later = sp.Symbol("m", positive=True)
    return Derivation(
        statement=sp.Eq(sp.Symbol("N") * sp.Symbol("N''") - sp.Symbol("N'") ** 2, at_one(B)),
        vanishing={
            "each pair of powers": symmetric - ((i - j) ** 2 - (i + j)) / 2,
            "up to power B": early - degree * (degree + 1) * (degree - 1) / 6,
            "beyond": late - terms * ((terms**2 - 1) / sp.Integer(3) - (2 * B + 1 - terms)) / 2,
            "at α = 1": (B + 1) * mean[1] - mean[0] ** 2 - at_one(B),
        },
        nonnegative={
            # in s = 2 B + 1 - m, so that the coefficients per pair fall as s grows: one change of sign
            "beyond, they fall with the power": sp.diff((later**2 - 1) / 3 - (2 * B + 1 - later), later),
            "up to power B, from the second on": (degree * (degree + 1) * (degree - 1)).subs(degree, degree + 1),
            "from B = 4 on": at_one(B + 4),
            "below 4 it is at most -1": -1 - sp.Max(*(at_one(sp.Integer(size)) for size in (1, 2, 3))),
        },
    )


def shared_rate(
    tokens: Formula = lambda a, b, size, moment: ((a + b - 1) - (a + size) * moment) / (b - 1),
) -> Derivation:
    """Derive Jensen's inequality for a rate shared by the round, and the tokens of a Beta law, b != 1.

    ``x^n`` lies on or above its tangent at α: the excess of power n + 1 is x times that of n plus a square. Averaged,
    ``E[P^n] >= α^n``. The moments of Beta(a, b) are ``M_{n+1} = M_n (a + n) / (a + b + n)``; their sum telescopes.

    Parameters
    ----------
    tokens
        ``M_0 + ... + M_B`` as a function of a, b, B and M_B.
    """
    power = sp.Symbol("n", integer=True, positive=True)

    def above_tangent(n: Any) -> Any:
        return LONGER**n - RATE**n - n * RATE ** (n - 1) * (LONGER - RATE)

    square = power * RATE ** (power - 1) * (LONGER - RATE) ** 2
    a, b = sp.symbols("a b", positive=True)
    moment = sp.Symbol("M_B")
    following = moment * (a + B) / (a + b + B)
    return Derivation(
        statement=sp.Eq(sp.Sum(sp.Function("M")(N), (N, 0, B)), tokens(a, b, B, moment)),
        vanishing={
            "the first power is its own tangent": above_tangent(sp.Integer(1)),
            "one power more": above_tangent(power + 1) - LONGER * above_tangent(power) - square,
            "no drafted token": tokens(a, b, sp.Integer(0), sp.Integer(1)) - 1,
            "one more drafted token": tokens(a, b, B + 1, following) - tokens(a, b, B, moment) - following,
        },
        nonnegative={
            "the square": sp.expand(power * RATE ** (power - 1)),
            "a moment's factor is at least the mean": (a + N) / (a + b + N) - a / (a + b),
        },
    )
