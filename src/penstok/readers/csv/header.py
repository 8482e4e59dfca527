"""The header of CSV: its first record, which names the columns.

It reads no further. `examine` asks whether the wanted column is there before a job begins, `feed`
where the records begin, the reader which column it is.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstok.errors import InputError
from penstok.inputs.streams import read_head
from penstok.readers.csv.fallback import CsvCode, read_record

if TYPE_CHECKING:
    from penstok.types import Source

__all__ = ["BYTE_ORDER_MARK", "DELIMITERS", "CsvHeader", "find_column", "parse_header"]
__all__ += ["read_header"]

# By format: these are the ones that have a header.
DELIMITERS = {"csv": b",", "tsv": b"\t"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LOOKS_BYTES = (1 << 16, 1 << 20)
_MAX_NAMES = 12  # in a message
_START = re.compile(b"(?:%b)?(?:\r?\n)*" % BYTE_ORDER_MARK)


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """What the first record says.

    Attributes:
        columns: Their names, in order; none where the input is blank.
        raw: All bytes up to the first record behind the header.
    """

    columns: tuple[str, ...]
    raw: bytes


def read_header(source: Source) -> CsvHeader:
    """Read the header of an input; standard input can still be read from its start.

    Raises:
        InputError: If it cannot be read, is broken or far too long.
    """
    for num_bytes in _LOOKS_BYTES:
        head = read_head(source, num_bytes)
        header = parse_header(head, source, is_all=len(head) < num_bytes)
        if header is not None:
            return header
    raise _unusable(
        f"the header does not end within {_LOOKS_BYTES[-1] >> 20} MiB "
        "(a quote that is never closed?)",
        source.path,
    )


def parse_header(head: bytes, source: Source, *, is_all: bool) -> CsvHeader | None:
    """Find the header in the first bytes of an input; None if it goes on behind them.

    Args:
        head: Those bytes.
        source: The input.
        is_all: Whether nothing stands behind them.

    Raises:
        InputError: If it is broken.
    """
    blank = _START.match(head)
    start = 0 if blank is None else blank.end()
    if start == len(head):
        return CsvHeader((), head) if is_all else None
    delimiter = ord(DELIMITERS[source.format])
    names, code, position, end = read_record(memoryview(head), start, delimiter)
    if end == len(head) and not is_all:
        return None
    if code is not CsvCode.OK:
        is_open = code is CsvCode.NOT_CLOSED
        what = "a quote is never closed" if is_open else "text stands behind a closing quote"
        raise _unusable(f"the header is broken: {what}", f"{source.path}, byte {position}")
    return CsvHeader(tuple(name.decode("utf-8", "replace") for name in names), head[:end])


def find_column(header: CsvHeader, name: str, source: Source) -> int:
    """Return which column has a name.

    Raises:
        InputError: If none has it, or several.
    """
    names = header.columns
    if not names:
        raise _unusable("there is no header: every line is blank", source.path)
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        what = f"{names.count(name)} columns are called `{name}`; the header has "
        step = "give each column a name of its own"
    else:
        what = f"column `{name}` is missing; the header has "
        step = (
            _other_delimiter(names, source)
            or f"pass `--text-key {shlex.quote(names[-1])}`, or another of them"
        )
    raise InputError(
        what + _list_names(names), where=f"{source.path}, the first record", next_step=step
    )


def _unusable(what: str, where: str) -> InputError:
    return InputError(
        what,
        where=where,
        next_step="mend it, pass `--input-format text` to read it as plain text, or leave such "
        "files out with `--on-error skip`",
    )


def _list_names(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{name[:80]}`" for name in names[:_MAX_NAMES])
    return shown if len(names) <= _MAX_NAMES else f"{shown} and {len(names) - _MAX_NAMES} more"


def _other_delimiter(names: tuple[str, ...], source: Source) -> str:
    """Say what helps where the one column there is looks like several."""
    if len(names) > 1:
        return ""
    for form, delimiter in DELIMITERS.items():
        if form != source.format and delimiter.decode() in names[0]:
            return f"pass `--input-format {form}`: that is how the fields are parted"
    if ";" in names[0] or "|" in names[0]:
        return "write the file with commas between the fields, or as JSON Lines"
    return ""
