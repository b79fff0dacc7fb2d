import dataclasses

import pytest
import torch

from profiler import pairs
from profiler.decode import decode
from profiler.pairs.compiled import compile_forwards
from profiler.streams import Streams
from tests.profiler.drafters.checks import LOSSLESS, PROMPT
from tests.profiler.drafters.kinds import KINDS, write_pair
from tests.profiler.scripted import counting, prompt_ids


@pytest.fixture
def compiled(monkeypatch):
    """What torch was asked to compile; a stand-in for its compiler runs the forward as it is."""
    asked = []

    def stand_in(forward, **options):
        asked.append(options)
        return forward

    monkeypatch.setattr(torch, "compile", stand_in)
    return asked


def recompute(pair):
    """The pair as described with a drafter that reads everything anew in every pass."""
    drafter = dataclasses.replace(pair.spec.drafter, causal_prefix=False)
    return dataclasses.replace(pair, spec=dataclasses.replace(pair.spec, drafter=drafter))


def tokens(pair):
    rounds = decode(pair, prompt_ids(pair), effort=2, rule=LOSSLESS, streams=Streams(seed=0, request=0), token_limit=12)
    return [token for each in rounds for token in each.tokens]


def test_both_forwards_are_compiled_and_the_text_is_the_same(tiny_pair_file, tiny_pair, compiled):
    pair = pairs.load(str(tiny_pair_file))
    compile_forwards(pair, "default")

    assert compiled == [{"dynamic": True}, {"dynamic": True, "mode": "default"}]
    assert tokens(pair) == tokens(tiny_pair)


def test_nothing_is_compiled_unless_asked_for(tiny_pair, compiled):
    compile_forwards(tiny_pair, "off")

    assert compiled == []


def test_cuda_graphs_are_for_drafters_without_a_cache(tiny_pair_file, compiled):
    pair = pairs.load(str(tiny_pair_file))

    with pytest.raises(ValueError, match=r"--compile reduce-overhead needs a drafter without a cache.*'masked'"):
        compile_forwards(pair, "reduce-overhead")
    assert compiled == []
    compile_forwards(recompute(pair), "reduce-overhead")
    assert compiled == [{"dynamic": True}, {"dynamic": True, "mode": "reduce-overhead"}]


@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_forwards_of_each_family_are_those_that_run(kind, tmp_path, monkeypatch):
    """Or else a run would be recorded as compiled that is not."""
    pair = pairs.load(str(write_pair(kind, tmp_path)), device="cpu")
    forwards = []
    monkeypatch.setattr(torch, "compile", lambda forward, **_: forwards.append(counting(forward)) or forwards[-1])
    if kind == "lora":
        with pytest.raises(ValueError, match="--compile needs two networks, and pair's family 'lora'"):
            compile_forwards(pair, "default")
        assert forwards == []
        return
    compile_forwards(pair, "default")
    rounds = list(decode(pair, PROMPT, effort=1, rule=LOSSLESS, streams=Streams(seed=0, request=0), token_limit=12))

    verifying, drafting = (forward.calls for forward in forwards)
    assert verifying == len(rounds) + 1  # the prompt
    assert drafting == sum(each.passes for each in rounds)
