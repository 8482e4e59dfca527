"""Dictionary and view columns of an Arrow file: decoded by pyarrow, one whole batch at a time.

It cannot read part of a batch, unlike `arrow_plain`. `arrow` chooses between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstok.readers.columnar.arrow_layout import DAMAGED_ROWS, Batches, is_file
from penstok.readers.columnar.division import UnitDivision
from penstok.readers.columnar.texts import RowTexts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstok.readers.columnar.columns import TextColumn
    from penstok.readers.columnar.file import RowFile

__all__ = ["DecodedArrowRows"]

# Few rows at a time: each may be a long entry of a dictionary.
_DECODED_ROWS = 1 << 10


class DecodedArrowRows:
    """A column that pyarrow decodes."""

    def __init__(
        self, file: RowFile, column: TextColumn, schema: pa.Schema, batches: Batches
    ) -> None:
        self._file = file
        self._column = column
        self._field_idx = [field.name for field in schema].index(column.names[0])
        self._batches = batches
        self._reader: Any = None
        self._next_idx = 0
        self._open: tuple[int, pa.Array] | None = None
        self.num_rows: int = batches.starts[-1]
        self.index_bytes = 0
        self.is_binary: bool = column.is_binary

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
            with self._file.reading(DAMAGED_ROWS, f"rows {start} to {stop - 1}"):
                array = self._array(idx).slice(start - first, stop - start)
                texts = RowTexts.from_array(array, start)
            yield texts
            start = stop

    def _array(self, idx: int) -> pa.Array:
        """Load a batch; to go back, a stream is read again from its start."""
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
            raise ValueError("a record batch does not have the number of rows in its header")
        self._open = idx, array
        return array

    def _open_reader(self) -> Any:
        import pyarrow as pa

        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=[self._field_idx])
        self._file.stream.seek(0)
        if is_file(self._file):
            reader = pa.ipc.open_file(self._file.stream, options=options)
            return _FileBatches(reader)
        self._file.stream.seek(0)
        return pa.ipc.open_stream(self._file.stream, options=options)


class _FileBatches:
    """Reads the batches of the file format in order, like a stream reader."""

    def __init__(self, reader: pa.RecordBatchFileReader) -> None:
        self._reader = reader
        self._next_idx = 0

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch."""
        self._next_idx += 1
        return self._reader.get_batch(self._next_idx - 1)
