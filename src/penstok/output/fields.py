"""The fields of records that a job keeps: one row per document, in a parquet file per token file.

While a job runs, workers write the rows of each unit and split to a file of its own, named by the
number of documents before them; at the end these are joined, row group by row group. All columns
are text: inputs of several formats, or of none that has types, have no common types.
`docs/reference/manifest.md` says how values become text. `documents` asks for the parquet files,
`data` reads them.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from penstok.errors import DamageError
from penstok.faults import fault_point
from penstok.output.spools import SpoolError, lost_spool
from penstok.storage.object_paths import repair_step
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstok.output.layout import Layout
    from penstok.storage.object_paths import OutputPath
    from penstok.types import FieldColumn, RecordFields, Split

__all__ = [
    "SEALING_BYTES",
    "FieldRows",
    "FieldSpool",
    "ParquetSink",
    "UnitFields",
    "count_rows",
    "count_values",
    "iter_finished_rows",
    "iter_parquet",
    "open_parquet",
]

# A row group ends after so many documents or, if they are long, bytes of values; it does not depend
# on units, so the file is the same whatever they are.
GROUP_ROWS: Final = 1 << 16
GROUP_BYTES: Final = 8 << 20
# What pyarrow and a row group take in the process that writes the parquet file.
SEALING_BYTES: Final = 96 << 20
# Fixed, so that the bytes do not depend on pyarrow's defaults; they do depend on its version, which
# is in every parquet file.
_SETTINGS: Final[dict[str, Any]] = {
    "version": "2.6",
    "data_page_version": "1.0",
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": True,
    "write_statistics": False,
    "write_page_checksum": True,
    "store_schema": False,
}
# A frame of a unit's file: how many rows, and how many bytes follow. The last one has no rows; its
# second number is that of all rows, and the checksum of all frames follows.
_FRAME: Final = struct.Struct("<QQ")
_SUFFIX: Final = ".rows"
_READ_ROWS: Final = 1 << 10
_NULL: Final = -1
_MAX_REASON: Final = 200


class FieldRows(Struct, frozen=True):
    """Some rows of kept fields.

    Attributes:
        lengths: Per column, the length of each value in bytes; -1 if there is none.
        data: Per column, the values one after the other, in UTF-8.
    """

    lengths: list[NDArray[np.int64]]
    data: list[bytes]

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.lengths[0]) if self.lengths else 0

    @classmethod
    def choose(cls, fields: RecordFields, positions: NDArray[np.int64]) -> FieldRows:
        """Take the rows of the records that begin at these positions, which ascend."""
        rows = np.searchsorted(fields.positions, positions)
        # Neighbours are copied together: usually all documents of a block but a few go to train.
        ends = np.flatnonzero(np.diff(rows) != 1) + 1
        runs = list(zip([0, *ends.tolist()], [*ends.tolist(), len(rows)], strict=True))
        found = [_take(column, rows, runs) for column in fields.columns]
        return cls([lengths for lengths, _ in found], [data for _, data in found])

    def slice(self, start: int, stop: int) -> FieldRows:
        """Return the rows from `start` to before `stop`."""
        if start == 0 and stop >= self.num_rows:
            return self
        bounds = [_offsets(lengths) for lengths in self.lengths]
        return FieldRows(
            [lengths[start:stop] for lengths in self.lengths],
            [
                data[each[start] : each[min(stop, len(each) - 1)]]
                for data, each in zip(self.data, bounds, strict=True)
            ],
        )

    @classmethod
    def join(cls, pieces: Sequence[FieldRows]) -> FieldRows:
        """Return all rows of some, in order."""
        if len(pieces) == 1:
            return pieces[0]
        columns = range(len(pieces[0].lengths))
        return cls(
            [np.concatenate([piece.lengths[idx] for piece in pieces]) for idx in columns],
            [b"".join(piece.data[idx] for piece in pieces) for idx in columns],
        )

    def to_frame(self) -> bytes:
        """Format them for the file of a unit."""
        columns = zip(self.lengths, self.data, strict=True)
        body = b"".join(lengths.tobytes() + data for lengths, data in columns)
        return _FRAME.pack(self.num_rows, len(body)) + body

    @classmethod
    def from_frame(cls, num_rows: int, body: bytes, num_columns: int) -> FieldRows:
        """Read what `to_frame` wrote, after its numbers.

        Raises:
            ValueError: If it was not written like that.
        """
        rows, at = cls([], []), 0
        for _ in range(num_columns):
            lengths = np.frombuffer(body, "<i8", num_rows, at)
            at += lengths.nbytes
            size = int(_offsets(lengths)[-1])
            rows.lengths.append(lengths)
            rows.data.append(body[at : at + size])
            at += size
        if at != len(body):
            raise ValueError("a frame has another length than its values")
        return rows


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each value begins, and where the last ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    return offsets


def _take(
    column: FieldColumn, rows: NDArray[np.int64], runs: list[tuple[int, int]]
) -> tuple[NDArray[np.int64], bytes]:
    """Return the lengths and the values of some rows of a column."""
    starts, ends, valid = column.starts[rows], column.ends[rows], column.valid[rows]
    lengths = np.where(valid, ends - starts, _NULL)
    if np.array_equal(starts[1:], ends[:-1]):
        data = bytes(column.data[int(starts[0]) : int(ends[-1])])
    else:
        # Values are next to each other in a run: one without a value is empty.
        data = b"".join(
            column.data[int(starts[first]) : int(ends[last - 1])] for first, last in runs
        )
    return _as_utf8(lengths, data)


def _as_utf8(lengths: NDArray[np.int64], data: bytes) -> tuple[NDArray[np.int64], bytes]:
    """Replace bytes that are not UTF-8; parquet has no text with others."""
    offsets = _offsets(lengths)
    firsts = np.frombuffer(data, np.uint8)[offsets[:-1][lengths > 0]]
    try:
        data.decode()
        # Two halves of a character are valid together, but not each in its value.
        if not np.any(firsts & 0xC0 == 0x80):
            return lengths, data
    except UnicodeDecodeError:
        pass
    bounds = offsets.tolist()
    values = [data[start:end].decode(errors="replace").encode() for start, end in pairwise(bounds)]
    repaired = np.array([len(value) for value in values], np.int64)
    return np.where(lengths < 0, _NULL, repaired), b"".join(values)


class UnitFields:
    """The kept fields of one unit on their way to a file per split.

    The number of documents before the unit is known only when all its text is encoded, so files
    have a name of their own until then. They are not open meanwhile.
    """

    def __init__(self, layout: Layout, unit_idx: int) -> None:
        self._layout = layout
        self._unit_idx = unit_idx
        self._files: dict[Split, _UnitFile] = {}

    def append(self, split: Split, fields: RecordFields, positions: NDArray[np.int64]) -> None:
        """Write the fields of documents that begin in the unit, in order."""
        if not len(positions):
            return
        if split not in self._files:
            folder = self._layout.spool_path(split, "fields")
            folder.mkdir(exist_ok=True)
            self._files[split] = _UnitFile(folder / f"unit-{self._unit_idx}.partial")
        self._files[split].append(FieldRows.choose(fields, positions))

    def finish(self, num_before: Mapping[Split, int]) -> None:
        """Push the files to disk, and name them by the documents before the unit."""
        for split, file in self._files.items():
            file.finish(_unit_name(num_before[split]))


class _UnitFile:
    """One file of a unit's rows, which is opened for each write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running = xxhash.xxh3_128()
        self._num_rows = 0
        path.unlink(missing_ok=True)

    def append(self, rows: FieldRows) -> None:
        frame = rows.to_frame()
        self._running.update(frame)
        self._num_rows += rows.num_rows
        with self._path.open("ab") as file:
            file.write(frame)

    def finish(self, name: str) -> None:
        with self._path.open("ab") as file:
            file.write(_FRAME.pack(0, self._num_rows) + self._running.digest())
            file.flush()
            os.fsync(file.fileno())
        fault_point("fields of a unit on disk")
        self._path.rename(self._path.with_name(name))
        fault_point("fields of a unit named")


def _unit_name(num_before: int) -> str:
    return f"{num_before}{_SUFFIX}"


class FieldSpool:
    """The files of the units of a split, once they have their names."""

    def __init__(self, folder: Path, num_columns: int) -> None:
        self._folder = folder
        self._num_columns = num_columns
        self._units: list[int] | None = None

    def has(self, first: int, count: int) -> bool:
        """Return whether a unit has so many rows on disk; `first` documents come before it."""
        if not count:
            return True
        try:
            return sum(rows.num_rows for rows in self._iter_frames(first)) == count
        except SpoolError:
            return False

    def iter_rows(self, first: int, count: int) -> Iterator[FieldRows]:
        """Yield rows of the split, in pieces.

        Raises:
            SpoolError: If a file is missing or damaged.
        """
        for unit in self._find_units(first, count):
            before = unit
            for rows in self._iter_frames(unit):
                low, high = max(first - before, 0), min(first + count - before, rows.num_rows)
                if low < high:
                    yield rows.slice(low, high)
                before += rows.num_rows

    def restore(self, rows: Iterable[FieldRows], units: Iterable[tuple[int, int]]) -> None:
        """Write the rows of a finished split as the files of its units again.

        Args:
            rows: All rows, in pieces.
            units: Per unit, how many documents come before it, and how many it has.
        """
        self._folder.mkdir(exist_ok=True)
        pieces, waiting = iter(rows), FieldRows([], [])
        for num_before, count in units:
            if not count:
                continue
            file, left = _UnitFile(self._folder / "unit.partial"), count
            while left:
                waiting = waiting if waiting.num_rows else next(pieces)
                taken = waiting.slice(0, left)
                file.append(taken)
                waiting = waiting.slice(taken.num_rows, waiting.num_rows)
                left -= taken.num_rows
            file.finish(_unit_name(num_before))

    def drop_after(self, num_documents: int) -> None:
        """Delete files of units after so many documents.

        A killed run may have written them but not recorded their units. If their input has changed
        since then, units do not begin where these did.
        """
        for unit in self._list_units() if self._folder.exists() else ():
            if unit >= num_documents:
                (self._folder / _unit_name(unit)).unlink()

    def _list_units(self) -> list[int]:
        names = (path.name for path in self._folder.iterdir())
        return sorted(int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))

    def _find_units(self, first: int, count: int) -> list[int]:
        """List the units with some of these rows, by the number of documents before each."""
        if not count:
            return []
        if self._units is None:
            try:
                self._units = self._list_units()
            except FileNotFoundError as error:
                raise lost_spool(self._folder, "it is missing") from error
        begin = max(bisect_right(self._units, first) - 1, 0)
        return self._units[begin : bisect_left(self._units, first + count)]

    def _iter_frames(self, unit: int) -> Iterator[FieldRows]:
        path = self._folder / _unit_name(unit)
        running, num_rows = xxhash.xxh3_128(), 0
        try:
            with path.open("rb") as file:
                left = os.fstat(file.fileno()).st_size
                while True:
                    numbers = file.read(_FRAME.size)
                    if len(numbers) < _FRAME.size:
                        raise ValueError("it ends too early")
                    count, size = _FRAME.unpack(numbers)
                    if not count:
                        break
                    if size > left or count > size:
                        raise ValueError("it ends too early")
                    body = file.read(size)
                    running.update(numbers)
                    running.update(body)
                    num_rows += count
                    yield FieldRows.from_frame(count, body, self._num_columns)
                if size != num_rows or file.read() != running.digest():
                    raise ValueError("checksum mismatch")
        except FileNotFoundError as error:
            raise lost_spool(path, "it is missing") from error
        except ValueError as error:
            raise lost_spool(path, str(error)) from error


class ParquetSink:
    """A file for pyarrow that keeps what is written until it is taken."""

    closed: bool = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Keep some bytes."""
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: there is nothing below."""

    def close(self) -> None:
        """Take note that nothing follows."""
        self.closed = True

    def take(self) -> list[bytes]:
        """Return what was written since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces


def iter_parquet(
    rows: Iterable[FieldRows], names: Sequence[str], num_rows: int, values: dict[str, int]
) -> Iterator[bytes]:
    """Yield the bytes of a parquet file, a row group at a time.

    Args:
        rows: Its rows.
        names: Its columns.
        num_rows: How many rows there must be.
        values: Gets, per column, how many rows have a value, once all bytes are made.

    Raises:
        SpoolError: If there is another number of rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in names])
    sink, found = ParquetSink(), 0
    counts = np.zeros(len(names), np.int64)
    with pq.ParquetWriter(sink, schema, **_SETTINGS) as writer:
        for group in _iter_groups(rows):
            found += group.num_rows
            counts += [int((lengths >= 0).sum()) for lengths in group.lengths]
            writer.write_batch(_to_batch(group, schema), row_group_size=GROUP_ROWS)
            yield from sink.take()
        if found != num_rows:
            raise SpoolError(
                f"the kept fields have {found:,} rows for {num_rows:,} documents",
                where=", ".join(names),
                next_step="run the same command with `--overwrite`",
            )
    yield from sink.take()
    values.update(zip(names, counts.tolist(), strict=True))


def _iter_groups(pieces: Iterable[FieldRows]) -> Iterator[FieldRows]:
    """Cut rows into row groups, which do not depend on the pieces that they come in."""
    waiting, num_rows, num_bytes = list[FieldRows](), 0, 0
    for piece in pieces:
        rows = piece
        while rows.num_rows:
            sizes = sum(np.maximum(lengths, 0) for lengths in rows.lengths)
            # The group ends with the row that reaches its size.
            reached = int(np.searchsorted(np.cumsum(sizes), GROUP_BYTES - num_bytes)) + 1
            stop = min(rows.num_rows, reached, GROUP_ROWS - num_rows)
            taken = rows.slice(0, stop)
            waiting.append(taken)
            num_rows, num_bytes = num_rows + stop, num_bytes + sum(map(len, taken.data))
            if num_rows == GROUP_ROWS or num_bytes >= GROUP_BYTES:
                yield FieldRows.join(waiting)
                waiting, num_rows, num_bytes = [], 0, 0
            if stop == rows.num_rows:
                break
            rows = rows.slice(stop, rows.num_rows)
    if waiting:
        yield FieldRows.join(waiting)


def _to_batch(rows: FieldRows, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = []
    for lengths, data in zip(rows.lengths, rows.data, strict=True):
        offsets = pa.py_buffer(_offsets(lengths).astype(np.int32))
        valid = pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
        column = pa.StringArray.from_buffers(len(lengths), offsets, pa.py_buffer(data), valid)
        arrays.append(column)
    return pa.record_batch(arrays, schema=schema)


def iter_finished_rows(path: OutputPath) -> Iterator[FieldRows]:
    """Read the rows of a finished parquet file, in pieces.

    Raises:
        DamageError: If it is missing or damaged.
    """
    with open_parquet(path) as file:
        for batch in file.iter_batches(_READ_ROWS, use_threads=False):
            yield _from_batch(batch)


def _from_batch(batch: pa.RecordBatch) -> FieldRows:
    rows = FieldRows([], [])
    for column in batch.columns:
        values = [None if value is None else value.encode() for value in column.to_pylist()]
        lengths = [_NULL if value is None else len(value) for value in values]
        rows.lengths.append(np.array(lengths, np.int64))
        rows.data.append(b"".join(value for value in values if value))
    return rows


@contextmanager
def open_parquet(path: OutputPath) -> Iterator[Any]:
    """Open a finished file as a `pyarrow.parquet.ParquetFile`.

    Raises:
        DamageError: If it is missing, is not a parquet file, or is damaged where it is read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            yield pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
    except FileNotFoundError as error:
        raise _damage(f"`{path.name}` is missing", path) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        # pyarrow reports damage as an error of the system, but without its number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).partition("\n")[0][:_MAX_REASON]
        raise _damage(f"`{path.name}` cannot be read: {reason}", path) from error


def count_rows(path: OutputPath) -> int:
    """Return how many rows a finished file has.

    Raises:
        DamageError: If it is missing, or is not a parquet file.
    """
    with open_parquet(path) as file:
        return int(file.metadata.num_rows)


def count_values(path: OutputPath) -> dict[str, int]:
    """Return how many rows of a finished file have a value, per column.

    Raises:
        DamageError: If it is missing or damaged.
    """
    with open_parquet(path) as file:
        names = file.schema_arrow.names
    counts = np.zeros(len(names), np.int64)
    for rows in iter_finished_rows(path):
        counts += [int((lengths >= 0).sum()) for lengths in rows.lengths]
    return dict(zip(names, counts.tolist(), strict=True))


def _damage(what: str, path: OutputPath) -> DamageError:
    return DamageError(what, where=str(path), next_step=repair_step(path.parent))
