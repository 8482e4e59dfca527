"""The texts of a few rows in Arrow's layout: bytes and offsets, no Python object per text.

It reads no file. The modules of parquet and Arrow make them; `reader` turns them into blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["MAX_TEXT_BYTES", "RowTexts", "unpack_bits"]

# A longer text is refused by name: it would not fit the memory of a worker.
MAX_TEXT_BYTES = 64 << 20


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
