"""CSV: one record one document, one of its columns the text.

A unit owns the records that begin in it; who reads the input from its start has found where. The
reader finds bad records; what a record says is found by `csv_records`, a block at a time and
without a Python object for each document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.readers.buffer import UnitBuffer
from penstok.readers.csv.header import BYTE_ORDER_MARK, CsvHeader, find_column, parse_header
from penstok.readers.csv.records import CsvCode, CsvRecords
from penstok.readers.documents import DocumentBlocks
from penstok.readers.refusals import Refusals
from penstok.types import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.inputs.base import OpenInput
    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.readers.csv.header import CsvDialect
    from penstok.readers.csv.records import CsvExtracted
    from penstok.types import Block, SkippedRecord, Unit

__all__ = ["CsvReader"]


class CsvReader:
    """Reads the text of one column from records of CSV."""

    def __init__(self, dialect: CsvDialect, cuts: CutRule, options: ReaderOptions) -> None:
        self._dialect = dialect
        self._options = options
        self._documents = DocumentBlocks(cuts, options)
        self._refusals = Refusals(options.on_error)
        self._csv = UnitBuffer(options.find_all)
        self._text = UnitBuffer(options.find_all)
        self._counts = Counts()

    def take_counts(self) -> Counts:
        """Return what was seen and dropped since the last call."""
        counts = self._counts + self._documents.counts
        self._counts = self._documents.counts = Counts()
        return counts

    def take_skipped(self) -> list[SkippedRecord]:
        """Return the bad records since the last call."""
        return self._refusals.take()

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
        """Count what a unit owns; the first one owns the header, too."""
        is_first = unit.start == 0
        has_mark = is_first and header.raw.startswith(BYTE_ORDER_MARK)
        self._counts += Counts(
            input_bytes=end - (0 if is_first else start), byte_order_marks=int(has_mark)
        )

    def _iter_loaded(self, records: CsvRecords, file: OpenInput) -> Iterator[Block]:
        """Take the records a block's worth at a time, so that their text stays in cache."""
        at, csv = 0, self._csv.view
        while at < len(csv):
            left, origin = csv[at:], self._csv.origin + at
            found = records.extract(left, self._text.room(len(left)), self._options.block_bytes)
            self._note_bad(records, found, left, origin, file)
            good = found.codes == CsvCode.OK
            yield from self._documents.iter_blocks(
                self._text, found.starts[good], found.ends[good], origin, file.source.path
            )
            at += found.consumed

    def _note_bad(
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
        for idx in bad[: self._refusals.room].tolist():
            what = records.explain(csv, found, idx)
            self._refusals.add(file, origin + int(found.records[idx]), what)
