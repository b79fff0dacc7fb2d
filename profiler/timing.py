"""The only file that knows clocks and devices."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`; ``auto`` is CUDA where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device: torch.device | None
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"`device` must be auto, cpu or cuda[:index], got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`device` {name!r} asked for, but this torch sees no CUDA device; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"`device` {name!r} asked for, but this torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def describe_device(device: torch.device) -> str:
    """The device in words, as a recording's identity keeps it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"


@dataclass(frozen=True)
class Clock:
    """A monotonic clock (case O36) that lets the device finish before it is read (case O33).

    The parts of a round lie between marks. On CUDA they are events, which take their place in the device's own order
    of work: the host does not wait between the parts, only for the last mark.
    """

    synchronise: Callable[[], None]
    read: Callable[[], float] = time.perf_counter
    event: Callable[[], Any] | None = None

    @classmethod
    def for_device(cls, device: torch.device) -> Clock:
        """The clock of a device; a CPU has nothing to wait for."""
        if device.type == "cuda":
            return cls(lambda: torch.cuda.synchronize(device), event=lambda: _event(device))
        return cls(lambda: None)

    def now(self) -> float:
        """Seconds since an arbitrary moment, after all work that was queued has ended."""
        self.synchronise()
        return self.read()

    def mark(self) -> Any:
        """A moment in the device's order of work, for `seconds`."""
        return self.now() if self.event is None else self.event()

    def seconds(self, *marks: Any) -> list[float]:
        """Seconds from each mark to the next, once the device has reached the last."""
        if self.event is None:
            return [later - earlier for earlier, later in pairwise(marks)]
        marks[-1].synchronize()
        return [earlier.elapsed_time(later) / 1e3 for earlier, later in pairwise(marks)]


def _event(device: torch.device) -> torch.cuda.Event:
    """An event that the device has been asked to note the time of."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection inside: one full collection in one sample can turn a fitted slope (case O39)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def seconds_per_call(
    call: Callable[[], object], *, clock: Clock, warmup: int, samples: int, inner: int = 1
) -> list[float]:
    """Seconds of one call, `samples` times, each the mean of `inner` calls (cases O34, O37), after `warmup` (O35)."""
    for _ in range(warmup):
        call()
    times = []
    with undisturbed():
        for _ in range(samples):
            begin = clock.now()
            for _ in range(inner):
                call()
            times.append((clock.now() - begin) / inner)
    return times
