"""Acceptance rules: how far the verifier's target gives way to the drafter (Eq. 4-5, Appendix E).

A rule relaxes the verifier's distribution ``p`` into a target, accepts a drafted token ``y ~ q`` with probability
``min(1, target(y) / q(y))`` and replaces a rejected one by a draw from the residual ``normalize([target - q]_+)``.
Array-API code without randomness: uniform numbers come in as arguments, and the function that the tests check on NumPy
decides on CUDA tensors inside the decoding loop. Arrays hold probabilities over the last axis, ``(..., V)``, or of
drafted tokens alone, ``(...)``; ``drafted`` holds token ids, ``(...)``.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from array_api_compat import array_namespace, device

from theory.coupled import CoupledAcceptance
from theory.distances import Array

NEWTON_STEPS = 8
"""Steps after which `raised_probability` is at rounding for every (p, budget); seven are enough on a dense grid."""


def accept_prefix(acceptance: Array, uniforms: Array, /) -> Array:
    """Count the drafted tokens accepted before the first rejection (Algorithm 1, lines 7-12), ``(..., B) -> (...)``.

    Parameters
    ----------
    acceptance
        Acceptance probability of each drafted token. NaN rejects.
    uniforms
        Uniform numbers in [0, 1). The comparison is strict, so that a forbidden token is rejected even at 0.
    """
    xp = array_namespace(acceptance, uniforms)
    rejected = xp.astype(~(uniforms < acceptance), xp.int64)
    return xp.count_nonzero(xp.cumulative_sum(rejected, axis=-1) == 0, axis=-1)


def mixture(p: Array, q: Array, leniency: Array | float, /) -> Array:
    """Mix drafter into verifier, ``(1 - λ) p + λ q`` (Eq. 5), elementwise; exactly ``p`` at 0 and ``q`` at 1."""
    return (1 - leniency) * p + leniency * q


def acceptance_probability(target: Array, q: Array, /) -> Array:
    """Return ``min(1, target / q)``, elementwise; 0 where ``q = 0``.

    It divides only where the quotient is below 1, so it cannot overflow.
    """
    xp = array_namespace(target, q)
    enough = target >= q
    ratio = xp.where(enough, 1.0, target / xp.where(enough, 1.0, q))
    return xp.where(q == 0, 0.0, ratio)


def replacement_law(target: Array, q: Array, /) -> Array:
    """Return ``normalize([target - q]_+)``, ``(..., V)``, or the target itself where rounding leaves no excess."""
    xp = array_namespace(target, q)
    excess = xp.clip(target - q, 0.0)
    total = xp.sum(excess, axis=-1, keepdims=True)
    return xp.where(total > 0, excess / xp.where(total > 0, total, 1.0), target)


def drafted_probability(p: Array, drafted: Array, /) -> Array:
    """Return the drafted tokens' probabilities, ``(..., V) -> (...)``; 0 for an id outside the vocabulary."""
    xp = array_namespace(p, drafted)
    return xp.sum(xp.where(_chosen(p, drafted), p, 0.0), axis=-1)


def raise_and_rescale(p: Array, drafted: Array, gamma: Array, /) -> Array:
    """Return ``p`` with the drafted token's probability raised to γ and the rest rescaled, ``(..., V)``.

    An id outside the vocabulary raises nothing.
    """
    xp = array_namespace(p, drafted, gamma)
    rest = 1 - drafted_probability(p, drafted)
    scale = (1 - gamma) / xp.where(rest > 0, rest, 1.0)
    return xp.where(_chosen(p, drafted), gamma[..., None], p * scale[..., None])


@dataclass(frozen=True, kw_only=True)
class LinearAcceptance:
    """Mix drafter into verifier: target ``(1 - λ) p + λ q`` (Eq. 5), the optimum of Theorem 1.

    Parameters
    ----------
    leniency
        λ in [0, 1]: 0 samples from the verifier, 1 keeps the drafter's own samples.
    """

    leniency: float

    def __post_init__(self) -> None:
        if not 0 <= self.leniency <= 1:
            msg = f"`leniency` must lie in [0, 1], got {self.leniency}; 0 is lossless, 1 accepts every drafted token"
            raise ValueError(msg)

    @property
    def label(self) -> str:
        """Name in tables and files, such as ``linear:0.25``."""
        return f"linear:{_canonical(self.leniency)}"

    def drafted_target(self, p_drafted: Array, q_drafted: Array, /) -> Array:
        """Return the target's probability of drafted tokens, elementwise."""
        return mixture(p_drafted, q_drafted, self.leniency)

    def probability(self, p_drafted: Array, q_drafted: Array, /) -> Array:
        """Return the acceptance probability of drafted tokens, elementwise; 0 where ``q_drafted`` is 0."""
        return acceptance_probability(self.drafted_target(p_drafted, q_drafted), q_drafted)

    def target(self, p: Array, q: Array, drafted: Array, drafted_target: Array | None = None, /) -> Array:
        """Return the relaxed target, ``(..., V)``; it depends neither on ``drafted`` nor on ``drafted_target``."""
        return mixture(p, q, self.leniency)

    def residual(self, p: Array, q: Array, drafted: Array, drafted_target: Array | None = None, /) -> Array:
        """Return the distribution that replaces a rejected token, ``(..., V)``."""
        return replacement_law(self.target(p, q, drafted, drafted_target), q)


@dataclass(frozen=True, kw_only=True)
class CactusAcceptance:
    """Raise the drafted token's probability within a divergence budget and rescale the rest (Appendix E).

    The target depends on the drafted token, which is outside the hypothesis of Theorem 1.

    Parameters
    ----------
    budget
        δ >= 0 in nats: the relative entropy that the relaxed target may have with respect to the verifier.
    solver
        ``"exact"`` solves Eq. 17, ``"taylor"`` uses its second-order approximation.
    """

    budget: float
    solver: Literal["exact", "taylor"] = "exact"

    def __post_init__(self) -> None:
        if not 0 <= self.budget < math.inf:
            msg = f"`budget` must be finite and not negative, got {self.budget}; 0 is lossless, 20 accepts nearly all"
            raise ValueError(msg)
        if self.solver not in ("exact", "taylor"):
            raise ValueError(f'`solver` must be "exact" or "taylor", got {self.solver!r}; "exact" solves Eq. 17')

    @property
    def label(self) -> str:
        """Name in tables and files, such as ``cactus:1`` or ``cactus-taylor:1``."""
        return f"{'cactus' if self.solver == 'exact' else 'cactus-taylor'}:{_canonical(self.budget)}"

    def drafted_target(self, p_drafted: Array, q_drafted: Array, /) -> Array:
        """Return the target's probability of drafted tokens, which is γ, elementwise."""
        solve = raised_probability if self.solver == "exact" else raised_probability_taylor
        return solve(p_drafted, self.budget)

    def probability(self, p_drafted: Array, q_drafted: Array, /) -> Array:
        """Return the acceptance probability of drafted tokens, elementwise; 0 where ``q_drafted`` is 0."""
        return acceptance_probability(self.drafted_target(p_drafted, q_drafted), q_drafted)

    def target(self, p: Array, q: Array, drafted: Array, drafted_target: Array | None = None, /) -> Array:
        """Return the relaxed target, ``(..., V)``; an id outside the vocabulary leaves ``p`` as it is.

        ``drafted_target`` is what the method of that name returned, where it is known: γ is not solved for again.
        """
        if drafted_target is None:
            drafted_target = self.drafted_target(drafted_probability(p, drafted), drafted_probability(q, drafted))
        return raise_and_rescale(p, drafted, drafted_target)

    def residual(self, p: Array, q: Array, drafted: Array, drafted_target: Array | None = None, /) -> Array:
        """Return the distribution that replaces a rejected token, ``(..., V)``; ``drafted_target`` as in `target`."""
        return replacement_law(self.target(p, q, drafted, drafted_target), q)


LOSSLESS = LinearAcceptance(leniency=0)
"""Samples from the verifier; d_K is defined under this rule."""

RatioRule: TypeAlias = LinearAcceptance | CactusAcceptance
"""A rule that tests the ratio of target and drafter."""

Rule: TypeAlias = RatioRule | CoupledAcceptance


def parse_rule(label: str) -> Rule:
    """Return the rule that a label names: ``linear:λ``, ``cactus:δ``, ``cactus-taylor:δ`` or ``coupled``."""
    if label == CoupledAcceptance().label:
        return CoupledAcceptance()
    kind, _, number = label.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if kind not in ("linear", "cactus", "cactus-taylor") or math.isnan(value):
        msg = "`label` must be linear:LENIENCY, cactus:BUDGET, cactus-taylor:BUDGET or coupled"
        raise ValueError(f"{msg}, got {label!r}; try linear:0.25")
    if kind == "linear":
        return LinearAcceptance(leniency=value)
    return CactusAcceptance(budget=value, solver="exact" if kind == "cactus" else "taylor")


def rule_kind(label: str) -> str:
    """Return the kind of rule that a label names, such as ``cactus``: rules of one kind do the same work."""
    return label.partition(":")[0]


def raised_probability(p: Array, budget: Array | float) -> Array:
    """Solve Φ(γ | p) = budget (Eq. 17) for the raised probability γ >= p, elementwise.

    Φ is convex in γ with slope ``logit γ - logit p``, so Newton's method descends to the root once it is above it, and
    one step from the Taylor solution takes it there. The unknown is the rise γ - p, which keeps its digits where p is
    tiny or close to 1; it is held between a rise that is lost when added to p and the most that leaves γ below 1.

    Parameters
    ----------
    p
        Verifier's probability of the drafted token, any real floating dtype; the work is done in float64. A subnormal
        one, below 2.2e-308, counts as 0, and a rise below 6.3e-308 as none.
    budget
        δ >= 0 in nats, broadcast against ``p``.

    Returns
    -------
    array
        γ in [p, 1], in the dtype of ``p``: p at budget 0, 1 from budget ``-log p`` on, and 0 where p = 0. In float64
        ``|Φ(γ) - δ|`` stays below 1e-12. In float32 the result is the float64 one rounded, so Φ(γ) may leave the budget
        by the slope of Φ times half a unit in the last place of γ.
    """
    xp = array_namespace(p, budget)
    wide = xp.astype(p, xp.float64)
    limits = xp.finfo(xp.float64)
    inside = (wide >= limits.smallest_normal) & (wide < 1)
    start = xp.where(inside, wide, 0.5)
    rest = 1 - start
    least = xp.clip(start * (limits.eps / 8), limits.smallest_normal)
    most = rest * (1 - limits.eps)
    visible = budget > 4 * least * (least / start)

    rise = (2 * budget) ** 0.5 * xp.sqrt(start * rest)
    for _ in range(NEWTON_STEPS):
        rise = xp.minimum(xp.maximum(rise, least), most)
        log_raised, log_rest = xp.log1p(rise / start), xp.log1p(-rise / rest)
        divergence = (start + rise) * log_raised + (rest - rise) * log_rest
        rise = rise - (divergence - budget) / (log_raised - log_rest)

    gamma = start + xp.minimum(xp.maximum(rise, least), rest)
    gamma = xp.where(budget >= -xp.log(start), 1.0, gamma)
    return xp.astype(xp.where(inside & visible, gamma, wide), p.dtype)


def raised_probability_taylor(p: Array, budget: Array | float) -> Array:
    """Return ``min(p + sqrt(2 δ p (1 - p)), 1)``, the Cactus rule as published (Appendix E), elementwise."""
    xp = array_namespace(p, budget)
    return xp.clip(p + (2 * budget) ** 0.5 * xp.sqrt(p * (1 - p)), None, 1.0)


def _chosen(p: Array, drafted: Array) -> Array:
    """Which entries of ``p`` belong to the drafted tokens, ``(..., V)``."""
    xp = array_namespace(p, drafted)
    return xp.arange(p.shape[-1], device=device(p)) == drafted[..., None]


def _canonical(value: float) -> str:
    """Nine significant digits without trailing zeros, so that 0.1 * 3 and 0.3 are one setting."""
    return f"{value + 0.0:.9g}"
