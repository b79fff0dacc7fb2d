"""Verifier time: c_v of Eq. 7 as a constant, and as a function of block length and context where recorded."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.estimates import clustered_median, nonnegative_fit, significant, weighted_fit

BINS = 8
"""Into how many quantiles block lengths and contexts are sorted before medians are taken."""
MINIMUM_ROUNDS = 3
"""A median of fewer rounds does not outvote a pause of the machine."""
MINIMUM_VALUES = 3
"""A slope needs as many distinct values, or nothing is left to tell a line from anything else."""

NEGLIGIBLE = 1e-9
"""Relative effects below this are rounding, whatever the residuals say."""


@dataclass(frozen=True, kw_only=True)
class VerifierTime:
    """Time of the verifier's forward over a block.

    Attributes
    ----------
    verify_seconds, verify_seconds_se
        c_v as Eq. 7 takes it: one number, the median over rounds, with its standard error clustered by prompt.
    verify_base_seconds, verify_slot_seconds, verify_context_seconds
        ``c_v(block, context) = base + slot * (block + 1) + context * prefix``, since a block of B drafted tokens is
        scored at B + 1 positions. A slope is None where the recording does not tell it: fewer than three distinct
        values, negative, or a 95 % interval that holds 0; then it was left out and the rest fitted again.
    verify_base_seconds_se, verify_slot_seconds_se, verify_context_seconds_se
        Standard errors from the residuals of the medians; None without a degree of freedom.
    verify_blocks, verify_contexts
        Shortest and longest block and context that were recorded.
    verify_r_squared
        Share of the scatter of the medians that the slopes explain; None without a slope.
    verify_flags
        For each slope that is None, why: ``block_not_spanned``, ``block_negative``, ``block_not_significant``,
        the same for ``context``, or ``not_told_apart`` from the other or from chance.
    """

    verify_seconds: float
    verify_seconds_se: float | None
    verify_base_seconds: float
    verify_base_seconds_se: float | None
    verify_slot_seconds: float | None
    verify_slot_seconds_se: float | None
    verify_context_seconds: float | None
    verify_context_seconds_se: float | None
    verify_blocks: tuple[int, int]
    verify_contexts: tuple[int, int]
    verify_r_squared: float | None
    verify_flags: tuple[str, ...]

    def verify_seconds_at(self, block: float, context: float) -> float:
        """Return ``c_v(block, context)``.

        Raises
        ------
        ValueError
            An argument lies outside what was recorded and its slope is not known: a time at one position says nothing
            about sixteen.
        """
        seconds = self.verify_base_seconds
        for name, value, slope, recorded in (
            ("block", block + 1, self.verify_slot_seconds, [length + 1 for length in self.verify_blocks]),
            ("context", context, self.verify_context_seconds, self.verify_contexts),
        ):
            if slope is not None:
                seconds += slope * value
            elif not recorded[0] <= value <= recorded[1]:
                low, high = self.verify_blocks if name == "block" else self.verify_contexts
                got = block if name == "block" else context
                msg = f"`{name}` must lie in [{low}, {high}], where the verifier was timed, got {got}; "
                raise ValueError(msg + "record rounds of other lengths, so that its slope is known")
        return seconds


def fit_verifier(verify_seconds: ArrayLike, block: ArrayLike, context: ArrayLike, prompt: ArrayLike) -> VerifierTime:
    """Fit the verifier's time, robustly: to medians over rounds of like block and context, not to single rounds.

    Parameters
    ----------
    verify_seconds, block, context, prompt : (N,)
        Time, drafted tokens, tokens before the block, and prompt of each round; at least one round.
    """
    seconds = np.asarray(verify_seconds, dtype=float)
    lengths = {"block": np.asarray(block), "context": np.asarray(context)}
    constant, constant_se = clustered_median(seconds, prompt)
    medians, counts, means = _medians(seconds, lengths)
    terms = [name for name in lengths if np.unique(means[name]).size >= MINIMUM_VALUES]
    flags = [f"{name}_not_spanned" for name in lengths if name not in terms]
    while terms and (reason := _objection(terms, medians, counts, means)):
        flags.append(reason)
        terms.remove(reason.partition("_")[0])

    names = ["base", *terms]
    fitted, errors, r_squared = np.array([constant]), np.array([constant_se]), None
    if terms:
        design = _design(terms, means)
        fitted, errors = nonnegative_fit(design, medians, counts)
        scatter = counts @ (medians - np.average(medians, weights=counts)) ** 2
        r_squared = 1 - float(counts @ (medians - design @ fitted) ** 2 / scatter)
    known = dict(zip(names, fitted.tolist(), strict=True))
    spread = {name: None if math.isnan(error) else float(error) for name, error in zip(names, errors, strict=True)}
    return VerifierTime(
        verify_seconds=constant,
        verify_seconds_se=None if math.isnan(constant_se) else constant_se,
        verify_base_seconds=known["base"],
        verify_base_seconds_se=spread["base"],
        verify_slot_seconds=known.get("block"),
        verify_slot_seconds_se=spread.get("block"),
        verify_context_seconds=known.get("context"),
        verify_context_seconds_se=spread.get("context"),
        verify_blocks=(int(lengths["block"].min()), int(lengths["block"].max())),
        verify_contexts=(int(lengths["context"].min()), int(lengths["context"].max())),
        verify_r_squared=r_squared,
        verify_flags=tuple(flags),
    )


def _medians(
    seconds: NDArray[np.float64], lengths: dict[str, NDArray[np.int64]]
) -> tuple[NDArray[np.float64], NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """Median time, rounds, and mean lengths of each cell of like block and context that has enough rounds."""
    bins = []
    for values in lengths.values():
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]))
        distinct = np.unique(values)
        bins.append(np.searchsorted(distinct if distinct.size <= BINS else edges, values, side="left"))
    _, cell = np.unique(np.stack(bins, axis=1), axis=0, return_inverse=True)
    counts = np.bincount(cell)
    kept = np.flatnonzero(counts >= MINIMUM_ROUNDS)
    medians = np.array([np.median(seconds[cell == each]) for each in kept])
    means = {name: np.array([values[cell == each].mean() for each in kept]) for name, values in lengths.items()}
    return medians, counts[kept], means


def _design(terms: list[str], means: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    slots = {"block": 1, "context": 0}  # a block is scored at one position more than it drafts
    return np.stack([np.ones(means["block"].size), *(means[name] + slots[name] for name in terms)], axis=1)


def _objection(
    terms: list[str], medians: NDArray[np.float64], counts: NDArray[np.int64], means: dict[str, NDArray[np.float64]]
) -> str | None:
    """Why the least certain of the slopes must be left out; None if all may stay."""
    design = _design(terms, means)
    freedom = medians.size - design.shape[1]
    if freedom < 1 or np.linalg.matrix_rank(design - design.mean(axis=0)) < len(terms):
        return f"{terms[-1]}_not_told_apart"
    fitted, errors = weighted_fit(design, medians, counts)
    slopes, errors = (
        fitted[1:],
        np.maximum(errors[1:], NEGLIGIBLE * np.abs(medians).max() / np.ptp(design[:, 1:], axis=0)),
    )
    least = int(np.argmin(slopes / errors))
    if significant(slopes[least], errors[least], freedom):
        return f"{terms[least]}_negative" if slopes[least] < 0 else None
    return f"{terms[least]}_not_significant"
