"""How the rows of a file become units: small row groups joined, large ones divided.

It reads nothing and only knows how much text there is. The modules of parquet and Arrow, which know
where their rows are, call it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.errors import InputError
from penstok.readers.columnar.texts import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["UnitDivision", "divide_groups", "estimate_text_bytes"]

# A row counts as at least this much text: a dictionary hides some, and ids take memory too.
_LEAST_ROW_BYTES = 128
_SAMPLE_ROWS = 64
# Row groups and batches larger than this many units are divided.
_MAX_UNITS = 2


def estimate_text_bytes(stored_bytes: int, num_rows: int, count_first: Callable[[int], int]) -> int:
    """Estimate how much text a row group has.

    A dictionary hides repeated texts: if rows seem to be very short, the first ones are read.

    Args:
        stored_bytes: The size of its pages, decompressed.
        num_rows: How many rows it has.
        count_first: Returns how much text the first rows have, so many of them.
    """
    if stored_bytes >= num_rows * _LEAST_ROW_BYTES:
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
        size = max(num_bytes, num_rows * _LEAST_ROW_BYTES)
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
