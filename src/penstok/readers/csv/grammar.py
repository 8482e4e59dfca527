"""The grammar of CSV in Python: `read_record` reads one record.

It repairs nothing and raises nothing for a bad record. `header` and `records` use it for the header
and for messages; where the kernel is not built, `records` and `scanner` also use it in place of
`extract_csv_records` and `scan_csv`, with equal results (ADR 24).
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CsvCode", "CsvState", "extract_csv_records", "read_record", "scan_csv"]

_QUOTE = re.compile(rb'"')
_QUOTE_OR_LINE_FEED = re.compile(rb'["\n]')
_LINE_END = re.compile(rb"\r?\n")


class CsvCode(IntEnum):
    """The outcome of a record; the numbers are the kernel's."""

    OK = 0
    WRONG_NUMBER = 1
    AFTER_QUOTE = 2
    NOT_CLOSED = 3


class CsvState(IntEnum):
    """What precedes the next byte; the numbers are the kernel's."""

    FIELD_START = 0
    UNQUOTED = 1
    QUOTED = 2
    QUOTE = 3


def extract_csv_records(
    csv: NDArray[np.uint8],
    stop: int,
    delimiter: int,
    column: int,
    num_columns: int,
    out: NDArray[np.uint8],
) -> tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint8],
    int,
    int,
]:
    """Write the text of one column of the records that begin before `stop` to `out`.

    Returns `records`, `positions`, `starts`, `ends`, `codes`, `num_blank` and `consumed` of
    `CsvExtracted`.
    """
    view, room = csv.data, out.data
    rows: list[tuple[int, int, int, int]] = []
    codes: list[int] = []
    at = end = num_blank = 0
    while at < min(stop, len(view)):
        if blank := _LINE_END.match(view, at):
            at = blank.end()
            num_blank += 1
            continue
        fields, code, position, record_end = read_record(view, at, delimiter)
        if code is CsvCode.OK and len(fields) != num_columns:
            code = CsvCode.WRONG_NUMBER
        text = fields[column] if code is CsvCode.OK else b""
        start, end = end, end + len(text)
        room[start:end] = text
        rows.append((at, position, start, end))
        codes.append(code)
        at = record_end
    records, positions, starts, ends = np.array(rows, np.int64).reshape(-1, 4).T.copy()
    return records, positions, starts, ends, np.array(codes, np.uint8), num_blank, at


def read_record(
    view: memoryview, start: int, delimiter: int
) -> tuple[list[bytes], CsvCode, int, int]:
    """Read the record that begins at `start`.

    Returns its fields, what is wrong with it and where, and where the next record begins.
    """
    field_end = _field_end(delimiter)
    fields: list[bytes] = []
    code, position, at = CsvCode.OK, start, start
    while True:
        opening = at
        is_quoted = bytes(view[at : at + 1]) == b'"'
        if is_quoted:
            at = _end_of_quotes(view, at + 1)
            if at < 0:
                if code is CsvCode.OK:
                    code, position = CsvCode.NOT_CLOSED, opening
                return fields, code, position, len(view)
            fields.append(bytes(view[opening + 1 : at - 1]).replace(b'""', b'"'))
        found = field_end.search(view, at)
        end = len(view) if found is None else found.start()
        line_ends = found is not None and found[0] == b"\n"
        has_return = line_ends and end > at and view[end - 1] == ord("\r")
        text = bytes(view[at : end - has_return])
        if not is_quoted:
            fields.append(text)
        elif text and code is CsvCode.OK:
            code, position = CsvCode.AFTER_QUOTE, at
        if found is None or line_ends:
            return fields, code, position, min(end + 1, len(view))
        at = end + 1


def scan_csv(csv: NDArray[np.uint8], stop: int, delimiter: int, state: int) -> tuple[int, int]:
    """Return where the first record after `stop` begins, or -1, and the state there."""
    view = csv.data
    size, stop = len(view), min(stop, len(view))
    _, state = _scan(view, 0, stop, delimiter, state, _QUOTE)
    return _scan(view, stop, size, delimiter, state, _QUOTE_OR_LINE_FEED)


def _scan(
    view: memoryview, at: int, end: int, delimiter: int, state: int, wanted: re.Pattern[bytes]
) -> tuple[int, int]:
    while at < end:
        if state == CsvState.QUOTED:
            found = _QUOTE.search(view, at, end)
            if found is None:
                break
            at, state = found.end(), CsvState.QUOTE
        elif state == CsvState.QUOTE and view[at] == ord('"'):
            at, state = at + 1, CsvState.QUOTED
        else:
            found = wanted.search(view, at, end)
            reached = end if found is None else found.start()
            if reached > at:
                is_start = view[reached - 1] in (delimiter, ord("\n"))
                state = CsvState.FIELD_START if is_start else CsvState.UNQUOTED
            if found is None:
                break
            at = found.end()
            if found[0] == b"\n":
                return at, CsvState.FIELD_START
            state = CsvState.QUOTED if state == CsvState.FIELD_START else CsvState.UNQUOTED
    return -1, int(state)


@lru_cache(maxsize=4)
def _field_end(delimiter: int) -> re.Pattern[bytes]:
    return re.compile(b"[%b\n]" % re.escape(bytes([delimiter])))


def _end_of_quotes(view: memoryview, at: int) -> int:
    """Return the position after the quote that closes the field at `at`; -1 if none does."""
    while found := _QUOTE.search(view, at):
        at = found.end()
        if bytes(view[at : at + 1]) != b'"':
            return at
        at += 1
    return -1
