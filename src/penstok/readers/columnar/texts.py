"""The texts of a few rows in Arrow's layout: bytes and offsets, no Python object per text.

It reads no file. `parquet` and `arrow` make them; `reader` turns them into blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.errors import InputError
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = [
    "LEAST_ROW_BYTES",
    "MAX_TEXT_BYTES",
    "RowTexts",
    "UnitDivision",
    "divide_groups",
    "estimate_text_bytes",
    "unpack_bits",
]

# A longer text is refused by name: it would not fit the memory of a worker.
MAX_TEXT_BYTES = 64 << 20
# A row counts as at least this much text: a dictionary hides some, and ids take memory too.
LEAST_ROW_BYTES = 128
_SAMPLE_ROWS = 64
# Row groups and batches larger than this many units are divided.
_MAX_UNITS = 2


class RowTexts(Struct, frozen=True):
    """The texts of consecutive rows.

    Attributes:
        first_row: The number of the first row, from 0.
        text: The bytes that the offsets refer to.
        offsets: Where each text begins, and where the last one ends.
        valid: Whether each row has a text; None if all have one.
    """

    first_row: int
    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    valid: NDArray[np.bool_] | None

    def __post_init__(self) -> None:
        offsets = self.offsets
        in_order = len(offsets) < 2 or bool((offsets[1:] >= offsets[:-1]).all())
        if not (in_order and offsets[0] >= 0 and offsets[-1] <= len(self.text)):
            raise ValueError("the offsets of the texts are damaged")

    @classmethod
    def from_array(cls, array: pa.Array, first_row: int) -> RowTexts:
        """Return a view of the texts of an Arrow array."""
        import pyarrow as pa

        array = _as_plain(array)
        is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        validity, positions, data = array.buffers()
        start, stop = array.offset, array.offset + len(array)
        offsets = _view(positions, np.int64 if is_large else np.int32)[start : stop + 1]
        has_nulls = validity is not None and array.null_count
        valid = unpack_bits(_view(validity, np.uint8), start, stop) if has_nulls else None
        if not len(array):
            offsets = np.zeros(1, np.int64)
        return cls(first_row, _view(data, np.uint8), offsets.astype(np.int64), valid)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.offsets) - 1

    @property
    def num_bytes(self) -> int:
        """The length of all texts."""
        return int(self.offsets[-1] - self.offsets[0])

    def find_bad(self) -> NDArray[np.int64]:
        """Find the rows without a text or with one that is too long, counted from the first."""
        bad = np.diff(self.offsets) > MAX_TEXT_BYTES
        if self.valid is not None:
            bad |= ~self.valid
        return np.flatnonzero(bad)

    def iter_pieces(self, start: int, stop: int, num_bytes: int) -> Iterator[RowTexts]:
        """Yield the rows from `start` to `stop`, about `num_bytes` of text at a time."""
        while start < stop:
            limit = self.offsets[start] + num_bytes
            last = int(np.searchsorted(self.offsets[: stop + 1], limit, "right")) - 1
            last = max(last, start + 1)
            yield self.rows(start, last)
            start = last

    def rows(self, start: int, stop: int) -> RowTexts:
        """Return the rows from `start` to `stop`, counted from the first."""
        if start == 0 and stop == self.num_rows:
            return self
        valid = None if self.valid is None else self.valid[start:stop]
        offsets = self.offsets[start : stop + 1]
        return RowTexts(self.first_row + start, self.text, offsets, valid)


def estimate_text_bytes(stored_bytes: int, num_rows: int, count_first: Callable[[int], int]) -> int:
    """Estimate how much text a row group has.

    A dictionary hides repeated texts: if rows seem to be very short, the first ones are read.

    Args:
        stored_bytes: The size of its pages, decompressed.
        num_rows: How many rows it has.
        count_first: Returns how much text the first rows have, so many of them.
    """
    if stored_bytes >= num_rows * LEAST_ROW_BYTES:
        return stored_bytes
    num_sampled = min(num_rows, _SAMPLE_ROWS)
    return max(stored_bytes, num_rows * count_first(num_sampled) // num_sampled)


class UnitDivision:
    """Joins small runs of rows to units, and divides large ones."""

    def __init__(self, unit_bytes: int) -> None:
        self._unit_bytes = unit_bytes
        self._start = self._end = self._size = 0

    def add(self, num_rows: int, num_bytes: int) -> Iterator[tuple[int, int]]:
        """Add the next run of rows; yield the units that are full."""
        size = max(num_bytes, num_rows * LEAST_ROW_BYTES)
        if not num_rows:
            return
        if size > _MAX_UNITS * self._unit_bytes:
            yield from self.finish()
            step = -(-num_rows // (size // self._unit_bytes))
            end = self._end + num_rows
            for start in range(self._end, end, step):
                yield start, min(start + step, end)
            self._start = self._end = end
            return
        self._end += num_rows
        self._size += size
        if self._size >= self._unit_bytes:
            yield from self.finish()

    def finish(self) -> Iterator[tuple[int, int]]:
        """Yield what is left."""
        if self._start < self._end:
            yield self._start, self._end
        self._start, self._size = self._end, 0


def divide_groups(
    path: str, row_starts: Sequence[int], sizes: Iterable[int], unit_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows: small row groups joined, large ones divided evenly.

    Args:
        path: The file.
        row_starts: The first row of each row group, and the number of rows.
        sizes: How much text each row group has.
        unit_bytes: How much text a range should have.
    """
    division = UnitDivision(unit_bytes)
    for start, end, size in zip(row_starts, row_starts[1:], sizes, strict=False):
        if end > start and size > (end - start) * MAX_TEXT_BYTES:
            raise InputError(
                f"a row group with rows of more than {MAX_TEXT_BYTES >> 20} MiB on average",
                where=f"{path}, rows {start} to {end - 1}",
                next_step="write the file again with shorter texts, or leave it out",
            )
        yield from division.add(end - start, size)
    yield from division.finish()


def unpack_bits(bits: NDArray[np.uint8], start: int, stop: int) -> NDArray[np.bool_]:
    """Read a range of an Arrow bitmap."""
    first = start // 8
    unpacked = np.unpackbits(bits[first : -(-stop // 8)], bitorder="little").view(np.bool_)
    return unpacked[start - first * 8 : stop - first * 8]


def _view(buffer: pa.Buffer | None, dtype: Any) -> NDArray[Any]:
    return np.empty(0, dtype) if buffer is None else np.frombuffer(buffer, dtype)


def _as_plain(array: pa.Array) -> pa.Array:
    """Convert an array to text or bytes with offsets."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        return _as_plain(array.dictionary_decode())
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return array.cast(views[array.type]) if array.type in views else array
