"""What to run: the fastest settings above floors on agreement, and mixtures of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from figures.report.page import NOT_TIMED, UNKNOWN, Section, Table, number, percent, table, words
from theory.measurements import Measurements
from theory.planner import Recommendation, recommend
from theory.prediction import Prediction
from theory.routing import recommend_mixture

CAUTION = 1.0
"""Floors are kept at the worse ends of the 95 % intervals."""
FLOORS = (1.0, 0.99, 0.98, 0.95, 0.9, 0.8)


def recommendation(prediction: Prediction, measured: Measurements | None, floor: float) -> Section:
    """What to run, at the asked floor and at others."""
    title = "Recommendation"
    if np.isnan(prediction.tokens_per_second).any():
        return Section(title=title, warnings=[NOT_TIMED])
    # Lossless acceptance is always predicted, so that every floor is within reach.
    floors = sorted({floor, *FLOORS}, reverse=True)
    choices = {each: recommend(prediction, minimum_agreement=each, caution=CAUTION) for each in floors}
    chosen = choices[floor]
    paragraphs = [f"{chosen.reason[0].upper()}{chosen.reason[1:]}."]
    if measured is not None:
        paragraphs.append(_as_measured(measured, chosen.effort, chosen.rule))
    paragraphs.append(
        "Agreement is 1 − TV between the verifier's law and that of the emitted token, averaged over the positions "
        "that the test reaches. It counts tokens, not answers. Floors are kept at the worse end of each 95 % interval; "
        "“uncertainty costs” is what certain estimates would gain."
    )
    return Section(
        title=title,
        answer=f"K = {chosen.effort}, {chosen.rule}: {chosen.tokens_per_second:.0f} tokens per second predicted",
        paragraphs=paragraphs,
        tables=_choice_tables(prediction, choices, floors.index(floor)),
    )


def _choice_tables(prediction: Prediction, choices: Mapping[float, Recommendation], asked: int) -> list[Table]:
    """The fastest setting above each floor, and the mixture that is faster still."""
    settings, mixtures = [], []
    for each, choice in choices.items():
        other = choice.runner_up
        settings.append(
            [
                number(each, 2),
                words(f"K = {choice.effort}, {choice.rule}"),
                number(choice.agreement, 3),
                number(choice.tokens_per_second),
                number(choice.seconds_per_request, 3),
                number(choice.completion_seconds, 3),
                percent(choice.uncertainty_penalty),
                words(UNKNOWN if other is None else f"K = {other.effort}, {other.rule}"),
                number(None if other is None else other.tokens_per_second),
            ]
        )
        mixture = recommend_mixture(prediction, minimum_agreement=each, caution=CAUTION)
        parts = [
            f"{part.share:.0%} by K = {part.setting.effort}, {part.setting.rule}" for part in mixture.classes["all"]
        ]
        mixtures.append(
            [number(each, 2), words(" and ".join(parts)), number(mixture.tokens_per_second), percent(mixture.gain)]
        )
    names = (
        "agreement at least", "setting<", "agreement", "tokens/s", "s/request", "with prefill", "uncertainty costs",
        "best at another effort<", "tokens/s",
    )  # fmt: skip
    return [
        table("The fastest setting above each floor", names, settings, emphasis=asked),
        table(
            "Where requests may be served with different settings: shares of the tokens",
            ("agreement at least", "mixture<", "tokens/s", "gain over one setting"),
            mixtures,
            emphasis=asked,
        ),
    ]


def _as_measured(measured: Measurements, effort: int, rule: str) -> str:
    row = {cell: place for place, cell in enumerate(cells(measured))}.get((effort, rule))
    if row is None:
        return "The sweep did not measure this setting."
    text = f"Measured: {measured.tokens_per_second[row]:.0f} tokens per second at an agreement of "
    text += f"{measured.agreement[row]:.3f}"
    if measured.scored[row]:
        low, high = measured.accuracy_low[row], measured.accuracy_high[row]
        text += f", accuracy {measured.accuracy[row]:.3f} ({low:.3f} – {high:.3f})"
    return f"{text}, over {measured.prompts[row]} prompts."


def cells(measured: Measurements) -> list[tuple[int, str]]:
    """Effort and rule of each measured cell."""
    return list(zip(measured.effort.tolist(), measured.rule.tolist(), strict=True))
