"""A column of an Arrow file with plain offsets, read straight from where its buffers lie.

Only the wanted bytes are read: some offsets, then the texts they point at. A compressed batch is
unpacked as a stream, and the place that was reached is kept.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.readers.columnar.arrow_batches import DAMAGED, DAMAGED_ROWS, Batches, Place
from penstok.readers.columnar.messages import iter_messages, parse_batch
from penstok.readers.columnar.texts import MAX_TEXT_BYTES, RowTexts, UnitDivision, unpack_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstok.readers.columnar.columns import TextColumn
    from penstok.readers.columnar.file import RowFile
    from penstok.readers.columnar.messages import Message

__all__ = ["PlainRows"]

# How much is taken out of a batch at once.
_PIECE_BYTES = 1 << 20
_PIECE_ROWS = 1 << 14
_SKIP_BYTES = 1 << 18
_PREFIX_BYTES = 8  # before a compressed buffer: its size unpacked, or -1 where it is not packed


class PlainRows:
    """A column with offsets: read straight from where its buffers lie."""

    def __init__(self, file: RowFile, column: TextColumn, place: Place, batches: Batches) -> None:
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
                place = f"rows {start} to {min(end, past) - 1}"
                with self._file.reading(DAMAGED_ROWS, place):
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

    def __init__(self, file: RowFile, message: Message, place: Place, dtype: np.dtype[Any]) -> None:
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
