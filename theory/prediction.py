"""Prediction: the whole grid of efforts and rules from one recording, by models that assume less and less (Eq. 6-7)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from theory import recorded, strict_json, universal
from theory.acceptance import LinearAcceptance, Rule
from theory.calibration import Calibration
from theory.latency import tokens_per_second
from theory.proposition1 import accepted_length_law
from theory.round_times import resampled_round_seconds, round_seconds
from theory.rounds import Rounds
from theory.tables import StrPath, replacing

Model: TypeAlias = Literal["iid", "position", "replay", "anchored"]
QUANTITIES = ("acceptance_rate", "agreement", "tokens_per_round", "tokens_per_second", "seconds_per_request")


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """M cells, efforts x rules, each quantity with its 95 % interval over prompts.

    Times are resampled with the prompts, but for the model iid, for which they count as known. NaN stands for what the
    calibration cannot tell: throughput without timing, intervals from one prompt, seconds per request without a
    finished text.

    Attributes
    ----------
    model
        What is assumed, see `predict`.
    effort, rule : (M,)
        Denoising steps K and label of the acceptance rule.
    acceptance_rate, agreement : (M,)
        α, accepted / reached slots, and 1 - TV(p, emitted law) at reached slots: how close the text stays to the
        verifier.
    tokens_per_round, tokens_per_second, seconds_per_request : (M,)
        Correction or bonus token included; over the time of a round; and that time by the rounds that a text takes,
        without the prompt's own forward: see `completion_seconds`.
    accepted_lengths : (M, B + 1)
        Chance that 0..B drafted tokens of a round are accepted and stay in the text.
    extrapolated : (M,)
        Whether the rule leads to stranger texts than any that was recorded, see `theory.anchors`.
    prefill_seconds
        The prompt's own forward, once a request.
    prompts : (M,)
        Prompts behind each cell.
    draws : {name: (R, M)}
        Each quantity in R resamples of the prompts, the same prompts in all cells of a row; empty for the model iid,
        whose intervals follow from that of d_K.
    """

    model: Model
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
    accepted_lengths: NDArray[np.float64]
    extrapolated: NDArray[np.bool_]
    prefill_seconds: float
    prompts: NDArray[np.int64]
    draws: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.effort)

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Return the prediction of these cells."""
        columns: dict[str, Any] = {
            name: value[rows] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, **columns, draws={name: values[:, rows] for name, values in self.draws.items()})

    def to_json(self, path: StrPath) -> None:
        """Write strict JSON, one list for each column; the resamples are left out."""
        columns = {name: value.tolist() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        document = {"model": self.model, "prefill_seconds": self.prefill_seconds, **columns}
        with replacing(path) as partial:
            partial.write_text(strict_json.dumps(document, indent=2) + "\n", encoding="utf-8")

    @property
    def completion_seconds(self) -> NDArray[np.float64]:
        """Seconds per request from the prompt to the last token, (M,); NaN where prefill was not measured."""
        return self.seconds_per_request + self.prefill_seconds

    @property
    def precision(self) -> NDArray[np.float64]:
        """Half-width of the interval of tokens per round, relative to it, (M,)."""
        return (self.tokens_per_round_high - self.tokens_per_round_low) / 2 / self.tokens_per_round

    def require_precision(self, precision: float) -> None:
        """Raise unless every tokens per round is known to within ``precision``, a relative half-width at 95 %.

        Raises
        ------
        ValueError
            Too few prompts, with the worst estimate and the number of prompts that it would take.
        """
        reach = self.precision
        if np.isnan(reach).any():
            raise ValueError("`prediction` must have intervals, got NaN: one prompt has no spread; record more prompts")
        worst = int(np.argmax(reach))
        if reach[worst] > precision:
            needed = math.ceil(self.prompts[worst] * (reach[worst] / precision) ** 2)
            raise ValueError(
                f"effort {self.effort[worst]}, {self.rule[worst]}: {self.tokens_per_round[worst]:.2f} tokens per round "
                f"+- {reach[worst]:.1%} from {self.prompts[worst]} prompts; need +- {precision:.1%}: record {needed}"
            )


def predict(
    calibration: Calibration,
    rules: Sequence[Rule],
    *,
    model: Model = "iid",
    rounds: Rounds | None = None,
    overhead: bool = False,
    cut: bool = True,
    resamples: int = 1000,
    seed: int = 0,
) -> Prediction:
    """Predict every effort of a calibration under every rule.

    Parameters
    ----------
    calibration
        The pair, recorded at leniency 0.
    rules
        Linear acceptance alone for the model iid, since Eq. 6 has no counterpart for Cactus; any for the others.
    model
        ``"iid"``: acceptance is one number, alike and independent at every slot of a whole block (Eq. 6-7).
        ``"position"``: independent, with one rate for each slot of a whole block.
        ``"replay"``: the recorded drafts of leniency 0 tested by the rule, cut as decoding cuts them; exact but for the
        round starts, which are those of leniency 0.
        ``"anchored"``: the same with the round starts of two recordings blended, see `theory.anchors`.
    rounds
        What the calibration was made from; for ``"anchored"`` with the rounds at a second leniency.
    overhead
        Whole rounds as recorded and what a rule adds; False: a + bK + c_v alone (Eq. 7). For iid, add the overhead.
    cut
        False lets replayed blocks run on after a stop token or the limit, as Eq. 7 does.
    resamples, seed
        Of the bootstrap over prompts.
    """
    if model not in get_args(Model):
        raise ValueError(f"`model` must be one of {get_args(Model)}, got {model!r}; replay needs one recording")
    if None in calibration.divergence:
        msg = "`calibration` must have d_K, got one of times alone (random weights); "
        raise ValueError(msg + "record the checkpoints, or pass known d_K to `predict_divergence` with its times")
    prefill = math.nan
    if calibration.latency is not None and calibration.latency.prefill_seconds is not None:
        prefill = calibration.latency.prefill_seconds
    if model == "iid":
        return _predict_iid(
            calibration.efforts,
            (calibration.divergence, calibration.divergence_low, calibration.divergence_high),
            rules,
            block_size=calibration.block_size,
            round_seconds=round_seconds(calibration, None, overhead=overhead),
            prefill_seconds=prefill,
            length=math.nan if calibration.tokens_per_request is None else calibration.tokens_per_request,
            prompts=calibration.prompts,
        )
    if rounds is None:
        raise ValueError(f"`rounds` must be given for the model {model}, got None; pass Rounds.read(rounds.parquet)")
    first = rounds.select(rounds.replica == 0)
    resampler = recorded.Resampler(first, resamples, np.random.default_rng(seed))
    found = recorded.estimate(
        first,
        rules,
        resampler,
        model=model,
        efforts=calibration.efforts,
        block_size=calibration.block_size,
        token_limit=calibration.token_limit,
        cut=cut,
    )
    seconds = resampled_round_seconds(calibration, first, resampler, overhead=overhead)
    extra = [calibration.extra_seconds(rule) if overhead else 0.0 for rule in rules]
    cost, draws = np.repeat(seconds, len(rules), axis=1) + extra * len(calibration.efforts), dict(found.draws)
    draws["tokens_per_second"] = tokens_per_second(draws["tokens_per_round"], cost)
    draws["seconds_per_request"] = draws.pop("rounds_per_request") * cost
    return Prediction(
        model=model,
        **_cells(calibration.efforts, rules, found.prompts),
        **recorded.with_intervals(draws, min(found.prompts)),
        accepted_lengths=found.accepted_lengths,
        extrapolated=found.extrapolated,
        prefill_seconds=prefill,
        draws={name: values[1:] for name, values in draws.items()},
    )


def predict_divergence(
    divergence: Mapping[int, float],
    rules: Sequence[Rule],
    *,
    block_size: int,
    round_seconds: Mapping[int, float] | None = None,
) -> Prediction:
    """Predict from published values of d_K: acceptance, agreement and tokens per round (Eq. 6, 9); throughput (Eq. 7).

    Parameters
    ----------
    divergence
        d_K in [0, 1] for each effort K.
    rules
        Linear acceptance.
    block_size
        B, drafted tokens of a round.
    round_seconds
        Time of a round for each effort, a + bK + c_v, measured or a bound (`theory.roofline`): throughput then is
        measured too, or no more than the bound. None: not known.
    """
    wrong = {effort: value for effort, value in divergence.items() if not 0 <= value <= 1}
    if wrong or not divergence:
        raise ValueError(
            f"`divergence` must give d_K in [0, 1] for some efforts, got {wrong or 'none'}; it is a distance"
        )
    if round_seconds is not None and not all(round_seconds.get(effort, 0) > 0 for effort in divergence):
        msg = f"`round_seconds` must be positive for each effort of `divergence`, got {dict(round_seconds)}"
        raise ValueError(f"{msg}; leave it out where no time is known")
    seconds = [math.nan if round_seconds is None else round_seconds[effort] for effort in divergence]
    unknown = (None,) * len(divergence)
    return _predict_iid(
        tuple(divergence),
        (tuple(divergence.values()), unknown, unknown),
        rules,
        block_size=block_size,
        round_seconds=np.array(seconds),
        prefill_seconds=math.nan,
        length=math.nan,
        prompts=(0,) * len(divergence),
    )


def _predict_iid(
    efforts: Sequence[int],
    divergences: tuple[Sequence[float | None], ...],
    rules: Sequence[Rule],
    *,
    block_size: int,
    round_seconds: NDArray[np.float64],
    prefill_seconds: float,
    length: float,
    prompts: Sequence[int],
) -> Prediction:
    """Eq. 6-7 for every effort and rule; `divergences` are d_K and the two ends of its interval."""
    leniencies = np.tile([_leniency(rule) for rule in rules], len(efforts))
    seconds = np.repeat(round_seconds, len(rules))
    expected, *bounds = (
        universal.quantities(
            np.repeat(np.array(each, dtype=float), len(rules)), leniencies, seconds, block_size, length
        )
        for each in divergences
    )
    low = {f"{name}_low": np.minimum(bounds[0][name], bounds[1][name]) for name in expected}
    high = {f"{name}_high": np.maximum(bounds[0][name], bounds[1][name]) for name in expected}
    columns: dict[str, Any] = {**expected, **low, **high}
    return Prediction(
        model="iid",
        **_cells(efforts, rules, prompts),
        **columns,
        accepted_lengths=accepted_length_law(expected["acceptance_rate"], block_size),
        extrapolated=leniencies > 0,
        prefill_seconds=prefill_seconds,
        draws={},
    )


def _cells(efforts: Sequence[int], rules: Sequence[Rule], prompts: Sequence[int]) -> dict[str, Any]:
    return {
        "effort": np.repeat(efforts, len(rules)),
        "rule": np.tile([rule.label for rule in rules], len(efforts)),
        "prompts": np.repeat(prompts, len(rules)),
    }


def _leniency(rule: Rule) -> float:
    if not isinstance(rule, LinearAcceptance):
        msg = f"`rules` must be linear for the model iid, got {rule.label}; use replay"
        raise ValueError(msg)
    return rule.leniency
