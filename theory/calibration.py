"""Calibration: what one lossless recording says about a pair, d_K and the times of a round, for each effort."""

import copy
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from theory import strict_json
from theory.acceptance import LOSSLESS, Rule, rule_kind
from theory.estimates import Ratio, clustered_ratio, paired_difference, student_interval
from theory.latency import LatencyFit, fit_latency
from theory.proposition2 import Exactness, out_of_order_share
from theory.replay import replay
from theory.rounds import Rounds, tokens_per_round
from theory.rule_times import rule_seconds
from theory.tables import StrPath, refuse_other_schema, replacing

LARGE_SHIFT = 0.1
"""Relative difference of d_K between two recordings that is worth a warning, where its 95 % interval leaves out 0."""
OTHER_PASSES = 0.1
"""Relative difference of the mean number of passes from K that is worth a warning: b is off by as much. The last blocks
of texts, cut by the token limit, make less."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Divergence and latency of a pair for J efforts, with the rounds and prompts behind each number.

    Attributes
    ----------
    identity
        Pair, revisions, sampling, task, device, dtype, versions: copied verbatim from the recording.
    block_size, token_limit, efforts
        B, the most new tokens of a request (None: no limit), and the recorded K in increasing order; the tuples below
        have one entry for each.
    divergence, divergence_se, divergence_low, divergence_high
        d_K, the mean total variation at slots that the acceptance test reached, with its standard error clustered by
        prompt and 95 % interval (Student's t); None where one prompt cannot tell. All None where d_K was not measured.
    divergence_all_slots
        The same mean over every drafted slot, for comparison.
    tokens_per_round, rounds, prompts
        Measured at leniency 0 (None where d_K was not), and the number of rounds and prompts.
    tokens_per_request
        Mean length of a finished text; None if none was finished. Leniency 0 emits the same law at every effort.
    anchor_rule, anchor_divergence
        Rule of the second recording, and the mean total variation at the slots that a lossless test would reach in its
        rounds: how far leniency shifts the texts, compared with d_K. None without such a recording.
    latency
        None if the recording was not timed.
    exactness
        What the drafter guarantees at each effort: ``joint``, ``first_token`` or ``none``.
    warnings
        What a reader should know before trusting the numbers.
    rule_seconds, rule_seconds_se
        What a round takes beyond one under linear acceptance, for each other kind of rule that was timed
        (`theory.rule_times`), with its standard error. None: not measured, as in older recordings.
    """

    schema_version: ClassVar[int] = 2

    identity: dict[str, Any]
    block_size: int
    token_limit: int | None
    efforts: tuple[int, ...]
    divergence: tuple[float | None, ...]
    divergence_se: tuple[float | None, ...]
    divergence_low: tuple[float | None, ...]
    divergence_high: tuple[float | None, ...]
    divergence_all_slots: tuple[float | None, ...]
    tokens_per_round: tuple[float | None, ...]
    rounds: tuple[int, ...]
    prompts: tuple[int, ...]
    tokens_per_request: float | None
    anchor_rule: str | None
    anchor_divergence: tuple[float, ...] | None
    latency: LatencyFit | None
    exactness: tuple[str, ...]
    warnings: tuple[str, ...]
    rule_seconds: dict[str, float] | None = None
    rule_seconds_se: dict[str, float | None] | None = None

    def extra_seconds(self, rule: Rule) -> float:
        """Return what a round under a rule takes beyond one under linear acceptance; NaN for kinds not timed."""
        kind = rule_kind(rule.label)
        return 0.0 if kind == rule_kind(LOSSLESS.label) else (self.rule_seconds or {}).get(kind, math.nan)

    @property
    def has_overhead(self) -> bool:
        """Whether the time outside the two forwards was measured."""
        return self.latency is not None and self.latency.overhead_seconds is not None

    def to_json(self, path: StrPath) -> None:
        """Write strict JSON; NaN and infinity become null and are named in the list ``flags``."""
        document = {"schema_version": self.schema_version, **asdict(self)}
        with replacing(path) as partial:
            partial.write_text(strict_json.dumps(document, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, path: StrPath) -> Self:
        """Read what `to_json` wrote; refuse other schema versions and missing or unknown fields."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not JSON ({error}); record it again") from error
        if not isinstance(document, dict):
            raise ValueError(f"{path} must hold a JSON object, got {type(document).__name__}; check the path")
        version = str(document.pop("schema_version", "none"))
        document = dict.fromkeys(("rule_seconds", "rule_seconds_se")) | document
        expected = [spec.name for spec in fields(cls)]
        refuse_other_schema(path, version, str(cls.schema_version), list(document), [*expected, "flags"])
        latency = document["latency"]
        if latency is not None:
            expected = [spec.name for spec in fields(LatencyFit)]
            refuse_other_schema(path, version, str(cls.schema_version), list(latency), expected)
            document["latency"] = LatencyFit(**_tuples(latency))
        del document["flags"]
        return cls(**_tuples(document))


def calibrate(
    rounds: Rounds,
    *,
    block_size: int,
    identity: dict[str, Any],
    exactness: tuple[str, ...],
    token_limit: int | None = None,
) -> Calibration:
    """Reduce rounds recorded at leniency 0 to d_K and the latency fit.

    A second recording under another rule may stand beside them: an anchor (`theory.anchors`). It counts for the latency
    fit and tells how far d_K shifts with the texts; d_K itself is defined at leniency 0. Rounds of duplicated cells
    (``replica`` > 0) count for the noise floor of the clock and the times of rules alone.

    Raises
    ------
    ValueError
        There are no rounds at leniency 0, or of more than one other rule, a block longer than ``block_size``, efforts
        that the anchor lacks, or as many ``exactness`` entries as efforts are not given.
    """
    labels = np.unique(rounds.rule[rounds.replica == 0]).tolist()
    if LOSSLESS.label not in labels or len(labels) > 2:
        msg = f"`rounds` must be recorded at {LOSSLESS.label} and at most one other rule, got {labels or 'none'}; "
        raise ValueError(msg + "d_K is defined at leniency 0")
    if rounds.drafted.max() > block_size:
        msg = f"`block_size` must cover every block, got {block_size} for a block of {rounds.drafted.max()}; "
        raise ValueError(msg + "pass the drafter's block size")
    first = rounds.select((rounds.replica == 0) & (rounds.rule == LOSSLESS.label))
    anchor = rounds.select((rounds.replica == 0) & (rounds.rule != LOSSLESS.label))
    efforts = np.unique(first.effort).tolist()
    if len(exactness) != len(efforts):
        msg = f"`exactness` must have one entry for each of the efforts {efforts}, got {exactness}; ask the drafter"
        raise ValueError(msg)

    cells = [first.select(first.effort == effort) for effort in efforts]
    reached = [_reached_divergence(cell) for cell in cells]
    divergence, errors = zip(*(clustered_ratio(*each) for each in reached), strict=True)
    shifted = [_shifted_divergence(anchor.select(anchor.effort == k), k) for k in efforts] if len(anchor) else []
    prompts = [np.unique(cell.prompt).size for cell in cells]
    intervals = [student_interval(*estimate) for estimate in zip(divergence, errors, prompts, strict=True)]
    latency = fit_latency(rounds)
    seconds, seconds_se = rule_seconds(rounds)
    return Calibration(
        identity=copy.deepcopy(identity),
        block_size=block_size,
        token_limit=token_limit,
        efforts=tuple(efforts),
        divergence=divergence,
        divergence_se=tuple(None if math.isnan(error) else error for error in errors),
        divergence_low=tuple(None if math.isnan(low) else max(low, 0.0) for low, _ in intervals),
        divergence_high=tuple(None if math.isnan(high) else min(high, 1.0) for _, high in intervals),
        divergence_all_slots=tuple(float(cell.divergence[cell.proposed].mean()) for cell in cells),
        tokens_per_round=tuple(tokens_per_round(cell) for cell in cells),
        rounds=tuple(len(cell) for cell in cells),
        prompts=tuple(prompts),
        tokens_per_request=_tokens_per_request(first),
        anchor_rule=str(anchor.rule[0]) if len(anchor) else None,
        anchor_divergence=tuple(clustered_ratio(*each)[0] for each in shifted) or None,
        latency=latency,
        exactness=tuple(str(guarantee) for guarantee in exactness),
        warnings=(
            *_warnings(efforts, prompts, latency),
            *_passes_warnings(rounds.select(rounds.replica == 0), latency),
            *_shift_warnings(efforts, divergence, list(map(paired_difference, reached, shifted)), prompts),
            *_order_warnings(cells, exactness),
        ),
        rule_seconds=seconds or None,
        rule_seconds_se=seconds_se or None,
    )


def without_divergence(calibration: Calibration) -> Calibration:
    """Return the times of a calibration alone: with random weights, d_K and tokens are not measured, hence None."""
    unknown = (None,) * len(calibration.efforts)
    return replace(
        calibration,
        divergence=unknown,
        divergence_se=unknown,
        divergence_low=unknown,
        divergence_high=unknown,
        divergence_all_slots=unknown,
        tokens_per_round=unknown,
        tokens_per_request=None,
        warnings=(
            "d_K was not measured: nothing but the times can be used",
            *(warning for warning in calibration.warnings if warning.startswith("latency: ")),
        ),
    )


def _reached_divergence(cell: Rounds) -> Ratio:
    reached = cell.reached
    if not reached.any():
        raise ValueError(f"`rounds` must have drafted slots at effort {cell.effort[0]}, got none; record longer texts")
    return np.where(reached, cell.divergence, 0).sum(axis=1), reached.sum(axis=1), cell.prompt


def _shifted_divergence(anchor: Rounds, effort: int) -> Ratio:
    if not len(anchor):
        raise ValueError(f"`rounds` must hold effort {effort} under the second rule too, got none; record it")
    lossless = replay(anchor, LOSSLESS)
    return lossless.divergence, lossless.reached, anchor.prompt


def _tokens_per_request(rounds: Rounds) -> float | None:
    requests, member = np.unique(np.stack([rounds.prompt, rounds.effort.astype(str)], 1), axis=0, return_inverse=True)
    tokens = np.bincount(member, weights=rounds.emitted, minlength=len(requests))
    finished = np.bincount(member, weights=rounds.ended != "", minlength=len(requests)) > 0
    return float(tokens[finished].mean()) if finished.any() else None


def _warnings(efforts: list[int], prompts: list[int], latency: LatencyFit | None) -> list[str]:
    warnings = [
        f"effort {effort}: d_K comes from one prompt and has no standard error; record more prompts"
        for effort, count in zip(efforts, prompts, strict=True)
        if count == 1
    ]
    return [*warnings, *_latency_warnings(latency)]


def _latency_warnings(latency: LatencyFit | None) -> list[str]:
    if latency is None:
        return ["latency was not measured: throughput cannot be predicted"]
    return [f"latency: {flag}" for flag in latency.flags]


def _passes_warnings(rounds: Rounds, latency: LatencyFit | None) -> Iterator[str]:
    """Where drafts took other than K passes, as thresholds and cut blocks make them, so that b is not a pass's time."""
    if latency is None or latency.draft_slope_seconds is None:
        return
    means = {effort: float(rounds.passes[rounds.effort == effort].mean()) for effort in latency.efforts}
    others = [
        f"{mean:.2f} (effort {effort})" for effort, mean in means.items() if abs(mean / effort - 1) > OTHER_PASSES
    ]
    if others:
        yield f"latency: passes of a draft on average: {', '.join(others)}; b is the time of an effort, not of a pass"


def _shift_warnings(
    efforts: list[int], divergence: Sequence[float], shifts: Sequence[tuple[float, float]], prompts: list[int]
) -> Iterator[str]:
    """Where leniency leads to texts on which drafter and verifier differ otherwise, more than chance makes them."""
    moved = []
    for effort, before, (shift, error), count in zip(efforts, divergence, shifts, prompts, strict=False):
        low, high = student_interval(shift, error, count)
        if abs(shift) > LARGE_SHIFT * before and (low > 0 or high < 0):
            moved.append(f"{before:.3f} -> {before + shift:.3f} (effort {effort})")
    if moved:
        yield (
            f"d_K shifts with the texts that leniency leads to: {', '.join(moved)}; "
            "only the model anchored accounts for it"
        )


def _order_warnings(cells: list[Rounds], exactness: tuple[str, ...]) -> Iterator[str]:
    """What the recorded commit steps say of joint exactness; certain drafts are exact in any order."""
    for cell, guarantee in zip(cells, exactness, strict=True):
        share = out_of_order_share(cell.commit_step, cell.reached & (cell.q_drafted < 1))
        if share > 0:
            found = (
                f"{100 * share:.0f} % of the reached slots with an uncertain draft were committed before an earlier one"
            )
            doubt = ", against the drafter's claim of joint exactness" if guarantee == Exactness.JOINT else ""
            yield f"effort {cell.effort[0]}: {found}{doubt}; the law of the text need not be the verifier's"


def _tuples(document: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
