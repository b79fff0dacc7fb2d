"""How far the text of a pair is from the verifier's own law, and what coupled verification costs in acceptance."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from profiler import summary
from profiler.decode import Round, decode
from profiler.drafters.commit import Order
from profiler.drafters.draft import Drafter
from profiler.drafters.masked import MaskedDrafter
from profiler.pairs import Pair
from profiler.streams import Streams
from profiler.verification import Place, way_to_verify
from profiler.verifier import Verifier
from theory.acceptance import LOSSLESS, Rule
from theory.coupled import CoupledAcceptance, coupled_acceptance
from theory.distances import overlap
from theory.estimates import clustered_ratio, student_interval
from theory.exactness import Bias, Price, cross_fitted_distance, mean_interval, visible_bias
from theory.proposition2 import Exactness, Trajectories, text_law, verifier_law

COUPLED = CoupledAcceptance()
SURE = 0.9
"""A next token that is likelier leaves nothing to bias."""

Law = NDArray[np.float64]


def with_order(pair: Pair, order: Order) -> Pair:
    """The pair, its drafter committing in another order."""
    drafter = copy.copy(_masked(pair))
    drafter.canvas = replace(drafter.canvas, order=order)
    drafter.start()
    return replace(pair, drafter=drafter)


@torch.inference_mode()
def open_prefixes(pair: Pair, prompts: Sequence[list[int]], *, seed: int) -> list[list[int]]:
    """Each prompt with a part of the verifier's own answer, cut at random where no next token has more than `SURE`.

    Where the next token is certain no rule can be biased. The cut leaves two tokens of the answer at least; prompts
    without an open place are left out. Coupled verification writes the answers, at the speed of drafting.
    """
    rng, prefixes = np.random.default_rng(seed), []
    for request, prompt in enumerate(prompts):
        answer: list[int] = []
        for each in _rounds(pair, prompt, max(pair.spec.efforts), COUPLED, Streams(seed=seed, request=request)):
            answer += each.tokens
        text = torch.tensor([*prompt, *answer], device=pair.device)
        pair.verifier.start(text[: len(prompt)])
        laws = pair.verifier.score(text[len(prompt) - 1 : len(prompt)], text[len(prompt) :])
        places = np.flatnonzero(laws[: len(answer) - 1].amax(dim=-1).cpu().numpy() < SURE)
        if places.size:
            prefixes.append([*prompt, *answer[: rng.choice(places)]])
    return prefixes


def bias(
    pair: Pair,
    prefixes: Sequence[list[int]],
    *,
    orders: Sequence[Order],
    efforts: Sequence[int],
    draws: int,
    seed: int,
) -> Bias:
    """Measure the bias of the first two tokens that the ratio test emits after each prefix at leniency 0.

    Of the randomness only the drafts are drawn: given a draft, what acceptance and replacement emit is enumerated. If
    the first token is rejected, the second begins the next round and has the verifier's law there, since an order that
    looks at distributions alone keeps the first token of a round exact. Order ``confidence`` does not, so that its
    second token is not told.

    Parameters
    ----------
    prefixes : token ids after which one round is drafted, a few dozen.
    orders, efforts : the cells of the table.
    draws : drafts for each prefix and cell, two at least.
    """
    if draws < 2:
        raise ValueError(f"`draws` must be at least 2, got {draws}; half of them tell the signs, half the distance")
    cells = [(order, effort) for order in orders for effort in efforts]
    changed = {order: with_order(pair, order) for order in orders}
    found = np.empty((2, len(cells), len(prefixes)))
    for index, prefix in enumerate(tqdm(prefixes, desc="bias", unit="prefix")):
        laws, streams = own_laws(pair, prefix), Streams(seed=seed, request=index)
        for cell, (order, effort) in enumerate(cells):
            found[:, cell, index] = _biases(changed[order], prefix, laws, effort=effort, draws=draws, streams=streams)
    return Bias(**_cells(cells), first=found[0], pair=found[1])


@torch.inference_mode()
def own_laws(pair: Pair, prefix: list[int]) -> list[Law]:
    """The verifier's law of the token after `prefix`, (V,), and of the next one given it, (V, V)."""
    text = torch.tensor(prefix, device=pair.device)
    pair.verifier.start(text)

    def after(*tokens: int) -> Law:
        drafted = torch.tensor(tokens, dtype=torch.long, device=pair.device)
        law = pair.verifier.score(text[-1:], drafted)[-1]
        pair.verifier.keep(len(text) - 1)
        return np.asarray(law.double().cpu())

    first = after()
    second = np.tile(first, (len(first), 1))  # a row that is never reached may be anything
    for token in np.flatnonzero(first).tolist():
        second[token] = after(token)
    return [first, second]


@torch.inference_mode()
def _biases(
    pair: Pair, prefix: list[int], laws: list[Law], *, effort: int, draws: int, streams: Streams
) -> tuple[float, float]:
    """Cross-fitted distance from the verifier's law of the first emitted token, and of the first two."""
    drafter = _masked(pair)
    block = pair.block(pair.spec.task.token_limit)
    drafter.start()
    logits = _remembered(partial(drafter.block_logits, torch.tensor(prefix, device=pair.device)))
    way = way_to_verify(LOSSLESS, streams, pair)
    noises = [way.noise(Place(index=index, position=len(prefix)), effort, block) for index in range(draws)]
    drafts = [drafter.canvas.denoise(logits, block=block, effort=effort, noise=noise) for noise in noises]
    tokens = np.array([draft.tokens[:2].tolist() for draft in drafts])
    proposals = np.stack([draft.probs[:2].double().cpu().numpy() for draft in drafts])
    one, other = (_emitted(tokens[half::2], proposals[half::2], laws) for half in (0, 1))
    first = cross_fitted_distance(one.sum(axis=1), other.sum(axis=1), laws[0])
    if drafter.exactness(effort) is Exactness.NONE:
        return first, math.nan
    return first, cross_fitted_distance(one, other, verifier_law(laws))


def _emitted(tokens: NDArray[np.int64], proposals: Law, laws: list[Law]) -> Law:
    """The law (V, V) of two tokens that the ratio test emits from drafts of two, each equally likely."""

    def drafted(prefix: tuple[int, ...], block: int) -> Trajectories:
        if block == 2:
            weights = np.full(len(tokens), 1 / len(tokens))
            return Trajectories(probability=weights, tokens=tokens, commit_step=0 * tokens, proposals=proposals)
        law = laws[1][prefix]
        drawn = np.flatnonzero(law)[:, None]
        same = np.broadcast_to(law, (len(drawn), 1, law.size))
        return Trajectories(probability=law[drawn[:, 0]], tokens=drawn, commit_step=0 * drawn, proposals=same)

    return text_law(drafted, laws, LOSSLESS, block_size=2)


def _remembered(logits_of: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same logits, computed once for each canvas."""
    known: dict[tuple[int, ...], torch.Tensor] = {}

    def remembered(slots: torch.Tensor) -> torch.Tensor:
        key = tuple(slots.tolist())
        if key not in known:
            known[key] = logits_of(slots)
        return known[key]

    return remembered


def price(
    pair: Pair, prompts: Sequence[list[int]], *, orders: Sequence[Order], efforts: Sequence[int], seed: int
) -> Price:
    """Decode prompts by the ratio test and by coupling, and predict the acceptance of both from the first.

    Parameters
    ----------
    prompts : token ids; intervals are clustered by prompt.
    orders, efforts : the cells of the table.
    """
    cells = [(order, effort) for order in orders for effort in efforts]
    rows = []
    for order, effort in tqdm(cells, desc="price", unit="cell"):
        changed = with_order(pair, order)
        tested = reached_slots(changed, prompts, effort=effort, rule=LOSSLESS, seed=seed)
        coupled = reached_slots(changed, prompts, effort=effort, rule=COUPLED, seed=seed)
        chance = tested["ratio_chance"]
        predicted = (chance.mean(), tested["coupled_chance"].mean(), (chance / (2 - chance)).mean())
        rows.append((*_rate(tested), *_rate(coupled), *predicted))
    measured = ("ratio", "ratio_low", "ratio_high", "coupled", "coupled_low", "coupled_high")
    names = (*measured, "ratio_predicted", "coupled_predicted", "coupled_least")
    return Price(**_cells(cells), **dict(zip(names, np.array(rows).T, strict=True)))


def reached_slots(
    pair: Pair, prompts: Sequence[list[int]], *, effort: int, rule: Rule, seed: int
) -> dict[str, NDArray[Any]]:
    """The slots that decoding reached: `prompt` (its number), `accepted`, and the chances of either verification."""
    drafter, verifier = _Watched(pair.drafter, "draft"), _Watched(pair.verifier, "score")
    watched = replace(pair, drafter=cast(Drafter, drafter), verifier=cast(Verifier, verifier))
    columns: dict[str, list[Any]] = {name: [] for name in ("prompt", "accepted", "ratio_chance", "coupled_chance")}
    for request, prompt in enumerate(prompts):
        for each in _rounds(watched, prompt, effort, rule, Streams(seed=seed, request=request)):
            last = each.accepted if each.eos_slot < 0 else min(each.accepted, each.eos_slot)
            reached = min(last + 1, each.drafted)
            p, q = verifier.result[:reached].double(), drafter.result.probs[:reached].double()
            columns["prompt"] += [request] * reached
            columns["accepted"] += [slot < each.accepted for slot in range(reached)]
            columns["ratio_chance"] += overlap(p, q).tolist()
            columns["coupled_chance"] += coupled_acceptance(p, q).tolist()
    return {name: np.array(values) for name, values in columns.items()}


class _Watched:
    """A part of a pair that keeps the last result of one of its methods."""

    def __init__(self, part: Any, method: str):
        self._part, self._method = part, method
        self.result: Any = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name != self._method:
            return found

        def kept(*args: Any, **settings: Any) -> Any:
            self.result = found(*args, **settings)
            return self.result

        return kept


def _rounds(pair: Pair, prompt: list[int], effort: int, rule: Rule, streams: Streams) -> Iterator[Round]:
    return decode(pair, prompt, effort=effort, rule=rule, streams=streams, token_limit=pair.spec.task.token_limit)


def _masked(pair: Pair) -> MaskedDrafter:
    if not isinstance(pair.drafter, MaskedDrafter):
        raise ValueError(f"`pair` must have a masked drafter, got {type(pair.drafter).__name__}; others have no order")
    return pair.drafter


def _rate(slots: dict[str, NDArray[Any]]) -> tuple[float, float, float]:
    """Accepted / reached slots with its 95 % interval."""
    rate, error = clustered_ratio(slots["accepted"], np.ones(len(slots["accepted"])), slots["prompt"])
    return rate, *student_interval(rate, error, np.unique(slots["prompt"]).size)


def _cells(cells: Sequence[tuple[str, int]]) -> dict[str, Any]:
    orders, efforts = zip(*cells, strict=True)
    return {"order": np.array(orders), "effort": np.array(efforts)}


def bias_table(bias: Bias) -> str:
    """The means over prefixes with 95 % intervals, the bias that would just show in them, and the largest of a prefix.

    Noise alone makes the largest positive.
    """
    rows = [
        (str(order), str(effort), *_distance(first), *_distance(pair))
        for order, effort, first, pair in zip(bias.order, bias.effort, bias.first, bias.pair, strict=True)
    ]
    columns = ("95 % interval", "visible from", "largest")
    return summary.table(("order", "K", "first token", *columns, "first two", *columns), rows)


def price_table(price: Price) -> str:
    """Measured acceptance of both verifications beside the predicted, and the least that coupling could have."""
    ratio = (price.ratio, price.ratio_low, price.ratio_high, price.ratio_predicted)
    coupled = (price.coupled, price.coupled_low, price.coupled_high, price.coupled_predicted)
    rows = [
        (str(order), str(effort), *_rates(*values[:4]), *_rates(*values[4:8]), f"{values[8]:.3f}")
        for order, effort, *values in zip(price.order, price.effort, *ratio, *coupled, price.coupled_least, strict=True)
    ]
    columns = ("95 % interval", "predicted")
    return summary.table(("order", "K", "ratio test", *columns, "coupled", *columns, "at least"), rows)


def _rates(rate: float, low: float, high: float, predicted: float) -> tuple[str, str, str]:
    return f"{rate:.3f}", f"[{low:.3f}, {high:.3f}]", f"{predicted:.3f}"


def _distance(values: Law) -> tuple[str, str, str, str]:
    if np.isnan(values).any():
        return "-", "-", "-", "-"
    mean, low, high = mean_interval(values)
    return f"{mean:+.4f}", f"[{low:+.4f}, {high:+.4f}]", f"{visible_bias(values):.3f}", f"{values.max():.3f}"
