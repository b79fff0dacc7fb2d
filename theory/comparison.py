"""Comparison: a prediction beside what was measured, cell by cell."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from theory.measurements import Measurements
from theory.prediction import Prediction


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """M cells that were both predicted and measured.

    Attributes
    ----------
    effort, rule : (M,)
        The cell.
    relative_error_tokens_per_second, relative_error_tokens_per_round : (M,)
        Relative error, predicted / measured - 1.
    tokens_per_second_inside, tokens_per_round_inside : (M,)
        Whether the measured value lies within the predicted 95 % interval.
    median_error, maximum_error
        Of the absolute relative error of tokens per second; NaN without timing.
    kendall_tau
        Rank correlation of predicted and measured tokens per second; NaN for fewer than two cells.
    """

    effort: NDArray[np.int64]
    rule: NDArray[np.str_]
    predicted_tokens_per_second: NDArray[np.float64]
    measured_tokens_per_second: NDArray[np.float64]
    relative_error_tokens_per_second: NDArray[np.float64]
    tokens_per_second_inside: NDArray[np.bool_]
    predicted_tokens_per_round: NDArray[np.float64]
    measured_tokens_per_round: NDArray[np.float64]
    relative_error_tokens_per_round: NDArray[np.float64]
    tokens_per_round_inside: NDArray[np.bool_]
    median_error: float
    maximum_error: float
    kendall_tau: float

    def __len__(self) -> int:
        return len(self.effort)


def compare(prediction: Prediction, measurements: Measurements) -> Comparison:
    """Match cells by effort and rule label and set prediction against measurement."""
    measured_row = {cell: row for row, cell in enumerate(zip(measurements.effort, measurements.rule, strict=True))}
    pairs = [
        (row, measured_row[cell])
        for row, cell in enumerate(zip(prediction.effort, prediction.rule, strict=True))
        if cell in measured_row
    ]
    if not pairs:
        raise ValueError("`prediction` and `measurements` must share a cell, got none; predict the rules of the sweep")
    ours, theirs = np.array(pairs).T
    speed = prediction.tokens_per_second[ours], measurements.tokens_per_second[theirs]
    tokens = prediction.tokens_per_round[ours], measurements.tokens_per_round[theirs]
    speed_error, tokens_error = speed[0] / speed[1] - 1, tokens[0] / tokens[1] - 1
    speed_low, speed_high = prediction.tokens_per_second_low[ours], prediction.tokens_per_second_high[ours]
    tokens_low, tokens_high = prediction.tokens_per_round_low[ours], prediction.tokens_per_round_high[ours]
    return Comparison(
        effort=prediction.effort[ours],
        rule=prediction.rule[ours],
        predicted_tokens_per_second=speed[0],
        measured_tokens_per_second=speed[1],
        relative_error_tokens_per_second=speed_error,
        tokens_per_second_inside=(speed_low <= speed[1]) & (speed[1] <= speed_high),
        predicted_tokens_per_round=tokens[0],
        measured_tokens_per_round=tokens[1],
        relative_error_tokens_per_round=tokens_error,
        tokens_per_round_inside=(tokens_low <= tokens[1]) & (tokens[1] <= tokens_high),
        median_error=float(np.median(np.abs(speed_error))),
        maximum_error=float(np.max(np.abs(speed_error))),
        kendall_tau=float(stats.kendalltau(*speed).statistic) if len(pairs) > 1 else np.nan,
    )
