"""Routing: mixtures of settings, and settings by class of prompt, by linear programming.

    python -m theory.routing easy=results/embedded/A hard=results/embedded/B --minimum-agreement 0.95 --weights 3 1

Each class has a run of `python -m profiler.calibrate --prompts FILE` with prompts of its own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from scipy import optimize

from theory.acceptance import LinearAcceptance
from theory.calibration import Calibration
from theory.models import LENIENCIES, predict_best
from theory.planner import Choice, Ends, choice, usable, worse_ends
from theory.prediction import Prediction
from theory.rounds import Rounds

NEGLIGIBLE_SHARE = 1e-9
"""Shares below this are rounding of the linear program."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """A configuration and the share of the class's tokens that it serves."""

    setting: Choice
    share: float


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The settings of each class of prompts, with the agreement and throughput over all of them.

    ``uniform`` is the fastest single configuration for all classes that reaches the floor (its seconds per request are
    NaN), and ``gain`` the throughput of the routing over its, minus 1; both None where no single one does.
    """

    classes: Mapping[str, tuple[Share, ...]]
    agreement: float
    tokens_per_second: float
    uniform: Choice | None
    gain: float | None


def recommend_mixture(prediction: Prediction, *, minimum_agreement: float, caution: float = 1.0) -> Routing:
    """Return the best mixture of settings when each request may be served with another: two settings and their shares.

    Mixing makes every point between two configurations available, so what can be achieved is their convex hull, in
    agreement and seconds per token. See `route`, of which this is the case of one class, named ``"all"``.
    """
    return route({"all": prediction}, minimum_agreement=minimum_agreement, caution=caution)


def route(
    predictions: Mapping[str, Prediction],
    *,
    minimum_agreement: float,
    weights: Mapping[str, float] | None = None,
    caution: float = 1.0,
) -> Routing:
    """Choose settings for each class of prompts, so that the agreement over all tokens reaches the floor in least time.

    A linear program: minimise Σ w / T over the shares w >= 0 of tokens that each configuration serves, where T is its
    throughput, with Σ w = weight in each class and Σ w · agreement >= floor over all. Easy classes can spend leniency
    where it costs them little. An optimum at a vertex splits at most one class between two settings.

    Parameters
    ----------
    predictions
        One for each class of prompts, from a calibration with prompts of that class.
    minimum_agreement
        Floor on the mean agreement over all tokens, in [0, 1].
    weights
        Share of each class in all generated tokens; equal if not given.
    caution
        How far to distrust the agreement, as in `recommend`.

    Raises
    ------
    ValueError
        As in `recommend`; or the weights are not positive or name other classes.
    """
    if not predictions:
        raise ValueError("`predictions` must hold at least one class, got none; calibrate with prompts of each class")
    predictions = {
        name: usable(prediction, caution, minimum_agreement=minimum_agreement)
        for name, prediction in predictions.items()
    }
    shares = _normalised(predictions, weights)
    worse = {name: worse_ends(prediction, caution) for name, prediction in predictions.items()}
    names = np.concatenate([[name] * len(prediction) for name, prediction in predictions.items()])
    agreement = np.concatenate([each.agreement for each in worse.values()])
    seconds = 1 / np.concatenate([each.tokens_per_second for each in predictions.values()])
    solved = optimize.linprog(
        seconds,
        A_ub=-agreement[None],
        b_ub=[-minimum_agreement],
        A_eq=np.array([names == name for name in predictions], dtype=float),
        b_eq=list(shares.values()),
        method="highs",
    )
    if not solved.success:
        best = sum(share * worse[name].agreement.max() for name, share in shares.items())
        msg = f"`minimum_agreement` must be within reach, got {minimum_agreement}; "
        raise ValueError(f"{msg}the best available over all classes is {best:.3f}")
    served = np.where(solved.x > NEGLIGIBLE_SHARE, solved.x, 0)
    classes = {
        name: tuple(
            Share(setting=choice(prediction, int(row)), share=float(served[names == name][row] / shares[name]))
            for row in np.flatnonzero(served[names == name])
        )
        for name, prediction in predictions.items()
    }
    parts = [(shares[name] * part.share, part.setting) for name, each in classes.items() for part in each]
    overall, speed = _together(parts)
    uniform = _uniform(predictions, worse, shares, minimum_agreement)
    return Routing(
        classes=classes,
        agreement=overall,
        tokens_per_second=speed,
        uniform=uniform,
        gain=None if uniform is None else speed / uniform.tokens_per_second - 1,
    )


def _together(parts: Sequence[tuple[float, Choice]]) -> tuple[float, float]:
    """Agreement and throughput over all tokens, of settings that serve a share of them each."""
    agreement = sum(share * setting.agreement for share, setting in parts)
    return agreement, 1 / sum(share / setting.tokens_per_second for share, setting in parts)


def _uniform(
    predictions: Mapping[str, Prediction],
    worse: Mapping[str, Ends],
    shares: Mapping[str, float],
    minimum_agreement: float,
) -> Choice | None:
    """The fastest cell that all classes have and that reaches the floor over all of them; smaller effort at a tie."""
    rows = {
        name: {cell: row for row, cell in enumerate(zip(each.effort.tolist(), each.rule.tolist(), strict=True))}
        for name, each in predictions.items()
    }
    candidates = []
    for effort, rule in sorted(set.intersection(*(set(known) for known in rows.values()))):
        row = {name: known[effort, rule] for name, known in rows.items()}
        if sum(shares[name] * worse[name].agreement[row[name]] for name in rows) >= minimum_agreement:
            seconds = sum(shares[name] / predictions[name].tokens_per_second[row[name]] for name in rows)
            candidates.append((seconds, effort, rule, row))
    if not candidates:
        return None
    _, effort, rule, row = min(candidates, key=lambda candidate: candidate[:3])
    agreement, speed = _together([(shares[name], choice(predictions[name], row[name])) for name in rows])
    return Choice(effort=effort, rule=rule, agreement=agreement, tokens_per_second=speed, seconds_per_request=math.nan)


def _normalised(predictions: Mapping[str, Prediction], weights: Mapping[str, float] | None) -> dict[str, float]:
    if weights is None:
        return {name: 1 / len(predictions) for name in predictions}
    if weights.keys() != predictions.keys() or not all(weight > 0 for weight in weights.values()):
        msg = f"`weights` must be positive for each of {sorted(predictions)}, got {dict(weights)}; "
        raise ValueError(msg + "leave out classes without tokens from both")
    total = sum(weights.values())
    return {name: weights[name] / total for name in predictions}


@dataclass(frozen=True)
class Settings:
    """Choose settings for each class of prompts, from a recording of each."""

    classes: tyro.conf.Positional[tuple[str, ...]]
    """NAME=RUN for each class, RUN being the folder of its recording."""
    minimum_agreement: float = 0.99
    """Floor on the mean agreement over all tokens."""
    weights: tuple[float, ...] = ()
    """Share of each class in all generated tokens, in the order of the classes; equal if not given."""


def main(argv: list[str] | None = None) -> int:
    """Read, predict, choose, print; 2 with one line on stderr for what the user can mend."""
    settings = tyro.cli(Settings, args=argv, prog="python -m theory.routing", description=__doc__)
    try:
        runs = dict(_named(each) for each in settings.classes)
        if settings.weights and len(settings.weights) != len(runs):
            got = f"got {len(settings.weights)} for {len(runs)}"
            raise ValueError(f"--weights must be one number a class, {got}; name each class once")
        routing = route(
            {name: _predicted(run) for name, run in runs.items()},
            minimum_agreement=settings.minimum_agreement,
            weights=dict(zip(runs, settings.weights, strict=True)) if settings.weights else None,
        )
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, parts in routing.classes.items():
        for part in parts:
            print(f"{name}: {part.share:.0%} of the tokens by K = {part.setting.effort}, {part.setting.rule}")
    gain = "" if routing.gain is None else f", {routing.gain:.1%} more than by one setting for all"
    print(f"together {routing.tokens_per_second:.0f} tokens/s at an agreement of {routing.agreement:.3f}{gain}")
    return 0


def _named(argument: str) -> tuple[str, Path]:
    name, equals, run = argument.partition("=")
    if not (name and equals and run):
        raise ValueError(f"a class must be NAME=RUN, got {argument}; RUN is the folder of its recording")
    return name, Path(run)


def _predicted(run: Path) -> Prediction:
    rules = [LinearAcceptance(leniency=leniency) for leniency in LENIENCIES]
    return predict_best(Calibration.from_json(run / "calibration.json"), Rounds.read(run / "rounds.parquet"), rules)


if __name__ == "__main__":
    sys.exit(main())
