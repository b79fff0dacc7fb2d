"""Claims about Proposition 1 and Eq. 6: tokens of a round, what leniency does, and where the hypothesis fails."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from theory import acceptance, law_check, proposition1, symbolic
from theory.claims.claim import Claim, Finding, Method, Verdict, largest

EPS = float(np.finfo(np.float64).eps)
BLOCKS = (1, 2, 5, 16, 64, 512)
RATES = (0.0, 1e-12, 0.434, 0.5, 0.999, 1 - 1e-6, 1 - 1e-12, 1 - EPS / 2, 1.0)
ENUMERATED = 1e-14
"""Rounding of sums over at most 64 outcomes."""
TINY = 1e-290
VISIBLE = 1e-3
"""Tokens of a round that no rounding explains."""
DRAWS = 200_000


def derived(thorough: bool, *, derive: Callable[[], symbolic.Derivation]) -> Finding:
    """Work a derivation out, and name the steps that fail."""
    derivation = derive()
    steps = {**derivation.vanishing, **derivation.nonnegative}
    return Finding(
        verdict=Verdict.of(derivation.holds),
        covered=f"all values of the symbols, in {len(steps)} steps",
        counterexample=", ".join(derivation.gaps),
    )


def _against_integers(thorough: bool, *, quantity: str) -> Finding:
    """A quantity in floating point against quotients of integers, in units of B eps."""
    rates = [*RATES, *np.random.default_rng(11).random(200 if thorough else 3).tolist()]
    errors, in_units = [], []
    for rate, size in product(rates, BLOCKS):
        scaled, whole = _scaled_law(rate, size)
        law = proposition1.accepted_length_law(rate, size)
        length = range(size + 1)
        if quantity == "tokens":
            pairs = [(proposition1.tokens_per_round(rate, size), whole + _dot(scaled, length))]
        elif quantity == "law":
            pairs = list(zip(law, scaled, strict=True))
        else:
            mean, square = _dot(scaled, length), _dot(scaled, [n * n for n in length])
            scaled_variance = square * whole - mean**2
            whole, pairs = whole**2, [(proposition1.accepted_length_variance(law), scaled_variance)]
        errors.append(largest(_relative_error(float(result), exact, whole) for result, exact in pairs))
        in_units.append(errors[-1] / (size * EPS))
    return Finding(
        verdict=Verdict.of(largest(in_units) <= 4),
        covered=f"{len(rates)} rates, 1 - 1e-12 and the float below 1 among them, B = {', '.join(map(str, BLOCKS))}; "
        f"at most {largest(in_units):.2f} B eps",
        worst_error=largest(errors),
    )


def _scaled_law(rate: float, size: int) -> tuple[list[int], int]:
    """The law of the accepted length times a power of two, without rounding."""
    accept, whole = rate.as_integer_ratio()
    scaled = [accept**n * (whole - accept) * whole ** (size - 1 - n) for n in range(size)]
    return [*scaled, accept**size], whole**size


def _dot(law: list[int], values: range | list[int]) -> int:
    return sum(chance * value for chance, value in zip(law, values, strict=True))


def _relative_error(result: float, exact: int, whole: int) -> float:
    """``|result - exact / whole| / (exact / whole)``; what lies near the underflow has no relative precision."""
    if exact == 0 or exact / whole < TINY:
        return 0.0 if result < TINY else np.inf
    part, of = result.as_integer_ratio()
    return abs(part * whole - exact * of) / (exact * of)


def _any_dependence(thorough: bool) -> Finding:
    """The survival form against the mean over every outcome of a round, for random laws of the outcomes."""
    rng = np.random.default_rng(12)
    rounds, off = (3000 if thorough else 300), []
    for _ in range(rounds):
        size = int(rng.integers(1, 7))
        outcomes = np.array(list(product((0, 1), repeat=size)))
        chances = rng.dirichlet(np.full(2**size, rng.choice([0.05, 1.0])))
        reached = np.cumprod(outcomes, axis=1)
        tokens = proposition1.tokens_from_survival(chances @ reached)
        off.append(abs(tokens - chances @ (1 + reached.sum(axis=1))))
    worst = largest(off)
    return Finding(
        verdict=Verdict.of(worst <= ENUMERATED),
        covered=f"every outcome of {rounds:,} random joint laws, B = 1..6",
        worst_error=worst,
    )


def _whatever_the_dependence(thorough: bool) -> Finding:
    """Eq. 9 for one rate that a round's positions share: a coin that accepts all or nothing, then Beta laws."""
    size, rate = 512, 0.434
    shared = proposition1.tokens_from_survival(proposition1.beta_survival(rate, 4.0, size))
    alike = proposition1.tokens_per_round(rate, size)
    coin = sum(Fraction(1, 2) * (1 + accepted) for accepted in (0, 2))
    eq9 = proposition1.tokens_per_round(0.5, 2)
    off = [float(coin) - eq9, shared - alike]
    return Finding(
        verdict=Verdict.of(not all(tokens > VISIBLE for tokens in off)),
        covered=f"Beta(α c, (1 - α) c) at α = {rate}, c = 4, B = {size}: {shared:.3f} tokens instead of {alike:.3f}",
        worst_error=largest(off),
        counterexample=f"two positions that share a rate of 0 or 1, each with chance 1/2: {coin} tokens of a round; "
        f"Eq. 9 at α = 1/2: {Fraction(float(eq9))}",
    )


def _simulated_lengths(
    thorough: bool,
    *,
    rates: Callable[[np.random.Generator, int], NDArray[np.float64]],
    survival: Callable[[], NDArray[np.float64]],
) -> Finding:
    """The accepted length of simulated rounds of Algorithm 1 against the law that a survival function gives."""

    def sampler(rng: np.random.Generator, draws: int) -> NDArray[np.int64]:
        chances = rates(rng, draws)
        accepted: NDArray[np.int64] = acceptance.accept_prefix(chances, rng.random(chances.shape))
        return accepted

    law = proposition1.law_from_survival(survival())
    draws = DRAWS * (10 if thorough else 1)
    result = law_check.check_law(sampler, law, draws=draws, rng=np.random.default_rng(13))
    return Finding(
        verdict=Verdict.of(result.passes),
        covered=f"{draws:,} rounds, B = {len(law) - 1}; false alarm {result.false_alarm:g}, finds a total variation "
        f"of {result.detectable:.4f}",
        p_value=result.p_value,
        counterexample="" if result.passes else "the accepted lengths of these rounds have another law",
    )


def _independent_survival() -> NDArray[np.float64]:
    return proposition1.survival(np.full(6, 2 / 3))  # type: ignore[no-any-return]


def _shared_survival() -> NDArray[np.float64]:
    return proposition1.beta_survival(2 / 3, 1.2, 6)  # type: ignore[no-any-return]


def _independent(rng: np.random.Generator, rounds: int) -> NDArray[np.float64]:
    return rng.beta(0.8, 0.4, (rounds, 6))


def _shared(rng: np.random.Generator, rounds: int) -> NDArray[np.float64]:
    return np.repeat(rng.beta(0.8, 0.4, (rounds, 1)), 6, axis=1)


CHAIN, LEVELS = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([0.95, 0.3])
"""A good position is followed by a good one nine times in ten; good ones accept with .95, poor ones with .3."""


def _chained(rng: np.random.Generator, rounds: int) -> NDArray[np.float64]:
    poor = np.empty((rounds, 6), dtype=np.int64)
    poor[:, 0] = rng.random(rounds) < 0.5
    for position in range(1, 6):
        poor[:, position] = np.where(rng.random(rounds) < 0.9, poor[:, position - 1], 1 - poor[:, position - 1])
    return LEVELS[poor]


def _chained_survival() -> NDArray[np.float64]:
    """Chance that at least n tokens of the chain are accepted, by its transition matrix."""
    state, chances = np.array([0.5, 0.5]) * LEVELS, []
    for _ in range(6):
        chances.append(state.sum())
        state = (state @ CHAIN) * LEVELS
    return np.array(chances)


CLAIMS = (
    Claim(
        statement="Expected tokens are (1 - α^(B+1)) / (1 - α), and B + 1 at α = 1",
        source="Eq. 9",
        method=Method.SYMBOLIC,
        expected=Verdict.HOLDS,
        check=partial(derived, derive=symbolic.tokens_per_round),
    ),
    Claim(
        statement="At leniency λ the acceptance rate is 1 - (1 - λ) d_K and the agreement 1 - λ d_K",
        source="Eq. 6",
        method=Method.SYMBOLIC,
        expected=Verdict.HOLDS,
        check=partial(derived, derive=symbolic.rates_at_leniency),
    ),
    Claim(
        statement="More leniency never lowers acceptance and tokens, and never raises agreement",
        source="Eq. 6, 9",
        method=Method.SYMBOLIC,
        expected=Verdict.HOLDS,
        check=partial(derived, derive=symbolic.effect_of_leniency),
    ),
    Claim(
        statement="As blocks grow, expected tokens approach 1 / (1 - α)",
        source="Eq. 9",
        method=Method.SYMBOLIC,
        expected=Verdict.HOLDS,
        check=partial(derived, derive=symbolic.long_blocks),
    ),
    *(
        Claim(
            statement=f"{name} in float64 within 4 B eps, without a branch at α = 1",
            source="Eq. 9",
            method=Method.EXACT_ARITHMETIC,
            expected=Verdict.HOLDS,
            check=partial(_against_integers, quantity=quantity),
        )
        for name, quantity in (
            ("Expected tokens", "tokens"),
            ("The law of the accepted length", "law"),
            ("Its variance", "variance"),
        )
    ),
    Claim(
        statement="Eq. 9 holds whatever the dependence between the positions of a round",
        source="Proposition 1",
        method=Method.EXACT_ARITHMETIC,
        expected=Verdict.FAILS,
        check=_whatever_the_dependence,
    ),
    Claim(
        statement="A rate shared by a round never gives fewer tokens than Eq. 9; a Beta law in closed form",
        source="Proposition 1",
        method=Method.SYMBOLIC,
        expected=Verdict.HOLDS,
        check=partial(derived, derive=symbolic.shared_rate),
    ),
    Claim(
        statement="Expected tokens are 1 + S(1) + ... + S(B) whatever the dependence",
        source="Proposition 1",
        method=Method.ENUMERATION,
        expected=Verdict.HOLDS,
        check=_any_dependence,
    ),
    *(
        Claim(
            statement=f"Algorithm 1 accepts as many tokens as predicted: {name}",
            source="Proposition 1",
            method=Method.MONTE_CARLO,
            expected=Verdict.HOLDS,
            check=partial(_simulated_lengths, rates=rates, survival=survival),
        )
        for name, rates, survival in (
            ("independent rates of one mean", _independent, _independent_survival),
            ("one Beta rate for the round", _shared, _shared_survival),
            ("rates that follow one another", _chained, _chained_survival),
        )
    ),
    Claim(
        statement="A rate shared by a round leaves the law of the accepted length as in Proposition 1",
        source="Proposition 1",
        method=Method.MONTE_CARLO,
        expected=Verdict.FAILS,
        check=partial(_simulated_lengths, rates=_shared, survival=_independent_survival),
    ),
)
