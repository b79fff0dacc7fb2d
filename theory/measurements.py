"""Measurements: what a sweep found, one row for each cell of effort and rule, beside the requests it comes from."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from theory.acceptance import parse_rule
from theory.estimates import clustered_ratio, wilson_interval
from theory.replay import deviation
from theory.rounds import Rounds, accepted_reached
from theory.tables import Constraint, Counts, Reals, Table, Texts


@dataclass(frozen=True, kw_only=True, eq=False)
class Requests(Table):
    """One row for each request: a prompt brought to its end under one effort and rule.

    Attributes
    ----------
    prompt, effort, rule, replica
        As in `Rounds`.
    tokens, seconds
        Tokens generated, and wall-clock time of the rounds; NaN: not measured. The prompt's own forward is not in it
        (`Rounds.prefill_seconds`).
    correct
        1 or 0 by the task's scoring; NaN: not scored.
    ended
        ``"eos"`` or ``"limit"``.
    """

    prompt: Texts
    effort: Counts
    rule: Texts
    replica: Counts
    tokens: Counts
    seconds: Reals
    correct: Reals
    ended: Texts

    def constraints(self) -> Iterator[Constraint]:
        """Yield what must hold for every request."""
        yield "tokens", self.tokens >= 0, "not be negative", "count the generated tokens"
        timed = np.isnan(self.seconds) | ((self.seconds >= 0) & np.isfinite(self.seconds))
        yield "seconds", timed, "be finite and not negative", "use a monotonic clock, and NaN if not measured"
        scored = np.isnan(self.correct) | np.isin(self.correct, (0, 1))
        yield "correct", scored, "be 0, 1 or NaN", "write NaN for what was not scored"

    def distinct(self) -> Self:
        """Return the table without repeated rows, as a resumed run may append; the first of each is kept.

        Raises
        ------
        ValueError
            Two rows of one request differ.
        """
        first: dict[tuple[Any, ...], int] = {}
        for row, key in enumerate(zip(self.prompt, self.effort, self.rule, self.replica, strict=True)):
            known = first.setdefault(key, row)
            if any(_differ(values[row], values[known]) for values in vars(self).values()):
                msg = f"`requests` must not contradict each other, got two results for {tuple(map(str, key))}; "
                raise ValueError(msg + "keep one of the runs")
        return self.select(list(first.values()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurements(Table):
    """M cells. Standard errors (``_se``) are clustered by prompt; NaN stands for what the data cannot tell.

    Attributes
    ----------
    effort, rule
        The cell.
    prompts, rounds, tokens, duplicates
        Prompts, rounds and generated tokens behind the numbers, and repeated request rows that were ignored.
    acceptance_rate, agreement
        Accepted / reached slots, and 1 - deviation of the emitted law from the verifier's at reached slots.
    tokens_per_round, tokens_per_second, seconds_per_request
        Totals over totals, so that long texts count by their length; prefill is in neither time.
    scored, accuracy, accuracy_se, accuracy_low, accuracy_high
        Scored prompts, share of correct ones with its binomial standard error, and Wilson's 95 % interval.
    """

    effort: Counts
    rule: Texts
    prompts: Counts
    rounds: Counts
    tokens: Counts
    duplicates: Counts
    acceptance_rate: Reals
    acceptance_rate_se: Reals
    agreement: Reals
    agreement_se: Reals
    tokens_per_round: Reals
    tokens_per_round_se: Reals
    tokens_per_second: Reals
    tokens_per_second_se: Reals
    seconds_per_request: Reals
    seconds_per_request_se: Reals
    scored: Counts
    accuracy: Reals
    accuracy_se: Reals
    accuracy_low: Reals
    accuracy_high: Reals


def measure(rounds: Rounds, requests: Requests) -> Measurements:
    """Reduce a sweep to its cells, ordered by effort and rule.

    Rounds of requests that were not finished, and cells that were run again (``replica`` > 0), are left out. Effort 0
    stands for the verifier alone, which drafts nothing and has no rounds.

    Raises
    ------
    ValueError
        A request has no rounds, or two rows contradict each other.
    """
    counted = requests.select(requests.replica == 0)
    distinct = counted.distinct()
    first = rounds.select(rounds.replica == 0)
    cells = sorted(set(zip(distinct.effort.tolist(), distinct.rule.tolist(), strict=True)), key=_order)
    rows = [_measure_cell(cell, first, distinct, counted) for cell in cells]
    return Measurements(**{spec.name: np.array([row[spec.name] for row in rows]) for spec in fields(Measurements)})


def two_runs(rounds: Rounds, requests: Requests) -> tuple[tuple[Rounds, Requests], tuple[Rounds, Requests]] | None:
    """Return the requests that were decoded twice (``replica`` 0 and 1) as two runs for `measure`; None without any."""
    twice = set(_requested(requests.select(requests.replica == 1)))
    if not twice:
        return None

    def run(replica: int) -> tuple[Rounds, Requests]:
        def rows(table: Rounds | Requests) -> dict[str, Any]:
            chosen = np.array([key in twice for key in _requested(table)]) & (table.replica == replica)
            return {**vars(table.select(chosen)), "replica": np.zeros(np.count_nonzero(chosen), int)}

        return Rounds(**rows(rounds)), Requests(**rows(requests))

    return run(0), run(1)


def _requested(table: Rounds | Requests) -> list[tuple[Any, ...]]:
    return list(zip(table.prompt.tolist(), table.effort.tolist(), table.rule.tolist(), strict=True))


def _order(cell: tuple[int, str]) -> tuple[int, str, float]:
    """By effort, kind of rule and its number; a rule without a number sorts as 0."""
    effort, (kind, _, value) = cell[0], cell[1].partition(":")
    return effort, kind, float(value or 0)


def _measure_cell(cell: tuple[int, str], rounds: Rounds, distinct: Requests, counted: Requests) -> dict[str, Any]:
    requests = distinct.select(_within(distinct, cell))
    rounds = rounds.select(_within(rounds, cell) & np.isin(rounds.prompt, requests.prompt))
    missing = np.setdiff1d(requests.prompt, rounds.prompt)
    if missing.size and cell[0] > 0:
        msg = f"`rounds` must cover every request, got none for {missing[0]} at effort {cell[0]}, {cell[1]}; "
        raise ValueError(msg + "pass the rounds of the same run")
    reached = rounds.reached.sum(axis=1)
    spent = np.where(rounds.reached, deviation(rounds, parse_rule(cell[1])), 0).sum(axis=1)
    ratios = {
        "acceptance_rate": (accepted_reached(rounds), reached, rounds.prompt),
        "agreement": (reached - spent, reached, rounds.prompt),
        "tokens_per_round": (rounds.emitted, np.ones(len(rounds)), rounds.prompt),
        "tokens_per_second": (requests.tokens, requests.seconds, requests.prompt),
        "seconds_per_request": (requests.seconds, np.ones(len(requests)), requests.prompt),
    }
    row = {
        "effort": cell[0],
        "rule": cell[1],
        "prompts": len(requests),
        "rounds": len(rounds),
        "tokens": int(requests.tokens.sum()),
        "duplicates": np.count_nonzero(_within(counted, cell)) - len(requests),
        **_measure_accuracy(requests.correct),
    }
    for name, ratio in ratios.items():
        row[name], row[f"{name}_se"] = clustered_ratio(*ratio)
    return row


def _within(table: Rounds | Requests, cell: tuple[int, str]) -> NDArray[np.bool_]:
    return np.asarray((table.effort == cell[0]) & (table.rule == cell[1]))


def _measure_accuracy(correct: NDArray[np.float64]) -> dict[str, float]:
    scores = correct[~np.isnan(correct)]
    accuracy = float(scores.mean()) if scores.size else math.nan
    low, high = wilson_interval(scores.sum(), scores.size)
    return {
        "scored": scores.size,
        "accuracy": accuracy,
        "accuracy_se": math.sqrt(accuracy * (1 - accuracy) / scores.size) if scores.size > 1 else math.nan,
        "accuracy_low": low,
        "accuracy_high": high,
    }


def _differ(value: Any, other: Any) -> bool:
    both_missing = value != value and other != other
    return bool(value != other) and not both_missing
