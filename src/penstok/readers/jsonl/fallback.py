"""JSON Lines without the kernel: its `extract_json_lines` in Python, with equal results.

msgspec takes the lines with nothing unusual, `json_scan.py` decides about all others. It repairs
nothing and raises nothing for a bad line; `json_lines.py` is its only user.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstok.readers.jsonl.scan import MAX_DEPTH, Field, RecordCode, scan_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["extract_json_lines"]

_WINDOW_BYTES = 1 << 20


def extract_json_lines(
    json: NDArray[np.uint8], stop: int, key: bytes, out: NDArray[np.uint8]
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

    Returns `lines`, `positions`, `starts`, `ends`, `codes`, `num_blank`, `num_lone_surrogates` and
    `consumed` of `Extracted`.
    """
    plain_text = _find_plain_text(key)
    room = out.data
    rows: list[tuple[int, int, int, int]] = []
    codes: list[int] = []
    end = num_blank = num_lone_surrogates = consumed = 0
    for line_start, line, consumed in _iter_lines(json, stop):  # noqa: B007
        if not line.strip(b" \t\r"):
            num_blank += 1
            continue
        field = (plain_text and plain_text.find(line)) or scan_line(line, key)
        start, end = end, end + len(field.text)
        room[start:end] = field.text
        rows.append((line_start, line_start + field.position, start, end))
        codes.append(field.code)
        num_lone_surrogates += field.num_lone_surrogates
    lines, positions, starts, ends = np.array(rows, np.int64).reshape(-1, 4).T.copy()
    counts = num_blank, num_lone_surrogates, consumed
    return lines, positions, starts, ends, np.array(codes, np.uint8), *counts


def _iter_lines(json: NDArray[np.uint8], stop: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield each line's start, its bytes without the line feed, and where the next one starts."""
    start = 0
    for window in range(0, len(json), _WINDOW_BYTES):
        for end in np.flatnonzero(json[window : window + _WINDOW_BYTES] == ord("\n")) + window:
            if start >= stop:
                return
            yield start, json[start:end].tobytes(), int(end) + 1
            start = int(end) + 1
    if start < min(stop, len(json)):
        yield start, json[start:].tobytes(), len(json)


@lru_cache(maxsize=8)
def _find_plain_text(key: bytes) -> _PlainText | None:
    try:
        return _PlainText(key.decode())
    except ValueError:  # msgspec has no fields with a quote, a backslash or a control character
        return None


class _PlainText:
    """The fast way, for lines with nothing unusual: it leaves some good ones, but takes no bad one.

    msgspec refuses all that RFC 8259 refuses, even in fields nobody asked for (ADR 13).
    """

    def __init__(self, key: str) -> None:
        first, *others = key.split(".")
        kind: type = str
        for step in reversed(others):
            kind = msgspec.defstruct("Record", [("step", kind, msgspec.field(name=step))])
        fields: list[tuple[str, Any, Any]] = [("step", kind, msgspec.field(name=first))]
        if others:  # a field of just that name, dots and all, comes first; it is not plain
            whole = msgspec.field(name=key, default=msgspec.UNSET)
            fields.append(("whole", msgspec.Raw | msgspec.UnsetType, whole))
        self._num_steps = 1 + len(others)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("Record", fields)
        )

    def find(self, line: bytes) -> Field | None:
        """Return the field if it is text and the line is plainly good."""
        try:
            value = self._decoder.decode(line)
            if getattr(value, "whole", msgspec.UNSET) is not msgspec.UNSET:
                return None
            for _ in range(self._num_steps):
                value = value.step
            text = value.encode()
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        if _may_be_too_deep(line, text):
            return None
        return Field(RecordCode.OK, len(line) - len(line.lstrip(b" \t\r")), text)


def _may_be_too_deep(line: bytes, text: bytes) -> bool:
    """Count the brackets outside the text, which often has many; escapes of them would mislead."""
    num_brackets = _count_brackets(line)
    if num_brackets <= MAX_DEPTH:
        return False
    has_escapes = b"\\u005" in line or b"\\u007" in line
    return has_escapes or num_brackets - _count_brackets(text) > MAX_DEPTH


def _count_brackets(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")
