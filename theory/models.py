"""Models: the predictions that a recording supports, side by side on the same cells."""

import math
from collections.abc import Sequence

from theory.acceptance import LOSSLESS, LinearAcceptance, RatioRule, Rule
from theory.calibration import Calibration
from theory.prediction import Model, Prediction, predict
from theory.rounds import Rounds

LENIENCIES = tuple(round(0.1 * step, 1) for step in range(11))
"""The grid that programs and figures predict: what lies between is smooth."""


def best_model(rounds: Rounds) -> Model:
    """Return the model that assumes least of what a recording supports: anchored with a second rule, else replay."""
    return "anchored" if (rounds.rule[rounds.replica == 0] != LOSSLESS.label).any() else "replay"


def predict_best(
    calibration: Calibration, rounds: Rounds, rules: Sequence[Rule], *, resamples: int = 1000
) -> Prediction:
    """Predict by the model that assumes least, with the time outside the two forwards where it was measured."""
    return predict(
        calibration,
        rules,
        model=best_model(rounds),
        rounds=rounds,
        overhead=calibration.has_overhead,
        resamples=resamples,
    )


def timed_rules(calibration: Calibration, rules: Sequence[Rule]) -> list[RatioRule]:
    """Return the rules that can be predicted: none whose kind has a time that was not recorded, nor the coupled one.

    Without times outside the forwards no throughput rests on a rule's own time, so that all ratio rules are returned.
    """
    ratio = [rule for rule in rules if isinstance(rule, RatioRule)]
    return [rule for rule in ratio if not (calibration.has_overhead and math.isnan(calibration.extra_seconds(rule)))]


def predict_by_all(
    calibration: Calibration, rounds: Rounds, rules: Sequence[Rule], *, resamples: int = 1000
) -> dict[Model, Prediction]:
    """Predict by every model that the recording supports, the one that assumes most first.

    Eq. 6-7 comes as printed: for linear rules alone, and without the time outside the two forwards, which the others
    add where it was measured. Rules that `timed_rules` does not return are left out.

    Parameters
    ----------
    calibration, rounds
        A recording and what it was reduced to.
    rules
        What to predict.
    resamples
        Of the bootstrap over prompts.
    """
    ratio = timed_rules(calibration, rules)
    linear = [rule for rule in ratio if isinstance(rule, LinearAcceptance)]
    supported: list[Model] = ["position", "replay"]
    if best_model(rounds) == "anchored":
        supported.append("anchored")
    predictions: dict[Model, Prediction] = {"iid": predict(calibration, linear)} if linear else {}
    for model in supported if ratio else []:
        predictions[model] = predict(
            calibration, ratio, model=model, rounds=rounds, overhead=calibration.has_overhead, resamples=resamples
        )
    return predictions
