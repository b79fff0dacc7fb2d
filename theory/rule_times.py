"""Rule times: how much longer rounds take under other kinds of rules than under linear acceptance."""

import math

import numpy as np

from theory.acceptance import LOSSLESS, rule_kind
from theory.estimates import clustered_median
from theory.rounds import Rounds


def rule_seconds(rounds: Rounds) -> tuple[dict[str, float], dict[str, float | None]]:
    """Return what a round under each other kind of rule takes beyond one under the lossless rule, and standard errors.

    A rule changes neither forward, so that its time shows outside them. It is told from requests that were recorded
    again (``replica`` 1) at one effort: under the lossless rule and one rule of each other kind, one after the other
    for each prompt. The difference is taken within prompts, between medians over their rounds; its median over prompts
    is told. Empty without such requests, or without times; no standard error from one prompt.
    """
    again = rounds.select((rounds.replica == 1) & ~np.isnan(rounds.overhead_seconds))
    kinds = np.array([rule_kind(label) for label in again.rule.tolist()])
    lossless = _medians(again.select(again.rule == LOSSLESS.label))
    seconds: dict[str, float] = {}
    errors: dict[str, float | None] = {}
    for kind in np.setdiff1d(kinds, [rule_kind(LOSSLESS.label)]).tolist():
        other = _medians(again.select(kinds == kind))
        both = [request for request in other if request in lossless]
        if both:
            differences = [other[request] - lossless[request] for request in both]
            seconds[kind], error = clustered_median(differences, [prompt for prompt, _ in both])
            errors[kind] = None if math.isnan(error) else error
    return seconds, errors


def _medians(rounds: Rounds) -> dict[tuple[str, int], float]:
    """Median time outside the forwards of each prompt and effort."""
    requests = list(zip(rounds.prompt.tolist(), rounds.effort.tolist(), strict=True))
    which = np.array([f"{effort}/{prompt}" for prompt, effort in requests])
    return {
        (prompt, effort): float(np.median(rounds.overhead_seconds[which == f"{effort}/{prompt}"]))
        for prompt, effort in dict.fromkeys(requests)
    }
