from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from theory.tables import Counts, Reals, SlotCounts, SlotReals, Table, Texts, replacing


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample(Table):
    """A table with every kind of column."""

    name: Texts
    count: Counts
    weight: Reals
    step: SlotCounts
    share: SlotReals

    def constraints(self):
        yield "count", self.count >= 0, "not be negative", "count from 0"
        yield "share", ~(self.share > 1), "be at most 1", "normalise"


def sample(**columns):
    default = {
        "name": ["a", "bc"],
        "count": [1, 2],
        "weight": [0.5, np.nan],
        "step": [[0], [1]],
        "share": [[0.0], [1.0]],
    }
    return Sample(**(default | columns))


def columns_of(table):
    return {name: values.tolist() for name, values in vars(table).items()}


def test_columns_take_lists_and_whole_numbers():
    table = sample(weight=[1, 2])

    assert table.weight.dtype == np.float64
    assert table.name.tolist() == ["a", "bc"]
    assert len(table) == 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"count": [1, -2]}, "`count` must not be negative, got -2 in row 1; count from 0"),
        ({"share": [[0], [1.5]]}, r"`share` must be at most 1, got 1.5 in row 1, slot 0; normalise"),
        ({"count": [1.5, 2]}, "`count` must hold int64, got float64"),
        ({"name": [1, 2]}, "`name` must hold str_, got int64"),
        ({"weight": [[1.0], [2.0]]}, r"`weight` must have shape \(N,\), got \(2, 1\)"),
        ({"share": [0.0, 1.0]}, r"`share` must have shape \(N, B\), got \(2,\)"),
        ({"weight": [1.0]}, r"`weight` must have as many rows as `name` \(2\), got 1"),
        ({"share": [[0.0, 0.0], [1.0, 1.0]]}, r"`share` must have as many slots as `step` \(1\), got 2"),
    ],
)
def test_errors_name_column_rule_value_and_remedy(columns, message):
    with pytest.raises(ValueError, match=message):
        sample(**columns)


def test_select_by_mask_and_by_index():
    assert sample().select([False, True]).name.tolist() == ["bc"]
    assert sample().select([1, 0, 1]).count.tolist() == [2, 1, 2]


def test_concatenate_pads_blocks_to_the_widest():
    both = Sample.concatenate([sample(), sample(step=[[0, 1], [1, 0]], share=[[0.5, 0.5], [1, 0]])])

    assert both.step.tolist() == [[0, -1], [1, -1], [0, 1], [1, 0]]
    assert np.isnan(both.share[:2, 1]).all()
    with pytest.raises(ValueError, match="at least one Sample table"):
        Sample.concatenate([])


def test_written_and_read_back(tmp_path):
    for number, table in enumerate([sample(), sample().select([False, False]), sample(name=["", "ü" * 300])]):
        table.write(tmp_path / f"{number}.parquet")
        again = Sample.read(tmp_path / f"{number}.parquet")

        for name, values in vars(table).items():
            np.testing.assert_array_equal(getattr(again, name), values)
            assert getattr(again, name).dtype.kind == values.dtype.kind


def test_an_empty_table_from_empty_lists(tmp_path):
    table = Sample(name=[], count=[], weight=[], step=[], share=[])
    table.write(tmp_path / "empty.parquet")

    assert len(Sample.read(tmp_path / "empty.parquet")) == 0


def rewrite(path, *, version=b"1", table=b"Sample", drop=(), add=()):
    stored = pq.read_table(path).drop_columns(list(drop))
    for name in add:
        stored = stored.append_column(name, pa.array([0] * len(stored)))
    pq.write_table(stored.replace_schema_metadata({b"schema_version": version, b"table": table}), path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"version": b"0", "drop": ["weight"]},
            "schema version 1, got 0 .missing fields: weight; unknown fields: none",
        ),
        ({"version": b"2", "add": ["mood"]}, "schema version 1, got 2 .missing fields: none; unknown fields: mood"),
        ({"version": b"2"}, "schema version 1, got 2"),
        ({"drop": ["share"]}, "missing fields: share"),
        ({"table": b"Rounds"}, "must hold a Sample table, got Rounds"),
    ],
)
def test_O65_other_schemas_are_refused_by_name(tmp_path, change, message):
    path = tmp_path / "old.parquet"
    sample().write(path)
    rewrite(path, **change)

    with pytest.raises(ValueError, match=message) as error:
        Sample.read(path)
    assert str(path) in str(error.value)


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "damaged.parquet"
    path.write_bytes(b"PAR1 not really")

    with pytest.raises(ValueError, match=r"damaged.parquet must be a Parquet file"):
        Sample.read(path)


def test_rows_that_break_a_rule_are_refused_with_the_file(tmp_path):
    path = tmp_path / "edited.parquet"
    sample().write(path)
    stored = pq.read_table(path)
    stored = stored.set_column(stored.column_names.index("count"), "count", pa.array([-1, 0]))
    pq.write_table(stored, path)

    with pytest.raises(ValueError, match=r"edited.parquet: `count` must not be negative"):
        Sample.read(path)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")

    def fail():
        with replacing(path) as partial:
            partial.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
