"""Planner: the configuration to run under a floor on quality."""

from dataclasses import dataclass

import numpy as np

from theory.prediction import Prediction


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A configuration with its predicted agreement and throughput."""

    effort: int
    rule: str
    agreement: float
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class Recommendation(Choice):
    """The fastest configuration above the floor, the fastest of any other effort (None if there is none), and why."""

    runner_up: Choice | None
    reason: str


def recommend(prediction: Prediction, *, minimum_agreement: float = 0.99) -> Recommendation:
    """Return the highest throughput whose agreement reaches the floor; at equal throughput, the smaller effort.

    Raises
    ------
    ValueError
        The floor is not in [0, 1] or above every configuration, or throughput was not predicted.
    """
    if not 0 <= minimum_agreement <= 1:
        raise ValueError(f"`minimum_agreement` must lie in [0, 1], got {minimum_agreement}; 1 asks for lossless text")
    if np.isnan(prediction.tokens_per_second).any():
        raise ValueError("`prediction` must have throughput, got NaN: latency was not measured; calibrate with timing")
    feasible = np.flatnonzero(prediction.agreement >= minimum_agreement)
    if not feasible.size:
        best = _choice(prediction, int(np.argmax(prediction.agreement)))
        msg = f"`minimum_agreement` must be within reach, got {minimum_agreement}; the best available is "
        raise ValueError(f"{msg}{best.agreement:.3f} at effort {best.effort}, {best.rule}")
    order = np.lexsort((-prediction.agreement, prediction.effort, -prediction.tokens_per_second))
    ranked = [_choice(prediction, row) for row in order if row in feasible]
    best = ranked[0]
    runner_up = next((choice for choice in ranked if choice.effort != best.effort), None)
    reason = f"fastest of {len(ranked)} configurations with agreement of at least {minimum_agreement:g}"
    if runner_up is not None:
        gain = best.tokens_per_second / runner_up.tokens_per_second - 1
        reason += f"; {gain:.0%} faster than the best at effort {runner_up.effort} ({runner_up.rule})"
    return Recommendation(**vars(best), runner_up=runner_up, reason=reason)


def _choice(prediction: Prediction, row: int) -> Choice:
    return Choice(
        effort=int(prediction.effort[row]),
        rule=str(prediction.rule[row]),
        agreement=float(prediction.agreement[row]),
        tokens_per_second=float(prediction.tokens_per_second[row]),
    )
