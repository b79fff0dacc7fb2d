"""Assumptions: Eq. 7 with one assumption lifted after the other, and what each of them costs against measurement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from theory.acceptance import LinearAcceptance, Rule
from theory.calibration import Calibration
from theory.comparison import compare
from theory.measurements import Measurements
from theory.prediction import Model, Prediction, predict
from theory.rounds import Rounds

Quantity: TypeAlias = Literal["tokens_per_second", "tokens_per_round"]

START = "Eq. 7 as printed"


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorSplit:
    """The error of Eq. 7 in M cells, taken apart exactly over the S assumptions that were lifted in turn.

    In logarithms errors add up: ``log(Eq. 7 / measured)`` is the sum of ``log(before / after)`` over the steps and of
    ``log(last / measured)``, which is left. A share is the part of the summed size of the error of Eq. 7 that a step
    takes away, ``Σ sign(total) · step / Σ |total|`` over cells; the shares and what is left add up to 1. A negative
    share means that the assumption hid another error, and lifting it alone made things worse.

    Attributes
    ----------
    quantity
        ``"tokens_per_second"`` or ``"tokens_per_round"``.
    effort, rule : (M,)
        The cells, linear acceptance alone, as Eq. 7 knows no other.
    lifted : (S,)
        The assumptions, in the order of lifting.
    relative_error : (S + 1, M)
        Predicted / measured - 1: of Eq. 7, then with the first s assumptions lifted.
    spread : (M,)
        Of the measurement, see `theory.comparison.Errors.spread`.
    step : (S, M)
        ``log(before / after)`` of each step.
    share : (S,)
        Of each step; NaN where Eq. 7 makes no error at all.
    share_left, share_left_tokens, share_left_seconds
        Of what no step explains, and its two parts: tokens per round, and time per round.
    """

    quantity: Quantity
    effort: NDArray[np.int64]
    rule: NDArray[np.str_]
    lifted: tuple[str, ...]
    relative_error: NDArray[np.float64]
    spread: NDArray[np.float64]
    step: NDArray[np.float64]
    share: NDArray[np.float64]
    share_left: float
    share_left_tokens: float
    share_left_seconds: float

    @property
    def median(self) -> NDArray[np.float64]:
        """Median absolute relative error of Eq. 7 and after each step, (S + 1,)."""
        return np.asarray(np.median(np.abs(self.relative_error), axis=1))

    @property
    def maximum(self) -> NDArray[np.float64]:
        """Largest absolute relative error of Eq. 7 and after each step, (S + 1,)."""
        return np.asarray(np.max(np.abs(self.relative_error), axis=1))


def lift_assumptions(
    calibration: Calibration, rounds: Rounds, rules: Sequence[Rule], *, anchored: bool
) -> dict[str, Prediction]:
    """Predict with Eq. 7, then lift its assumptions one by one; an entry has the name of what was given up for it.

    Parameters
    ----------
    calibration, rounds
        A recording and what it was reduced to.
    rules
        What to predict; rules other than linear acceptance are left out.
    anchored
        Whether ``rounds`` hold a second recording at another leniency, which tells how prefixes shift.
    """
    linear = [rule for rule in rules if isinstance(rule, LinearAcceptance)]

    def lifted(model: Model, **settings: bool) -> Prediction:
        return predict(calibration, linear, model=model, rounds=rounds, resamples=1, **settings)

    steps = {
        START: predict(calibration, linear),
        "one rate for all positions": lifted("position"),
        "positions independent of each other": lifted("replay", cut=False),
        "blocks never cut by end or limit": lifted("replay"),
    }
    if calibration.has_overhead:
        steps["a round of a + bK + c_v"] = lifted("replay", overhead=True)
    if anchored:
        steps["prefixes that leniency leaves alone"] = lifted("anchored", overhead=calibration.has_overhead)
    return steps


def split_error(
    steps: Mapping[str, Prediction], measurements: Measurements, *, quantity: Quantity = "tokens_per_second"
) -> ErrorSplit:
    """Take the error of the first prediction apart over the steps that lead to the last.

    Parameters
    ----------
    steps
        Predictions of the same cells, from `lift_assumptions`.
    measurements
        A sweep that shares cells with them.
    quantity
        Tokens per round leave the times out, which drift between two recordings on a busy machine.

    Raises
    ------
    ValueError
        Throughput was not predicted or not measured, or no cell is shared.
    """
    compared = [compare(prediction, measurements, floors=()) for prediction in steps.values()]
    first = compared[0]
    errors = [getattr(each, quantity) for each in compared]
    logs = np.log([each.predicted / each.measured for each in errors])
    if np.isnan(logs).any():
        raise ValueError(f"`quantity` must be predicted and measured in all cells, got NaN in {quantity}; record times")
    total = logs[0]

    def share(part: NDArray[np.float64]) -> NDArray[np.float64]:
        size = float(np.abs(total).sum())
        return np.asarray((np.sign(total) * part).sum(axis=-1) / (size or np.nan))

    last = compared[-1].tokens_per_round
    left_tokens = np.log(last.predicted / last.measured)
    return ErrorSplit(
        quantity=quantity,
        effort=first.effort,
        rule=first.rule,
        lifted=tuple(steps)[1:],
        relative_error=np.stack([each.relative for each in errors]),
        spread=errors[0].spread,
        step=logs[:-1] - logs[1:],
        share=share(logs[:-1] - logs[1:]),
        share_left=float(share(logs[-1])),
        share_left_tokens=float(share(left_tokens)),
        share_left_seconds=float(share(logs[-1] - left_tokens)),
    )
