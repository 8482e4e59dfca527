"""Parquet: one column of one row group, a few rows at a time, decoded by pyarrow.

It never loads a whole row group: pages are read and decoded as rows are needed. A row group cannot
be read from the middle, so the rows before those that are wanted are decoded and dropped; later
rows continue from there. `readers.formats` points here; most columns of text are read by
`parquet_pages` instead.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from penstok.errors import NotTextError
from penstok.readers.columnar.columns import KeptColumn, find_kept_column, find_text_column
from penstok.readers.columnar.division import divide_groups, estimate_text_bytes
from penstok.readers.columnar.file import limit_pyarrow, wrong_start
from penstok.readers.columnar.parquet_layout import PARQUET_MAGIC, find_layout
from penstok.readers.columnar.texts import RowTexts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstok.readers.columnar.base import Rows
    from penstok.readers.columnar.columns import TextColumn
    from penstok.readers.columnar.file import RowFile

__all__ = ["PARQUET_MAGIC", "check_parquet", "open_parquet", "open_parquet_field"]

# Without a buffer a whole column chunk would be read at once; its size does not matter.
_BUFFER_BYTES = 1 << 18
# A batch is a number of rows, whatever their length: small batches bound the memory for long rows
# among short ones, and cost some tens of microseconds each (docs/adr/0015-rows.md). In a small row
# group no batch can be large.
_BATCH_BYTES = 1 << 18
_SMALL_GROUP_BYTES = 1 << 24
_SMALL_GROUP_BATCH_BYTES = 1 << 19
_MAX_BATCH_ROWS = 1 << 10
# Batches of few rows, and those that cannot be longer than this, are taken without a sample.
_SHORT_BATCH_ROWS = 1 << 6
_MAX_BATCH_BYTES = 1 << 26
_SAMPLE_ROWS = 16


def check_parquet(path: str, head: bytes) -> None:
    """Refuse an input that is not a parquet file.

    Raises:
        InputError: If so.
    """
    if not head.startswith(PARQUET_MAGIC):
        raise wrong_start("a parquet file", path, head)


def open_parquet(file: RowFile, text_key: str) -> Rows:
    """Read a file's metadata and prepare to read one column.

    The kernel decodes most files; pyarrow is loaded only if it is needed.
    """
    path = file.source.path

    def open_decoded() -> Rows:
        return ParquetRows(file, lambda schema: find_text_column(schema, text_key, path))

    with file.reading("this parquet file is damaged or cut short"):
        layout = find_layout(file, text_key)
    if layout is None:
        return open_decoded()
    from penstok.readers.columnar.parquet_pages import PageRows

    return PageRows(file, layout, open_decoded)


def open_parquet_field(file: RowFile, key: str) -> Rows | None:
    """Prepare to read a column of any type as text; None if the file has no such column."""
    try:
        return ParquetRows(file, lambda schema: find_kept_column(schema, key, file.source.path))
    except KeyError:
        return None


class ParquetRows:
    """One column in a parquet file, decoded by pyarrow."""

    def __init__(self, file: RowFile, find_column: Callable[[pa.Schema], TextColumn]) -> None:
        import pyarrow.parquet as pq

        limit_pyarrow()
        self._file = file
        with file.reading("this parquet file is damaged or cut short"):
            self._parquet = pq.ParquetFile(
                file.stream,
                pre_buffer=False,
                buffer_size=_BUFFER_BYTES,
                page_checksum_verification=True,
            )
            metadata, schema = self._parquet.metadata, self._parquet.schema_arrow
            groups = [metadata.row_group(idx).num_rows for idx in range(metadata.num_row_groups)]
            self._column = find_column(schema)
            leaves = [self._parquet.schema.column(idx).path for idx in range(metadata.num_columns)]
        _refuse_summary(metadata, file.source.path)
        # Two if a column has the name of a path into another; both are read, and one is used.
        path = ".".join(self._column.names)
        # A column that is not text may have several leaves.
        self._is_kept = isinstance(self._column, KeptColumn)
        self._leaves = [
            idx
            for idx, leaf in enumerate(leaves)
            if leaf == path or (self._is_kept and leaf.startswith(f"{path}."))
        ]
        self._starts = [0, *accumulate(groups)]
        self._cursor: _Cursor | None = None
        self._text_sizes: dict[int, int] = {}
        self.num_rows: int = self._starts[-1]
        self.index_bytes: int = metadata.serialized_size
        self.is_binary: bool = self._column.is_binary

    def divide(self, unit_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows: small row groups joined, large ones divided evenly."""
        path = self._file.source.path
        return divide_groups(path, self._starts, self._iter_sizes(), unit_bytes)

    def _iter_sizes(self) -> Iterator[int]:
        for group in range(len(self._starts) - 1):
            with self._file.reading("this parquet file is damaged", f"row group {group}"):
                size = self._text_bytes(group)
            yield size

    def iter_texts(self, start: int, end: int) -> Iterator[RowTexts]:
        """Yield the texts of a range of rows, some at a time and in order."""
        while start < end:
            group = bisect_right(self._starts, start) - 1
            stop = min(end, self._starts[group + 1])
            cursor = self._cursor
            while start < stop:
                with self._file.reading("these rows are damaged", f"rows {start} to {stop - 1}"):
                    if cursor is None or cursor.group != group or cursor.row > start:
                        cursor = self._cursor = self._open_group(group)
                    texts = cursor.take(start, stop)
                start = cursor.row
                yield texts
                del texts  # else they would be kept while the next ones are decoded

    def _open_group(self, group: int) -> _Cursor:
        start, end = self._starts[group : group + 2]
        batch_rows = _batch_rows(end - start, self._text_bytes(group))
        if self._may_be_long(group, batch_rows):
            sampled = self._count_first(group, _SAMPLE_ROWS)
            batch_rows = min(batch_rows, _batch_rows(_SAMPLE_ROWS, sampled))
        return _Cursor(group, start, self._iter_arrays(group, batch_rows))

    def _iter_arrays(self, group: int, batch_rows: int) -> Iterator[pa.Array]:
        self._announce(group)
        batches = self._parquet.iter_batches(
            batch_size=batch_rows,
            row_groups=[group],
            columns=[".".join(self._column.names)],
            use_threads=False,
        )
        return map(self._column.pick, batches)

    def _announce(self, group: int) -> None:
        column = self._parquet.metadata.row_group(group).column(self._leaves[0])
        # Some writers leave out the offset of the dictionary, or write 0.
        start = min(column.dictionary_page_offset or 1 << 62, column.data_page_offset)
        self._file.announce(start, start + column.total_compressed_size)

    def _text_bytes(self, group: int) -> int:
        if group not in self._text_sizes:
            num_rows = self._starts[group + 1] - self._starts[group]
            self._text_sizes[group] = estimate_text_bytes(
                self._group_bytes(group), num_rows, partial(self._count_first, group)
            )
        return self._text_sizes[group]

    def _count_first(self, group: int, num_rows: int) -> int:
        """Return how much text the first rows of a row group have."""
        cursor, num_bytes = _Cursor(group, 0, self._iter_arrays(group, num_rows)), 0
        while cursor.row < num_rows:
            num_bytes += cursor.take(cursor.row, num_rows).num_bytes
        return num_bytes

    def _may_be_long(self, group: int, batch_rows: int) -> bool:
        """Tell whether a batch of rows may be long because a dictionary has each text only once."""
        record = self._parquet.metadata.row_group(group)
        num_rows = min(batch_rows, record.num_rows)
        if num_rows <= _SHORT_BATCH_ROWS or num_rows * self._group_bytes(group) <= _MAX_BATCH_BYTES:
            return False
        return any(record.column(idx).has_dictionary_page for idx in self._leaves)

    def _group_bytes(self, group: int) -> int:
        """Return the decompressed size of the column in a row group, in which texts may repeat."""
        record = self._parquet.metadata.row_group(group)
        columns = [record.column(idx) for idx in self._leaves]
        is_whole = self._is_kept or all(each.num_values == record.num_rows for each in columns)
        if not columns or not is_whole:
            raise ValueError(f"its columns do not have {record.num_rows} rows")
        return sum(column.total_uncompressed_size for column in columns)


def _refuse_summary(metadata: pq.FileMetaData, path: str) -> None:
    """Refuse a `_metadata` file, which says where the rows of other files are."""
    is_empty = not (metadata.num_row_groups and metadata.num_columns)
    other = "" if is_empty else metadata.row_group(0).column(0).file_path
    if other:
        raise NotTextError(
            "this file only describes other parquet files, which have the rows",
            where=path,
            next_step=f"pass those files, such as `{other}`, or their folder",
        )


def _batch_rows(num_rows: int, num_bytes: int) -> int:
    """Return how many of some rows make a batch."""
    batch_bytes = _SMALL_GROUP_BATCH_BYTES if num_bytes <= _SMALL_GROUP_BYTES else _BATCH_BYTES
    return min(max(batch_bytes * num_rows // (num_bytes + 1), 1), _MAX_BATCH_ROWS)


class _Cursor:
    """A position in a row group; it only moves forward."""

    def __init__(self, group: int, row: int, arrays: Iterator[pa.Array]) -> None:
        self.group = group
        self.row = row
        self._arrays = arrays
        self._left: RowTexts | None = None

    def take(self, start: int, stop: int) -> RowTexts:
        """Return one or more rows from `start` on, before `stop`."""
        while True:
            texts = self._next_batch() if self._left is None else self._left
            past = self.row + texts.num_rows
            if past > start:
                break
            self._left, self.row = None, past
        first, last = start - self.row, min(stop, past) - self.row
        self._left = texts.rows(last, texts.num_rows) if last < texts.num_rows else None
        self.row += last
        return texts.rows(first, last)

    def _next_batch(self) -> RowTexts:
        array = next(self._arrays, None)
        if array is None:
            raise EOFError(f"it ends at row {self.row}, before the row group should")
        return RowTexts.from_array(array, self.row)
