"""What inexact verification does in practice and what exactness costs: the two tables, and an estimate of a bias.

A distance between an estimated law and the true one is never negative, so that noise alone makes it positive. The
estimate here has mean 0 where there is no bias, and its mean never exceeds the true distance.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from theory.estimates import student_interval

Reals = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bias:
    """Bias of the ratio test at leniency 0 in J cells of commit order and effort, after each of M prefixes.

    Attributes
    ----------
    order, effort : (J,)
        Commit order and denoising steps K.
    first, pair : (J, M)
        Estimated total variation of the first token, and of the first two, from the verifier's law
        (`cross_fitted_distance`, which noise may make negative). NaN: not measured.
    """

    order: NDArray[np.str_]
    effort: NDArray[np.int64]
    first: Reals
    pair: Reals


@dataclass(frozen=True, kw_only=True, eq=False)
class Price:
    """Acceptance rate of coupled verification beside that of the ratio test at leniency 0, cell by cell.

    Attributes
    ----------
    order, effort : (J,)
        Commit order and denoising steps K.
    ratio, coupled : (J,)
        Measured: accepted / reached slots, with 95 % intervals clustered by prompt.
    ratio_predicted, coupled_predicted : (J,)
        Means of ``1 - TV(p, q)`` and of `theory.coupled.coupled_acceptance` over the slots that the ratio test reached.
    coupled_least : (J,)
        Mean of ``(1 - TV) / (1 + TV)``, below which no pair of distributions can fall.
    """

    order: NDArray[np.str_]
    effort: NDArray[np.int64]
    ratio: Reals
    ratio_low: Reals
    ratio_high: Reals
    coupled: Reals
    coupled_low: Reals
    coupled_high: Reals
    ratio_predicted: Reals
    coupled_predicted: Reals
    coupled_least: Reals


def cross_fitted_distance(law: ArrayLike, other: ArrayLike, reference: ArrayLike, /) -> float:
    """Estimate the total variation of an unknown law from a reference, by two unbiased estimates of that law.

    ``TV(e, p) = max over signs s of sum_v s(v) (e(v) - p(v)) / 2``. The signs are read off one estimate and the sum is
    taken over the other, both ways round. The two are independent, so that the mean is 0 where the laws are equal;
    other signs than the best can only lower it.

    Parameters
    ----------
    law, other
        Independent unbiased estimates of the law, of one shape.
    reference
        The law that it should be.
    """
    one, two = (np.asarray(each, dtype=float) - np.asarray(reference, dtype=float) for each in (law, other))
    return float(np.sum(np.sign(one) * two) + np.sum(np.sign(two) * one)) / 4


def visible_bias(estimates: ArrayLike, /) -> float:
    """Return the true distance that would just show in the mean of cross-fitted estimates as noisy as these, (M,).

    Of a distance δ the mean shows ``δ erf(δ / (σ √2))``, since the signs are read off halves with noise σ; the result
    is the δ of which that is half a 95 % interval. σ is read off the spread of the estimates, whose square is
    ``(1/2 + 1/π) σ²`` without a bias. All this for two symbols; where the distance is spread over many, less shows.
    """
    mean, low, _ = mean_interval(estimates)
    half = float(mean - low)
    if not half > 0:
        return half  # no noise, or too few estimates to tell
    noise = float(np.std(np.asarray(estimates), ddof=1)) / math.sqrt(1 / 2 + 1 / math.pi)

    def shown(distance: float) -> float:
        return distance * math.erf(distance / noise / math.sqrt(2))

    return float(optimize.brentq(lambda distance: shown(distance) - half, 0.0, half + 3 * noise))


def mean_interval(values: ArrayLike, /) -> tuple[Reals, Reals, Reals]:
    """Return the mean of independent values and both ends of its 95 % interval (Student's t), ``(..., M) -> (...)``.

    The interval is NaN for a single value.
    """
    values = np.asarray(values, dtype=float)
    count, mean = values.shape[-1], values.mean(axis=-1)
    if count < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    low, high = student_interval(0.0, 1.0, count)
    error = values.std(axis=-1, ddof=1) / count**0.5
    return mean, mean + low * error, mean + high * error
