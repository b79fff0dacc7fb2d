import dataclasses

import pytest
import torch

from profiler import pairs
from profiler.decode import decode
from profiler.pairs.compiled import compile_forwards
from profiler.streams import Streams
from tests.profiler.scripted import prompt_ids
from theory.acceptance import LinearAcceptance


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
    rule = LinearAcceptance(leniency=0)
    rounds = decode(pair, prompt_ids(pair), effort=2, rule=rule, streams=Streams(seed=0, request=0), token_limit=12)
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


def test_a_network_that_both_models_share_is_compiled_once(tiny_pair_file, compiled):
    pair = pairs.load(str(tiny_pair_file))
    pair.drafter.model = pair.verifier.model

    compile_forwards(pair, "default")

    assert compiled == [{"dynamic": True}]
