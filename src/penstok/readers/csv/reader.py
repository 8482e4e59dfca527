"""CSV: one record per document, one column is the text.

A unit has the records that begin in it, which the scanner has found. The reader lists bad records;
it parses nothing itself: `records` does, a block at a time and without a Python object per
document.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstok.readers.buffer import UnitBuffer
from penstok.readers.csv.header import BYTE_ORDER_MARK, CsvHeader, find_column, parse_header
from penstok.readers.csv.records import CsvCode, CsvRecords
from penstok.readers.documents import RecordReader, describe_position
from penstok.types import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.inputs.base import OpenInput
    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.readers.csv.header import CsvDialect
    from penstok.readers.csv.records import CsvExtracted
    from penstok.types import Block, Unit

__all__ = ["CsvReader"]


class CsvReader(RecordReader):
    """Reads the text of one column from records of CSV."""

    def __init__(self, dialect: CsvDialect, cuts: CutRule, options: ReaderOptions) -> None:
        super().__init__(cuts, options)
        self._dialect = dialect
        self._csv = UnitBuffer(options.find_all)

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the documents of a unit in order; a block is valid until the next one."""
        head = b"" if unit.window is None else unit.window.head
        path = unit.source.path
        header = parse_header(head, path, self._dialect, is_all=True) or CsvHeader((), b"")
        records = self._open_table(header, path)
        with self._options.open_unit(unit) as file:
            start, end = file.find_line(unit.start), file.find_line(unit.end)
            self._count(header, unit, start, end)
            if start < end:
                self._csv.load(file, start, end)
                yield from self._iter_loaded(records, file)

    def _open_table(self, header: CsvHeader, path: str) -> CsvRecords:
        return CsvRecords(
            self._dialect.delimiter,
            find_column(header, self._options.text_key, path, self._dialect),
            len(header.columns),
            self._options.extract_csv,
        )

    def _count(self, header: CsvHeader, unit: Unit, start: int, end: int) -> None:
        """Count the input of a unit; the header belongs to the first."""
        is_first = unit.start == 0
        has_mark = is_first and header.raw.startswith(BYTE_ORDER_MARK)
        self._counts += Counts(
            input_bytes=end - (0 if is_first else start), byte_order_marks=int(has_mark)
        )

    def _iter_loaded(self, records: CsvRecords, file: OpenInput) -> Iterator[Block]:
        """Extract about a block of text at a time, so that it stays in the CPU's cache."""
        at, csv = 0, self._csv.view
        while at < len(csv):
            left, origin = csv[at:], self._csv.origin + at
            found = records.extract(left, self._text.room(len(left)), self._options.block_bytes)
            self._refuse_bad(records, found, left, origin, file)
            good = found.codes == CsvCode.OK
            yield from self._iter_blocks(
                found.starts[good], found.ends[good], origin, file.source.path
            )
            at += found.consumed

    def _refuse_bad(
        self,
        records: CsvRecords,
        found: CsvExtracted,
        csv: memoryview,
        origin: int,
        file: OpenInput,
    ) -> None:
        self._counts += Counts(nul_bytes=self._text.count_nul(0, len(found.text)))
        bad = np.flatnonzero(found.codes != CsvCode.OK)
        self._counts += Counts(skipped_records=len(bad))
        for idx in bad[: self._skipped_room].tolist():
            what = records.explain(csv, found, idx)
            self._refuse(origin + int(found.records[idx]), what, partial(describe_position, file))
