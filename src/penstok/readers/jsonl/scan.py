"""One line of JSON, read in Python: the rules of the kernel's `json_line.cpp`, in slow motion.

It says what the wanted field holds, or which byte is the first that valid JSON cannot have there.
It never repairs a line. `json_lines.py` asks it about half characters, and where the kernel is not
built about all lines that are not plainly good.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

__all__ = ["MAX_DEPTH", "Field", "RecordCode", "scan_line"]

MAX_DEPTH = 512  # of arrays and objects inside each other; the kernel has the same

_OUTSIDE = -1  # the level of an object that is not on the way to the field
_ARRAY = -2

_BLANKS = re.compile(rb"[ \t\r]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
# What can begin an escape or a number. It is whole if it has the right length or ends in a digit.
_ESCAPE_HEAD = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{0,4})?')
_NUMBER_HEAD = re.compile(
    rb"-?(?:(?:0|[1-9][0-9]*)(?:\.(?:[0-9]+(?:[eE][+-]?[0-9]*)?)?|[eE][+-]?[0-9]*)?)?"
)
_ESCAPE = re.compile(rb"\\u([dD][89abAB]..)\\u([dD][c-fC-F]..)|\\u(....)|\\(.)")
_SIMPLE = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_REPLACEMENT = "\ufffd".encode()


class RecordCode(IntEnum):
    """What became of a record; the kernel's numbers."""

    OK = 0
    BROKEN = 1
    NO_OBJECT = 2
    MISSING = 3
    NULL = 4
    NO_STRING = 5


class Field(NamedTuple):
    """What a line has for the wanted field.

    Attributes:
        code: `OK`, or what is wrong.
        position: The first byte that valid JSON cannot have there (broken), the first byte of a
            value that is no string, or else that of the line, blanks not counted.
        text: The text, if `OK`.
        num_lone_surrogates: Escapes in it that stand for half a character and were replaced.
    """

    code: RecordCode
    position: int
    text: bytes = b""
    num_lone_surrogates: int = 0


class _FaultError(Exception):
    def __init__(self, position: int) -> None:
        self.position = position


def scan_line(line: bytes, key: bytes, lone: bytes = _REPLACEMENT) -> Field:
    """Read a line, without its line feed, that is not blank; `lone` replaces half characters."""
    scan = _LineScan(line, key, lone)
    try:
        scan.read()
    except _FaultError as fault:
        return Field(RecordCode.BROKEN, fault.position)
    return scan.field


class _LineScan:
    def __init__(self, line: bytes, key: bytes, lone: bytes) -> None:
        self._lone = lone
        self._line = line + b"\n"  # which valid JSON never has in a line: no look-up fails
        self._at = 0
        self._key = key
        self._steps = key.split(b".")
        self._has_whole_key = False
        self._levels: list[int] = []  # of the containers that are open
        self._is_first = False  # the last one has just been opened
        self._skip_blanks()
        self._start = self._at
        self.field = Field(RecordCode.MISSING, self._start)

    def read(self) -> None:
        is_object = self._peek() == b"{"
        self._read_value(0)
        while self._levels:
            self._read_next()
        if self._skip_blanks() != b"\n":
            raise _FaultError(self._at)
        if not is_object:
            self.field = Field(RecordCode.NO_OBJECT, self._start)

    def _peek(self) -> bytes:
        return self._line[self._at : self._at + 1]

    def _skip_blanks(self) -> bytes:
        self._at = _end(_BLANKS, self._line, self._at)
        return self._peek()

    def _expect(self, byte: bytes) -> None:
        if self._skip_blanks() != byte:
            raise _FaultError(self._at)
        self._at += 1

    def _read_next(self) -> None:
        """Read the next item of the container, or its end."""
        closing = b"]" if self._levels[-1] == _ARRAY else b"}"
        if not self._is_first:
            if self._skip_blanks() == closing:
                self._at += 1
                self._levels.pop()
                return
            self._expect(b",")
        self._is_first = False
        if closing == b"]":
            self._read_value(_OUTSIDE)
        else:
            self._read_member()

    def _read_member(self) -> None:
        self._expect(b'"')
        name, num_lone_surrogates = _unescape(self._read_string(), self._lone)
        self._expect(b":")
        self._skip_blanks()
        level = self._levels[-1]
        known = num_lone_surrogates == 0
        if known and level == 0 and name == self._key:
            self._has_whole_key = True
            self._read_field()
        elif not known or level < 0 or self._has_whole_key or name != self._steps[level]:
            self._read_value(_OUTSIDE)
        elif level + 1 == len(self._steps):
            self._read_field()
        else:
            self.field = Field(RecordCode.MISSING, self._start)  # of equal keys the last one counts
            self._read_value(level + 1)

    def _read_field(self) -> None:
        start = self._at
        if self._peek() == b'"':
            self._at += 1
            self.field = Field(
                RecordCode.OK, self._start, *_unescape(self._read_string(), self._lone)
            )
        else:
            is_null = self._peek() == b"n"
            self.field = Field(RecordCode.NULL if is_null else RecordCode.NO_STRING, start)
            self._read_value(_OUTSIDE)

    def _read_value(self, level: int) -> None:
        """Read a value; of an array or object that is not empty, only the bracket."""
        first = self._skip_blanks()
        if first == b"{":
            self._open(level, b"}")
        elif first == b"[":
            self._open(_ARRAY, b"]")
        elif first == b'"':
            self._at += 1
            self._read_string()
        elif first in (b"t", b"f", b"n"):
            self._read_word({b"t": b"true", b"f": b"false", b"n": b"null"}[first])
        else:
            start = self._at
            self._at = _end(_NUMBER_HEAD, self._line, start)
            if not self._line[start : self._at][-1:].isdigit():
                raise _FaultError(self._at)

    def _open(self, level: int, closing: bytes) -> None:
        if len(self._levels) == MAX_DEPTH:
            raise _FaultError(self._at)
        self._at += 1
        if self._skip_blanks() == closing:
            self._at += 1
        else:
            self._levels.append(level)
            self._is_first = True

    def _read_word(self, word: bytes) -> None:
        for byte in word:
            if self._line[self._at] != byte:
                raise _FaultError(self._at)
            self._at += 1

    def _read_string(self) -> bytes:
        """Return what stands between the quotes, escapes and all."""
        line, start = self._line, self._at
        at = _end(_PLAIN, line, start)
        while line[at : at + 1] == b"\\":
            escape_end = _end(_ESCAPE_HEAD, line, at)
            is_whole = escape_end - at == (6 if line[at + 1 : at + 2] == b"u" else 2)
            if not is_whole:
                raise _FaultError(escape_end)
            at = _end(_PLAIN, line, escape_end)
        if line[at : at + 1] != b'"':
            raise _FaultError(at)
        self._at = at + 1
        return line[start:at]


def _end(pattern: re.Pattern[bytes], line: bytes, at: int) -> int:
    """Return where a match that begins at `at`, and may be empty, ends."""
    match = pattern.match(line, at)
    return at if match is None else match.end()


def _unescape(raw: bytes, lone: bytes) -> tuple[bytes, int]:
    """Return the text of a valid string, and how many lone surrogates were replaced in it."""
    num_lone_surrogates = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal num_lone_surrogates
        high, low, unit, simple = match.groups()
        if simple is not None:
            return _SIMPLE.get(simple, simple)
        if high is not None:
            joined = ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00 + 0x10000
            return chr(joined).encode()
        if 0xD800 <= int(unit, 16) <= 0xDFFF:
            num_lone_surrogates += 1
            return lone
        return chr(int(unit, 16)).encode()

    text = _ESCAPE.sub(replace, raw) if b"\\" in raw else raw
    return text, num_lone_surrogates
