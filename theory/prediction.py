"""Prediction: the whole grid of efforts and leniencies from one lossless calibration (Eq. 6-7)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from theory import strict_json
from theory.acceptance import LinearAcceptance, Rule
from theory.calibration import Calibration
from theory.latency import tokens_per_second
from theory.proposition1 import tokens_per_round
from theory.tables import StrPath, replacing


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """M cells, efforts x rules, each quantity with the 95 % interval that follows from the uncertainty of d_K.

    The times of a round count as known. NaN stands for what the calibration cannot tell: throughput without timing,
    intervals from one prompt, seconds per request without a finished text.

    Attributes
    ----------
    model
        ``"iid"``: acceptance is one number, alike and independent at every slot (Eq. 6-7).
    effort, rule : (M,)
        Denoising steps K and label of the acceptance rule.
    acceptance_rate, agreement : (M,)
        α of Eq. 6, and 1 - TV(p, target), how close the emitted text stays to the verifier.
    tokens_per_round, tokens_per_second, seconds_per_request : (M,)
        Eq. 9, Eq. 7, and the mean length of a text over Eq. 7.
    """

    model: str
    effort: NDArray[np.int64]
    rule: NDArray[np.str_]
    acceptance_rate: NDArray[np.float64]
    acceptance_rate_low: NDArray[np.float64]
    acceptance_rate_high: NDArray[np.float64]
    agreement: NDArray[np.float64]
    agreement_low: NDArray[np.float64]
    agreement_high: NDArray[np.float64]
    tokens_per_round: NDArray[np.float64]
    tokens_per_round_low: NDArray[np.float64]
    tokens_per_round_high: NDArray[np.float64]
    tokens_per_second: NDArray[np.float64]
    tokens_per_second_low: NDArray[np.float64]
    tokens_per_second_high: NDArray[np.float64]
    seconds_per_request: NDArray[np.float64]
    seconds_per_request_low: NDArray[np.float64]
    seconds_per_request_high: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.effort)

    def to_json(self, path: StrPath) -> None:
        """Write strict JSON, one list for each column."""
        columns = {spec.name: getattr(self, spec.name) for spec in fields(self) if spec.name != "model"}
        document = {"model": self.model, **{name: values.tolist() for name, values in columns.items()}}
        with replacing(path) as partial:
            partial.write_text(strict_json.dumps(document, indent=2) + "\n", encoding="utf-8")


def predict(
    calibration: Calibration, rules: Sequence[Rule], *, model: str = "iid", overhead: bool = False
) -> Prediction:
    """Predict every effort of a calibration under every rule.

    Parameters
    ----------
    calibration
        The pair, recorded at leniency 0.
    rules
        Linear acceptance only: for Cactus, Eq. 6 has no counterpart.
    model
        ``"iid"``.
    overhead
        Add the recorded time outside the two forwards to the round, which Eq. 7 leaves out.
    """
    if model != "iid":
        raise ValueError(f'`model` must be "iid", got {model!r}; it is Eq. 6-7')
    return _predict_iid(
        calibration.efforts,
        (calibration.divergence, calibration.divergence_low, calibration.divergence_high),
        rules,
        block_size=calibration.block_size,
        round_seconds=_round_seconds(calibration, overhead),
        length=math.nan if calibration.tokens_per_request is None else calibration.tokens_per_request,
    )


def predict_divergence(divergence: Mapping[int, float], rules: Sequence[Rule], *, block_size: int) -> Prediction:
    """Predict from published values of d_K alone: acceptance, agreement and tokens per round (Eq. 6, 9).

    Parameters
    ----------
    divergence
        d_K in [0, 1] for each effort K.
    rules
        Linear acceptance.
    block_size
        B, drafted tokens of a round.
    """
    wrong = {effort: value for effort, value in divergence.items() if not 0 <= value <= 1}
    if wrong or not divergence:
        raise ValueError(
            f"`divergence` must give d_K in [0, 1] for some efforts, got {wrong or 'none'}; it is a distance"
        )
    unknown = (None,) * len(divergence)
    return _predict_iid(
        tuple(divergence),
        (tuple(divergence.values()), unknown, unknown),
        rules,
        block_size=block_size,
        round_seconds=np.full(len(divergence), math.nan),
        length=math.nan,
    )


def _predict_iid(
    efforts: Sequence[int],
    divergences: tuple[Sequence[float | None], ...],
    rules: Sequence[Rule],
    *,
    block_size: int,
    round_seconds: NDArray[np.float64],
    length: float,
) -> Prediction:
    """Eq. 6-7 for every effort and rule; `divergences` are d_K and the two ends of its interval."""
    leniencies = np.tile([_leniency(rule) for rule in rules], len(efforts))
    seconds = np.repeat(round_seconds, len(rules))

    def quantities(divergence: Sequence[float | None]) -> dict[str, NDArray[np.float64]]:
        d = np.repeat(np.array(divergence, dtype=float), len(rules))
        acceptance_rate = 1 - (1 - leniencies) * d
        tokens = tokens_per_round(acceptance_rate, block_size)
        speed = tokens_per_second(tokens, seconds)
        return {
            "acceptance_rate": acceptance_rate,
            "agreement": 1 - leniencies * d,
            "tokens_per_round": tokens,
            "tokens_per_second": speed,
            "seconds_per_request": length / speed,
        }

    expected, *bounds = (quantities(each) for each in divergences)
    low = {f"{name}_low": np.minimum(bounds[0][name], bounds[1][name]) for name in expected}
    high = {f"{name}_high": np.maximum(bounds[0][name], bounds[1][name]) for name in expected}
    return Prediction(
        model="iid",
        effort=np.repeat(efforts, len(rules)),
        rule=np.tile([rule.label for rule in rules], len(efforts)),
        **expected,
        **low,
        **high,
    )


def _leniency(rule: Rule) -> float:
    if not isinstance(rule, LinearAcceptance):
        msg = f"`rules` must be linear for the model iid, got {rule.label}; measure it with profiler.sweep instead"
        raise ValueError(msg)
    return rule.leniency


def _round_seconds(calibration: Calibration, overhead: bool) -> NDArray[np.float64]:
    """Cost of a round at each effort, c_d(K) + c_v; NaN without timing."""
    latency = calibration.latency
    if overhead and (latency is None or latency.overhead_seconds is None):
        raise ValueError("`overhead` must be False for this calibration: overhead was not measured; record with timing")
    if latency is None:
        return np.full(len(calibration.efforts), math.nan)
    extra = latency.overhead_seconds or 0.0 if overhead else 0.0
    return np.array([latency.draft_seconds(effort) + latency.verify_seconds + extra for effort in calibration.efforts])
