"""Claims about the crossover: when one more denoising step pays, and when one effort owns the whole frontier."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from theory import crossover, symbolic
from theory.claims.claim import Claim, Finding, Method, Verdict, largest
from theory.claims.proposition1 import derived

PAPER = (0.566, 0.517, 0.424, 0.360)
"""d_K of the paper's pair for K = 1..4."""
PAPER_BLOCK = 512
GRID = np.linspace(0, 1, 2001)
BLOCKS = (1, 2, 3, 4, 5, 16, 64, 512, math.inf)
RESOLUTION = 1e-9
"""Of deviations and of relative speeds: what 512 terms of rounding leave, with room."""


def _ranges(thorough: bool) -> Finding:
    """The range of deviations in which a further step pays against the speeds on a dense grid."""
    rng = np.random.default_rng(21)
    steps, wrong, errors = (1000 if thorough else 60), "", []
    for _ in range(steps):
        d, next_d = np.sort(rng.random(2))[::-1]
        size = rng.choice(BLOCKS)
        # steps that pay somewhere, and where they cost as much as they can gain
        most = min(float(crossover.largest_gain(d, next_d, size)), 50.0)
        next_c = 1 + (most - 1) * rng.uniform(0, 1.2) + 1e-6
        first, last = (float(end) for end in crossover.paying_deviations(d, 1.0, next_d, next_c, size))
        advantage = _speed(GRID, next_d, next_c, size) / _speed(GRID, d, 1.0, size) - 1
        inside = (first + RESOLUTION < GRID) & (last - RESOLUTION > GRID)
        outside = ~((first - RESOLUTION < GRID) & (last + RESOLUTION > GRID))
        errors.append(largest([0.0, *-advantage[inside], *advantage[outside]]))
        if not errors[-1] <= RESOLUTION:
            wrong = f"d = {d:.3f}, {next_d:.3f}, c' = {next_c:.3f} c, B = {size:g}: off by {errors[-1]:.1e}"
    return Finding(
        verdict=Verdict.of(not wrong),
        covered=f"{steps} random steps on {len(GRID):,} deviations, B = {_sizes()}",
        worst_error=largest(errors),
        counterexample=wrong,
    )


def _sole_owner(thorough: bool) -> Finding:
    """The efforts that the condition names against those that nothing beats on a dense grid, near draws left out."""
    rng = np.random.default_rng(22)
    ladders, wrong, owned, seen = (500 if thorough else 60), "", 0, 0
    while seen < ladders:
        count = int(rng.integers(2, 5))
        d, c = rng.random(count), 1 + rng.random(count) * rng.choice([0.1, 3.0])
        size = rng.choice(BLOCKS)
        # in the limit of long blocks the deviations from the smallest d on, where tokens have no bound, do not count
        deviations = np.append(GRID, d) if size < math.inf else GRID * d.min() * (1 - 1e-6)
        speeds = _speed(deviations[:, None], d, c, size)
        margin = (speeds / speeds.max(axis=1, keepdims=True)).min(axis=0)
        if ((margin < 1 - 1e-12) & (margin > 1 - 1e-4)).any():
            continue
        seen += 1
        owns = np.asarray(crossover.owns_whole_frontier(d, c, size))
        owned += int(owns.any())
        if (owns != (margin >= 1 - 1e-12)).any():
            wrong = f"d = {d.round(3).tolist()}, c = {c.round(3).tolist()}, B = {size:g}: {owns.tolist()}"
    return Finding(
        verdict=Verdict.of(not wrong),
        covered=f"{ladders} random sets of 2..4 efforts on {len(GRID):,} deviations, {owned} of them with an owner, "
        f"B = {_sizes()}",
        counterexample=wrong,
    )


def _one_effort_suffices(thorough: bool) -> Finding:
    """Whether one effort gives the paper's whole frontier, over prices of a step from 1/10 to 100 times the rest.

    The verdict is that of a dense grid of deviations; it is undecided where the theory says something else.
    """
    prices = np.logspace(-1, 2, 301 if thorough else 31)
    seconds = 1 + prices[:, None] * np.arange(len(PAPER))
    divergence = np.broadcast_to(np.array(PAPER), seconds.shape)
    deviations = np.append(GRID, PAPER)
    speeds = _speed(deviations[:, None, None], divergence, seconds, PAPER_BLOCK)
    alone = (speeds >= speeds.max(axis=-1, keepdims=True) * (1 - RESOLUTION)).all(axis=0)
    first, last = crossover.paying_deviations(PAPER[0], 1.0, PAPER[3], 2.0, PAPER_BLOCK)
    faster = _speed(GRID, PAPER[3], 2.0, PAPER_BLOCK) > _speed(GRID, PAPER[0], 1.0, PAPER_BLOCK)
    agreed = np.array_equal(crossover.owns_whole_frontier(divergence, seconds, PAPER_BLOCK), alone)
    agreed &= np.array_equal((first < GRID) & (last > GRID), faster)
    owned = alone.any(axis=1)
    return Finding(
        verdict=Verdict.of(owned.all()) if agreed else Verdict.UNDECIDED,
        covered=f"d_K = {', '.join(map(str, PAPER))}, B = {PAPER_BLOCK}, {len(prices)} prices of a step, 0.1 to 100 "
        f"times the rest of the round, {deviations.size:,} deviations; one step alone suffices from "
        f"{prices[alone[:, 0]].min(initial=math.inf):.1f} times on",
        counterexample=""
        if owned.all()
        else f"if four steps double the round, they are faster than one at deviations from {first:.3f} to {last:.3f} "
        "and slower elsewhere",
    )


def _more_steps_as_quality_falls(thorough: bool) -> Finding:
    """Whether the best effort never falls as the deviation grows to the smallest d_K, in the limit of long blocks.

    A dense grid decides; for each two efforts it also says from which deviation on the later one is faster.
    """
    rng = np.random.default_rng(23)
    ladders, wrong = (2000 if thorough else 200), ""
    earlier, later = np.triu_indices(4, 1)
    for _ in range(ladders):
        d, c = np.sort(rng.random(4))[::-1], 1 + np.cumsum(rng.random(4))
        deviations = GRID[:-1, None] * d.min()
        speeds = _speed(deviations, d, c, math.inf)
        first, last = crossover.paying_deviations(d[earlier], c[earlier], d[later], c[later], math.inf)
        near = (np.abs(deviations - first) <= RESOLUTION) | (np.abs(deviations - last) <= RESOLUTION)
        faster = speeds[:, later] > speeds[:, earlier]
        changed = (faster != (first < deviations) & (deviations < last)) & ~near
        if changed.any() or any(after < before for before, after in pairwise(speeds.argmax(axis=1))):
            wrong = f"d = {d.round(3).tolist()}, c = {c.round(3).tolist()}"
    return Finding(
        verdict=Verdict.of(not wrong),
        covered=f"{ladders} random sets of four efforts on {len(GRID) - 1:,} deviations",
        counterexample=wrong,
    )


def _speed(
    deviation: NDArray[np.float64],
    divergence: NDArray[np.float64] | float,
    seconds: NDArray[np.float64] | float,
    size: float,
) -> NDArray[np.float64]:
    """Tokens per second by Eq. 6 and 7 with Eq. 9 by Horner's rule, or its limit."""
    rate = np.minimum(1 - divergence + deviation, 1)
    if size == math.inf:
        with np.errstate(divide="ignore"):
            tokens = 1 / (1 - rate)
        return np.asarray(np.minimum(tokens, np.finfo(float).max) / seconds)
    return np.asarray(np.polyval(np.ones(int(size) + 1), rate) / seconds)


def _sizes() -> str:
    return ", ".join(f"{size:g}" for size in BLOCKS).replace("inf", "∞")


CLAIMS = (
    Claim(
        statement="For long blocks a further step is faster from the deviation (d' c' - d c) / (c' - c) on",
        source="Eq. 6-7",
        method=Method.SYMBOLIC,
        expected=Verdict.HOLDS,
        check=partial(derived, derive=symbolic.crossover),
    ),
    Claim(
        statement="From four drafted tokens on, and not before, a step gains most where it accepts everything",
        source="Eq. 6-7, 9",
        method=Method.SYMBOLIC,
        expected=Verdict.HOLDS,
        check=partial(derived, derive=symbolic.convexity),
    ),
    Claim(
        statement="For every block a further step is faster within one range of deviations, and nowhere else",
        source="Eq. 6-7",
        method=Method.NUMERICAL,
        expected=Verdict.HOLDS,
        check=_ranges,
    ),
    Claim(
        statement="As quality is given up, the fastest effort never falls (long blocks)",
        source="Eq. 6-7",
        method=Method.NUMERICAL,
        expected=Verdict.HOLDS,
        check=_more_steps_as_quality_falls,
    ),
    Claim(
        statement="One effort owns the whole frontier exactly if no other gains more than its round takes longer",
        source="Eq. 6-7",
        method=Method.NUMERICAL,
        expected=Verdict.HOLDS,
        check=_sole_owner,
    ),
    Claim(
        statement="One effort gives the whole frontier of the paper's pair",
        source="Section 3.3",
        method=Method.NUMERICAL,
        expected=Verdict.FAILS,
        check=_one_effort_suffices,
    ),
)
