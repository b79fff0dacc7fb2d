"""The same on every device: run on the CPU everywhere, and on CUDA where there is one."""

import dataclasses
import json
import warnings

import pytest
import torch

from profiler import calibrate, pairs, sampling
from profiler.decode import decode
from profiler.streams import Streams
from profiler.timing import Clock
from tests.profiler.commands import Command
from tests.profiler.drafters.checks import PROMPT
from tests.profiler.drafters.kinds import KINDS, write_pair
from tests.profiler.pairs.test_random_weights import built, logits
from tests.profiler.pairs.test_random_weights import small as small
from tests.profiler.scripted import prompt_ids
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.calibration import Calibration
from theory.coupled import CoupledAcceptance

no_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=no_cuda)])
def device(request):
    return torch.device(request.param)


@pytest.mark.parametrize(
    ("rule", "effort"),
    [(LinearAcceptance(leniency=0.0), 2), (LinearAcceptance(leniency=0.5), 1), (CactusAcceptance(budget=0.5), 4)],
)
def test_a_device_decodes_the_text_of_the_cpu(tiny_pair_file, tiny_pair, device, rule, effort):
    """In float32 and by the same uniforms; a difference would need a uniform within rounding of a threshold."""
    pair = pairs.load(str(tiny_pair_file), device=device.type)
    rounds = []
    for each in (pair, tiny_pair):
        streams = Streams(seed=0, request=0)
        rounds.append(list(decode(each, prompt_ids(each), effort=effort, rule=rule, streams=streams, token_limit=24)))

    assert [each.tokens for each in rounds[0]] == [each.tokens for each in rounds[1]]
    for ours, theirs in zip(*rounds, strict=True):
        assert ours.divergence == pytest.approx(theirs.divergence, abs=1e-4)
        assert ours.draft_seconds > 0


@no_cuda
@pytest.mark.parametrize("rule", [CactusAcceptance(budget=0.5), CoupledAcceptance()])
def test_a_cuda_host_waits_for_the_verdict_alone(tiny_pair_file, rule):
    """Apart from the clock, which waits on purpose: torch warns of what waits without being asked to."""
    pair = dataclasses.replace(pairs.load(str(tiny_pair_file), device="cuda"), stop_ids=frozenset())
    streams = Streams(seed=0, request=0)
    rounds = decode(pair, prompt_ids(pair), effort=4, rule=rule, streams=streams, token_limit=24)
    next(rounds)  # loads what is loaded once
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            next(rounds)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    waits = [str(each.message) for each in caught if "synchronizing" in str(each.message)]
    assert len(waits) == 1, waits


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_decodes_the_text_of_the_cpu_whatever_drafts(kind, device, tmp_path):
    path, rule = write_pair(kind, tmp_path / "pair"), LinearAcceptance(leniency=0.0)
    pair, expected = (
        dataclasses.replace(pairs.load(str(path), device=name), stop_ids=frozenset()) for name in (device.type, "cpu")
    )
    for effort in KINDS[kind][3]:
        texts = []
        for each in (pair, expected):
            streams = Streams(seed=0, request=0)
            rounds = decode(each, PROMPT, effort=effort, rule=rule, streams=streams, token_limit=14)
            texts.append([round_.tokens for round_ in rounds])

        assert texts[0] == texts[1]
        assert sum(map(len, texts[0])) == 14


def test_tokens_are_drawn_alike(device):
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(64, 1000, generator=generator).softmax(-1)
    uniforms = torch.rand(64, generator=generator, dtype=torch.float64)

    assert torch.equal(sampling.draw(probs.to(device), uniforms.to(device)).cpu(), sampling.draw(probs, uniforms))


def test_a_clock_waits_for_what_the_device_was_asked(device):
    clock = Clock.for_device(device)
    matrix = torch.rand(1024, 1024, device=device)
    begin = clock.now()
    for _ in range(20):
        matrix = torch.tanh(matrix @ matrix)
    end = clock.now()

    assert end > begin
    if device.type == "cuda":
        assert torch.cuda.current_stream().query(), "nothing was still running when the clock was read"


@pytest.mark.parametrize("kind", ["qwen2", "gemma4_text", "diffusion_gemma"])
def test_random_weights_are_on_the_device_and_take_no_more_than_their_memory(device, kind, monkeypatch):
    monkeypatch.setattr("tests.profiler.pairs.test_random_weights.DEVICE", device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    model = built(kind)

    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}.values()
    assert {tensor.device.type for tensor in tensors} == {device.type}
    assert logits(model).isfinite().all()
    if device.type == "cuda":
        blocks = sum(-(-tensor.numel() * tensor.element_size() // 512) * 512 for tensor in tensors)
        assert torch.cuda.max_memory_allocated() - before <= 2 * blocks + 2**25, "the drawing needs room for one matrix"


def test_latency_is_measured_on_the_device(device, small, tmp_path, capsys):
    command = Command(calibrate.main, small(block=0), tmp_path / "results", capsys)
    options = ("--device", device.type, "--weights", "random", "--prompts", "2", "--run", "mine")
    command(*options, "--latency.rounds", "3", "--latency.prompt-tokens", "12")

    calibration = Calibration.from_json(command.run("mine") / "calibration.json")
    assert calibration.latency.verify_seconds > 0
    assert calibration.divergence == (None, None)
    origin = json.loads((command.run("mine") / "manifest.json").read_text())["provenances"]
    assert ("cpu" in next(iter(origin.values()))["device"]) == (device.type == "cpu")
