"""Check every claim of the theory by a method of its own, and print one table.

    python -m theory.verify                      # under two minutes
    python -m theory.verify --thorough           # more instances, larger sizes
    python -m theory.verify --json claims.json   # the same as a file

Some claims that are commonly made are false as stated: they are expected to fail, and appear with a counterexample.
Exit code 0: every verdict is the expected one; 1: some are not, or a check broke; 2: the command cannot run.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import shutil
import sys
import textwrap
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import tyro
from tqdm import tqdm

from theory import claims, strict_json
from theory.claims.claim import Claim, Finding, Verdict
from theory.tables import replacing

WIDE = 110
"""Columns from which method and coverage have columns of their own; below they stand under the claim."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Check every claim of the theory."""

    thorough: bool = False
    """Cover more instances and larger sizes; takes minutes."""
    json: Path | None = None
    """Write the table as strict JSON too."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A claim, the part of the theory it belongs to, and what its check found or which exception ended it."""

    part: str
    claim: Claim
    finding: Finding | None
    error: BaseException | None
    seconds: float

    @property
    def expected(self) -> bool:
        """Whether the verdict is what the project believes; a check that broke or met NaN has none to go by."""
        if self.finding is None or self.finding.verdict != self.claim.expected:
            return False
        numbers = (self.finding.worst_error, self.finding.p_value)
        return not any(number is not None and math.isnan(number) for number in numbers)


def collect() -> Iterator[tuple[str, Claim]]:
    """Yield the name of each file of `theory.claims` with each of its claims; a file without `CLAIMS` is an error."""
    for module in pkgutil.iter_modules(claims.__path__):
        if module.name != "claim":
            for claim in importlib.import_module(f"{claims.__name__}.{module.name}").CLAIMS:
                yield module.name, claim


def check(listed: Sequence[tuple[str, Claim]], *, thorough: bool) -> Iterator[Row]:
    """Run the checks one after the other.

    Each runs in a worker thread, whose exception is a value: it belongs to the row of its claim and hides no other.
    """
    with ThreadPoolExecutor(max_workers=1) as worker:
        for part, claim in listed:
            begin = time.perf_counter()
            outcome = worker.submit(claim.check, thorough)
            error = outcome.exception()
            finding = None if error else outcome.result()
            seconds = time.perf_counter() - begin
            yield Row(part=part, claim=claim, finding=finding, error=error, seconds=seconds)


def table(rows: Sequence[Row], width: int) -> str:
    """Return the claims as a table of ``width`` columns, and one line that sums it up."""
    widths = _widths(width)
    lines = [*_line({name: name for name in widths}, widths), "-" * width]
    for before, row in zip([None, *rows], rows, strict=False):
        if before and before.part != row.part:
            lines.append("")
        lines += _entry(row, widths, width)
    return "\n".join([*lines, "-" * width, _summary(rows)])


def document(rows: Sequence[Row], *, thorough: bool) -> dict[str, Any]:
    """The table for a JSON file; null where a check has no such number."""
    return {
        "schema_version": 1,
        "thorough": thorough,
        "as_expected": all(row.expected for row in rows),
        "claims": [
            {
                "part": row.part,
                "statement": row.claim.statement,
                "source": row.claim.source,
                "method": row.claim.method,
                "expected": row.claim.expected,
                "verdict": row.finding.verdict if row.finding else None,
                "covered": row.finding.covered if row.finding else None,
                "worst_error": row.finding.worst_error if row.finding else None,
                "p_value": row.finding.p_value if row.finding else None,
                "counterexample": row.finding.counterexample if row.finding else None,
                "error": f"{type(row.error).__name__}: {row.error}" if row.error else None,
                "seconds": row.seconds,
            }
            for row in rows
        ],
    }


def main(argv: list[str] | None = None) -> int:
    """Parse, check, write, print."""
    settings = tyro.cli(Settings, args=argv, prog="python -m theory.verify", description=__doc__)
    if settings.json is not None and not settings.json.absolute().parent.is_dir():
        print(f"error: --json must name a file in a folder that exists, got {settings.json}", file=sys.stderr)
        return 2
    listed = list(collect())
    rows = []
    for row in tqdm(check(listed, thorough=settings.thorough), total=len(listed), desc="checking", unit="claim"):
        rows.append(row)
        if row.error:
            traceback.print_exception(row.error, file=sys.stderr)
    if settings.json is not None:
        with replacing(settings.json) as partial:
            text = strict_json.dumps(document(rows, thorough=settings.thorough), indent=2)
            partial.write_text(text + "\n", encoding="utf-8")
    print(table(rows, min(shutil.get_terminal_size((120, 0)).columns, 160)))
    return 0 if all(row.expected for row in rows) else 1


def _widths(width: int) -> dict[str, int]:
    """The columns of a table and how wide each is; the claim takes what is left."""
    fixed = {"where": 15, "method": 11, "covered": width // 4, "error / p": 9, "verdict": 11}
    if width < WIDE:
        del fixed["method"], fixed["covered"]
    return {"claim": width - sum(fixed.values()) - 2 * len(fixed), **fixed}


def _entry(row: Row, widths: Mapping[str, int], width: int) -> list[str]:
    """The lines of one claim: its cells, and below them what has no column."""
    claim, finding = row.claim, row.finding
    cells = {"claim": claim.statement, "where": claim.source, "method": str(claim.method), "verdict": _verdict(row)}
    below = []
    if finding:
        cells |= {"covered": finding.covered, "error / p": _worst(finding)}
        if "covered" not in widths:
            below.append(f"{claim.method}: {finding.covered}")
        if finding.counterexample:
            below.append(f"counterexample: {finding.counterexample}")
    if row.error:
        below.append(f"the check broke: {type(row.error).__name__}: {row.error}")
    wrapped = [textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ") for text in below]
    return [*_line(cells, widths), *chain.from_iterable(wrapped)]


def _worst(finding: Finding) -> str:
    """The p-value of a statistical test, else the largest error; nothing where a proof has neither."""
    if finding.p_value is not None:
        return f"p={finding.p_value:.2g}"
    return "" if finding.worst_error is None else f"{finding.worst_error:.3g}"


def _verdict(row: Row) -> str:
    if row.finding is None:
        return "BROKEN"
    verdict = row.finding.verdict
    if not row.expected:
        return f"{verdict.upper()}, against expectation"
    return verdict if verdict == Verdict.HOLDS else f"{verdict}, as expected"


def _line(cells: Mapping[str, str], widths: Mapping[str, int]) -> list[str]:
    """The lines of one row of a table; long cells are wrapped."""
    columns = [textwrap.wrap(cells.get(name, ""), width) for name, width in widths.items()]
    rows = zip_longest(*columns, fillvalue="")
    return ["  ".join(map(str.ljust, parts, widths.values())).rstrip() for parts in rows]


def _summary(rows: Sequence[Row]) -> str:
    """How many claims have each verdict, and how many of these are not as expected."""
    counts = Counter(row.finding.verdict if row.finding else "broken" for row in rows)
    verdicts = ", ".join(f"{verdict} {count}" for verdict, count in counts.items())
    unexpected = sum(not row.expected for row in rows)
    judged = f"{unexpected} not as expected" if unexpected else "all as expected"
    return f"{len(rows)} claims ({verdicts}): {judged}; {sum(row.seconds for row in rows):.0f} s"


if __name__ == "__main__":
    sys.exit(main())
