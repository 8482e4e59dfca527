"""The text of one field out of JSON Lines, as bytes laid one after the other.

It knows no files and raises nothing for a bad line: each record gets a code, and `explain` puts it
in words. The kernel does the work where it is built, `json_fallback.py` elsewhere, with equal
results; a reader hands over whole lines.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.errors import UsageError
from penstok.readers.jsonl.fallback import extract_json_lines
from penstok.readers.jsonl.scan import MAX_DEPTH, RecordCode, scan_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["Extracted", "JsonLines", "RecordCode", "list_string_keys"]

_LINE = re.compile(rb"[^\n]*")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_KINDS = {"{": "an object", "[": "a list", '"': "a string", "t": "a boolean", "f": "a boolean"}
_KINDS["n"] = "null"
_MAX_KEYS = 12  # in a message


@dataclass(frozen=True, slots=True)
class Extracted:
    r"""The records of some lines, good and bad, in order; blank lines are none.

    Attributes:
        text: The texts, one after the other: a view of the caller's buffer.
        starts: Where each record's text begins in `text`.
        ends: Where it ends; where it begins if the record is bad.
        codes: What became of each record, a `RecordCode`.
        lines: Where each record's line begins in the JSON.
        positions: For a broken line the first byte that valid JSON cannot have there (where the
            line ends, if that is too early); for a value of the wrong kind its first byte; else the
            line's first byte that is not blank.
        num_blank: Lines with nothing but spaces, tabs and carriage returns.
        num_lone_surrogates: Escapes such as `\ud800` that stand for half a character; each became
            U+FFFD.
        consumed: Where the first line that was not read begins.
    """

    text: memoryview
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    codes: NDArray[np.uint8]
    lines: NDArray[np.int64]
    positions: NDArray[np.int64]
    num_blank: int
    num_lone_surrogates: int
    consumed: int


class JsonLines:
    r"""Takes the text of one field out of JSON Lines.

    A line must be one object, valid by RFC 8259 in all its parts, at most 512 levels deep. It ends
    with a line feed, or where the buffer ends. What is not UTF-8 inside a string stays as it is.

    The key `meta.text` means the top-level field of just that name if the line has one, else the
    field `text` of the object `meta`. Of equal keys the last one counts.

    Example:
        >>> out = bytearray(64)
        >>> found = JsonLines("text").extract(memoryview(b'{"text": "caf\\u00e9"}\n'), out)
        >>> bytes(found.text).decode()
        'café'
    """

    def __init__(self, key: str, extract: Callable[..., Any] | None = None) -> None:
        """Prepare for a key.

        Args:
            key: The field's name; dots lead into nested objects.
            extract: The kernel's `extract_json_lines`; None where it is not built.
        """
        try:
            self._key_bytes = key.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"text key {key!a} is not valid Unicode",
                where="--text-key",
                next_step="pass the key in UTF-8",
            ) from error
        self.key = key
        self._extract = extract or extract_json_lines

    def extract(
        self, buffer: memoryview, out: bytearray | memoryview, stop: int = sys.maxsize
    ) -> Extracted:
        """Write the texts of all lines that begin before `stop` to `out`.

        Args:
            buffer: Whole lines; the last may lack its line feed.
            out: As long as `buffer`, or longer, and apart from it. What stands behind the texts
                afterwards is undefined.
            stop: Lets a caller take some MB at a time, so that the texts stay in cache.
        """
        if len(out) < len(buffer):
            raise ValueError(f"out has room for {len(out)} bytes; {len(buffer)} are needed")
        json_bytes, room = np.frombuffer(buffer, np.uint8), np.frombuffer(out, np.uint8)
        if np.may_share_memory(json_bytes, room):
            raise ValueError("out and the buffer overlap")
        lines, positions, starts, ends, codes, num_blank, num_lone, consumed = self._extract(
            json_bytes, stop, self._key_bytes, room
        )
        text = memoryview(out)[: int(ends[-1]) if len(ends) else 0]
        return Extracted(text, starts, ends, codes, lines, positions, num_blank, num_lone, consumed)

    def iter_without_lone_surrogates(
        self, buffer: memoryview, found: Extracted
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each record that has lone surrogates, and its text without them."""
        for record_idx in np.flatnonzero(found.codes == RecordCode.OK).tolist():
            line = _line_at(buffer, int(found.lines[record_idx]))
            if _SURROGATE.search(line):
                field = scan_line(line, self._key_bytes, lone=b"")
                if field.num_lone_surrogates:
                    yield record_idx, field.text

    def explain(self, buffer: memoryview, found: Extracted, record_idx: int) -> str:
        """Say what is wrong with a record, for a message that also says where it is."""
        start, position = int(found.lines[record_idx]), int(found.positions[record_idx])
        line = _line_at(buffer, start)
        at = position - start
        kind = _KINDS.get(line[at : at + 1].decode("latin-1"), "a number")
        code = RecordCode(int(found.codes[record_idx]))
        if code is RecordCode.BROKEN:
            return _explain_fault(line, at)
        if code is RecordCode.NO_OBJECT:
            return f"the line is {kind}, not an object with the text key `{self.key}`"
        if code is RecordCode.MISSING:
            return f"text key `{self.key}` is missing; this line has {_name_keys(line)}"
        return f"text key `{self.key}` is {kind}, not a string"


def list_string_keys(line: bytes) -> list[str]:
    """List the fields of a valid line that hold a string, nested ones with dots."""

    def iter_keys(value: dict[str, Any], prefix: str) -> Iterator[str]:
        for key, inner in value.items():
            if isinstance(inner, str):
                yield prefix + key
            elif isinstance(inner, dict):
                yield from iter_keys(inner, f"{prefix}{key}.")

    text = line.decode("utf-8", "replace")
    record = json.loads(text, parse_int=len)  # Python has no numbers of more than 4,300 digits
    return list(iter_keys(record, ""))


def _line_at(buffer: memoryview, start: int) -> bytes:
    match = _LINE.match(buffer, start)
    return b"" if match is None else match[0]


def _explain_fault(line: bytes, at: int) -> str:
    if at >= len(line.rstrip(b"\r")):
        return "broken JSON: the line ends too early"
    what = ascii(line[at : at + 1].decode("latin-1"))[1:-1]
    if what in "[{" and len(re.findall(rb"[\[{]", line[:at])) >= MAX_DEPTH:
        return f"the line nests more than {MAX_DEPTH} levels deep"
    return f"broken JSON: `{what}` cannot stand at byte {at + 1} of the line"


def _name_keys(line: bytes) -> str:
    keys = list_string_keys(line)
    if not keys:
        return "no field that holds a string"
    shown = ", ".join(f"`{key.encode('utf-8', 'replace').decode()}`" for key in keys[:_MAX_KEYS])
    return shown if len(keys) <= _MAX_KEYS else f"{shown} and {len(keys) - _MAX_KEYS} more"
