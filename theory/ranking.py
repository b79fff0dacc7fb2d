"""Ranking: how well a prediction orders configurations, and how well any could, given how well they were measured."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from theory.estimates import NORMAL_QUANTILE


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Rank correlation of a prediction with measurements that have an error of their own.

    Attributes
    ----------
    kendall_tau
        Over all pairs of configurations (tau-b).
    resolved
        Share of pairs that the measurement itself tells apart: their difference exceeds its own 95 % reach over the
        prompts that all configurations share.
    kendall_tau_resolved
        Over these pairs alone: the share in the right order minus that in the wrong one; NaN without any.
    ceiling
        Mean tau of the measurement with itself on resampled prompts: what a prediction without any error would reach
        against so many prompts.
    """

    kendall_tau: float
    resolved: float
    kendall_tau_resolved: float
    ceiling: float


def rank(predicted: NDArray[np.float64], measured: NDArray[np.float64], resampled: NDArray[np.float64], /) -> Ranking:
    """Compare the order of M > 1 configurations.

    Parameters
    ----------
    predicted, measured : (M,)
        Positive quantities, such as throughput.
    resampled : (R, M)
        What was measured, in resamples of its prompts, the same prompts in all configurations of a row.
    """
    first, second = np.triu_indices(len(measured), 1)

    def differences(values: NDArray[np.float64]) -> NDArray[np.float64]:
        logs = np.log(values)
        return np.asarray(logs[..., first] - logs[..., second])

    apart = differences(measured)
    resolved = np.abs(apart) > NORMAL_QUANTILE * differences(resampled).std(axis=0)
    agree = np.sign(differences(predicted)) * np.sign(apart)
    return Ranking(
        kendall_tau=float(stats.kendalltau(predicted, measured).statistic),
        resolved=float(resolved.mean()),
        kendall_tau_resolved=float(agree[resolved].mean()) if resolved.any() else np.nan,
        ceiling=float(np.mean([stats.kendalltau(measured, row).statistic for row in resampled])),
    )
