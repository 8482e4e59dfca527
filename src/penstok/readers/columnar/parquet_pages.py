"""A column of text in a parquet file, decoded page by page by the kernel.

What only pyarrow decodes, and all damage, is left to pyarrow, which continues at the same row and
says what is wrong. `parquet` chooses between this and pyarrow, `parquet_layout` says where the
pages are, `parquet_chunk` reads them.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from penstok.readers.columnar.division import divide_groups, estimate_text_bytes
from penstok.readers.columnar.parquet_chunk import ChunkPages
from penstok.readers.columnar.parquet_texts import (
    BATCH_ROWS,
    Buffers,
    NotDecodedError,
    PageClaimError,
)
from penstok.readers.columnar.texts import RowTexts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstok.readers.columnar.base import Rows
    from penstok.readers.columnar.file import RowFile
    from penstok.readers.columnar.parquet_chunk import Page
    from penstok.readers.columnar.parquet_layout import ColumnLayout

__all__ = ["PageRows"]


class PageRows:
    """One column of text in a parquet file."""

    def __init__(
        self, file: RowFile, layout: ColumnLayout, open_decoded: Callable[[], Rows]
    ) -> None:
        """Prepare to read rows.

        Args:
            file: The file.
            layout: Where its pages are.
            open_decoded: Opens the same column with pyarrow.
        """
        self._file = file
        self._layout = layout
        self._open_decoded = open_decoded
        self._decoded: Rows | None = None
        self._buffers = Buffers()
        self._cursor: _Cursor | None = None
        self.num_rows: int = layout.row_starts[-1]
        self.index_bytes: int = layout.index_bytes
        self.is_binary: bool = layout.is_binary

    def divide(self, unit_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows: small row groups joined, large ones divided evenly."""
        starts, path = self._layout.row_starts, self._file.source.path
        sizes: list[int] = []
        for group in range(len(self._layout.chunks)):
            size = self._find_size(group)
            if size is None:
                return self._pyarrow_rows().divide(unit_bytes)
            sizes.append(size)
        return divide_groups(path, starts, sizes, unit_bytes)

    def iter_texts(self, start: int, end: int) -> Iterator[RowTexts]:
        """Yield the texts of a range of rows, some at a time and in order."""
        starts = self._layout.row_starts
        while start < end:
            group = bisect_right(starts, start) - 1
            stop = min(end, starts[group + 1])
            while start < stop and (texts := self._find_texts(group, start, stop)) is not None:
                start += texts.num_rows
                yield texts
            if start < stop:
                # Nothing is remembered: what a unit gives must not depend on the units before it.
                yield from self._pyarrow_rows().iter_texts(start, stop)
                start = stop

    def _find_texts(self, group: int, start: int, stop: int) -> RowTexts | None:
        """Return one or more rows from `start` on; None if pyarrow has to read them."""
        # It is kept only without an error, which may leave it at another row.
        cursor, self._cursor = self._cursor, None
        with self._file.reading("these rows are damaged", f"rows {start} to {stop - 1}"):
            try:
                if cursor is None or cursor.group != group or cursor.row > start:
                    cursor = self._open_group(group)
                texts = cursor.take(start, stop)
            except PageClaimError as error:
                raise ValueError(str(error)) from error
            except (NotDecodedError, ValueError, EOFError):
                return None
        self._cursor = cursor
        return texts

    def _open_group(self, group: int) -> _Cursor:
        chunk, first_row = self._layout.chunks[group], self._layout.row_starts[group]
        self._file.announce(chunk.start, chunk.start + chunk.compressed_bytes)
        pages = ChunkPages(self._file, chunk, self._layout.max_level, self._buffers)
        return _Cursor(group, first_row, pages)

    def _pyarrow_rows(self) -> Rows:
        if self._decoded is None:
            self._decoded = self._open_decoded()
        return self._decoded

    def _find_size(self, group: int) -> int | None:
        """Estimate how much text a row group has; None if pyarrow has to read it."""
        chunk, first = self._layout.chunks[group], partial(self._count_first, group)
        try:
            return estimate_text_bytes(chunk.uncompressed_bytes, chunk.num_rows, first)
        except NotDecodedError:
            return None

    def _count_first(self, group: int, num_rows: int) -> int:
        """Return how much text the first rows of a row group have."""
        row, num_bytes = self._layout.row_starts[group], 0
        end = row + num_rows
        while row < end:
            texts = self._find_texts(group, row, end)
            if texts is None:
                raise NotDecodedError
            row += texts.num_rows
            num_bytes += texts.num_bytes
        return num_bytes


class _Cursor:
    """A position in a row group; it only moves forward."""

    def __init__(self, group: int, row: int, pages: ChunkPages) -> None:
        self.group = group
        self.row = row
        self._pages = pages
        self._page: Page | None = None

    def take(self, start: int, stop: int) -> RowTexts:
        """Return one or more rows from `start` on, before `stop`."""
        while True:
            if self._page is None or not self._page.num_left:
                self._page, num_skipped = self._pages.open_next(start - self.row)
                self.row += num_skipped
            wanted = start - self.row or stop - start
            text, offsets, valid = self._page.take(min(wanted, BATCH_ROWS))
            first = self.row
            self.row += len(offsets) - 1
            if first == start:
                return RowTexts(first, text, offsets, valid)
