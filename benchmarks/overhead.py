"""What a round spends outside the forward passes of its two models, and where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from tqdm import tqdm

from benchmarks.table import Table, spread
from profiler import pairs, tasks
from profiler.decode import decode
from profiler.pairs import Pair, PairSpec
from profiler.pairs.compiled import networks
from profiler.streams import Streams
from profiler.timing import Clock, undisturbed
from theory.acceptance import LOSSLESS


def run(specs: list[PairSpec], *, prompts: int, seed: int) -> Table:
    """Milliseconds of a round and of its parts, and the share outside the forwards, prompt by prompt."""
    rows = []
    for spec in specs:
        pair = pairs.load(spec)
        chosen = [pair.encode(prompt.text) for prompt in tasks.load(spec.task.name).prompts(prompts, seed)]
        parts: dict[int, list[list[float]]] = {effort: [] for effort in spec.efforts}
        for effort in spec.efforts:
            _parts(pair, chosen[0], effort, Streams(seed=seed, request=0))
        with undisturbed():
            for request, ids in enumerate(tqdm(chosen, desc=f"overhead, {spec.name}")):
                for effort in spec.efforts:
                    parts[effort].append(_parts(pair, ids, effort, Streams(seed=seed, request=request)))
        for effort, each in parts.items():
            medians = [spread([1e3 * values[part] for values in each])[0] for part in range(5)]
            shares = [100 * (1 - sum(values[1:3]) / values[0]) for values in each]
            rows.append((spec.name, f"{effort}", *medians, *spread(shares, 1)))
    return Table(
        title=f"Outside the forwards, in ms a round ({prompts} prompts):",
        header=("pair", "K", "round", "drafter", "verifier", "around them", "verdict", "outside %", "quartiles"),
        rows=rows,
        note="  drafter, verifier: inside the models' own forwards. around them: noise, probabilities, draws.\n"
        "  verdict: the acceptance test, p(y), q(y) and TV, and the caches cut back. outside: all but the forwards.",
    )


def _parts(pair: Pair, ids: list[int], effort: int, streams: Streams) -> list[float]:
    """Mean seconds a round of a request: all of it, drafter's and verifier's forwards, what is around, the verdict."""
    limit = pair.spec.task.token_limit
    clock = Clock.for_device(pair.device)
    with _forwards(pair.drafter, clock) as drafting, _forwards(pair.verifier, clock) as verifying:
        rounds = list(decode(pair, ids, effort=effort, rule=LOSSLESS, streams=streams, token_limit=limit))
    verdict = sum(each.overhead_seconds for each in rounds)
    whole = sum(each.draft_seconds + each.verify_seconds for each in rounds) + verdict
    drafter, verifier = _seconds(drafting, clock), _seconds(verifying, clock) - rounds[0].prefill_seconds
    values = whole, drafter, verifier, whole - drafter - verifier - verdict, verdict
    return [value / len(rounds) for value in values]


@contextmanager
def _forwards(owner: Any, clock: Clock) -> Iterator[list[Any]]:
    """Marks before and after every forward of the networks that an object holds."""
    marks: list[Any] = []
    hooks = []
    for network in networks(owner):
        hooks.append(network.register_forward_pre_hook(lambda *_: marks.append(clock.mark())))
        hooks.append(network.register_forward_hook(lambda *_: marks.append(clock.mark())))
    try:
        yield marks
    finally:
        for hook in hooks:
            hook.remove()


def _seconds(marks: list[Any], clock: Clock) -> float:
    return sum(clock.seconds(begin, end)[0] for begin, end in list(pairwise(marks))[::2])
