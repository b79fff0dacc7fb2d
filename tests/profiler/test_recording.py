import dataclasses
import math

import numpy as np
import pytest

from profiler import recording, tasks
from profiler.recording import Cell, read_requests, read_rounds, record, verifier_alone
from profiler.store import open_run
from profiler.streams import Streams
from theory.acceptance import CactusAcceptance, LinearAcceptance

LOSSLESS, LENIENT = LinearAcceptance(leniency=0.0), LinearAcceptance(leniency=0.5)
CELLS = [
    verifier_alone(),
    Cell(effort=1, rule=LOSSLESS),
    Cell(effort=2, rule=LENIENT),
    Cell(effort=1, rule=LOSSLESS, replica=1),
]
PROMPTS = tasks.load("word_problems").prompts(2, seed=0)


def run_at(path):
    return open_run(path, settings={}, provenance={"commit": "aaa"})


@pytest.fixture(scope="module")
def recorded(tiny_pair, tmp_path_factory):
    """A run with every cell on two prompts."""
    run = run_at(tmp_path_factory.mktemp("recorded"))
    record(tiny_pair, CELLS, PROMPTS, run=run, seed=0)
    return run


def without_seconds(records):
    return {
        key: {
            "request": {name: value for name, value in row["request"].items() if name != "seconds"},
            "text": row["text"],
            "emitted": row["emitted"],
            "rounds": {name: value for name, value in row["rounds"].items() if not name.endswith("_seconds")},
        }
        for key, row in records.items()
    }


def test_every_prompt_is_recorded_in_every_cell_and_the_cells_of_a_prompt_follow_each_other(recorded):
    cells = [(0, "linear:0", 0), (1, "linear:0", 0), (2, "linear:0.5", 0), (1, "linear:0", 1)]

    assert [(key.prompt, key.effort, key.rule, key.replica) for key in recorded.records] == [
        (prompt.id, *cell) for prompt in PROMPTS for cell in cells
    ]


def test_the_rounds_of_a_request_add_up_to_its_text(recorded, tiny_pair):
    for key, row in recorded.records.items():
        assert sum(row["emitted"]) == row["request"]["tokens"]
        ids = tiny_pair.tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        assert len(ids) == row["request"]["tokens"]
        assert row["request"]["ended"] == row["rounds"]["ended"][-1]
        assert set(row["rounds"]["passes"]) == {key.effort}


def test_O40_the_seconds_of_a_request_leave_its_prefill_out(recorded):
    for row in recorded.records.values():
        rounds = row["rounds"]
        parts = [rounds[name] for name in ("draft_seconds", "verify_seconds", "overhead_seconds")]
        assert row["request"]["seconds"] == pytest.approx(sum(each or 0.0 for part in parts for each in part))
        assert rounds["prefill_seconds"][0] > 0
        assert rounds["prefill_seconds"][1:] == [None] * (len(row["emitted"]) - 1)


def test_completions_are_scored_by_the_task(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks.load("word_problems"), "is_correct", lambda prompt, text: prompt is PROMPTS[1])
    run = run_at(tmp_path)
    record(tiny_pair, [CELLS[1]], PROMPTS, run=run, seed=0)

    assert [row["request"]["correct"] for row in run.records.values()] == [0.0, 1.0]


def test_warm_up_comes_first_with_every_effort_and_is_not_recorded(tiny_pair, tmp_path, monkeypatch):
    efforts = []

    def noted(*args, effort, **settings):
        efforts.append(effort)
        return original(*args, effort=effort, **settings)

    original = recording.decode
    monkeypatch.setattr(recording, "decode", noted)
    run = run_at(tmp_path)
    record(tiny_pair, CELLS, PROMPTS, run=run, seed=0)

    assert efforts[:-8] == [0, 1, 2] * recording.WARMUP_REQUESTS
    assert efforts[-8:] == [0, 1, 2, 1] * 2
    assert len(run.records) == 8


def test_requests_have_noise_of_their_own_which_cells_share(tiny_pair, tmp_path, monkeypatch):
    """Efforts and rules are compared on the same numbers; another prompt or a replica has others."""
    used = []

    def noted(pair, ids, *, streams, **settings):
        used.append(streams)
        return original(pair, ids, streams=streams, **settings)

    original = recording.decode
    monkeypatch.setattr(recording, "decode", noted)
    record(tiny_pair, CELLS, PROMPTS, run=run_at(tmp_path), seed=7)

    first, other, second, third = (Streams(seed=7, request=request) for request in range(4))
    assert used[-8:] == [first, first, first, other, second, second, second, third]


def test_a_replica_is_another_sample_of_the_same_cell(recorded):
    one, two = (row for key, row in recorded.records.items() if key.prompt == PROMPTS[0].id and key.effort == 1)

    assert one["text"] != two["text"]


def test_a_complete_run_is_not_recorded_again(recorded, tiny_pair, monkeypatch):
    monkeypatch.setattr(recording, "decode", None)
    before = dict(recorded.records)
    record(tiny_pair, CELLS, PROMPTS, run=recorded, seed=0)

    assert recorded.records == before


@pytest.mark.parametrize("interrupted_after", [0, 1, 5])
def test_an_interrupted_recording_ends_like_an_uninterrupted_one(
    recorded, tiny_pair, tmp_path, monkeypatch, interrupted_after
):
    run, left = run_at(tmp_path), [3 * recording.WARMUP_REQUESTS + interrupted_after]

    def interrupted(*args, **settings):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return original(*args, **settings)

    original = recording.decode
    with monkeypatch.context() as patch:
        patch.setattr(recording, "decode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            record(tiny_pair, CELLS, PROMPTS, run=run, seed=0)
    assert len(run_at(tmp_path).records) == interrupted_after

    again = run_at(tmp_path)
    record(tiny_pair, CELLS, PROMPTS, run=again, seed=0)

    assert without_seconds(again.records) == without_seconds(recorded.records)
    assert list(run_at(tmp_path).records) == list(recorded.records)


def test_the_table_of_rounds_holds_what_decode_said(recorded):
    rounds = read_rounds(recorded.records)
    speculative = [(key, row) for key, row in recorded.records.items() if key.effort]

    assert len(rounds) == sum(len(row["emitted"]) for _, row in speculative)
    assert rounds.p_drafted.shape == (len(rounds), 8)
    assert 0 not in rounds.effort
    begin = 0
    for key, row in speculative:
        count = len(row["emitted"])
        part = rounds.select(np.arange(begin, begin + count))
        begin += count
        assert set(part.prompt) == {key.prompt}
        assert part.round.tolist() == list(range(count))
        assert part.emitted.tolist() == row["emitted"]
        assert part.p_drafted.tolist() == row["rounds"]["p_drafted"]
        assert part.commit_step.tolist() == row["rounds"]["commit_step"]
        assert math.isnan(part.prefill_seconds[-1]) == (count > 1)


def test_blocks_of_different_length_are_padded(recorded):
    records = {key: row for key, row in recorded.records.items() if key.effort}
    key, row = next(iter(records.items()))
    short = {
        name: [slots[:3] if isinstance(slots, list) else slots for slots in values]
        for name, values in row["rounds"].items()
    }
    short |= {"drafted": [3] * len(row["emitted"]), "accepted": [min(3, each) for each in row["rounds"]["accepted"]]}
    short["eos_slot"] = [-1] * len(row["emitted"])
    row = row | {"rounds": short, "emitted": [each + 1 for each in short["accepted"]]}
    rounds = read_rounds(records | {key: row})

    mine = rounds.select(np.arange(len(row["emitted"])))
    assert np.isnan(mine.p_drafted[:, 3:]).all()
    assert (mine.commit_step[:, 3:] == -1).all()
    assert not np.isnan(mine.p_drafted[:, :3]).any()


def test_a_recording_of_the_verifier_alone_has_no_rounds_and_can_be_written(recorded, tmp_path):
    records = {key: row for key, row in recorded.records.items() if not key.effort}
    rounds = read_rounds(records)
    rounds.write(tmp_path / "rounds.parquet")

    assert len(rounds) == 0
    assert len(type(rounds).read(tmp_path / "rounds.parquet")) == 0
    assert len(read_requests(records)) == 2


def test_the_table_of_requests_includes_the_verifier_alone(recorded):
    requests = read_requests(recorded.records)

    assert requests.effort.tolist() == [0, 1, 2, 1] * 2
    assert requests.replica.tolist() == [0, 0, 0, 1] * 2
    assert requests.tokens.tolist() == [row["request"]["tokens"] for row in recorded.records.values()]
    assert (requests.seconds > 0).all()


def test_cells_of_cactus_rules_are_recorded_under_their_label(tiny_pair, tmp_path):
    run = run_at(tmp_path)
    cells = [Cell(effort=1, rule=CactusAcceptance(budget=0.5)), Cell(effort=1, rule=LENIENT)]
    record(tiny_pair, cells, PROMPTS[:1], run=run, seed=0)

    assert {key.rule for key in run.records} == {"cactus:0.5", "linear:0.5"}
    assert set(read_rounds(run.records).rule) == {"cactus:0.5", "linear:0.5"}


def test_the_remaining_canvas_gives_blocks_that_shrink(tiny_pair, tmp_path):
    canvas = dataclasses.replace(tiny_pair, spec=dataclasses.replace(tiny_pair.spec, block_size=0))
    run = run_at(tmp_path)
    record(canvas, [Cell(effort=2, rule=LOSSLESS)], PROMPTS, run=run, seed=0)
    rounds = read_rounds(run.records)

    assert rounds.p_drafted.shape[1] == 24
    assert len(set(rounds.drafted)) > 1
    assert (rounds.drafted == rounds.proposed.sum(1)).all()
