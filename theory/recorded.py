"""Recorded predictions: acceptance, agreement and tokens per round from the rounds, for resampled prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from theory.acceptance import LOSSLESS, LinearAcceptance, Rule, parse_rule
from theory.anchors import blend, familiar_tokens
from theory.estimates import bootstrap_interval, bootstrap_weights
from theory.latency import rounds_per_request
from theory.replay import deviation, replay, tests_ratio
from theory.rounds import Rounds

NAMES = ("acceptance_rate", "agreement", "tokens_per_round", "rounds_per_request")
Draws = NDArray[np.float64]


class Resampler:
    """Sums over prompts, for the recording itself (row 0) and for R resamples of its G prompts."""

    def __init__(self, rounds: Rounds, resamples: int, rng: np.random.Generator):
        self.prompts = np.unique(rounds.prompt)
        self.weights = bootstrap_weights(self.prompts.size, resamples, rng)

    def sums(self, prompt: NDArray[np.str_], values: NDArray[np.float64]) -> Draws:
        """Return the sum of rows ``(N, ...)`` that belong to the prompts, ``(R + 1, ...)``."""
        totals = np.zeros((self.prompts.size, *values.shape[1:]))
        np.add.at(totals, np.searchsorted(self.prompts, prompt), values)
        return np.asarray(np.tensordot(self.weights, totals, axes=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """What a recording says about M cells, efforts x rules.

    Attributes
    ----------
    draws : {name: (R + 1, M)}
        The quantities `NAMES`, estimates in row 0; the same prompts are drawn in all cells of a row.
    accepted_lengths : (M, B + 1)
        Law of the accepted tokens of a round that stay in the text.
    extrapolated : (M,)
        Whether the rule leads to stranger texts than any that was recorded.
    prompts
        Behind each effort.
    """

    draws: dict[str, Draws]
    accepted_lengths: NDArray[np.float64]
    extrapolated: NDArray[np.bool_]
    prompts: list[int]


def estimate(
    rounds: Rounds,
    rules: Sequence[Rule],
    resampler: Resampler,
    *,
    model: Literal["position", "replay", "anchored"],
    efforts: Sequence[int],
    block_size: int,
    token_limit: int | None,
    cut: bool,
) -> Estimate:
    """Estimate every effort and rule by one of the models of `theory.prediction.predict`."""
    recordings = [LOSSLESS.label, anchor_rule(rounds).label] if model == "anchored" else [LOSSLESS.label]
    tables = [rounds.select(rounds.rule == label) for label in recordings]
    lengths = [_tokens_per_request(resampler, table) for table in tables]
    texts = _finished_lengths(tables[0])
    anchor = parse_rule(recordings[-1])
    draws, laws, extrapolated, prompts = [], [], [], []
    for effort in efforts:
        cells = [table.select(table.effort == effort) for table in tables]
        missing = [label for label, cell in zip(recordings, cells, strict=True) if not len(cell)]
        if missing:
            raise ValueError(f"`rounds` must cover effort {effort} at {missing[0]}, got none; record it")
        prompts.append(np.unique(cells[0].prompt).size)

        def means(rule: Rule, cells: list[Rounds] = cells) -> list[Draws]:
            return [
                np.column_stack([_means(resampler, cell, rule, token_limit, cut), length])
                for cell, length in zip(cells, lengths, strict=True)
            ]

        recorded = _familiar(resampler, cells[0], anchor)
        for rule in rules:
            familiar = _familiar(resampler, cells[0], rule)
            extrapolated.append(bool(familiar[0] < recorded[0]))
            if model == "position":
                quantities, law = _by_position(resampler, cells[0], rule, block_size, texts)
            elif model == "replay":
                quantities, law = _quantities(means(rule)[0])
            else:
                quantities, law = _quantities(blend(*means(rule), familiar=familiar, familiar_anchor=recorded))
            draws.append(quantities)
            laws.append(np.pad(law, (0, block_size + 1 - law.size)))
    return Estimate(
        draws=dict(zip(NAMES, np.stack(draws, axis=1).transpose(2, 0, 1), strict=True)),
        accepted_lengths=np.array(laws),
        extrapolated=np.array(extrapolated),
        prompts=prompts,
    )


def with_intervals(draws: Mapping[str, NDArray[np.float64]], prompts: int) -> dict[str, Any]:
    """Return each quantity and both ends of its 95 % interval, from draws with the estimate in row 0."""
    columns: dict[str, Any] = {}
    for name, values in draws.items():
        low, high = bootstrap_interval(values, prompts)
        if name in ("acceptance_rate", "agreement"):
            low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
        columns |= {name: values[0], f"{name}_low": low, f"{name}_high": high}
    return columns


def anchor_rule(rounds: Rounds) -> Rule:
    """Return the rule of the second recording in a table whose first is lossless."""
    others = np.setdiff1d(rounds.rule, [LOSSLESS.label]).tolist()
    if len(others) != 1:
        msg = f"`rounds` must hold one recording beside {LOSSLESS.label}, got {others or 'none'}; "
        raise ValueError(msg + "record one with --anchor-leniency 1")
    return parse_rule(others[0])


def _means(resampler: Resampler, cell: Rounds, rule: Rule, token_limit: int | None, cut: bool) -> Draws:
    """Reached slots, accepted ones, deviation spent, tokens appended, and chance of 0..B accepted, (R + 1, 5 + B)."""
    result = replay(cell, rule, token_limit=token_limit, cut=cut)
    columns = [result.reached, result.accepted, result.spent, result.emitted, result.accepted_lengths]
    sums = resampler.sums(cell.prompt, np.column_stack([*columns, np.ones(len(cell))]))
    return _quotient(sums[:, :-1], sums[:, -1:])


def _familiar(resampler: Resampler, lossless: Rounds, rule: Rule) -> Draws:
    """Share of the text that would still be familiar under a rule, (R + 1,)."""
    columns = np.stack([familiar_tokens(lossless, rule), lossless.emitted], axis=1)
    sums = resampler.sums(lossless.prompt, columns)
    return _quotient(sums[:, 0], sums[:, 1])


def _quantities(means: Draws) -> tuple[Draws, NDArray[np.float64]]:
    """The quantities, (R + 1, 4), and the law of the accepted length, (B + 1,)."""
    (reached, accepted, spent, emitted), length = means.T[:4], means[:, -1]
    rounds = length / emitted  # the last one of a request, cut, is among those that the mean is taken over
    values = [_quotient(accepted, reached), 1 - _quotient(spent, reached), emitted, rounds]
    return np.stack(values, axis=1), means[0, 4:-1]


def _by_position(
    resampler: Resampler, cell: Rounds, rule: Rule, block_size: int, texts: NDArray[np.int64]
) -> tuple[Draws, NDArray[np.float64]]:
    """The same two with one independent rate for each slot of whole blocks.

    A slot that no round of a resample reached takes the rate of all slots together. Rounds per request are those that
    texts of the recorded lengths take, the last one cut.
    """
    spent = deviation(cell, rule)
    if isinstance(rule, LinearAcceptance):
        accepted = 1 - cell.divergence + spent
    else:
        accepted = tests_ratio(rule).probability(cell.p_drafted, cell.q_drafted)
    reached = cell.reached
    columns = np.stack([reached, np.where(reached, accepted, 0), np.where(reached, spent, 0)], axis=2)
    sums = resampler.sums(cell.prompt, columns)
    sums = np.pad(sums, ((0, 0), (0, block_size - sums.shape[1]), (0, 0)))
    counted = np.where(sums[..., :1] > 0, sums, sums.sum(axis=1, keepdims=True))
    rate, cost = np.moveaxis(_quotient(counted[..., 1:], counted[..., :1]), 2, 0)
    survival = np.cumprod(rate, axis=1)
    arrival = np.concatenate([np.ones((len(rate), 1)), survival[:, :-1]], axis=1)
    tested = arrival.sum(axis=1)
    law = np.concatenate([arrival - survival, survival[:, -1:]], axis=1)
    rounds = rounds_per_request(law, texts) if texts.size else np.full(len(rate), np.nan)
    agreement = 1 - (arrival * cost).sum(axis=1) / tested
    values = [survival.sum(axis=1) / tested, agreement, 1 + survival.sum(axis=1), rounds]
    return np.stack(values, axis=1), law[0]


def _finished_lengths(rounds: Rounds) -> NDArray[np.int64]:
    """Tokens of each finished text, over all efforts."""
    request, finished = _requests(rounds)
    _, member = np.unique(request[finished], return_inverse=True)
    return np.bincount(member, weights=rounds.emitted[finished]).astype(int)


def _requests(rounds: Rounds) -> tuple[NDArray[np.str_], NDArray[np.bool_]]:
    """A name for the request of each round, and whether it was finished."""
    request = np.char.add(np.char.add(rounds.prompt, "/"), rounds.effort.astype(str))
    return request, np.isin(request, request[rounds.ended != ""])


def _tokens_per_request(resampler: Resampler, rounds: Rounds) -> Draws:
    """Mean length of a finished text over all efforts, (R + 1,); NaN where none was finished."""
    _, finished = _requests(rounds)
    columns = np.stack([finished * rounds.emitted, rounds.ended != ""], axis=1)
    sums = resampler.sums(rounds.prompt, columns.astype(float))
    return _quotient(sums[:, 0], sums[:, 1])


def _quotient(part: Draws, whole: Draws) -> Draws:
    """``part / whole``, NaN where there is nothing."""
    return np.asarray(np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan))
