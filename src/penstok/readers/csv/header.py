"""The dialect and the header of CSV: what separates its fields, and the record that names them.

It reads nothing after the header and guesses no delimiter. `readers.formats` has one row for each
dialect; the probe checks the column with it before a job starts, the reader finds it again.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from penstok.errors import InputError
from penstok.inputs.compression.commands import run_on
from penstok.inputs.streams import read_head
from penstok.readers.csv.grammar import CsvCode, read_record
from penstok.types import Struct, replace

if TYPE_CHECKING:
    from penstok.types import InputFormat, Source

__all__ = ["BYTE_ORDER_MARK", "CSV", "TSV", "CsvDialect", "CsvHeader", "check_column"]
__all__ += ["check_head", "find_column", "parse_header", "read_header"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_READ_BYTES = (1 << 16, 1 << 20)
_MAX_NAMES = 12  # in a message
_NEW_LINES = r"tr '\r' '\n'"
_START = re.compile(b"(?:%b)?(?:\r?\n)*" % BYTE_ORDER_MARK)
# Servers send error pages, which are then saved under the name of a table.
_MARKUP = re.compile(rb"<(!doctype|html|\?xml)\b", re.IGNORECASE)


class CsvDialect(Struct, frozen=True):
    """How a table is written.

    Attributes:
        name: The name of the format.
        delimiter: The byte between two fields.
        num_columns: The number of columns if there is no header; otherwise 0.
    """

    name: InputFormat
    delimiter: bytes
    num_columns: int = 0

    def of(self, source: Source) -> CsvDialect:
        """Return the dialect of a source, which may have another delimiter, or no header."""
        delimiter = source.delimiter.encode() or self.delimiter
        return CsvDialect(self.name, delimiter, source.num_columns)


CSV = CsvDialect("csv", b",")
TSV = CsvDialect("tsv", b"\t")


class CsvHeader(Struct, frozen=True):
    """The first record.

    Attributes:
        columns: Their names, in order, or numbers; none if the input is blank.
        raw: All bytes before the first record after the header.
    """

    columns: tuple[str, ...]
    raw: bytes


def check_head(path: str, head: bytes) -> None:
    """Refuse an input that begins like something else.

    Raises:
        InputError: If so.
    """
    start = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    is_json, is_markup = start.startswith((b'{"', b'[{"')), _MARKUP.match(start) is not None
    if is_json or is_markup or b"\0" in head[:2]:  # UTF-16 without its mark
        raise InputError(
            f"this is not CSV: it begins with {start[:20]!r}",
            where=path,
            next_step="pass `--input-format jsonl`"
            if is_json
            else "download or write it again, or pass `--input-format text` to read it as plain "
            "text",
        )


def read_header(source: Source, dialect: CsvDialect) -> CsvHeader:
    """Read the header of an input; standard input can still be read from its start.

    Raises:
        InputError: If it cannot be read, is broken or far too long.
    """
    for num_bytes in _READ_BYTES:
        # Damage is reported by the stream that reads up to it.
        head = read_head(source, num_bytes, on_error="skip")
        header = parse_header(head, source.path, dialect, is_all=len(head) < num_bytes)
        if header is not None:
            return header
    raise _unusable(
        f"the header does not end within {_READ_BYTES[-1] >> 20} MiB "
        "(a quote that is never closed?)",
        source.path,
    )


def check_column(dialect: CsvDialect, source: Source, text_key: str) -> Source:
    """Return the source if it has the column; the header, or the first record, is read for that.

    Raises:
        InputError: If it has not, or the header cannot be read.
    """
    own = dialect.of(source)
    if own.num_columns:
        first = read_header(source, replace(own, num_columns=0))
        source = replace(source, num_columns=max(len(first.columns), 1))
        own = dialect.of(source)
    find_column(read_header(source, own), text_key, source.path, own)
    return source


def parse_header(head: bytes, path: str, dialect: CsvDialect, *, is_all: bool) -> CsvHeader | None:
    """Find the header in the first bytes of an input; None if it does not end there.

    Args:
        head: Those bytes.
        path: The input, for messages.
        dialect: How it is written.
        is_all: Whether the input ends with them.

    Raises:
        InputError: If the header is broken.
    """
    blank = _START.match(head)
    start = 0 if blank is None else blank.end()
    if start == len(head):
        return CsvHeader(_numbers(dialect), head) if is_all else None
    if dialect.num_columns:
        return CsvHeader(_numbers(dialect), head[:start])
    names, code, position, end = read_record(memoryview(head), start, ord(dialect.delimiter))
    if end == len(head) and not is_all:
        return None
    if code is not CsvCode.OK:
        is_open = code is CsvCode.NOT_CLOSED
        what = "a quote is never closed" if is_open else "there is text after a closing quote"
        raise _unusable(f"the header is broken: {what}", f"{path}, byte {position}")
    return CsvHeader(tuple(name.decode("utf-8", "replace") for name in names), head[:end])


def _numbers(dialect: CsvDialect) -> tuple[str, ...]:
    """Return what the columns are called where there is no header."""
    return tuple(str(number) for number in range(1, dialect.num_columns + 1))


def find_column(header: CsvHeader, name: str, path: str, dialect: CsvDialect) -> int:
    """Return the number of a column.

    Raises:
        InputError: If there is none of that name, or several.
    """
    names = header.columns
    if not names:
        raise _unusable("there is no header: every line is blank", path)
    if names.count(name) == 1:
        return names.index(name)
    if dialect.num_columns:
        raise InputError(
            f"there is no column {name}; the first record has {len(names)}",
            where=f"{path}, the first record",
            next_step=f"pass `--text-key` from 1 to {len(names)}, or another `--csv-delimiter`",
        )
    if any("\r" in each for each in names) and b"\n" not in header.raw:
        raise InputError(
            "the lines end with a carriage return alone, which is no line end in CSV",
            where=path,
            next_step=f"convert them: `{run_on(_NEW_LINES, path)} > converted.csv`, and pass "
            "`converted.csv`",
        )
    if name in names:
        what = f"{names.count(name)} columns are called `{name}`; the header has "
        step = "rename the columns so that each name occurs once"
    else:
        what = f"column `{name}` is missing; the header has "
        step = (
            _suggest_dialect(names, dialect)
            or f"pass `--text-key {shlex.quote(names[-1])}`, or another of them"
        )
    raise InputError(what + _list_names(names), where=f"{path}, the first record", next_step=step)


def _unusable(what: str, where: str) -> InputError:
    return InputError(
        what,
        where=where,
        next_step="correct it, pass `--input-format text` to read it as plain text, or leave such "
        "files out with `--on-error skip`",
    )


def _list_names(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{name[:80]}`" for name in names[:_MAX_NAMES])
    return shown if len(names) <= _MAX_NAMES else f"{shown} and {len(names) - _MAX_NAMES} more"


def _suggest_dialect(names: tuple[str, ...], dialect: CsvDialect) -> str:
    """Return what helps if the only column looks like several."""
    if len(names) > 1:
        return ""
    for other in (CSV, TSV):
        if other != dialect and other.delimiter.decode() in names[0]:
            return f"pass `--input-format {other.name}`, whose delimiter this header has"
    found = next((each for each in ";|\t:^" if each in names[0]), None)
    if found is None:
        return ""
    shown = repr(found) if found.isprintable() else "'\\t'"
    return f"pass `--csv-delimiter {shown}`, which this header has"
