"""Blends: ways to mix a lossless and a lenient recording, each against the same sweep."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from theory.acceptance import LOSSLESS, LinearAcceptance, parse_rule
from theory.anchors import CHANGES, familiar_tokens, lenient_starts, lenient_text
from theory.measurements import Measurements
from theory.recorded import anchor_rule
from theory.replay import replay
from theory.rounds import Rounds

CHANCES = {"towards 0": 1e-6, f"{CHANGES:g}, as in predictions": CHANGES, "1, the maximal coupling": 1.0}
"""Chances that a strange token changes what follows; so near to 0, the shift is proportional to their number."""


def errors_by_blend(
    rounds: Rounds, measurements: Measurements, *, token_limit: int | None
) -> dict[str, NDArray[np.float64]]:
    """Relative error of tokens per round in the linear cells of a sweep, by each blend of two recordings.

    Parameters
    ----------
    rounds
        Recorded at leniency 0 and at one other.
    measurements
        Of the sweep.
    token_limit
        Of the recording.
    """
    anchor = anchor_rule(rounds)
    errors: dict[str, list[float]] = {}
    cells = zip(measurements.effort, measurements.rule, measurements.tokens_per_round, strict=True)
    for effort, label, truth in cells:
        rule = parse_rule(label)
        if not isinstance(rule, LinearAcceptance) or not isinstance(anchor, LinearAcceptance):
            continue
        own = rounds.select(rounds.effort == effort)
        recordings = [own.select(own.rule == each.label) for each in (LOSSLESS, anchor)]
        lossless, lenient = (replay(each, rule, token_limit=token_limit).emitted.mean() for each in recordings)
        shares = {"replay of the lossless rounds": 0.0, "mixed by leniency": min(1.0, rule.leniency / anchor.leniency)}
        for words, chance in CHANCES.items():
            familiar = [
                np.sum(familiar_tokens(recordings[0], each, changes=chance)) / np.sum(recordings[0].emitted)
                for each in (rule, anchor)
            ]
            share = lenient_starts(lenient_text(*familiar), lossless, lenient)
            shares[f"strange tokens, chance {words}"] = float(share)
        for words, share in shares.items():
            predicted = (1 - share) * lossless + share * lenient
            errors.setdefault(words, []).append(predicted / truth - 1)
    return {words: np.array(values) for words, values in errors.items()}
