"""What a report is made of: sections of text, tables that can be sorted, and figures embedded as data."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import matplotlib as mpl
from matplotlib.figure import Figure

UNKNOWN = "–"
NOT_TIMED = "Latency was not measured, so that throughput cannot be predicted. Record again with timing."
MODELS = {
    "iid": "Eq. 7",
    "position": "one rate per position",
    "replay": "replay of the recorded drafts",
    "anchored": "replay, anchored by a second recording",
}


@dataclass(frozen=True)
class Cell:
    """What a table shows, and what it is sorted by; an empty value stays at the end."""

    shown: str
    value: str


@dataclass(frozen=True)
class Column:
    """A heading, and whether words stand below it."""

    name: str
    text: bool = False


@dataclass(frozen=True)
class Row:
    """Cells, one for each column."""

    cells: Sequence[Cell]
    emphasis: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a caption that says what they are."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure as a data URL, and what it shows in words."""

    source: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands below it, in this order."""

    title: str
    answer: str = ""
    paragraphs: Sequence[str] = ()
    warnings: Sequence[str] = ()
    figures: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()
    facts: Sequence[tuple[str, str]] = ()

    @property
    def anchor(self) -> str:
        """Name of the section in the page's address."""
        return "-".join(self.title.lower().split())


def render(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return the page as one HTML text that needs nothing else; whatever is inserted is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(title=title, subtitle=subtitle, sections=sections)


def drawing(figure: Figure, description: str) -> Drawing:
    """Embed a figure as SVG; the same figure gives the same text."""
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "two-tradeoffs"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return Drawing(source=f"data:image/svg+xml;base64,{encoded}", description=description)


def table(caption: str, columns: Iterable[str], rows: Iterable[Sequence[Cell]], *, emphasis: int = -1) -> Table:
    """Return a table; a heading that ends with ``<`` stands over words. One row may be emphasised by its number."""
    headings = [Column(name.rstrip("<"), text=name.endswith("<")) for name in columns]
    return Table(
        caption=caption,
        columns=headings,
        rows=[Row(cells, emphasis=place == emphasis) for place, cells in enumerate(rows)],
    )


def words(text: object) -> Cell:
    """A cell that is sorted by its text."""
    return Cell(str(text), str(text))


def number(value: float | None, digits: int = 0, *, unit: str = "", scale: float = 1.0) -> Cell:
    """A cell that is sorted by its number; not known: a dash."""
    if value is None or math.isnan(value):
        return Cell(UNKNOWN, "")
    return Cell(f"{scale * value:.{digits}f}{unit}", repr(float(value)))


def percent(value: float | None, digits: int = 1, *, sign: bool = False) -> Cell:
    """A share or a relative error."""
    if value is None or math.isnan(value):
        return Cell(UNKNOWN, "")
    return Cell(f"{100 * value:{'+' if sign else ''}.{digits}f} %", repr(float(value)))


def interval(low: float | None, high: float | None, digits: int = 3) -> Cell:
    """The ends of a 95 % interval, sorted by the lower one."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return Cell(UNKNOWN, "")
    return Cell(f"{low:.{digits}f} – {high:.{digits}f}", repr(float(low)))
