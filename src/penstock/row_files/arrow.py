"""Arrow's own files, in the file and the stream format: one column, a few rows at a time.

Only the wanted bytes are read: some offsets, then the texts they point at. Nothing is mapped into
memory, so a file that shrinks is an error and not a crash. A compressed batch is unpacked as a
stream, and the place that was reached is kept. What has no plain offsets (dictionaries, views) is
left to pyarrow, a whole batch at a time. `open_rows` makes it.
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.row_files.columns import find_text_column, storage_type
from penstock.row_files.messages import FILE_MAGIC, iter_messages, parse_batch
from penstock.row_files.texts import MAX_TEXT_BYTES, RowTexts, UnitDivision, unpack_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.row_files.columns import TextColumn
    from penstock.row_files.file import RowFile
    from penstock.row_files.messages import Message
    from penstock.row_files.texts import Rows

__all__ = ["open_arrow"]

_DAMAGED = "this Arrow file is damaged or cut short"
_DAMAGED_ROWS = "these rows are damaged"
# How much is taken out of a batch at once.
_PIECE_BYTES = 1 << 20
_PIECE_ROWS = 1 << 14
# The same for what pyarrow decodes: a row of a dictionary can be much longer than it looks.
_DECODED_ROWS = 1 << 10
_SKIP_BYTES = 1 << 18
_PREFIX_BYTES = 8  # before a compressed buffer: its size unpacked, or -1 where it is not packed


def open_arrow(file: RowFile, text_key: str) -> Rows:
    """Look at an Arrow file's schema and heads, and choose how its rows are read."""
    import pyarrow as pa

    with file.reading(_DAMAGED):
        _check_end(file)
        messages = iter_messages(file)
        first = next(messages, None)
        if first is None or first.kind != "schema":
            raise ValueError("it does not begin with a schema")
        schema = pa.ipc.read_schema(pa.py_buffer(_message_bytes(first)))
        column = find_text_column(schema, text_key, file.source.path)
        batches = _Batches(messages)
        place = _Place.find(schema, column)
    has_offsets = column.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    # Views before the column add buffers, as many as they like: then its place is not known.
    if has_offsets and batches.buffer_counts <= {place.num_buffers}:
        return _PlainRows(file, column, place, batches)
    return _DecodedRows(file, column, schema, batches)


def _check_end(file: RowFile) -> None:
    """Refuse a file that was cut short; a stream that was is found out at its last message."""
    size, length = file.source.num_bytes, len(FILE_MAGIC)
    if _is_file(file) and file.read_at(size - length, length) != FILE_MAGIC:
        raise ValueError("its end is missing")


def _is_file(file: RowFile) -> bool:
    return file.read_at(0, len(FILE_MAGIC)) == FILE_MAGIC


def _message_bytes(message: Message) -> bytes:
    return struct.pack("<II", 0xFFFFFFFF, len(message.head)) + message.head


class _Batches:
    """The record batches of a file: where each stands, and its rows."""

    def __init__(self, messages: Iterator[Message]) -> None:
        self.places: list[int] = []
        self.starts = [0]
        self.buffer_counts: set[int] = set()
        for message in messages:
            if message.kind == "batch":
                head = parse_batch(message.head)
                self.places.append(message.start)
                self.starts.append(self.starts[-1] + head.num_rows)
                self.buffer_counts.add(len(head.buffers))

    def find(self, row: int) -> int:
        """Return which batch holds a row."""
        return bisect_right(self.starts, row) - 1


@dataclass(frozen=True, slots=True)
class _Place:
    """Which of a batch's buffers belong to a column.

    `validities` are the bitmaps of the structs around it, then its own; its offsets and its text
    follow.
    """

    validities: list[int]
    num_buffers: int

    @classmethod
    def find(cls, schema: pa.Schema, column: TextColumn) -> _Place:
        fields, at, validities = list(schema), 0, []
        for name in column.names:
            idx = [field.name for field in fields].index(name)
            at += _count_buffers(fields[:idx])
            validities.append(at)
            at += 1
            kind = storage_type(fields[idx].type)
            if len(validities) < len(column.names):
                fields = [kind.field(child) for child in range(kind.num_fields)]
        return cls(validities, _count_buffers(list(schema)))

    @property
    def offsets(self) -> int:
        return self.validities[-1] + 1

    @property
    def text(self) -> int:
        return self.validities[-1] + 2


def _count_buffers(fields: list[pa.Field]) -> int:
    """Count the buffers of some columns, by asking pyarrow to write a batch without rows."""
    import pyarrow as pa

    if not fields:
        return 0
    empty = [pa.nulls(0, field.type) for field in fields]
    batch = pa.RecordBatch.from_arrays(empty, names=[str(idx) for idx in range(len(fields))])
    written = pa.ipc.read_message(batch.serialize())
    return len(parse_batch(written.metadata.to_pybytes()).buffers)


class _PlainRows:
    """A column with offsets: read straight from where its buffers lie."""

    def __init__(self, file: RowFile, column: TextColumn, place: _Place, batches: _Batches) -> None:
        import pyarrow as pa

        self._file = file
        self._place = place
        self._batches = batches
        is_large = column.type in (pa.large_string(), pa.large_binary())
        self._dtype = np.dtype("<i8" if is_large else "<i4")
        self._open: tuple[int, _PlainBatch] | None = None
        self.num_rows = batches.starts[-1]
        self.index_bytes = 0

    def divide(self, unit_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows: record batches joined, large ones divided."""
        division = UnitDivision(unit_bytes)
        for idx in range(len(self._batches.places)):
            with self._file.reading(_DAMAGED):
                batch = self._load(idx)
            yield from division.add(batch.num_rows, batch.text_bytes)
        yield from division.finish()

    def iter_texts(self, start: int, end: int) -> Iterator[RowTexts]:
        """Yield the texts of a range of rows, some at a time and in order."""
        while start < end:
            idx = self._batches.find(start)
            first, past = self._batches.starts[idx : idx + 2]
            while start < min(end, past):
                place = f"rows {start} to {min(end, past) - 1}"
                with self._file.reading(_DAMAGED_ROWS, place):
                    texts = self._batch(idx).take(start - first, min(end, past) - first, first)
                start += texts.num_rows
                yield texts

    def _batch(self, idx: int) -> _PlainBatch:
        if self._open is None or self._open[0] != idx:
            self._open = idx, self._load(idx)
            self._open[1].announce()
        return self._open[1]

    def _load(self, idx: int) -> _PlainBatch:
        message = next(iter_messages(self._file, self._batches.places[idx]))
        return _PlainBatch(self._file, message, self._place, self._dtype)


class _PlainBatch:
    """One column of one record batch; what comes before a row is small and kept."""

    def __init__(
        self, file: RowFile, message: Message, place: _Place, dtype: np.dtype[Any]
    ) -> None:
        head = parse_batch(message.head)
        self.num_rows = head.num_rows
        self._buffers = [
            _Buffer(file, message.body_start + start, size, head.codec)
            for start, size in head.buffers
        ]
        if any(buffer.end > message.body_end for buffer in self._buffers):
            raise ValueError("a buffer lies outside its record batch")
        self._place = place
        self._dtype = dtype
        if self.num_rows:
            self._expect()

    def _expect(self) -> None:
        """Hold the number of rows against the buffers: a damaged one could be endless."""
        offset_bytes = (self.num_rows + 1) * self._dtype.itemsize
        self._buffers[self._place.offsets].expect(offset_bytes)
        for idx in self._place.validities:
            if self._buffers[idx].size:
                self._buffers[idx].expect(-(-self.num_rows // 8))

    def announce(self) -> None:
        """Say that the texts will be read."""
        if self.num_rows:
            self._buffers[self._place.text].announce()

    @property
    def text_bytes(self) -> int:
        return self._buffers[self._place.text].num_bytes

    def take(self, start: int, stop: int, first_row: int) -> RowTexts:
        """Return rows from `start` on and before `stop`, one or more; counted from the batch's."""
        stop = min(stop, start + _PIECE_ROWS)
        offsets = self._offsets(start, stop)
        count = int(np.searchsorted(offsets, offsets[0] + _PIECE_BYTES, "right")) - 1
        count = min(max(count, 1), stop - start)
        offsets = offsets[: count + 1]
        text = self._text(int(offsets[0]), int(offsets[-1]))
        valid = self._valid(start, start + count)
        return RowTexts(first_row + start, text, offsets - offsets[0], valid)

    def _offsets(self, start: int, stop: int) -> NDArray[np.int64]:
        width = self._dtype.itemsize
        raw = self._buffers[self._place.offsets].read(start * width, (stop + 1) * width, keep=True)
        return np.frombuffer(raw, self._dtype).astype(np.int64)

    def _text(self, start: int, end: int) -> NDArray[np.uint8]:
        if MAX_TEXT_BYTES < end - start <= self.text_bytes:
            # It will be refused for its length: that needs no memory.
            return np.broadcast_to(np.uint8(0), end - start)
        return np.frombuffer(self._buffers[self._place.text].read(start, end), np.uint8)

    def _valid(self, start: int, stop: int) -> NDArray[np.bool_] | None:
        """Say which rows have a text; a bitmap that is left out says that all have."""
        valid = None
        for idx in self._place.validities:
            if self._buffers[idx].size:
                first = start // 8
                bits = self._buffers[idx].read(first, -(-stop // 8), keep=True)
                found = unpack_bits(np.frombuffer(bits, np.uint8), start % 8, stop - first * 8)
                valid = found if valid is None else valid & found
        return valid


class _Buffer:
    """One buffer of a record batch, compressed or not."""

    def __init__(self, file: RowFile, start: int, size: int, codec: str | None) -> None:
        self._file = file
        self._start = start
        self.size = size
        self.end = start + size
        self._codec = codec if size else None
        self._num_bytes: int | None = None
        self._kept: bytes | None = None
        self._stream: pa.NativeFile | None = None
        self._at = 0

    @property
    def num_bytes(self) -> int:
        """How much it holds, unpacked."""
        if self._num_bytes is None:
            self._num_bytes = self._look()
        return self._num_bytes

    def announce(self) -> None:
        """Say that it will be read from its start to its end."""
        self._file.announce(self._start, self.end)

    def expect(self, num_bytes: int) -> None:
        """Refuse less than these bytes, and read no more."""
        if self.num_bytes < num_bytes:
            raise ValueError("a record batch has more rows than its buffers hold")
        self._num_bytes = num_bytes

    def read(self, start: int, stop: int, *, keep: bool = False) -> bytes | memoryview:
        """Read a range; a compressed buffer is best read in order, or kept whole if it is small."""
        if not 0 <= start <= stop <= self.num_bytes:
            raise ValueError("the offsets of the texts are damaged")
        if self._codec is None:
            return self._file.read_at(self._start + start, stop - start)
        if not keep:
            return self._unpack(start, stop)
        if self._kept is None:
            self._kept = self._unpack(0, self.num_bytes)
        return self._kept[start:stop]

    def _look(self) -> int:
        """Read the size of a compressed buffer; see to one that is not packed after all."""
        if self._codec is None:
            return self.size
        (num_bytes,) = struct.unpack("<q", self._file.read_at(self._start, _PREFIX_BYTES))
        self._start += _PREFIX_BYTES
        if num_bytes < 0:
            self._codec = None
            return self.end - self._start
        return int(num_bytes)

    def _unpack(self, start: int, stop: int) -> bytes:
        """Unpack a range; what lies between it and the place that was reached is thrown away."""
        import pyarrow as pa

        if self._stream is None or self._at > start:
            section = _Section(self._file, self._start, self.end)
            self._stream = pa.CompressedInputStream(pa.PythonFile(section, mode="r"), self._codec)
            self._at = 0
        while self._at < start:
            self._at += len(self._read_exactly(min(start - self._at, _SKIP_BYTES)))
        found = self._read_exactly(stop - start)
        self._at = stop
        return found

    def _read_exactly(self, size: int) -> bytes:
        found = b"" if self._stream is None else self._stream.read(size)
        if len(found) != size:
            raise ValueError("a compressed buffer ends too early")
        return bytes(found)


class _Section(io.RawIOBase):
    """A range of a file as a file of its own, read from its start to its end."""

    def __init__(self, file: RowFile, start: int, end: int) -> None:
        super().__init__()
        self._file = file
        self._at = start
        self._end = end

    def readable(self) -> bool:
        """Say yes."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes."""
        left = self._end - self._at
        found = self._file.read_at(self._at, left if size < 0 else min(size, left))
        self._at += len(found)
        return bytes(found)


class _DecodedRows:
    """A column that pyarrow must decode: whole batches, one after the other."""

    def __init__(
        self, file: RowFile, column: TextColumn, schema: pa.Schema, batches: _Batches
    ) -> None:
        self._file = file
        self._column = column
        self._field_idx = [field.name for field in schema].index(column.names[0])
        self._batches = batches
        self._reader: Any = None
        self._next_idx = 0
        self._open: tuple[int, pa.Array] | None = None
        self.num_rows = batches.starts[-1]
        self.index_bytes = 0

    def divide(self, unit_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows: record batches joined, large ones divided."""
        division = UnitDivision(unit_bytes)
        for start, end in zip(self._batches.starts, self._batches.starts[1:], strict=False):
            size = sum(texts.num_bytes for texts in self.iter_texts(start, end))
            yield from division.add(end - start, size)
        yield from division.finish()

    def iter_texts(self, start: int, end: int) -> Iterator[RowTexts]:
        """Yield the texts of a range of rows, some at a time and in order."""
        while start < end:
            idx = self._batches.find(start)
            first, past = self._batches.starts[idx : idx + 2]
            stop = min(start + _DECODED_ROWS, end, past)
            with self._file.reading(_DAMAGED_ROWS, f"rows {start} to {stop - 1}"):
                array = self._array(idx).slice(start - first, stop - start)
                texts = RowTexts.from_array(array, start)
            yield texts
            start = stop

    def _array(self, idx: int) -> pa.Array:
        """Load a batch; a stream is read from its start again for one that lies before."""
        if self._open is not None and self._open[0] == idx:
            return self._open[1]
        if self._reader is None or idx < self._next_idx:
            self._reader, self._next_idx = self._open_reader(), 0
        while True:
            batch = self._reader.read_next_batch()
            self._next_idx += 1
            if self._next_idx > idx:
                break
        batch.validate(full=True)
        array = self._column.pick(batch)
        if len(array) != self._batches.starts[idx + 1] - self._batches.starts[idx]:
            raise ValueError("a record batch has another number of rows than its head says")
        self._open = idx, array
        return array

    def _open_reader(self) -> Any:
        import pyarrow as pa

        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=[self._field_idx])
        self._file.stream.seek(0)
        if _is_file(self._file):
            reader = pa.ipc.open_file(self._file.stream, options=options)
            return _FileBatches(reader)
        self._file.stream.seek(0)
        return pa.ipc.open_stream(self._file.stream, options=options)


class _FileBatches:
    """The batches of an Arrow file in order, read as those of a stream are."""

    def __init__(self, reader: pa.RecordBatchFileReader) -> None:
        self._reader = reader
        self._next_idx = 0

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch."""
        self._next_idx += 1
        return self._reader.get_batch(self._next_idx - 1)
