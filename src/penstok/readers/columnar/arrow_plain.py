"""Text and binary columns of an Arrow file, read directly from their buffers.

Only what is wanted is read: some offsets, then the text they point to. Compressed buffers are
decompressed as streams that continue from the last position, so a batch larger than memory can be
read. It decodes no dictionaries or views; `arrow_decoded` does.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.readers.columnar.arrow_layout import (
    DAMAGED,
    DAMAGED_ROWS,
    Batches,
    ColumnBuffers,
    iter_messages,
    parse_batch,
)
from penstok.readers.columnar.division import UnitDivision
from penstok.readers.columnar.texts import MAX_TEXT_BYTES, RowTexts, unpack_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstok.readers.columnar.arrow_layout import Message
    from penstok.readers.columnar.columns import TextColumn
    from penstok.readers.columnar.file import RowFile

__all__ = ["PlainArrowRows"]

# How much of a batch is read at once.
_PIECE_BYTES = 1 << 20
_PIECE_ROWS = 1 << 14
_SKIP_BYTES = 1 << 18
_PREFIX_BYTES = 8  # of a compressed buffer: its decompressed size, or -1 if it is stored plain


class PlainArrowRows:
    """A column with offsets, read directly from its buffers."""

    def __init__(
        self, file: RowFile, column: TextColumn, buffers: ColumnBuffers, batches: Batches
    ) -> None:
        import pyarrow as pa

        self._file = file
        self._column_buffers = buffers
        self._batches = batches
        is_large = column.type in (pa.large_string(), pa.large_binary())
        self._dtype = np.dtype("<i8" if is_large else "<i4")
        self._open: tuple[int, _PlainBatch] | None = None
        self.num_rows: int = batches.starts[-1]
        self.index_bytes = 0
        self.is_binary: bool = column.is_binary

    def divide(self, unit_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows: record batches joined, large ones divided."""
        division = UnitDivision(unit_bytes)
        for idx in range(len(self._batches.offsets)):
            with self._file.reading(DAMAGED):
                batch = self._load(idx)
            yield from division.add(batch.num_rows, batch.text_bytes)
        yield from division.finish()

    def iter_texts(self, start: int, end: int) -> Iterator[RowTexts]:
        """Yield the texts of a range of rows, some at a time and in order."""
        while start < end:
            idx = self._batches.find(start)
            first, past = self._batches.starts[idx : idx + 2]
            while start < min(end, past):
                rows = f"rows {start} to {min(end, past) - 1}"
                with self._file.reading(DAMAGED_ROWS, rows):
                    texts = self._batch(idx).take(start - first, min(end, past) - first, first)
                start += texts.num_rows
                yield texts

    def _batch(self, idx: int) -> _PlainBatch:
        if self._open is None or self._open[0] != idx:
            self._open = idx, self._load(idx)
            self._open[1].announce()
        return self._open[1]

    def _load(self, idx: int) -> _PlainBatch:
        message = next(iter_messages(self._file, self._batches.offsets[idx]))
        return _PlainBatch(self._file, message, self._column_buffers, self._dtype)


class _PlainBatch:
    """One column of one record batch; its offsets and bitmaps are kept, its text is not."""

    def __init__(
        self, file: RowFile, message: Message, buffers: ColumnBuffers, dtype: np.dtype[Any]
    ) -> None:
        head = parse_batch(message.header)
        self.num_rows = head.num_rows
        self._buffers = [
            _Buffer(file, message.body_start + start, size, head.codec)
            for start, size in head.buffers
        ]
        if any(buffer.end > message.body_end for buffer in self._buffers):
            raise ValueError("a buffer is outside its record batch")
        self._column_buffers = buffers
        self._dtype = dtype
        if self.num_rows:
            self._check_sizes()

    def _check_sizes(self) -> None:
        """Compare the number of rows with the buffers: a damaged number could be huge."""
        offset_bytes = (self.num_rows + 1) * self._dtype.itemsize
        self._buffers[self._column_buffers.offsets].limit(offset_bytes)
        for idx in self._column_buffers.validities:
            if self._buffers[idx].size:
                self._buffers[idx].limit(-(-self.num_rows // 8))

    def announce(self) -> None:
        """Announce that the texts will be read."""
        if self.num_rows:
            self._buffers[self._column_buffers.text].announce()

    @property
    def text_bytes(self) -> int:
        return self._buffers[self._column_buffers.text].num_bytes

    def take(self, start: int, stop: int, first_row: int) -> RowTexts:
        """Return one or more rows from `start` on, before `stop`, counted in the batch."""
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
        raw = self._buffers[self._column_buffers.offsets].read(
            start * width, (stop + 1) * width, keep=True
        )
        return np.frombuffer(raw, self._dtype).astype(np.int64)

    def _text(self, start: int, end: int) -> NDArray[np.uint8]:
        if MAX_TEXT_BYTES < end - start <= self.text_bytes:
            # It will be refused for its length, which takes no memory.
            return np.broadcast_to(np.uint8(0), end - start)
        return np.frombuffer(self._buffers[self._column_buffers.text].read(start, end), np.uint8)

    def _valid(self, start: int, stop: int) -> NDArray[np.bool_] | None:
        """Tell which rows have a text; None if there is no bitmap, and all have one."""
        valid = None
        for idx in self._column_buffers.validities:
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
        """Its size, decompressed."""
        if self._num_bytes is None:
            self._num_bytes = self._read_size()
        return self._num_bytes

    def announce(self) -> None:
        """Announce that it will be read from its start to its end."""
        self._file.announce(self._start, self.end)

    def limit(self, num_bytes: int) -> None:
        """Read only these bytes; refuse a buffer that has fewer."""
        if self.num_bytes < num_bytes:
            raise ValueError("a record batch has more rows than its buffers")
        self._num_bytes = num_bytes

    def read(self, start: int, stop: int, *, keep: bool = False) -> bytes | memoryview:
        """Read a range; `keep` a small compressed buffer whole, read a large one in order."""
        if not 0 <= start <= stop <= self.num_bytes:
            raise ValueError("the offsets of the texts are damaged")
        if self._codec is None:
            return self._file.read_at(self._start + start, stop - start)
        if not keep:
            return self._decompress(start, stop)
        if self._kept is None:
            self._kept = self._decompress(0, self.num_bytes)
        return self._kept[start:stop]

    def _read_size(self) -> int:
        """Read the size of a compressed buffer, which may turn out to be stored plain."""
        if self._codec is None:
            return self.size
        (num_bytes,) = struct.unpack("<q", self._file.read_at(self._start, _PREFIX_BYTES))
        self._start += _PREFIX_BYTES
        if num_bytes < 0:
            self._codec = None
            return self.end - self._start
        return int(num_bytes)

    def _decompress(self, start: int, stop: int) -> bytes:
        """Decompress a range; what lies between it and the last one is dropped."""
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
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes."""
        left = self._end - self._at
        found = self._file.read_at(self._at, left if size < 0 else min(size, left))
        self._at += len(found)
        return bytes(found)
