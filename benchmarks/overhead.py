"""What a round spends outside the forward passes of its two models, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any
from unittest import mock

from tqdm import tqdm

from benchmarks.table import Table, spread
from profiler import pairs, tasks
from profiler.decode import decode
from profiler.drafters.draft import Draft
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
    forwards = _Forwards(clock)
    with forwards.watching(pair):
        rounds = list(decode(pair, ids, effort=effort, rule=LOSSLESS, streams=streams, token_limit=limit))
    verdict = sum(each.overhead_seconds for each in rounds)
    whole = sum(each.draft_seconds + each.verify_seconds for each in rounds) + verdict
    drafter, verifier = forwards.seconds("drafter"), forwards.seconds("verifier")
    values = whole, drafter, verifier, whole - drafter - verifier - verdict, verdict
    return [value / len(rounds) for value in values]


class _Forwards:
    """Marks before and after every forward: those of the prompt, then the drafter's and the verifier's in turn.

    Two models may share a network, so that whose forward it is goes by who runs it. Modules are watched down to two
    levels below a network, and the outermost call counts: families also call an encoder or a head on its own.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._marks: dict[str, list[Any]] = {"prompt": [], "drafter": [], "verifier": []}
        self._whose = "prompt"
        self._depth = 0

    @contextmanager
    def watching(self, pair: Pair) -> Iterator[None]:
        """Mark the pair's forwards inside."""
        modules = {
            module
            for network in [*networks(pair.drafter), *networks(pair.verifier)]
            for name, module in network.named_modules()
            if name.count(".") < 2
        }
        hooks = [module.register_forward_pre_hook(self._begin) for module in modules]
        hooks += [module.register_forward_hook(self._end) for module in modules]
        try:
            with mock.patch.object(pair.drafter, "draft", partial(self._draft, pair.drafter.draft)):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def seconds(self, whose: str) -> float:
        """Seconds within the forwards of ``drafter`` or ``verifier``."""
        return sum(self._clock.seconds(begin, end)[0] for begin, end in list(pairwise(self._marks[whose]))[::2])

    def _draft(self, draft: Callable[..., Draft], *args: Any, **kwargs: Any) -> Draft:
        self._whose = "drafter"
        try:
            return draft(*args, **kwargs)
        finally:
            self._whose = "verifier"

    def _begin(self, *_: Any) -> None:
        if self._depth == 0:
            self._marks[self._whose].append(self._clock.mark())
        self._depth += 1

    def _end(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._marks[self._whose].append(self._clock.mark())
