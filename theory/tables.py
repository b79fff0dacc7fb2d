"""Tables: frozen dataclasses of NumPy columns that are checked once and stored as Parquet."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeAlias, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

StrPath: TypeAlias = str | PathLike[str]


class Column(NamedTuple):
    """What a column may hold: its type, the NumPy kinds taken for it, its axes, and what pads short blocks."""

    dtype: type
    kinds: str
    axes: int = 1
    padding: float = 0


Texts: TypeAlias = Annotated[NDArray[np.str_], Column(np.str_, "UOT")]
Counts: TypeAlias = Annotated[NDArray[np.int64], Column(np.int64, "iu")]
Reals: TypeAlias = Annotated[NDArray[np.float64], Column(np.float64, "fiu")]
SlotCounts: TypeAlias = Annotated[NDArray[np.int64], Column(np.int64, "iu", axes=2, padding=-1)]
SlotReals: TypeAlias = Annotated[NDArray[np.float64], Column(np.float64, "fiu", axes=2, padding=np.nan)]

Constraint: TypeAlias = tuple[str, Any, str, str]
"""Column, where it holds (a mask of the column's shape), the rule, and the remedy."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """N rows, in columns of shape (N,) or, for block slots, (N, B).

    A subclass annotates its columns with `Texts`, `Counts`, `Reals`, `SlotCounts` or `SlotReals` and says in
    `constraints` what must hold; construction raises ValueError naming column, rule, value and remedy.
    """

    schema_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name, column in _columns(type(self)).items():
            object.__setattr__(self, name, _as_column(getattr(self, name), name, column))
        self._check_shapes()
        for name, holds, rule, remedy in self.constraints():
            _require(holds, getattr(self, name), name, rule, remedy)

    def constraints(self) -> Iterator[Constraint]:
        """Yield what must hold in every row."""
        yield from ()

    def __len__(self) -> int:
        return len(getattr(self, next(iter(_columns(type(self))))))

    def select(self, rows: ArrayLike) -> Self:
        """Return the table of some rows, chosen by a mask (N,) or by indices."""
        rows = np.asarray(rows)
        return type(self)(**{name: getattr(self, name)[rows] for name in _columns(type(self))})

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """Stack tables; blocks of different size are padded to the widest."""
        if not tables:
            raise ValueError(f"`tables` must hold at least one {cls.__name__} table, got none; record something first")
        return cls(
            **{name: _stack([getattr(t, name) for t in tables], column) for name, column in _columns(cls).items()}
        )

    def write(self, path: StrPath) -> None:
        """Write Parquet, with the table's name and schema version in the file's metadata."""
        columns = pa.table({name: _to_arrow(getattr(self, name)) for name in _columns(type(self))})
        metadata = {"table": type(self).__name__, "schema_version": str(self.schema_version)}
        with replacing(path) as partial:
            pq.write_table(columns.replace_schema_metadata(metadata), partial)

    @classmethod
    def read(cls, path: StrPath) -> Self:
        """Read what `write` wrote.

        Raises
        ------
        ValueError
            The file is no such table, has another schema version or other columns, or breaks a constraint.
        """
        try:
            stored = pq.read_table(path)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} must be a Parquet file, got damaged or other content ({error})") from error
        metadata = stored.schema.metadata or {}
        name, version = (metadata.get(key, b"none").decode() for key in (b"table", b"schema_version"))
        if name != cls.__name__:
            raise ValueError(f"{path} must hold a {cls.__name__} table, got {name}; check the path")
        refuse_other_schema(path, version, str(cls.schema_version), stored.column_names, list(_columns(cls)))
        try:
            return cls(**{name: _from_arrow(stored[name].combine_chunks()) for name in _columns(cls)})
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def _check_shapes(self) -> None:
        for axis, unit in enumerate(("rows", "slots")):
            named = [name for name, column in _columns(type(self)).items() if column.axes > axis]
            for name in named:
                size, first = getattr(self, name).shape[axis], getattr(self, named[0]).shape[axis]
                if size != first:
                    msg = f"`{name}` must have as many {unit} as `{named[0]}` ({first}), got {size}; pad or trim it"
                    raise ValueError(msg)


def refuse_other_schema(path: StrPath, found: str, known: str, present: Sequence[str], expected: Sequence[str]) -> None:
    """Raise ValueError unless a file has the version and the fields that this code reads; nothing is guessed."""
    missing = [name for name in expected if name not in present]
    unknown = [name for name in present if name not in expected]
    if found != known or missing or unknown:
        fields = f"missing fields: {', '.join(missing) or 'none'}; unknown fields: {', '.join(unknown) or 'none'}"
        msg = f"{path} must have schema version {known}, got {found} ({fields}); "
        raise ValueError(msg + "record it again, or read it with the release that wrote it")


@contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """Yield a temporary path whose file takes the place of ``path`` on success, so that no half file is left behind."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _columns(table: type[Table]) -> dict[str, Column]:
    hints = get_type_hints(table, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def _as_column(values: ArrayLike, name: str, column: Column) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape == (0,):
        array = array.reshape((0,) * column.axes)
    if array.ndim != column.axes:
        shape = ("(N,)", "(N, B)")[column.axes - 1]
        raise ValueError(f"`{name}` must have shape {shape}, got {array.shape}; give each row its entry")
    if array.size and array.dtype.kind not in column.kinds:
        raise ValueError(f"`{name}` must hold {column.dtype.__name__}, got {array.dtype}; convert it first")
    return array.astype(column.dtype, copy=False)


def _require(holds: Any, values: NDArray[Any], name: str, rule: str, remedy: str) -> None:
    if not np.all(holds):
        index = tuple(int(i) for i in np.argwhere(~holds)[0])
        place = ", ".join(f"{unit} {i}" for unit, i in zip(("row", "slot"), index, strict=False))
        raise ValueError(f"`{name}` must {rule}, got {values[index]} in {place}; {remedy}")


def _stack(arrays: list[NDArray[Any]], column: Column) -> NDArray[Any]:
    if column.axes == 2:
        width = max(array.shape[1] for array in arrays)
        gaps = [((0, 0), (0, width - array.shape[1])) for array in arrays]
        arrays = [np.pad(a, gap, constant_values=column.padding) for a, gap in zip(arrays, gaps, strict=True)]
    return np.concatenate(arrays)


def _to_arrow(values: NDArray[Any]) -> Any:
    if values.ndim == 1:
        return pa.array(values)
    return pa.array(list(values), pa.list_(pa.from_numpy_dtype(values.dtype), values.shape[1]))


def _from_arrow(stored: Any) -> NDArray[Any]:
    if not pa.types.is_fixed_size_list(stored.type):
        return np.asarray(stored.to_numpy(zero_copy_only=False))
    return np.asarray(stored.flatten().to_numpy(zero_copy_only=False)).reshape(len(stored), stored.type.list_size)
