"""Estimates with their uncertainty. NaN stands for what the data cannot tell: one observation has no standard error."""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

CONFIDENCE = 0.95
NORMAL_QUANTILE = float(stats.norm.ppf((1 + CONFIDENCE) / 2))


def clustered_ratio(numerator: ArrayLike, denominator: ArrayLike, cluster: ArrayLike, /) -> tuple[float, float]:
    """Return ``sum(numerator) / sum(denominator)`` and its standard error, clustered.

    Rows of one cluster (the rounds of a prompt) may depend on each other; clusters are independent. The standard error
    is the linearised one of a ratio, ``sqrt(G / (G - 1) * sum_g (Y_g - r N_g)²) / N``, with the small-sample factor
    known as CR1, over the G clusters' totals Y_g and N_g. It is NaN for one cluster.
    """
    clusters, member = np.unique(cluster, return_inverse=True)
    numerators = np.bincount(member, weights=np.asarray(numerator, dtype=float))
    denominators = np.bincount(member, weights=np.asarray(denominator, dtype=float))
    total = denominators.sum()
    if not total > 0:
        return math.nan, math.nan
    ratio = float(numerators.sum() / total)
    count = clusters.size
    if count < 2:
        return ratio, math.nan
    deviations = numerators - ratio * denominators
    return ratio, math.sqrt(count / (count - 1) * float(deviations @ deviations)) / float(total)


def student_interval(value: float, standard_error: float, clusters: int, /) -> tuple[float, float]:
    """Return the 95 % interval of an estimate from ``clusters`` independent clusters, NaN for fewer than two."""
    if clusters < 2:
        return math.nan, math.nan
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, clusters - 1)) * standard_error
    return value - reach, value + reach


def wilson_interval(successes: float, trials: int, /) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a success probability; it has width even at 0 % and 100 %."""
    if trials < 1:
        return math.nan, math.nan
    share, weight = successes / trials, NORMAL_QUANTILE**2 / trials
    centre = (share + weight / 2) / (1 + weight)
    reach = math.sqrt(weight * share * (1 - share) + weight**2 / 4) / (1 + weight)
    return max(centre - reach, 0.0), min(centre + reach, 1.0)


def robust_median(values: ArrayLike, /) -> tuple[float, float]:
    """Return the median and its standard error, which a stray pause does not inflate.

    The spread is the median absolute deviation, scaled as for normal noise; the error of a median is ``sqrt(π / 2)``
    times that of a mean. It is NaN for one value.
    """
    values = np.asarray(values, dtype=float)
    median = float(np.median(values))
    if values.size < 2:
        return median, math.nan
    spread = float(np.median(np.abs(values - median))) / float(stats.norm.ppf(0.75))
    return median, spread * math.sqrt(math.pi / 2 / values.size)
