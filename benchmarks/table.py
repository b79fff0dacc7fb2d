"""What every part of the benchmarks returns: a titled table, to print and to keep."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from profiler import summary


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a header; `note` says what the columns mean and on what they were measured."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""

    def __str__(self) -> str:
        return "\n".join([f"\n{self.title}", summary.table(self.header, self.rows), *self.note.splitlines()])


def spread(values: Sequence[float], digits: int = 2) -> tuple[str, str]:
    """Median and quartiles in words."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f}", f"{low:.{digits}f} - {high:.{digits}f}"
