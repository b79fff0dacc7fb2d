"""What holds for every family alike: it is loaded from a folder, decodes, and runs without checkpoints too."""

import dataclasses

import pytest
import torch

from profiler import pairs
from profiler.decode import decode, decode_drafter_alone
from profiler.streams import Streams
from tests.profiler import tiny_checkpoints as tiny
from tests.profiler.drafters.checks import LOSSLESS, PROMPT
from tests.profiler.drafters.kinds import BLOCK, KINDS, write_pair
from tests.profiler.scripted import HostReads, noise
from theory.acceptance import CactusAcceptance
from theory.coupled import CoupledAcceptance


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def pair_file(kind, tmp_path_factory):
    return write_pair(kind, tmp_path_factory.mktemp(kind))


def decoded(pair, effort, rule=LOSSLESS):
    endless = dataclasses.replace(pair, stop_ids=frozenset())
    return list(decode(endless, PROMPT, effort=effort, rule=rule, streams=Streams(seed=0, request=0), token_limit=14))


def test_a_pair_of_folders_decodes_at_each_of_its_efforts(kind, pair_file):
    pair = pairs.load(str(pair_file), device="cpu")
    for effort in KINDS[kind][3]:
        rounds = decoded(pair, effort)

        assert sum(len(each.tokens) for each in rounds) == 14
        assert all(token < pair.vocabulary_size for each in rounds for token in each.tokens)
        assert tiny.MASK_ID not in [token for each in rounds for token in each.tokens]
        for each in rounds:
            assert each.drafted == len(each.p_drafted) == len(each.q_drafted) == len(each.commit_step) <= BLOCK
            assert min(each.q_drafted) > 0
            assert each.passes == (each.drafted if kind == "autoregressive" else max(each.commit_step) + 1)


def test_a_family_that_needs_no_verifier_decodes_alone(kind, pair_file):
    pair = dataclasses.replace(pairs.load(str(pair_file), device="cpu"), stop_ids=frozenset())
    streams = Streams(seed=0, request=0)
    for effort in KINDS[kind][3]:
        alone = decode_drafter_alone(pair, PROMPT, effort=effort, streams=streams, token_limit=10)
        if pair.spec.drafter.reads_verifier:
            with pytest.raises(ValueError, match="cannot decode alone"):
                next(alone)
        else:
            blocks = list(alone)
            assert sum(map(len, blocks)) == 10
            assert [len(block) for block in blocks] == {"block": [3, 4, 3]}.get(kind, [4, 4, 2])


def test_in_half_precision_distributions_are_float32_all_the_same(kind, pair_file):
    spec = pairs.read(str(pair_file))
    models = {name: dataclasses.replace(getattr(spec, name), dtype="bfloat16") for name in ("drafter", "verifier")}
    pair = pairs.load(dataclasses.replace(spec, **models), device="cpu")
    pair.verifier.start(torch.tensor(PROMPT))
    with torch.inference_mode():
        draft = pair.drafter.draft(torch.tensor(PROMPT), block=3, effort=1, noise=noise(0, 1, 3))

    assert draft.probs.dtype == torch.float32
    assert (draft.probs.sum(-1) - 1).abs().max() < 1e-6
    assert sum(len(each.tokens) for each in decoded(pair, 1)) == 14


def test_coupled_verification_writes_one_text_whatever_drafts(kind, pair_file):
    """So that families draw by the noise that is theirs: slot by slot where they draw one after another."""
    pair = pairs.load(str(pair_file), device="cpu")
    coupled = CoupledAcceptance()
    alone = [token for each in decoded(pair, 0, coupled) for token in each.tokens]
    for effort in KINDS[kind][3]:
        assert [token for each in decoded(pair, effort, coupled) for token in each.tokens] == alone


@pytest.mark.parametrize("rule", [CactusAcceptance(budget=0.5), CoupledAcceptance()])
def test_the_host_reads_the_verdict_and_never_a_distribution(kind, pair_file, monkeypatch, rule):
    """Once a round; and once a pass where the draft itself ends by what was drawn."""
    lengths, tolist = [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: lengths.append(tensor.numel()) or tolist(tensor))
    pair = pairs.load(str(pair_file), device="cpu")
    for effort in KINDS[kind][3]:
        lengths.clear()
        with HostReads() as reads:
            rounds = decoded(pair, effort, rule)

        assert lengths == [3 + 5 * each.drafted for each in rounds]
        assert reads.count <= (sum(each.passes for each in rounds) if kind == "block" else 0)
        assert reads.count == 0 or effort > 1


def test_a_pair_without_weights_runs_all_the_same(kind, pair_file):
    """To measure what it costs; with one layer of each model too, where a drafter reads the verifier's layers."""
    for layers in (0, 1):
        pair = pairs.load(str(pair_file), device="cpu", random=True, layers=layers)
        (effort, *_) = KINDS[kind][3]

        assert pair.weights["drafter"].startswith("random")
        assert sum(len(each.tokens) for each in decoded(pair, effort)) == 14
        assert next(iter(pair.verifier.model.parameters())).dtype == torch.float32
