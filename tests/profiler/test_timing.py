import gc
import time
from pathlib import Path

import pytest
import torch

from profiler import timing
from profiler.timing import Clock, choose_device, describe_device, seconds_per_call, undisturbed


class FakeDevice:
    """An asynchronous device: a launch takes the host 1 ms, the kernel runs 50 ms behind its back."""

    def __init__(self):
        self.host = self.busy_until = 0.0

    def launch(self):
        self.host += 0.001
        self.busy_until = max(self.busy_until, self.host) + 0.050

    def synchronise(self):
        self.host = max(self.host, self.busy_until)

    @property
    def clock(self):
        return Clock(self.synchronise, lambda: self.host)


class ScriptedClock:
    """A clock that shows `times` one after the other."""

    def __init__(self, times):
        self.times = iter(times)
        self.clock = Clock(lambda: None, lambda: next(self.times))


def test_O33_the_clock_waits_for_the_device():
    device = FakeDevice()

    (seconds,) = seconds_per_call(device.launch, clock=device.clock, warmup=0, samples=1)

    assert seconds == pytest.approx(0.051)


def test_O33_work_queued_before_the_first_reading_is_not_counted():
    device = FakeDevice()
    for _ in range(10):
        device.launch()

    (seconds,) = seconds_per_call(device.launch, clock=device.clock, warmup=0, samples=1)

    assert seconds == pytest.approx(0.051)


def test_O33_without_synchronising_the_same_device_looks_fifty_times_faster():
    device = FakeDevice()
    clock = Clock(lambda: None, lambda: device.host)

    assert seconds_per_call(device.launch, clock=clock, warmup=0, samples=1) == pytest.approx([0.001])


def test_O34_the_time_of_a_loop_is_divided_by_its_calls():
    clock = ScriptedClock([0.0, 0.100, 7.0, 7.200]).clock

    assert seconds_per_call(lambda: None, clock=clock, warmup=0, samples=2, inner=20) == pytest.approx([0.005, 0.010])


def test_O35_warm_up_calls_are_made_and_not_timed():
    device, costs, calls = FakeDevice(), iter([0.912, 0.034, 0.0302, 0.0301, 0.030, 0.0301, 0.0302]), []

    def call():
        calls.append(next(costs))
        device.host += calls[-1]

    times = seconds_per_call(call, clock=device.clock, warmup=2, samples=5)

    assert times == pytest.approx([0.0302, 0.0301, 0.030, 0.0301, 0.0302])
    assert sorted(times)[2] == pytest.approx(0.0301)
    assert len(calls) == 7


def test_O36_the_clock_cannot_go_backwards():
    assert Clock.for_device(torch.device("cpu")).read is time.perf_counter
    assert time.get_clock_info("perf_counter").monotonic


def test_O36_a_step_of_the_wall_clock_leaves_durations_alone(monkeypatch):
    monkeypatch.setattr(time, "time", iter([100.0, 99.5]).__next__)
    clock = ScriptedClock([5.0, 5.25]).clock

    assert seconds_per_call(lambda: None, clock=clock, warmup=0, samples=1) == [0.25]


def test_O37_a_duration_below_the_tick_is_reported_as_it_is():
    clock = ScriptedClock([5.0, 5.0]).clock

    assert seconds_per_call(lambda: None, clock=clock, warmup=0, samples=1) == [0.0]


def test_a_cuda_clock_synchronises_its_own_device(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    device = torch.device("cuda:1")

    Clock.for_device(device).now()

    assert waited == [device]


class FakeEvent:
    """A CUDA event: noted by the device when it gets there, 0.25 s after the one before; times in ms."""

    noted = 0.0

    def __init__(self, enable_timing):
        assert enable_timing
        self.waited = False

    def record(self, stream):
        FakeEvent.noted += 250.0
        self.time, self.stream = FakeEvent.noted, stream

    def synchronize(self):
        self.waited = True

    def elapsed_time(self, later):
        return later.time - self.time


def test_the_parts_of_a_round_on_cuda_lie_between_events_and_the_host_waits_for_the_last_alone(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "synchronize", None)
    clock = Clock.for_device(torch.device("cuda:1"))

    marks = [clock.mark() for _ in range(3)]

    assert clock.seconds(*marks) == [0.25, 0.25]
    assert [mark.waited for mark in marks] == [False, False, True]
    assert {mark.stream for mark in marks} == {"stream of cuda:1"}


def test_marks_on_a_cpu_are_readings_of_the_clock():
    clock = ScriptedClock([1.0, 1.5, 3.5]).clock

    assert clock.seconds(clock.mark(), clock.mark(), clock.mark()) == [0.5, 2.0]


def test_O39_no_garbage_is_collected_while_undisturbed():
    assert gc.isenabled()
    with undisturbed():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_O39_collection_is_switched_on_again_after_an_error():
    with pytest.raises(KeyboardInterrupt), undisturbed():
        raise KeyboardInterrupt
    assert gc.isenabled()


def test_O39_collection_that_was_off_stays_off():
    gc.disable()
    try:
        with undisturbed():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_O39_timed_calls_run_undisturbed():
    states = []

    seconds_per_call(lambda: states.append(gc.isenabled()), clock=Clock(lambda: None), warmup=0, samples=3)

    assert states == [False, False, False]
    assert gc.isenabled()


@pytest.mark.parametrize(("available", "chosen"), [(False, "cpu"), (True, "cuda")])
def test_auto_takes_cuda_where_there_is_one(monkeypatch, available, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)

    assert choose_device("auto") == torch.device(chosen)
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["tpu", "", "cuda:x", "CPU"])
def test_a_device_that_torch_does_not_know_is_refused(name):
    with pytest.raises(ValueError, match=f"`device` must be auto, cpu or cuda.*got '{name}'"):
        choose_device(name)


@pytest.mark.parametrize("name", ["meta", "mps", "xpu:0"])
def test_a_device_that_cannot_be_timed_is_refused(name):
    with pytest.raises(ValueError, match=f"`device` must be auto, cpu or cuda.*got '{name}'"):
        choose_device(name)


def test_cuda_without_a_device_is_refused_with_a_remedy(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ValueError, match=r"'cuda:0'.*no CUDA device; use --device cpu"):
        choose_device("cuda:0")


def test_a_cuda_device_beyond_the_last_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ValueError, match=r"'cuda:2'.*2 CUDA devices"):
        choose_device("cuda:2")


def test_a_cpu_is_described_with_its_threads():
    assert describe_device(torch.device("cpu")) == f"cpu, {torch.get_num_threads()} threads"


def test_no_other_file_reads_a_clock():
    """The docstring of `timing` says that it is the only one."""
    folder = Path(timing.__file__).parent
    words = ("import time", "perf_counter", "time.time(", "cuda.synchronize")
    users = {path.name for path in folder.rglob("*.py") if any(word in path.read_text() for word in words)}
    assert users == {"timing.py"}
