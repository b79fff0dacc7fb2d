"""Comparison: a prediction beside what was measured, cell by cell, and what trusting the prediction would cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from theory.estimates import NORMAL_QUANTILE
from theory.measurements import Measurements
from theory.planner import Choice, recommend, worse_ends
from theory.prediction import Prediction

FLOORS = (1.0, 0.99, 0.98, 0.95, 0.9, 0.8)
"""Floors on agreement at which regret is told."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Errors:
    """One quantity of M cells, predicted and measured; NaN stands for what is not known.

    Attributes
    ----------
    predicted, low, high : (M,)
        Estimate and 95 % interval.
    measured, measured_se : (M,)
        With its standard error over prompts.
    rerun : (M,)
        Relative difference of two runs of the same requests, as it would be over all measured prompts.
    """

    predicted: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    measured: NDArray[np.float64]
    measured_se: NDArray[np.float64]
    rerun: NDArray[np.float64]

    @property
    def relative(self) -> NDArray[np.float64]:
        """Relative error, predicted / measured - 1, (M,)."""
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> NDArray[np.float64]:
        """1 where the measured value lies in the predicted interval, 0 where not, NaN without interval, (M,)."""
        known = ~np.isnan(self.low + self.high + self.measured)
        return np.where(known, (self.low <= self.measured) & (self.measured <= self.high), np.nan)

    @property
    def spread(self) -> NDArray[np.float64]:
        """How far the measurement itself is uncertain, relative, (M,).

        The larger of its 95 % reach, 1.96 standard errors, and the difference of two runs.
        """
        return np.fmax(NORMAL_QUANTILE * self.measured_se / self.measured, np.abs(self.rerun))

    @property
    def within_spread(self) -> NDArray[np.bool_]:
        """Where the error is smaller than the spread, so that it says nothing about the prediction, (M,)."""
        return np.abs(self.relative) < self.spread

    @property
    def median(self) -> float:
        """Median of the absolute relative error."""
        return float(np.median(np.abs(self.relative)))

    @property
    def maximum(self) -> float:
        """Largest absolute relative error."""
        return float(np.max(np.abs(self.relative)))

    @property
    def kendall_tau(self) -> float:
        """Rank correlation (tau-b) of predicted and measured; NaN for fewer than two cells."""
        if len(self.measured) < 2:
            return np.nan
        return float(stats.kendalltau(self.predicted, self.measured).statistic)


@dataclass(frozen=True, kw_only=True)
class Regret:
    """What it costs to run what the prediction recommends under a floor on agreement.

    ``recommended`` and ``best`` carry their measured values; ``best`` is the fastest whose measured agreement reaches
    the floor. ``regret`` is the share of its throughput that is lost, and ``shortfall`` by how much the agreement of
    the recommended configuration misses the floor: where that is not 0, the regret is not a fair price.
    """

    floor: float
    recommended: Choice
    best: Choice
    regret: float
    shortfall: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """M cells that were both predicted and measured.

    Attributes
    ----------
    model
        Of the prediction.
    effort, rule : (M,)
        The cell.
    acceptance_rate, agreement, tokens_per_round, tokens_per_second, seconds_per_request
        `Errors` of each quantity.
    regrets
        One for each floor that some cell reaches, measured and predicted; empty without timing.
    """

    model: str
    effort: NDArray[np.int64]
    rule: NDArray[np.str_]
    acceptance_rate: Errors
    agreement: Errors
    tokens_per_round: Errors
    tokens_per_second: Errors
    seconds_per_request: Errors
    regrets: tuple[Regret, ...]

    def __len__(self) -> int:
        return len(self.effort)

    @property
    def worst_regret(self) -> float:
        """Largest regret among the floors that what is recommended keeps; NaN if there is none."""
        return max((each.regret for each in self.regrets if each.shortfall == 0), default=np.nan)

    @property
    def worst_shortfall(self) -> float:
        """By how much a recommended configuration misses its floor at most; NaN without regrets."""
        return max((each.shortfall for each in self.regrets), default=np.nan)


QUANTITIES = tuple(spec.name for spec in fields(Comparison) if spec.type is Errors)


def compare(
    prediction: Prediction,
    measurements: Measurements,
    *,
    runs: tuple[Measurements, Measurements] | None = None,
    floors: Sequence[float] = FLOORS,
    caution: float = 1.0,
) -> Comparison:
    """Match cells by effort and rule label and set prediction against measurement.

    Parameters
    ----------
    prediction, measurements
        At least one cell must be in both.
    runs
        Two runs of the same requests with other random numbers, to show the spread of the measurement itself: all
        that was measured, or part of its prompts (`theory.measurements.two_runs`), whose difference is scaled by
        ``sqrt(prompts of the runs / prompts measured)``.
    floors
        Floors on agreement at which regret is told: what `recommend` would choose there, among the cells in both,
        against the best measured one.
    caution
        Of `recommend`.
    """
    common = [cell for cell in _cells(prediction) if cell in set(_cells(measurements))]
    if not common:
        raise ValueError("`prediction` and `measurements` must share a cell, got none; predict the rules of the sweep")
    ours, theirs = _rows(prediction, common), _rows(measurements, common)

    def errors(name: str) -> Errors:
        differ = {} if runs is None else _differences(measurements, *runs, name)
        return Errors(
            predicted=getattr(prediction, name)[ours],
            low=getattr(prediction, f"{name}_low")[ours],
            high=getattr(prediction, f"{name}_high")[ours],
            measured=getattr(measurements, name)[theirs],
            measured_se=getattr(measurements, f"{name}_se")[theirs],
            rerun=np.array([differ.get(cell, np.nan) for cell in common]),
        )

    return Comparison(
        model=prediction.model,
        effort=prediction.effort[ours],
        rule=prediction.rule[ours],
        **{name: errors(name) for name in QUANTITIES},
        regrets=tuple(_regrets(prediction.select(ours), measurements.select(theirs), floors, caution)),
    )


def _differences(
    measurements: Measurements, first: Measurements, again: Measurements, name: str
) -> dict[tuple[int, str], float]:
    """Relative difference of two runs in each cell of both, scaled to the prompts that were measured."""
    prompts = dict(zip(_cells(measurements), measurements.prompts.tolist(), strict=True))
    common = [cell for cell in _cells(first) if cell in set(_cells(again)) and cell in prompts]
    rows = _rows(first, common)
    before, after = getattr(first, name)[rows], getattr(again, name)[_rows(again, common)]
    scale = np.sqrt(first.prompts[rows] / [prompts[cell] for cell in common])
    differ = scale * (np.divide(after, before, out=np.full(len(common), np.nan), where=before > 0) - 1)
    return dict(zip(common, differ.tolist(), strict=True))


def _regrets(
    prediction: Prediction, measured: Measurements, floors: Sequence[float], caution: float
) -> Iterator[Regret]:
    """The regret at each floor that some cell reaches, for a prediction and measurements of the same cells."""
    if np.isnan(prediction.tokens_per_second).any() or np.isnan(measured.tokens_per_second).any():
        return
    trusted = worse_ends(prediction, caution).agreement
    for floor in floors:
        reaches = measured.agreement >= floor
        if not reaches.any() or not (trusted >= floor).any():
            continue
        best = _measured_choice(measured, int(np.argmax(np.where(reaches, measured.tokens_per_second, 0))))
        advised = recommend(prediction, minimum_agreement=floor, caution=caution)
        row = _cells(measured).index((advised.effort, advised.rule))
        recommended = _measured_choice(measured, row)
        yield Regret(
            floor=floor,
            recommended=recommended,
            best=best,
            regret=1 - recommended.tokens_per_second / best.tokens_per_second,
            shortfall=max(0.0, floor - recommended.agreement),
        )


def _measured_choice(measured: Measurements, row: int) -> Choice:
    return Choice(
        effort=int(measured.effort[row]),
        rule=str(measured.rule[row]),
        **{
            name: float(getattr(measured, name)[row])
            for name in ("agreement", "tokens_per_second", "seconds_per_request")
        },
    )


def _cells(table: Prediction | Measurements) -> list[tuple[int, str]]:
    return list(zip(table.effort.tolist(), table.rule.tolist(), strict=True))


def _rows(table: Prediction | Measurements, cells: Sequence[tuple[int, str]]) -> NDArray[np.int64]:
    place = {cell: row for row, cell in enumerate(_cells(table))}
    return np.array([place[cell] for cell in cells])
