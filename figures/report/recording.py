"""What was recorded: divergence, exactness, latency, and where it all comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures import figure6
from figures.report.page import NOT_TIMED, Section, drawing, interval, number, table, words
from theory.calibration import Calibration
from theory.rounds import Rounds

SHOWN_ENTRIES = 8
GUARANTEES = {
    "joint": "joint: lossless text has the verifier's law to the letter.",
    "first_token": "first_token: only the first token of a round has the verifier's law; a later one that was "
    "committed before an earlier one is no longer distributed as recorded once the earlier one was accepted.",
    "none": "none: tokens are committed by the value that was drawn, so not even the first token of a round has the "
    "verifier's law.",
}


def divergence(calibration: Calibration) -> Section:
    """d_K of every effort with its interval, and what lossless verification guarantees."""
    shifted = calibration.anchor_divergence
    anchored = [[] if shifted is None else [number(shifted[i], 3)] for i in range(len(calibration.efforts))]
    rows = [
        [
            number(effort),
            number(calibration.divergence[i], 3),
            interval(calibration.divergence_low[i], calibration.divergence_high[i]),
            number(calibration.divergence_all_slots[i], 3),
            *anchored[i],
            number(calibration.tokens_per_round[i], 2),
            number(calibration.rounds[i]),
            number(calibration.prompts[i]),
            words(calibration.exactness[i]),
        ]
        for i, effort in enumerate(calibration.efforts)
    ]
    columns = ["K", "d_K", "95 % interval", "all positions", "tokens/round", "rounds", "prompts", "exactness<"]
    if calibration.anchor_rule is not None:
        columns.insert(4, f"on the texts of {calibration.anchor_rule}")
    found = [GUARANTEES[name] for name in GUARANTEES if name in calibration.exactness]
    return Section(
        title="Divergence and exactness",
        paragraphs=[
            "d_K is the mean total-variation distance between drafter and verifier at the positions that the "
            "acceptance test reached, at leniency 0; there a drafted token survives its test with probability 1 − d_K.",
            *found,
        ],
        warnings=[warning for warning in calibration.warnings if not warning.startswith("latency: ")],
        tables=[table("Distance of drafter and verifier", columns, rows)],
    )


def latency(calibration: Calibration, rounds: Rounds) -> Section:
    """The fitted times of a round, with their errors and the noise of the machine."""
    fit = calibration.latency
    if fit is None:
        return Section(title="Latency", warnings=[NOT_TIMED])
    terms: list[tuple[str, float | None, float | None]] = [
        ("draft, a (each round)", fit.draft_intercept_seconds, fit.draft_intercept_seconds_se),
        ("draft, b (each denoising step)", fit.draft_slope_seconds, fit.draft_slope_seconds_se),
        ("verifier, c_v as one number", fit.verify_seconds, fit.verify_seconds_se),
        ("verifier, base", fit.verify_base_seconds, fit.verify_base_seconds_se),
        ("verifier, each position of the block", fit.verify_slot_seconds, fit.verify_slot_seconds_se),
        ("verifier, each token of context", fit.verify_context_seconds, fit.verify_context_seconds_se),
        ("overhead outside both forwards", fit.overhead_seconds, fit.overhead_seconds_se),
        ("prefill, once a request", fit.prefill_seconds, fit.prefill_seconds_se),
    ]
    medians = [
        [
            number(effort),
            number(fit.draft_median_seconds[i], 3, scale=1e3),
            number(fit.draft_seconds(effort), 3, scale=1e3),
            number(fit.residuals[i] if fit.residuals else None, 3, scale=1e3),
            number(fit.rounds_per_effort[i]),
        ]
        for i, effort in enumerate(fit.efforts)
    ]
    quality = "not known" if fit.r_squared is None else f"{fit.r_squared:.4f}"
    noise = "not measured" if fit.noise_floor is None else f"{fit.noise_floor:.1%}"
    return Section(
        title="Latency",
        paragraphs=[
            f"Draft time a + bK fitted to the median of each effort, R² = {quality}. Noise floor, the same cell "
            f"recorded twice: {noise}; smaller differences mean nothing on this machine.",
            f"Blocks of {_range(fit.verify_blocks)} and contexts of {_range(fit.verify_contexts)} tokens were "
            "recorded; the verifier's time has a slope only where they tell one"
            + (f" ({', '.join(fit.verify_flags)})." if fit.verify_flags else "."),
        ],
        warnings=[
            warning.removeprefix("latency: ").replace("_", " ")
            for warning in calibration.warnings
            if warning.startswith("latency: ")
        ],
        figures=[drawing(figure6.draw(rounds.select(rounds.replica == 0), fit), "Draft and verifier times.")],
        tables=[
            table(
                "Terms of a round's time, in milliseconds",
                ("term<", "ms", "standard error"),
                [[words(name), number(value, 3, scale=1e3), number(se, 3, scale=1e3)] for name, value, se in terms],
            ),
            table("Draft times, in milliseconds", ("K", "median", "a + bK", "residual", "rounds"), medians),
        ],
    )


def provenance(calibration: Calibration, run: Path, sweep: Path | None) -> Section:
    """Everything that a reader needs in order to record the same again."""
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    facts = [("run", str(run)), *([] if sweep is None else [("sweep", str(sweep))])]
    facts += _flattened(manifest["settings"]) + _flattened(calibration.identity["provenance"])
    warnings = ["Rows of different code, weights or devices were mixed."] if calibration.identity["mixed"] else []
    return Section(title="Settings and provenance", warnings=warnings, facts=facts)


def _flattened(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    facts = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            facts += _flattened(value, f"{prefix}{name}.")
        else:
            facts.append((f"{prefix}{name}", _short(value)))
    return facts


def _short(value: object) -> str:
    """A value in words; of a long list, such as the prompts, its length and where it begins."""
    if not isinstance(value, list):
        return str(value)
    shown = ", ".join(map(str, value[:SHOWN_ENTRIES]))
    return shown if len(value) <= SHOWN_ENTRIES else f"{len(value)} of them: {shown}, …"


def _range(recorded: tuple[int, int]) -> str:
    low, high = recorded
    return str(low) if low == high else f"{low} to {high}"
