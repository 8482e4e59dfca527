"""JSON Lines without the kernel: its `extract_json_lines` in Python, with equal results.

The standard library's `json` reads the lines; `find_fault` finds the byte that breaks a broken one,
because `json` names another byte in each version of Python. It repairs nothing and raises nothing
for a bad line. `lines` calls it, with the kernel too where a line is bad or has lone surrogates.
"""

from __future__ import annotations

import json
import re
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = [
    "MAX_DEPTH",
    "Field",
    "RecordCode",
    "extract_json_lines",
    "find_json_text",
    "find_value",
    "load_line",
    "read_field",
]

MAX_DEPTH = 512  # of arrays and objects inside each other; the kernel has the same

_SCAN_BYTES = 1 << 20
_BLANKS = re.compile(rb"[ \t\r]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
# What can begin an escape, a word or a number, whole or not.
_ESCAPE_HEAD = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{0,4})?')
_WORD_OR_NUMBER_HEAD = re.compile(
    rb"t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?"
    rb"|-?(?:(?:0|[1-9][0-9]*)(?:\.(?:[0-9]+(?:[eE][+-]?[0-9]*)?)?|[eE][+-]?[0-9]*)?)?"
)
_WORDS = (b"true", b"false", b"null")

_LOW = rb"\\u([dD][c-fC-F][0-9a-fA-F]{2})"
_ESCAPES = re.compile(rb"\\u([dD][89abAB][0-9a-fA-F]{2})%b|%b|\\." % (_LOW, _LOW), re.DOTALL)
_LONE = re.compile("[\ud800-\udfff]")
_LONE_BESIDE_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # not those of `surrogateescape`


class RecordCode(IntEnum):
    """The outcome of a record; the numbers are the kernel's."""

    OK = 0
    BROKEN = 1
    NO_OBJECT = 2
    MISSING = 3
    NULL = 4
    NO_STRING = 5


class Field(NamedTuple):
    """The wanted field of a line.

    Attributes:
        code: `OK`, or what is wrong.
        text: The text, if `OK`.
        num_lone_surrogates: How many escapes in it encode half a character and were replaced.
    """

    code: RecordCode
    text: bytes = b""
    num_lone_surrogates: int = 0


def extract_json_lines(
    data: NDArray[np.uint8],
    stop: int,
    key: bytes,
    takes_any: bool,  # noqa: FBT001 as the kernel has it
    out: NDArray[np.uint8],
) -> tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint8],
    int,
    int,
    int,
]:
    """Write the text of field `key` of the lines that begin before `stop` to `out`.

    With `takes_any`, a value that is not a string is its JSON text, except for null.

    Returns `lines`, `faults`, `starts`, `ends`, `codes`, `num_blank`, `num_lone_surrogates` and
    `consumed` of `Extracted`.
    """
    room, name = out.data, key.decode()
    rows: list[tuple[int, int, int, int]] = []
    codes: list[int] = []
    end = num_blank = num_lone_surrogates = consumed = 0
    for line_start, line, consumed in _iter_lines(data, stop):  # noqa: B007
        if not line.strip(b" \t\r"):
            num_blank += 1
            continue
        field = read_field(line, name)
        if takes_any and field.code is RecordCode.NO_STRING:
            field = Field(RecordCode.OK, find_json_text(line, name))
        fault = find_fault(line) if field.code is RecordCode.BROKEN else 0
        if fault is None:
            raise ValueError(f"`json` refuses a valid line, please report it: {line[:200]!r}")
        start, end = end, end + len(field.text)
        room[start:end] = field.text
        rows.append((line_start, line_start + fault, start, end))
        codes.append(field.code)
        num_lone_surrogates += field.num_lone_surrogates
    lines, faults, starts, ends = np.array(rows, np.int64).reshape(-1, 4).T.copy()
    counts = num_blank, num_lone_surrogates, consumed
    return lines, faults, starts, ends, np.array(codes, np.uint8), *counts


def read_field(line: bytes, key: str, lone: str = "\ufffd") -> Field:
    """Read one field of a line; `lone` replaces escapes that encode half a character."""
    try:
        record, is_utf8 = load_line(line)
    except ValueError:
        return Field(RecordCode.BROKEN)
    if not isinstance(record, dict):
        return Field(RecordCode.NO_OBJECT)
    try:
        value = find_value(record, key)
    except KeyError:
        return Field(RecordCode.MISSING)
    if not isinstance(value, str):
        return Field(RecordCode.NULL if value is None else RecordCode.NO_STRING)
    try:
        return Field(RecordCode.OK, value.encode())
    except UnicodeEncodeError:
        text, num_lone = (_LONE if is_utf8 else _LONE_BESIDE_BYTES).subn(lone, value)
        return Field(RecordCode.OK, text.encode("utf-8", "surrogateescape"), num_lone)


def load_line(line: bytes) -> tuple[Any, bool]:
    """Parse a line, and tell whether it is UTF-8; the value of a number is undefined.

    Bytes that are not UTF-8 become what `surrogateescape` makes of them.

    Raises:
        ValueError: If it is not valid JSON, or too deep.
    """
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and find_fault(line) is not None:
        raise ValueError("too deep")
    try:
        return _DECODER.decode(line.decode()), True
    except UnicodeDecodeError:
        text = _ESCAPES.sub(_replace_low_surrogate, line).decode("utf-8", "surrogateescape")
        return _DECODER.decode(text), False


def find_value(record: dict[str, Any], key: str) -> Any:
    """Look up a field: one of just that name, or else by the names between the dots.

    Raises:
        KeyError: If there is none.
    """
    if key in record:
        return record[key]
    value: Any = record
    for name in key.split("."):
        if not isinstance(value, dict):
            raise KeyError(key)
        value = value[name]
    return value


def find_json_text(line: bytes, key: str) -> bytes:
    """Return the JSON text of a field that a valid line has."""
    members = _find_members(line)
    if key in members:
        return members[key]
    *outer, last = key.split(".")
    for name in outer:
        members = _find_members(members[name])
    return members[last]


def _find_members(json_text: bytes) -> dict[str, bytes]:
    """Return the JSON text of each member of a valid object; of equal keys, the last."""
    # One character per byte, so that positions are those of the bytes.
    text, at, members = json_text.decode("latin-1"), 0, dict[str, bytes]()
    at = _end(_BLANKS, json_text, at) + 1
    while text[at := _end(_BLANKS, json_text, at)] != "}":
        _, end = _DECODER.raw_decode(text, at)
        name, _ = load_line(json_text[at:end])
        at = _end(_BLANKS, json_text, _end(_BLANKS, json_text, end) + 1)
        _, end = _DECODER.raw_decode(text, at)
        members[name] = json_text[at:end]
        at = _end(_BLANKS, json_text, end)
        at += text[at] == ","
    return members


def find_fault(line: bytes) -> int | None:
    """Return the first byte that valid JSON cannot have there; None if the line is valid."""
    line += b"\n"  # which valid JSON never has in a line
    closing: list[bytes] = []  # brackets of the containers that are open
    expected, at = "value", 0
    while True:
        at = _end(_BLANKS, line, at)
        sign = line[at : at + 1]
        if expected == "end" and not closing:
            return None if sign == b"\n" else at
        if expected in ("end", "first") and sign == closing[-1]:
            closing.pop()
            expected, at = "end", at + 1
        elif expected in ("end", "colon"):
            if sign != (b":" if expected == "colon" else b","):
                return at
            expected, at = ("value" if expected == "colon" else "item"), at + 1
        else:
            is_key = expected != "value" and closing[-1] == b"}"
            if is_key and sign != b'"':
                return at
            if sign in (b"[", b"{"):
                if len(closing) == MAX_DEPTH:
                    return at
                closing.append(b"]" if sign == b"[" else b"}")
                expected, at = "first", at + 1
                continue
            at, is_whole = _read_token(line, at)
            if not is_whole:
                return at
            expected = "colon" if is_key else "end"


def _read_token(line: bytes, at: int) -> tuple[int, bool]:
    """Return where a string, word or number ends or breaks off, and whether it is whole."""
    if line[at : at + 1] != b'"':
        end = _end(_WORD_OR_NUMBER_HEAD, line, at)
        return end, line[at:end] in _WORDS or line[at:end][-1:].isdigit()
    at = _end(_PLAIN, line, at + 1)
    while line[at : at + 1] == b"\\":
        end = _end(_ESCAPE_HEAD, line, at)
        if end - at != (6 if line[at + 1 : at + 2] == b"u" else 2):
            return end, False
        at = _end(_PLAIN, line, end)
    is_whole = line[at : at + 1] == b'"'
    return at + is_whole, is_whole


def _end(pattern: re.Pattern[bytes], line: bytes, at: int) -> int:
    """Return where a match that begins at `at`, and may be empty, ends."""
    match = pattern.match(line, at)
    return at if match is None else match.end()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Python refuses numbers of more than 4,300 digits; nobody asks for their value.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=len, parse_float=len)


def _replace_low_surrogate(match: re.Match[bytes]) -> bytes:
    """Replace escapes that would look like bytes that are not UTF-8: a pair, or a lone one."""
    high, low, lone = match.groups()
    if high is not None:
        return chr(((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00 + 0x10000).encode()
    return match[0] if lone is None else b"\\udfff"


def _iter_lines(data: NDArray[np.uint8], stop: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield each line's start, its bytes without the line feed, and where the next one starts."""
    start = 0
    for at in range(0, len(data), _SCAN_BYTES):
        for end in np.flatnonzero(data[at : at + _SCAN_BYTES] == ord("\n")) + at:
            if start >= stop:
                return
            yield start, data[start:end].tobytes(), int(end) + 1
            start = int(end) + 1
    if start < min(stop, len(data)):
        yield start, data[start:].tobytes(), len(data)
