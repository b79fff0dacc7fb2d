"""Estimates with their uncertainty. NaN stands for what the data cannot tell: one observation has no standard error."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

CONFIDENCE = 0.95
Ratio: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
NORMAL_QUANTILE = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
MEDIAN_RESAMPLES = 500
"""They know a standard error to 3 %."""


def clustered_ratio(numerator: ArrayLike, denominator: ArrayLike, cluster: ArrayLike, /) -> tuple[float, float]:
    """Return ``sum(numerator) / sum(denominator)`` and its standard error, clustered.

    Rows of one cluster (the rounds of a prompt) may depend on each other; clusters are independent. The standard error
    is the linearised one of a ratio, ``sqrt(G / (G - 1) * sum_g (Y_g - r N_g)²) / N``, with the small-sample factor
    known as CR1, over the G clusters' totals Y_g and N_g. It is NaN for one cluster.
    """
    clusters, member = np.unique(cluster, return_inverse=True)
    ratio, influence = _ratio(np.asarray(numerator, float), np.asarray(denominator, float), member, clusters.size)
    return ratio, _clustered_error(influence)


def paired_difference(first: Ratio, second: Ratio, /) -> tuple[float, float]:
    """Return by how much the second of two ratios of totals exceeds the first, with its standard error, clustered.

    Each is ``(numerator, denominator, cluster)`` as in `clustered_ratio`. Clusters are paired: what one of them adds
    to both ratios cancels.
    """
    clusters = np.unique(np.concatenate([first[2], second[2]]))
    (before, ours), (after, theirs) = (
        _ratio(numerator, denominator, np.searchsorted(clusters, cluster), clusters.size)
        for numerator, denominator, cluster in (first, second)
    )
    return after - before, _clustered_error(theirs - ours)


def _ratio(
    numerator: NDArray[Any], denominator: NDArray[Any], member: NDArray[np.int64], clusters: int
) -> tuple[float, NDArray[np.float64]]:
    """A ratio of totals, and what each cluster adds to it to first order; NaN where there is nothing."""
    total = denominator.sum()
    if not total > 0:
        return math.nan, np.full(clusters, math.nan)
    ratio = float(numerator.sum() / total)
    return ratio, np.bincount(member, numerator - ratio * denominator, clusters) / float(total)


def _clustered_error(influence: NDArray[np.float64]) -> float:
    count = influence.size
    return math.sqrt(count / (count - 1) * float(influence @ influence)) if count > 1 else math.nan


def student_interval(value: float, standard_error: float, clusters: int, /) -> tuple[float, float]:
    """Return the 95 % interval of an estimate from ``clusters`` independent clusters, NaN for fewer than two."""
    if clusters < 2:
        return math.nan, math.nan
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, clusters - 1)) * standard_error
    return value - reach, value + reach


def bootstrap_weights(clusters: int, resamples: int, rng: np.random.Generator, /) -> NDArray[np.float64]:
    """Return how often each cluster counts, (R + 1, G): once in row 0, as drawn with replacement in the R others.

    A statistic of totals follows for all resamples at once from ``weights @ totals``, with the estimate itself first.
    """
    drawn = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples)
    return np.concatenate([np.ones((1, clusters)), drawn])


def bootstrap_interval(draws: NDArray[np.float64], clusters: int, /) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the 95 % interval of each estimate in row 0 of ``(R + 1, ...)`` from the resamples in the rows below.

    The percentiles, with their distance from the estimate stretched by ``t / z * sqrt(G / (G - 1))``: resampling G
    clusters shows (G - 1) / G of the variance, and knows it with G - 1 degrees of freedom. For a mean of symmetric
    values this gives `student_interval`. NaN for one cluster, and where a resample left the statistic undefined.
    """
    estimate, resampled = draws[0], draws[1:]
    if clusters < 2:
        return np.full_like(estimate, math.nan), np.full_like(estimate, math.nan)
    student = float(stats.t.ppf((1 + CONFIDENCE) / 2, clusters - 1))
    stretch = student / NORMAL_QUANTILE * math.sqrt(clusters / (clusters - 1))
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return np.asarray(estimate + stretch * (low - estimate)), np.asarray(estimate + stretch * (high - estimate))


def wilson_interval(successes: float, trials: int, /) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a success probability; it has width even at 0 % and 100 %."""
    if trials < 1:
        return math.nan, math.nan
    share, weight = successes / trials, NORMAL_QUANTILE**2 / trials
    centre = (share + weight / 2) / (1 + weight)
    reach = math.sqrt(weight * share * (1 - share) + weight**2 / 4) / (1 + weight)
    return max(centre - reach, 0.0), min(centre + reach, 1.0)


def resampled_medians(
    values: NDArray[np.float64], member: NDArray[np.int64], weights: NDArray[Any], /
) -> NDArray[np.float64]:
    """Return the median of ``values`` for each row of `bootstrap_weights`, ``(N,), (N,), (R, G) -> (R,)``.

    Each value counts as often as its cluster ``member``; NaN where none does.
    """
    order = np.argsort(values)
    ordered, clusters = values[order], member[order]
    medians = np.full(len(weights), math.nan)
    for row, weight in enumerate(weights):
        count = np.cumsum(weight[clusters])
        if count[-1]:
            middle = [np.searchsorted(count, count[-1] / 2, side=side) for side in ("left", "right")]
            medians[row] = ordered[middle].mean()
    return medians


def clustered_median(values: ArrayLike, cluster: ArrayLike, /) -> tuple[float, float]:
    """Return the median and its standard error by a bootstrap of the clusters; a stray pause moves neither.

    The times of one prompt are measured within moments of each other, and so are alike in more than the machine's
    noise. The error is NaN for one cluster.
    """
    values = np.asarray(values, dtype=float)
    clusters, member = np.unique(cluster, return_inverse=True)
    if clusters.size < 2:
        return float(np.median(values)), math.nan
    weights = bootstrap_weights(clusters.size, MEDIAN_RESAMPLES, np.random.default_rng(0))
    medians = resampled_medians(values, member, weights)
    return float(medians[0]), float(medians[1:].std()) * math.sqrt(clusters.size / (clusters.size - 1))


def weighted_fit(
    design: NDArray[np.float64],
    values: NDArray[np.float64],
    weights: NDArray[Any],
    free: Sequence[int] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted least-squares coefficients of ``design``, (M, P), and their standard errors, each (P,).

    The columns that are not in ``free`` are left out: their coefficients are 0 and their errors NaN. The errors come
    from the residuals, and are NaN where no degree of freedom is left.
    """
    chosen = list(range(design.shape[1]) if free is None else free)
    columns = design[:, chosen]
    coefficients, errors = np.zeros(design.shape[1]), np.full(design.shape[1], math.nan)
    normal = np.linalg.inv((columns.T * weights) @ columns)
    coefficients[chosen] = normal @ (columns.T @ (weights * values))
    freedom = values.size - len(chosen)
    if freedom:
        scatter = float(weights @ (values - design @ coefficients) ** 2)
        errors[chosen] = np.sqrt(np.diag(normal) * scatter / freedom)
    return coefficients, errors


def nonnegative_fit(
    design: NDArray[np.float64], values: NDArray[np.float64], weights: NDArray[Any], /
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weighted least squares with coefficients of at least 0, and their standard errors.

    Where the free fit has a negative coefficient, the optimum is the best of the fits to fewer columns whose
    coefficients are all at least 0, so each of those is tried; there are few columns.

    Parameters
    ----------
    design : (M, P)
        Independent columns, P <= M.
    values, weights : (M,)
        What is fitted, and how much each value counts.

    Returns
    -------
    coefficients, errors : (P,)
        The error of a coefficient that was set to 0 is NaN, and so is each where no degree of freedom is left.
    """
    columns = range(design.shape[1])
    coefficients, errors = weighted_fit(design, values, weights)
    if not (coefficients < 0).any():
        return coefficients, errors
    smaller = [free for size in columns for free in itertools.combinations(columns, size)]
    fits = [weighted_fit(design, values, weights, free) for free in smaller]
    allowed = [fit for fit in fits if not (fit[0] < 0).any()]
    return min(allowed, key=lambda fit: float(weights @ (values - design @ fit[0]) ** 2))


def significant(value: float, standard_error: float, freedom: int, /) -> bool:
    """Return whether the 95 % interval of a coefficient (Student's t) leaves out 0; False if the error is not known."""
    if freedom < 1 or math.isnan(standard_error):
        return False
    return abs(value) > float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * standard_error
