"""The text of one column of CSV, as consecutive bytes.

It knows no files and raises nothing for a bad record: each gets a code, which `explain` turns into
words. The kernel does the work, or `grammar` if it is not built, with equal results; the reader
passes whole records.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.readers.csv.grammar import CsvCode, extract_csv_records, read_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["CsvCode", "CsvExtracted", "CsvRecords"]


@dataclass(frozen=True, slots=True)
class CsvExtracted:
    """Records, good and bad, in order; blank lines are not records.

    Attributes:
        text: All texts: a view of the caller's buffer.
        starts: Where each record's text begins in `text`.
        ends: Where it ends; where it begins if the record is bad.
        codes: The outcome of each record, a `CsvCode`.
        records: Where each record begins in the CSV.
        positions: What follows a closing quote and should not, or the quote that is never closed;
            else where the record begins.
        num_blank: How many lines are empty.
        consumed: Where the first record that was not read begins.
    """

    text: memoryview
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    codes: NDArray[np.uint8]
    records: NDArray[np.int64]
    positions: NDArray[np.int64]
    num_blank: int
    consumed: int


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
    ) -> CsvExtracted:
        """Write the texts of all records that begin before `stop` to `out`.

        Args:
            buffer: Whole records; the last may lack its line feed.
            out: At least as long as `buffer`, and separate from it. What follows the texts in it is
                undefined.
            stop: Lets a caller extract a few MB at a time, so that the texts stay in cache.
        """
        if len(out) < len(buffer):
            raise ValueError(f"out has room for {len(out)} bytes; {len(buffer)} are needed")
        csv, room = np.frombuffer(buffer, np.uint8), np.frombuffer(out, np.uint8)
        if np.may_share_memory(csv, room):
            raise ValueError("out and the buffer overlap")
        records, positions, starts, ends, codes, num_blank, consumed = self._extract(
            csv, stop, self._delimiter, self._column, self._num_columns, room
        )
        text = memoryview(out)[: int(ends[-1]) if len(ends) else 0]
        return CsvExtracted(text, starts, ends, codes, records, positions, num_blank, consumed)

    def explain(self, buffer: memoryview, found: CsvExtracted, record_idx: int) -> str:
        """Say what is wrong with a record, for a message that also says where it is."""
        start, position = int(found.records[record_idx]), int(found.positions[record_idx])
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
        fields_are = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        return f"the record has {fields_are}, the header {self._num_columns}"
