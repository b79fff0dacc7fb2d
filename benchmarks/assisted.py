"""Our loop with an autoregressive drafter against the assisted generation of transformers, on the same two models.

Both draft as many tokens a round from the same distributions, and transformers' `assistant_ensemble_weight` w is
linear acceptance at the leniency 1 - w: tokens per round must agree within their errors, or the race is not fair.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from tqdm import tqdm

from benchmarks.generation import generate
from benchmarks.table import Table, spread
from profiler import pairs, tasks
from profiler.decode import decode
from profiler.pairs import Pair, PairSpec
from profiler.pairs.families import AutoregressiveSpec
from profiler.streams import Streams
from profiler.timing import Clock, undisturbed
from theory.acceptance import LinearAcceptance
from theory.estimates import clustered_ratio

LENIENCIES = (0.0, 0.5)


@dataclass
class Runs:
    """What one way of decoding did, prompt by prompt."""

    tokens: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        """Tokens per second of each prompt."""
        return [tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True)]

    @property
    def tokens_per_round(self) -> tuple[float, float]:
        """Over all prompts, and its standard error, which takes prompts for independent and rounds not."""
        return clustered_ratio(self.tokens, self.rounds, range(len(self.rounds)))


def run(spec: PairSpec, *, prompts: int, seed: int) -> Table:
    """Tokens per second and per round of both at leniencies 0 and .5, and the ratio of speeds prompt by prompt."""
    pair = pairs.load(autoregressive(spec))
    _draft_whole_blocks(pair)
    clock = Clock.for_device(pair.device)
    chosen = [pair.encode(prompt.text) for prompt in tasks.load(spec.task.name).prompts(prompts, seed)]
    rows = []
    for leniency in LENIENCIES:
        ways: list[Callable[[list[int], int], tuple[int, int]]] = [
            lambda ids, request, x=leniency: _ours(pair, ids, x, Streams(seed=seed, request=request)),
            lambda ids, request, x=leniency: _theirs(pair, ids, x, request),
        ]
        ours, theirs = both = Runs(), Runs()
        for way in ways:
            way(chosen[0], 0)
        with undisturbed():
            for request, ids in enumerate(tqdm(chosen, desc=f"assisted, leniency {leniency:g}")):
                order = (0, 1) if request % 2 == 0 else (1, 0)
                for which in order:
                    begin = clock.now()
                    tokens, rounds = ways[which](ids, request)
                    both[which].seconds.append(clock.now() - begin)
                    both[which].tokens.append(tokens)
                    both[which].rounds.append(rounds)
        rows.append(_row(leniency, ours, theirs))
    return Table(
        title=f"Autoregressive drafter, block {spec.block_size}: our loop against transformers' assisted generation "
        f"({spec.name}'s models, {prompts} prompts):",
        header=("leniency", "tokens/s", "transformers", "ratio", "quartiles", "tok/round", "transformers", "z"),
        rows=rows,
        note="  z: the difference of tokens per round in standard errors; above 4 the two would not do the same.",
    )


def autoregressive(spec: PairSpec) -> PairSpec:
    """A pair's verifier with its drafter as a causal language model, sampled as the verifier is.

    A masked drafter with a causal prefix reads clean text as such a model does.
    """
    sampled = {name: getattr(spec.verifier, name) for name in ("temperature", "top_k", "top_p")}
    drafter = AutoregressiveSpec(
        family="autoregressive", checkpoint=spec.drafter.checkpoint, dtype=spec.drafter.dtype, **sampled
    )
    return dataclasses.replace(spec, drafter=drafter, efforts=(1,))


def _draft_whole_blocks(pair: Pair) -> None:
    """Have transformers draft as many tokens in every round, however sure the drafter is."""
    config = pair.drafter.model.generation_config  # type: ignore[attr-defined]
    config.num_assistant_tokens = pair.spec.block_size
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0


def _ours(pair: Pair, ids: list[int], leniency: float, streams: Streams) -> tuple[int, int]:
    rule, limit = LinearAcceptance(leniency=leniency), pair.spec.task.token_limit
    rounds = list(decode(pair, ids, effort=1, rule=rule, streams=streams, token_limit=limit))
    return sum(len(each.tokens) for each in rounds), len(rounds)


def _theirs(pair: Pair, ids: list[int], leniency: float, request: int) -> tuple[int, int]:
    """Its first round reads the prompt too, so that it has one forward of the verifier for each round."""
    forwards: list[None] = []
    counter = pair.verifier.model.register_forward_hook(lambda *_: forwards.append(None))
    tokens = generate(
        pair,
        ids,
        request,
        assistant_model=pair.drafter.model,  # type: ignore[attr-defined]
        assistant_ensemble_weight=1 - leniency if leniency else None,
    )
    counter.remove()
    return tokens, len(forwards)


def _row(leniency: float, ours: Runs, theirs: Runs) -> tuple[str, ...]:
    ratios = [mine / other for mine, other in zip(ours.speeds, theirs.speeds, strict=True)]
    (mine, error), (other, other_error) = ours.tokens_per_round, theirs.tokens_per_round
    return (
        f"{leniency:g}",
        f"{statistics.median(ours.speeds):.0f}",
        f"{statistics.median(theirs.speeds):.0f}",
        *spread(ratios),
        f"{mine:.2f} +- {error:.2f}",
        f"{other:.2f} +- {other_error:.2f}",
        f"{(mine - other) / math.hypot(error, other_error):+.1f}",
    )
