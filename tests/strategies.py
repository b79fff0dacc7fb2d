"""Hypothesis strategies in the words of the domain, simple values first, with the corners where rules break."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.recordings import make_rounds
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.coupled import CoupledAcceptance
from theory.rounds import Rounds

Distribution = NDArray[np.float64]

probabilities = st.sampled_from([0.5, 1.0, 0.0, 1e-8, 1e-30, 1 - 1e-9]) | st.floats(0, 1)
all_magnitudes = (  # of probabilities inside (0, 1): down to 1e-300, and up to 1 - 1e-16
    st.sampled_from([0.5, 1e-8, 1e-300, 1 - 1e-9, 1 - 2**-53])
    | st.floats(-300, -1e-3).map(lambda exponent: 10**exponent)
    | st.floats(-15.9, -1e-3).map(lambda exponent: 1 - 10**exponent)
)
leniencies = st.sampled_from([0.0, 1.0, 0.5, 0.1]) | st.floats(0, 1)
budgets = st.sampled_from([0.0, 1.0, 0.25, 1e-12, 20.0]) | st.floats(0, 50)
block_sizes = st.integers(1, 12)
long_blocks = st.sampled_from([1, 2, 512]) | st.integers(1, 64)
acceptance_rates = st.sampled_from([0.5, 1.0, 0.0, 1 - 1e-12, 1 - 1e-6, 1e-12]) | st.floats(0, 1)

linear_rules = st.builds(LinearAcceptance, leniency=leniencies)
cactus_rules = st.builds(CactusAcceptance, budget=budgets, solver=st.sampled_from(["exact", "taylor"]))
rules = linear_rules | cactus_rules
"""The rules that test a ratio."""


@dataclass(frozen=True)
class TabulatedRule:
    """A verification rule given by numbers alone: acceptance (V,) and replacement (V, V) of each drafted token."""

    accepted: Distribution
    replacement: Distribution

    def probability(self, p: Distribution, q: Distribution, /) -> Distribution:
        return self.accepted

    def residual(self, p: Distribution, q: Distribution, drafted: NDArray[np.int64], /) -> Distribution:
        return self.replacement[drafted]


@st.composite
def distributions(draw: st.DrawFn, size: int) -> Distribution:
    """Points of the simplex: uniform, point mass, exact zeros, generic, and with a tiny or subnormal probability."""
    kind = draw(st.sampled_from(["uniform", "point mass", "exact zeros", "generic", "tiny", "subnormal"]))
    if kind == "uniform":
        return np.full(size, 1 / size)
    if kind == "point mass":
        return np.eye(size)[draw(st.integers(0, size - 1))]
    if size > 8:  # beyond what shrinking makes readable, one seed is drawn instead of many weights
        weights = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(1, 1001, size).astype(float)
    else:
        weights = np.array(draw(st.lists(st.integers(1, 1000), min_size=size, max_size=size)), dtype=float)
    if kind == "exact zeros":
        weights[draw(st.lists(st.integers(1, size - 1), min_size=1))] = 0
    if kind in ("tiny", "subnormal"):
        weights[draw(st.integers(1, size - 1))] *= 1e-200 if kind == "tiny" else 1e-317
    return weights / weights.sum()


@st.composite
def pairs(draw: st.DrawFn, size: int = 4) -> tuple[Distribution, Distribution]:
    """Verifier and drafter: equal, near-equal (a last-digit difference), disjoint or unrelated."""
    p = draw(distributions(size))
    kind = draw(st.sampled_from(["unrelated", "equal", "near-equal", "disjoint"]))
    if kind == "equal":
        return p, p.copy()
    if kind == "near-equal":
        q = p * (1 + draw(st.sampled_from([1e-16, 1e-12, 1e-6])) * np.arange(size))
        return p, q / q.sum()
    q = draw(distributions(size))
    if kind == "disjoint":
        p, q = np.concatenate([p, np.zeros(size)]), np.concatenate([np.zeros(size), q])
    return p, q


wide_pairs = st.integers(2, 64).flatmap(pairs)


@st.composite
def arbitrary_rules(draw: st.DrawFn, size: int) -> TabulatedRule:
    """Any acceptance probability and any replacement for each drafted token."""
    accepted = np.array(draw(st.lists(probabilities, min_size=size, max_size=size)))
    return TabulatedRule(accepted, np.stack([draw(distributions(size)) for _ in range(size)]))


@st.composite
def raised(draw: st.DrawFn, p: Distribution) -> Distribution:
    """Any probability from the verifier's up to 1, for each token."""
    share = np.array(draw(st.lists(probabilities, min_size=p.size, max_size=p.size)))
    return np.maximum(p, p + share * (1 - p))


@st.composite
def joint_outcomes(draw: st.DrawFn) -> Distribution:
    """Law of what B positions do, accepted (1) or not (0), on B axes: any dependence between them."""
    block_size = draw(st.integers(1, 4))
    return draw(distributions(2**block_size)).reshape((2,) * block_size)


@st.composite
def effort_ladders(draw: st.DrawFn) -> tuple[Distribution, Distribution]:
    """Divergence and seconds of a round at each effort: better and slower step by step, or in disorder."""
    count = draw(st.integers(2, 4))
    divergence = np.array(draw(st.lists(st.floats(1e-3, 1), min_size=count, max_size=count, unique=True)))
    seconds = np.array(draw(st.lists(st.floats(0.5, 4), min_size=count, max_size=count, unique=True)))
    if draw(st.booleans()):
        return np.sort(divergence)[::-1].copy(), np.sort(seconds)
    return divergence, seconds


@st.composite
def recordings(draw: st.DrawFn) -> Rounds:
    """Recorded rounds: cut blocks, stop tokens at every place, rejected and accepted ends."""
    width = draw(st.integers(1, 4))
    count = draw(st.integers(0, 5))
    rows = []
    for number in range(count):
        drafted = draw(st.integers(0, width))
        accepted = draw(st.integers(0, drafted))
        eos_slot = draw(st.integers(-1, drafted - 1))
        stops = 0 <= eos_slot < accepted
        values = draw(st.lists(st.tuples(*[probabilities] * 3), min_size=drafted, max_size=drafted))
        row = {"round": number, "drafted": drafted, "accepted": accepted, "eos_slot": eos_slot, "slots": values}
        row |= {"emitted": eos_slot + 1 if stops else accepted + 1, "ended": "eos" if stops else ""}
        rows.append(
            row
            | {"prompt": draw(st.sampled_from(["a", "ß"])), "rule": draw(rules | st.just(CoupledAcceptance())).label}
        )
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else {}) if name != "slots"}
    slots = np.full((count, width, 3), np.nan)
    for row, values in zip(slots, rows, strict=True):
        row[: values["drafted"]] = np.reshape(values["slots"], (-1, 3))
    return make_rounds(
        count, width, p_drafted=slots[..., 0], q_drafted=slots[..., 1], divergence=slots[..., 2], **columns
    )


@st.composite
def token_laws(draw: st.DrawFn) -> NDArray[np.float64]:
    """Probabilities that a round adds 1, 2, ... tokens; some are exactly 0."""
    weights = np.array(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)))
    return weights / weights.sum()


@st.composite
def weighted_points(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """What a fit takes: a design of a constant and one or two columns, values of either sign, and weights."""
    columns, rows = draw(st.integers(1, 2)), draw(st.integers(4, 7))
    design = np.ones((rows, columns + 1))
    design[:, 1] = np.arange(rows)
    if columns == 2:
        design[:, 2] = np.arange(rows)[::-1] ** 2
    values = draw(st.lists(st.integers(-20, 20), min_size=rows, max_size=rows))
    weights = draw(st.lists(st.integers(1, 9), min_size=rows, max_size=rows))
    return design, np.array(values, dtype=float), np.array(weights, dtype=float)


def classes_of_settings() -> st.SearchStrategy[list[list[tuple[int, int]]]]:
    """One or two classes of prompts, each with three settings: agreement in twentieths, and speed; ties are common."""
    settings = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=3, max_size=3)
    return st.lists(settings, min_size=1, max_size=2)


@st.composite
def planned_cells(draw: st.DrawFn) -> tuple[list[int], list[float], float, float]:
    """Speeds and agreements in twentieths of one to five settings, how much each scatters, and a floor within reach."""
    cells = draw(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=5))
    speeds, agreement = [speed for speed, _ in cells], [twentieths / 20 for _, twentieths in cells]
    return speeds, agreement, draw(st.sampled_from([0.0, 0.01, 0.1])), draw(st.sampled_from(agreement))
