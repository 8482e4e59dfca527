"""Arrow's messages: where each record batch lies in a file, and where its buffers lie in it.

It reads heads only, never a text, and follows no dictionary. pyarrow loads a batch to tell its
number of rows, which unpacks all of its text; so the few fields that matter are read here.
The layout is that of `Message.fbs` in Arrow's specification. `arrow` stands on it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.readers.columnar.file import RowFile

__all__ = ["FILE_MAGIC", "BatchHead", "Message", "iter_messages", "parse_batch"]

FILE_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
_MAX_HEAD_BYTES = 64 << 20
_Kind = Literal["schema", "dictionary", "batch", "other"]
_KINDS: dict[int, _Kind] = {1: "schema", 2: "dictionary", 3: "batch"}
_CODECS: dict[int, Literal["lz4", "zstd"]] = {0: "lz4", 1: "zstd"}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a file: its place, and its head as it stands there."""

    kind: _Kind
    start: int
    head: bytes
    body_start: int
    body_end: int


@dataclass(frozen=True, slots=True)
class BatchHead:
    """What the head of a record batch says.

    `buffers` holds for each buffer where it begins in the body, and its length.
    """

    num_rows: int
    buffers: list[tuple[int, int]]
    codec: Literal["lz4", "zstd"] | None


def iter_messages(file: RowFile, at: int | None = None) -> Iterator[Message]:
    """Yield a file's messages, from the first or from the one at a position.

    A file ("ARROW1") is a stream with a list of its messages behind it; both are read as streams.

    Raises:
        ValueError: If the bytes are no Arrow, or end without Arrow's mark of the end.
    """
    if at is None:
        is_file = file.read_at(0, len(FILE_MAGIC)) == FILE_MAGIC
        at = 8 if is_file else 0
    while True:
        mark, size = struct.unpack("<II", file.read_at(at, 8))
        if mark != _CONTINUATION:
            raise ValueError(f"no Arrow message at byte {at}")
        if size == 0:
            return
        if size > _MAX_HEAD_BYTES:
            raise ValueError(f"the Arrow message at byte {at} has no valid head")
        head = bytes(file.read_at(at + 8, size))
        fields = _Table.root(head)
        body_start = at + 8 + size
        body_end = body_start + fields.number(3, "<q")
        if not body_start <= body_end <= file.source.num_bytes:
            raise ValueError(f"the Arrow message at byte {at} goes on behind the end of the file")
        kind = _KINDS.get(fields.number(1, "<B"), "other")
        yield Message(kind, at, head, body_start, body_end)
        at = body_end


def parse_batch(head: bytes) -> BatchHead:
    """Read the head of a record batch."""
    batch = _Table.root(head).table(2)
    if batch is None:
        raise ValueError("the head of an Arrow record batch is damaged")
    compression = batch.table(3)
    codec = None if compression is None else _CODECS.get(compression.number(0, "<b"))
    if compression is not None and codec is None:
        raise ValueError("an Arrow record batch is compressed in an unknown way")
    num_rows, buffers = batch.number(0, "<q"), batch.pairs(2)
    if num_rows < 0 or any(start < 0 or size < 0 for start, size in buffers):
        raise ValueError("the head of an Arrow record batch is damaged")
    return BatchHead(num_rows, buffers, codec)


class _Table:
    """A table of a flatbuffer: its fields by number."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - _number(data, at, "<i")

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, _number(data, 0, "<I"))

    def number(self, field: int, form: str) -> int:
        """Return a number; 0 where it is left out."""
        at = self._place(field)
        return 0 if at is None else _number(self._data, at, form)

    def table(self, field: int) -> _Table | None:
        """Return a table inside this one."""
        at = self._place(field)
        return None if at is None else _Table(self._data, at + _number(self._data, at, "<I"))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a list of pairs of 64-bit numbers."""
        at = self._place(field)
        if at is None:
            return []
        at += _number(self._data, at, "<I")
        count = _number(self._data, at, "<I")
        if at + 4 + 16 * count > len(self._data):
            raise ValueError("the head of an Arrow message is damaged")
        return list(struct.iter_unpack("<qq", self._data[at + 4 : at + 4 + 16 * count]))

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry >= _number(self._data, self._fields, "<H"):
            return None
        offset = _number(self._data, self._fields + entry, "<H")
        return self._at + offset if offset else None


def _number(data: bytes, at: int, form: str) -> int:
    if not 0 <= at <= len(data) - struct.calcsize(form):
        raise ValueError("the head of an Arrow message is damaged")
    return int(struct.unpack_from(form, data, at)[0])
