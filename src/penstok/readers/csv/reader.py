"""CSV: one record per document, one column is the text.

A unit has the records that begin in it, which the scanner has found. The reader lists bad records;
it parses nothing itself: `records` does, a block at a time and without a Python object per
document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.kernel import find_kernel_function
from penstok.readers.buffer import UnitBuffer
from penstok.readers.csv.header import BYTE_ORDER_MARK, CsvHeader, find_column, parse_header
from penstok.readers.csv.records import CsvRecords
from penstok.readers.documents import RecordReader
from penstok.types import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.readers.csv.header import CsvDialect
    from penstok.types import Block, Unit

__all__ = ["CsvReader"]


class CsvReader(RecordReader):
    """Reads the text of one column from records of CSV."""

    def __init__(self, dialect: CsvDialect, cuts: CutRule, options: ReaderOptions) -> None:
        super().__init__(cuts, options)
        self._dialect = dialect
        self._csv = UnitBuffer()

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the documents of a unit in order; a block is valid until the next one."""
        head = b"" if unit.window is None else unit.window.head
        path, dialect = unit.source.path, self._dialect.of(unit.source)
        header = parse_header(head, path, dialect, is_all=True) or CsvHeader((), b"")
        column = find_column(header, self._options.text_key, path, dialect)
        records = self._open_table(header, column, dialect)
        names = header.columns
        kept = [
            self._open_table(header, find_column(header, key, path, dialect), dialect)
            if key in names
            else None
            for key in self._options.kept_fields
        ]
        with self._options.open_unit(unit) as file:
            start, end = file.find_line(unit.start), file.find_line(unit.end)
            self._count(header, unit, start, end)
            if start < end:
                self._csv.load(file, start, end)
                yield from self._iter_records(records, self._csv.view, start, file, kept)

    def _open_table(self, header: CsvHeader, column: int, dialect: CsvDialect) -> CsvRecords:
        return CsvRecords(
            dialect.delimiter,
            column,
            len(header.columns),
            find_kernel_function("extract_csv_records"),
        )

    def _count(self, header: CsvHeader, unit: Unit, start: int, end: int) -> None:
        """Count the input of a unit; the header belongs to the first."""
        is_first = unit.start == 0
        has_mark = is_first and header.raw.startswith(BYTE_ORDER_MARK)
        self._counts += Counts(
            input_bytes=end - (0 if is_first else start), byte_order_marks=int(has_mark)
        )
