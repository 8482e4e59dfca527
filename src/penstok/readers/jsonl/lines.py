"""The text of one field of JSON Lines, as consecutive bytes.

It knows no files and raises nothing for a bad line: each record gets a code, which `explain` turns
into words. The kernel does the work, or `fallback` if it is not built, with equal results; the
reader passes whole lines.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.errors import UsageError
from penstok.readers.extraction import Extracted, run_extraction
from penstok.readers.jsonl.fallback import (
    MAX_DEPTH,
    RecordCode,
    extract_json_lines,
    find_value,
    load_line,
    read_field,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


__all__ = ["JsonLines", "RecordCode", "list_string_keys"]

_LINE = re.compile(rb"[^\n]*")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
_TYPES[type(None)] = "null"
_MAX_KEYS = 12  # in a message


class JsonLines:
    r"""Extracts the text of one field of JSON Lines.

    A line must be one object, valid by RFC 8259 in all its parts, at most 512 levels deep. It ends
    with a line feed, or at the end of the buffer. Invalid UTF-8 inside a string stays as it is.

    The key `meta.text` means the top-level field of just that name if the line has one, else the
    field `text` of the object `meta`. Of equal keys the last one counts.

    Example:
        >>> out = bytearray(64)
        >>> found = JsonLines("text").extract(memoryview(b'{"text": "caf\\u00e9"}\n'), out)
        >>> bytes(found.text).decode()
        'café'
    """

    def __init__(
        self, key: str, extract: Callable[..., Any] | None = None, *, takes_any: bool = False
    ) -> None:
        """Choose a field.

        Args:
            key: The field's name; dots lead into nested objects.
            extract: The kernel's `extract_json_lines`; None if it is not built.
            takes_any: Take numbers, booleans, lists and objects, too, as their JSON text.
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
        self._takes_any = takes_any
        self._extract = extract or extract_json_lines

    def extract(
        self, buffer: memoryview, out: bytearray | memoryview, stop: int = sys.maxsize
    ) -> Extracted:
        """Write the texts of all lines that begin before `stop` to `out`."""
        return run_extraction(
            self._extract, buffer, stop, self._key_bytes, self._takes_any, out=out
        )

    def iter_without_lone_surrogates(
        self, buffer: memoryview, found: Extracted
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each record that has lone surrogates, and its text without them."""
        for record_idx in np.flatnonzero(found.codes == RecordCode.OK).tolist():
            line = _line_at(buffer, int(found.records[record_idx]))
            if _SURROGATE.search(line):
                field = read_field(line, self.key, lone="")
                if field.num_lone_surrogates:
                    yield record_idx, field.text

    def explain(self, buffer: memoryview, found: Extracted, record_idx: int) -> str:
        """Say what is wrong with a record, for a message that also says where it is."""
        start, fault = int(found.records[record_idx]), int(found.faults[record_idx])
        line = _line_at(buffer, start)
        code = RecordCode(int(found.codes[record_idx]))
        if code is RecordCode.BROKEN:
            return _explain_fault(line, fault - start)
        record, _ = load_line(line)
        if code is RecordCode.NO_OBJECT:
            return f"the line is {_type(record)}, not an object with the text key `{self.key}`"
        if code is RecordCode.MISSING:
            return f"text key `{self.key}` is missing; this line has {_name_keys(record)}"
        return f"text key `{self.key}` is {_type(find_value(record, self.key))}, not a string"


def list_string_keys(record: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the fields of a record that hold a string, nested ones with dots."""
    for key, value in record.items():
        if isinstance(value, str):
            yield prefix + key
        elif isinstance(value, dict):
            yield from list_string_keys(value, f"{prefix}{key}.")


def _type(value: Any) -> str:
    return _TYPES.get(type(value), "a number")


def _line_at(buffer: memoryview, start: int) -> bytes:
    match = _LINE.match(buffer, start)
    return b"" if match is None else match[0]


def _explain_fault(line: bytes, at: int) -> str:
    if at >= len(line.rstrip(b"\r")):
        return "broken JSON: the line ends too early"
    what = ascii(line[at : at + 1].decode("latin-1"))[1:-1]
    if what in "[{" and len(re.findall(rb"[\[{]", line[:at])) >= MAX_DEPTH:
        return f"the line nests more than {MAX_DEPTH} levels deep"
    return f"broken JSON: unexpected `{what}` at byte {at + 1} of the line"


def _name_keys(record: dict[str, Any]) -> str:
    keys = list(list_string_keys(record))
    if not keys:
        return "no field that holds a string"
    shown = ", ".join(f"`{key.encode('utf-8', 'replace').decode()}`" for key in keys[:_MAX_KEYS])
    return shown if len(keys) <= _MAX_KEYS else f"{shown} and {len(keys) - _MAX_KEYS} more"
