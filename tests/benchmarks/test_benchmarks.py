import dataclasses
import itertools
import json

import pytest
import torch

from benchmarks import __main__ as benchmarks
from benchmarks import assisted, bandwidth, overhead, precision, sampler, speedup
from benchmarks.table import Table, spread
from profiler import pairs
from profiler.timing import Clock
from tests.profiler.conftest import one_thread, tiny_pair_file
from tests.profiler.drafters.checks import PROMPT
from tests.profiler.drafters.kinds import BLOCK, KINDS, write_pair

__all__ = ["one_thread", "tiny_pair_file"]

FORWARDS_OF_A_DRAFT = {
    "uniform": 2,  # encoder and decoder
    "dflash": 2,  # and the verifier's head
    "dspark": 2 + 2 * BLOCK,  # and its own, and for each token both tables of what follows it
    "autoregressive": BLOCK,
}
"""At effort 1, where it is not one."""


@pytest.fixture
def spec(tiny_pair_file):
    return pairs.read(str(tiny_pair_file))


def column(table, name):
    return [row[table.header.index(name)] for row in table.rows]


def test_every_way_of_decoding_has_a_speed(spec):
    table = speedup.run(spec, prompts=2, seed=0)

    assert len(table.rows) == 2 + 2 * len(spec.efforts)
    assert "drafter alone, K = 2" in column(table, "way")
    assert all(float(speed) > 0 for speed in column(table, "tokens/s"))
    assert column(table, "ratio")[0] == "1.00"


def test_ours_and_theirs_accept_as_many_tokens(spec):
    table = assisted.run(spec, prompts=12, seed=0)

    assert column(table, "leniency") == ["0", "0.5"]
    assert all(float(ratio) > 0 for ratio in column(table, "ratio"))
    assert all(abs(float(z)) < 4.9 for z in column(table, "z"))  # false alarm 1e-6


def test_the_drafter_of_the_race_samples_as_the_verifier_does(spec):
    drafter = assisted.autoregressive(spec).drafter

    assert drafter.family == "autoregressive"
    assert drafter.checkpoint == spec.drafter.checkpoint
    assert drafter.sampling == spec.verifier.sampling


def test_tokens_per_round_have_the_error_of_independent_prompts():
    runs = assisted.Runs(tokens=[8, 4], rounds=[2, 2], seconds=[2.0, 2.0])

    assert runs.speeds == [4, 2]
    assert runs.tokens_per_round == (3, pytest.approx(1))


def test_the_parts_of_a_round_add_up(spec):
    table = overhead.run([spec], prompts=2, seed=0)

    assert column(table, "K") == [f"{effort}" for effort in spec.efforts]
    for name in ("round", "drafter", "verifier", "around them", "verdict"):
        assert all(float(value) > 0 for value in column(table, name))
    assert all(0 < float(share) < 100 for share in column(table, "outside %"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_forward_of_a_family_is_booked_once_and_to_the_model_that_ran_it(kind, tmp_path, monkeypatch):
    """By a clock that counts how often it is read: a forward takes 1, the whole round 2 for each and 3 beside."""
    clock = Clock(lambda: None, read=itertools.count().__next__)
    monkeypatch.setattr(Clock, "for_device", lambda device: clock)
    spec = pairs.read(str(write_pair(kind, tmp_path)))
    monkeypatch.setattr(pairs.Pair, "encode", lambda pair, prompt: PROMPT)
    table = overhead.run([dataclasses.replace(spec, efforts=(1,))], prompts=2, seed=0)

    names = ("round", "drafter", "verifier", "around them", "verdict")
    ((whole, drafter, verifier, around, verdict),) = zip(
        *([float(each) / 1e3 for each in column(table, name)] for name in names), strict=True
    )
    assert drafter == FORWARDS_OF_A_DRAFT.get(kind, 1)
    assert verifier == verdict == 1
    assert around == drafter + verifier + 2
    assert whole == 2 * (drafter + verifier) + 3


def test_both_samplers_are_timed_for_every_block_and_way_to_sample():
    table = sampler.run(blocks=(1, 3), vocabulary=300, samples=1)

    assert column(table, "B") == ["1"] * 3 + ["3"] * 3
    assert "T 0.7, top-k 20, top-p 0.8" in column(table, "sampling")
    assert all(float(value) > 0 for name in ("ours", "transformers") for value in column(table, name))


def test_a_forward_is_held_against_the_bytes_of_its_model(spec):
    table = bandwidth.run([spec], samples=2, rows=64, columns=64)

    model = pairs.load(spec).verifier.model
    weights = sum(each.numel() for each in model.parameters()) * 4 / 1e6
    assert column(table, "tokens") == ["1", "9"]
    assert all(0.9 * weights < float(memory) < 2 * weights for memory in column(table, "MB"))  # and 200 cached tokens
    assert all(float(value) > 0 for value in column(table, "forward ms"))


def test_a_dtype_moves_the_verifiers_distributions_a_little_and_its_own_not_at_all(spec, monkeypatch):
    moved, error = (float(value) for value in column(precision.run([spec], prompts=2, seed=0), "mean")[0].split(" +- "))
    monkeypatch.setattr(precision, "DTYPES", ("float32", "float32"))

    assert 0 < error < moved < 0.1
    assert column(precision.run([spec], prompts=2, seed=0), "mean") == ["0.0000 +- 0.0000"]


def test_the_distributions_of_an_answer_are_those_after_each_beginning_of_it(spec):
    pair = pairs.load(spec)
    prompt, answer = [5, 6, 7], [8, 9, 10]
    laws = precision._laws(pair.verifier, prompt, answer, pair.device)
    for index, law in enumerate(laws):
        text = torch.tensor(prompt + answer[:index])
        pair.verifier.start(text)
        assert torch.equal(law.argsort(), pair.verifier.score(text[-1:], text[:0])[0].argsort())

    assert laws.shape == (len(answer), pair.vocabulary_size)


def test_the_command_runs_the_parts_asked_for_and_keeps_them(tiny_pair_file, tmp_path, capsys):
    kept = tmp_path / "bench.json"
    pair = str(tiny_pair_file)
    benchmarks.main(
        ["--only", "overhead,speedup", "--pair", pair, "--pairs", pair, "--prompts", "2", "--json", str(kept)]
    )
    printed, stored = capsys.readouterr().out, json.loads(kept.read_text())

    assert printed.index("Outside the forwards") < printed.index("Lossless decoding")
    assert len(stored["overhead"]["rows"]) == 3
    assert "sampler" not in stored
    assert "torch" in stored["versions"]


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--only", "speed"], "--only must be some of speedup,"), (["--prompts", "1"], "--prompts must be at least 2")],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        benchmarks.main(options)


def test_a_table_is_printed_with_its_title_and_note():
    table = Table(title="Speed:", header=("a", "b"), rows=[("1", "22")], note="  a: one\n  b: two")

    assert str(table) == "\nSpeed:\n  a   b\n  1  22\n  a: one\n  b: two"
    assert spread([1, 2, 3]) == ("2.00", "1.00 - 3.00")
