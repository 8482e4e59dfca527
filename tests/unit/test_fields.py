"""Kept fields: rows in files of units, text in UTF-8, row groups that depend on rows alone."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstok.output import fields
from penstok.output.fields import FieldRows, FieldSpool, UnitFields, iter_parquet
from penstok.output.layout import Layout
from penstok.output.spools import SpoolError
from penstok.types import FieldColumn, RecordFields

if TYPE_CHECKING:
    from pathlib import Path

VALUES: list[list[bytes | None]] = [
    [f"a{idx}".encode() * (idx % 9) if idx % 4 else None for idx in range(100)],
    [None if idx % 3 else "é".encode() * idx for idx in range(100)],
]
NAMES = ("one", "two")


def make_rows(columns: list[list[bytes | None]]) -> FieldRows:
    return FieldRows(
        [np.array([-1 if each is None else len(each) for each in column]) for column in columns],
        [b"".join(each or b"" for each in column) for column in columns],
    )


def cut(bounds: list[int]) -> list[FieldRows]:
    return [make_rows([column[a:b] for column in VALUES]) for a, b in pairwise(bounds)]


def make_fields(columns: list[list[bytes | None]]) -> RecordFields:
    made = []
    for column in columns:
        lengths = np.array([len(each or b"") for each in column], np.int64)
        ends = np.cumsum(lengths)
        valid = np.array([each is not None for each in column])
        data = memoryview(b"".join(each or b"" for each in column))
        made.append(FieldColumn(data, ends - lengths, ends, valid))
    return RecordFields(np.arange(len(columns[0])) * 10, made)


def values_of(rows: FieldRows) -> list[list[bytes | None]]:
    found: list[list[bytes | None]] = []
    for lengths, data in zip(rows.lengths, rows.data, strict=True):
        column, at = list[bytes | None](), 0
        for length in lengths.tolist():
            column.append(None if length < 0 else data[at : at + length])
            at += max(length, 0)
        found.append(column)
    return found


@pytest.mark.parametrize("bounds", [[0, 100], [0, 1, 2, 50, 100], [0, 33, 66, 99, 100]])
@pytest.mark.parametrize(("most_rows", "most_bytes"), [(7, 1 << 20), (1000, 300), (7, 60)])
def test_row_groups_depend_on_rows_alone(
    monkeypatch: pytest.MonkeyPatch, bounds: list[int], most_rows: int, most_bytes: int
) -> None:
    monkeypatch.setattr(fields, "GROUP_ROWS", most_rows)
    monkeypatch.setattr(fields, "GROUP_BYTES", most_bytes)
    counts: dict[str, int] = {}
    whole = b"".join(iter_parquet(cut([0, 100]), NAMES, 100, {}))
    assert b"".join(iter_parquet(cut(bounds), NAMES, 100, counts)) == whole
    file = pq.ParquetFile(pa.BufferReader(whole))
    assert file.metadata.num_row_groups > 3
    table = file.read()
    for name, column in zip(NAMES, VALUES, strict=True):
        assert table[name].to_pylist() == [
            None if each is None else each.decode() for each in column
        ]
        assert counts[name] == sum(each is not None for each in column)
    sizes = [file.metadata.row_group(idx).num_rows for idx in range(file.num_row_groups)]
    assert max(sizes) <= most_rows


def test_no_rows_are_a_file_with_columns() -> None:
    data = b"".join(iter_parquet([], NAMES, 0, {}))
    assert pq.read_table(pa.BufferReader(data)).column_names == list(NAMES)


def test_another_number_of_rows_is_refused() -> None:
    with pytest.raises(SpoolError, match="100 rows for 101 documents"):
        list(iter_parquet(cut([0, 100]), NAMES, 101, {}))


@pytest.mark.parametrize(
    "chosen", [[0, 1, 2], [5], [0, 2, 3, 4, 99], [1, 3, 5], list(range(100)), [98, 99]]
)
def test_rows_are_chosen_by_position(chosen: list[int]) -> None:
    rows = FieldRows.choose(make_fields(VALUES), np.array(chosen) * 10)
    assert values_of(rows) == [[column[idx] for idx in chosen] for column in VALUES]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([b"a\xffb", None, b"c"], ["a\ufffdb", None, "c"]),
        # Two halves of one character.
        ([b"x\xc3", b"\xa9y"], ["x\ufffd", "\ufffdy"]),
        ([b"x\xc3", None, b"", b"\xa9"], ["x\ufffd", None, "", "\ufffd"]),
        (["é".encode(), b""], ["é", ""]),
    ],
)
def test_values_are_valid_text(values: list[bytes | None], expected: list[str | None]) -> None:
    positions = np.arange(len(values)) * 10
    rows = FieldRows.choose(make_fields([values]), positions)
    assert values_of(rows) == [[None if each is None else each.encode() for each in expected]]


def test_files_of_units_are_joined(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path), 2, None, work="", kept_fields=NAMES)
    spool = FieldSpool(layout.spool_path("train", "fields"), 2)
    made, bounds = make_fields(VALUES), [0, 40, 41, 100]
    # Units are done in any order, and a unit may be repeated.
    for number in (2, 0, 1, 0):
        first, last = bounds[number : number + 2]
        unit = UnitFields(layout, number)
        for at in range(first, last, 13):
            unit.append("train", made, np.arange(at, min(at + 13, last)) * 10)
        unit.append("val", made, np.empty(0, np.int64))
        unit.finish({"train": first, "val": 0})
    assert not layout.spool_path("val", "fields").exists()
    for first, count in ((0, 100), (0, 40), (39, 3), (99, 1), (41, 0), (50, 20)):
        rows = list(spool.iter_rows(first, count))
        found = [[each for row in rows for each in values_of(row)[idx]] for idx in range(2)]
        assert found == [column[first : first + count] for column in VALUES]
    assert spool.has(0, 40)
    assert not spool.has(0, 39)
    assert not spool.has(7, 3)
    assert spool.has(7, 0)
    restored = FieldSpool(tmp_path / "again", 2)
    units = [(first, last - first) for first, last in pairwise(bounds)]
    restored.restore(spool.iter_rows(0, 100), [*units[:1], (40, 0), *units[1:]])
    for path in (tmp_path / "again").iterdir():
        assert path.name in {"0.rows", "40.rows", "41.rows"}
    assert all(restored.has(*unit) for unit in units)


@pytest.mark.parametrize(
    ("at", "bit"), [(0, 1), (7, 0x80), (8, 1), (15, 0x80), (20, 1), (-1, 1), (-20, 1)]
)
def test_a_damaged_file_of_a_unit_is_found(tmp_path: Path, at: int, bit: int) -> None:
    layout = Layout(str(tmp_path), 2, None, work="", kept_fields=NAMES)
    unit = UnitFields(layout, 0)
    unit.append("train", make_fields(VALUES), np.arange(100) * 10)
    unit.finish({"train": 0, "val": 0})
    path = layout.spool_path("train", "fields") / "0.rows"
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)
    spool = FieldSpool(path.parent, 2)
    assert not spool.has(0, 100)
    with pytest.raises(SpoolError):
        list(spool.iter_rows(0, 100))
    path.write_bytes(data[: len(data) // 2])
    assert not spool.has(0, 100)
