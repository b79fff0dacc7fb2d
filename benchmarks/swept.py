"""Swept: a sweep as it was clocked and as if by one clock, and what its own spread allows to tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from profiler.recording import read_requests
from profiler.store import read_journal
from theory.acceptance import rule_kind
from theory.comparison import Comparison, compare
from theory.measurements import Measurements, Requests, measure, two_runs
from theory.prediction import Prediction
from theory.ranking import Ranking, rank
from theory.recorded import Resampler
from theory.rounds import Rounds

RESAMPLES = 200
"""Of the sweep's prompts, to see how well it orders its cells."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The cells of a sweep, as clocked and by one clock (`one_clock`), and where they come from.

    Attributes
    ----------
    slower
        How many times as long as predicted its rounds took, in the median.
    runs
        The requests decoded twice as two runs, by one clock; None without any.
    """

    clocked: Measurements
    steady: Measurements
    rounds: Rounds
    requests: Requests
    slower: float
    runs: tuple[Measurements, Measurements] | None

    @classmethod
    def read(cls, folder: Path, prediction: Prediction) -> Sweep:
        """Read a run folder; the prediction says how rounds of one cell compare with those of another."""
        measurements = Measurements.read(folder / "measurements.parquet")
        clocked = measurements.select(measurements.effort > 0)
        rounds, requests = Rounds.read(folder / "rounds.parquet"), read_requests(read_journal(folder))
        slower, steady = one_clock(prediction, clocked, rounds)
        runs = None
        if (twice := two_runs(rounds, requests)) is not None:
            first, again = (one_clock(prediction, measure(*run), run[0])[1] for run in twice)
            runs = first, again
        return cls(clocked=clocked, steady=steady, rounds=rounds, requests=requests, slower=slower, runs=runs)

    def linear(self) -> Sweep:
        """The cells of linear acceptance."""
        rows = np.char.startswith(self.steady.rule, "linear:")
        return dataclasses.replace(self, clocked=self.clocked.select(rows), steady=self.steady.select(rows))

    def compare(self, prediction: Prediction) -> Comparison:
        """A prediction beside the sweep by one clock."""
        return compare(prediction, self.steady, runs=self.runs)

    def rank(self, compared: Comparison) -> Ranking:
        """How well the throughput of compared cells is ordered."""
        speed = compared.tokens_per_second
        tokens = self._resampled_tokens(list(zip(compared.effort.tolist(), compared.rule.tolist(), strict=True)))
        return rank(speed.predicted, speed.measured, tokens * speed.measured / compared.tokens_per_round.measured)

    def halves(self, prediction: Prediction) -> list[Measurements]:
        """Two halves of the prompts, each measured by itself: what the best prediction could reach against one."""
        prompts = np.unique(self.requests.prompt)
        halves = []
        for part in (prompts[::2], prompts[1::2]):
            rounds = self.rounds.select(np.isin(self.rounds.prompt, part) & (self.rounds.replica == 0))
            requests = self.requests.select(np.isin(self.requests.prompt, part) & (self.requests.effort > 0))
            halves.append(one_clock(prediction, measure(rounds, requests), rounds)[1])
        return halves

    def _resampled_tokens(self, cells: Sequence[tuple[int, str]]) -> NDArray[np.float64]:
        """Tokens per round of cells in resamples of the prompts, (R, M)."""
        first = self.rounds.select(self.rounds.replica == 0)
        resampler = Resampler(first, RESAMPLES, np.random.default_rng(0))
        columns = np.stack([first.emitted, np.ones(len(first))], axis=1)
        draws = []
        for effort, rule in cells:
            rows = (first.effort == effort) & (first.rule == rule)
            tokens, count = resampler.sums(first.prompt[rows], columns[rows])[1:].T
            draws.append(tokens / count)
        return np.stack(draws, axis=1)


def kendall_tau(halves: Sequence[Measurements]) -> float:
    """Rank correlation of the throughput of two halves."""
    return float(stats.kendalltau(*(half.tokens_per_second for half in halves)).statistic)


def one_clock(prediction: Prediction, measurements: Measurements, rounds: Rounds) -> tuple[float, Measurements]:
    """Throughput as if the machine had been alike at all times, and how much slower than predicted it was.

    The cells of one prompt are decoded within the same minutes. Each prompt's rounds are divided by the factor by which
    they took longer than predicted, in their median. A round takes the median of the times that are left at its effort
    under rules of its kind, which do the same work whatever their leniency or budget; pauses of the machine spare it. A
    cell's throughput is its tokens per round over that time; the median of the factors is told.
    """
    first = rounds.select(rounds.replica == 0)
    seconds = first.draft_seconds + first.verify_seconds + first.overhead_seconds
    expected = dict(zip(_cells(prediction), prediction.tokens_per_round / prediction.tokens_per_second, strict=True))
    factor = seconds / np.array([expected.get(cell, np.nan) for cell in _cells(first)])
    for prompt in np.unique(first.prompt):
        rows = first.prompt == prompt
        seconds[rows] /= np.nanmedian(factor[rows])
    work = np.array([f"{effort} {rule_kind(rule)}" for effort, rule in _cells(first)])
    medians = {each: float(np.median(seconds[work == each])) for each in np.unique(work).tolist()}
    costs = [medians.get(f"{effort} {rule_kind(rule)}", np.nan) for effort, rule in _cells(measurements)]
    steady = dataclasses.replace(
        measurements,
        tokens_per_second=measurements.tokens_per_round / costs,
        tokens_per_second_se=measurements.tokens_per_round_se / costs,
    )
    return float(np.nanmedian(factor)), steady


def _cells(table: Prediction | Measurements | Rounds) -> list[tuple[int, str]]:
    """Effort and rule of each row."""
    return list(zip(table.effort.tolist(), table.rule.tolist(), strict=True))
