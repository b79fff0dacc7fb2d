"""Processes that train side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def finished(context: Any, work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> bool:
    """Run a process of a multiprocessing context for each of the `arguments`; whether all ended well."""
    workers = [context.Process(target=work, args=each) for each in arguments]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return not any(worker.exitcode for worker in workers)
