"""The text of one column of CSV, as consecutive bytes.

It knows no files and raises nothing for a bad record: each gets a code, which `explain` turns into
words. The kernel does the work, or `grammar` if it is not built, with equal results; the reader
passes whole records.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from penstok.quantities import plural
from penstok.readers.csv.grammar import CsvCode, extract_csv_records, read_record
from penstok.readers.extraction import Extracted, run_extraction

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["CsvCode", "CsvRecords"]


class CsvRecords:
    r"""Extracts the text of one column of CSV.

    A field is quoted if its first byte is a quote; inside, two quotes are one, and delimiters and
    line ends are text. A record ends with a line feed, without a carriage return before it, or at
    the end of the buffer. It has as many fields as the header.

    Example:
        >>> out = bytearray(64)
        >>> csv = memoryview(b'1,"a ""b"", c"\n')
        >>> bytes(CsvRecords(b",", 1, 2).extract(csv, out).text)
        b'a "b", c'
    """

    def __init__(
        self,
        delimiter: bytes,
        column: int,
        num_columns: int,
        extract: Callable[..., Any] | None = None,
    ) -> None:
        """Choose a column.

        Args:
            delimiter: The byte between two fields.
            column: The number of the column, from 0.
            num_columns: How many columns the header has.
            extract: The kernel's `extract_csv_records`; None if it is not built.
        """
        if not 0 <= column < num_columns:
            raise ValueError(f"there is no column {column} in {num_columns}")
        self._delimiter = ord(delimiter)
        self._column = column
        self._num_columns = num_columns
        self._extract = extract or extract_csv_records

    def extract(
        self, buffer: memoryview, out: bytearray | memoryview, stop: int = sys.maxsize
    ) -> Extracted:
        """Write the texts of all records that begin before `stop` to `out`."""
        table = self._delimiter, self._column, self._num_columns
        return run_extraction(self._extract, buffer, stop, *table, out=out)

    def explain(self, buffer: memoryview, found: Extracted, record_idx: int) -> str:
        """Say what is wrong with a record, for a message that also says where it is."""
        start, position = int(found.records[record_idx]), int(found.faults[record_idx])
        code = CsvCode(int(found.codes[record_idx]))
        if code is CsvCode.AFTER_QUOTE:
            what = ascii(bytes(buffer[position : position + 1]).decode("latin-1"))[1:-1]
            return (
                f"broken CSV: unexpected `{what}` after a closing quote "
                f"(byte {position - start + 1} of the record)"
            )
        if code is CsvCode.NOT_CLOSED:
            return (
                f"broken CSV: the input ends inside quotes, opened at byte {position - start + 1} "
                "of the record"
            )
        fields, *_ = read_record(buffer, start, self._delimiter)
        fields_are = plural(len(fields), "field")
        return f"the record has {fields_are}, the header {self._num_columns}"
