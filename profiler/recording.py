"""Record requests: every cell of a grid on every prompt, interleaved, into a run folder; and read them back."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from profiler import tasks
from profiler.decode import Round, decode
from profiler.pairs import Pair
from profiler.store import Key, RunFolder
from profiler.streams import Streams
from profiler.tasks.task import Prompt
from profiler.timing import undisturbed
from theory.acceptance import LOSSLESS, Rule
from theory.measurements import Requests
from theory.rounds import Rounds

WARMUP_REQUESTS = 1
_PER_ROUND = [field.name for field in dataclasses.fields(Round) if field.name != "tokens"]
_PER_SLOT = {"p_drafted": np.nan, "q_drafted": np.nan, "divergence": np.nan, "commit_step": -1}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One setting of the two knobs. `replica` 1 repeats a cell with other random numbers, for the noise floor."""

    effort: int
    rule: Rule
    replica: int = 0


def record(
    pair: Pair,
    cells: Sequence[Cell],
    prompts: Sequence[Prompt],
    *,
    run: RunFolder,
    seed: int,
    most_rounds: int | None = None,
) -> None:
    """Decode every prompt in every cell and journal each request; what the run already holds is not repeated.

    The cells of one prompt follow each other, so that a drift of the machine meets all of them alike. Every effort is
    warmed on the first prompt before anything is timed. With `most_rounds`, requests are left after so many rounds.
    """
    todo = [
        (index, prompt, cell)
        for index, prompt in enumerate(prompts)
        for cell in cells
        if _key(prompt, cell) not in run.records
    ]
    if not todo:
        return
    run.claim()
    for cell in {cell.effort: cell for cell in cells}.values():
        for _ in range(WARMUP_REQUESTS):
            _request(pair, prompts[0], cell, Streams(seed=seed, request=0), most_rounds)
    for index, prompt, cell in tqdm(todo, desc="recording", unit="request"):
        streams = Streams(seed=seed, request=2 * index + cell.replica)
        run.append(_key(prompt, cell), _request(pair, prompt, cell, streams, most_rounds))


def verifier_alone() -> Cell:
    """The baseline: the verifier with its cache, one token a round."""
    return Cell(effort=0, rule=LOSSLESS)


def read_rounds(records: Mapping[Key, dict[str, Any]]) -> Rounds:
    """The recorded rounds of speculative requests as one table."""
    rows = [(key, row) for key, row in records.items() if key.effort > 0]
    width = max((len(slots) for _, row in rows for slots in row["rounds"]["p_drafted"]), default=0)
    columns: dict[str, list[Any]] = {name: [] for name in ("prompt", "round", "replica", "effort", "rule", "emitted")}
    columns |= {name: [] for name in _PER_ROUND}
    for key, row in rows:
        count = len(row["emitted"])
        for name in ("prompt", "replica", "effort", "rule"):
            columns[name] += [getattr(key, name)] * count
        columns["round"] += range(count)
        columns["emitted"] += row["emitted"]
        for name in _PER_ROUND:
            values = row["rounds"][name]
            if name in _PER_SLOT:
                values = [slots + [_PER_SLOT[name]] * (width - len(slots)) for slots in values]
            columns[name] += values
    arrays = {name: _array(name, values) for name, values in columns.items()}
    return Rounds(**arrays)


def read_requests(records: Mapping[Key, dict[str, Any]]) -> Requests:
    """The recorded requests as one table, the verifier alone (effort 0) included."""
    rows = [{**vars(key), **row["request"]} for key, row in records.items()]
    names = [field.name for field in dataclasses.fields(Requests)]
    columns = {name: [row[name] for row in rows] for name in names}
    columns["correct"] = [math.nan if value is None else float(value) for value in columns["correct"]]
    return Requests(**{name: np.array(values) for name, values in columns.items()})


def _key(prompt: Prompt, cell: Cell) -> Key:
    return Key(prompt.id, cell.effort, cell.rule.label, cell.replica)


def _request(
    pair: Pair, prompt: Prompt, cell: Cell, streams: Streams, most_rounds: int | None = None
) -> dict[str, Any]:
    """Decode one request and describe it as a journal record."""
    ids = pair.encode(prompt.text)
    with undisturbed():
        generator = decode(
            pair, ids, effort=cell.effort, rule=cell.rule, streams=streams, token_limit=pair.spec.task.token_limit
        )
        rounds = list(itertools.islice(generator, most_rounds))
    tokens = [token for each in rounds for token in each.tokens]
    text = pair.tokenizer.decode(tokens)
    columns = {name: [_stored(getattr(each, name)) for each in rounds] for name in _PER_ROUND}
    decode_seconds = [
        sum(part for part in (each.draft_seconds, each.verify_seconds, each.overhead_seconds) if part == part)
        for each in rounds
    ]
    return {
        "request": {
            "tokens": len(tokens),
            "seconds": sum(decode_seconds),
            "correct": tasks.load(pair.spec.task.name).is_correct(prompt, text) if prompt.reference else None,
            "ended": rounds[-1].ended,
        },
        "text": text,
        "emitted": [len(each.tokens) for each in rounds],
        "rounds": columns,
    }


def _stored(value: Any) -> Any:
    """A value as the journal holds it: null where nothing was measured."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _array(name: str, values: list[Any]) -> np.ndarray:
    """A column; a null of the journal is a number that was not measured."""
    if name.endswith("_seconds"):
        return np.array([np.nan if value is None else value for value in values], dtype=float)
    return np.array(values)
