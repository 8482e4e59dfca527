"""Where the record batches of an Arrow file are, and where in each batch a column is.

It reads message headers only, never text or dictionaries, because pyarrow loads and decompresses a
whole batch to return its number of rows (ADR 25). The layout is that of `Message.fbs` in Arrow's
specification. `arrow`, `arrow_plain` and `arrow_decoded` use it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Literal

from penstok.readers.columnar.columns import storage_type
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstok.readers.columnar.columns import TextColumn
    from penstok.readers.columnar.file import RowFile

__all__ = [
    "ARROW_MAGIC",
    "DAMAGED",
    "DAMAGED_ROWS",
    "Batches",
    "ColumnBuffers",
    "Message",
    "is_file",
    "iter_messages",
    "parse_batch",
]

ARROW_MAGIC = b"ARROW1"
DAMAGED = "this Arrow file is damaged or cut short"
DAMAGED_ROWS = "these rows are damaged"
_CONTINUATION = 0xFFFFFFFF
_MAX_HEADER_BYTES = 64 << 20
_Kind = Literal["schema", "dictionary", "batch", "other"]
_KINDS: dict[int, _Kind] = {1: "schema", 2: "dictionary", 3: "batch"}
_CODECS: dict[int, Literal["lz4", "zstd"]] = {0: "lz4", 1: "zstd"}


class Message(Struct, frozen=True):
    """One message of a file: its offsets, and its header as it is stored."""

    kind: _Kind
    start: int
    header: bytes
    body_start: int
    body_end: int


class BatchHeader(Struct, frozen=True):
    """The header of a record batch.

    `buffers` has for each buffer its offset in the body, and its length.
    """

    num_rows: int
    buffers: list[tuple[int, int]]
    codec: Literal["lz4", "zstd"] | None


def is_file(file: RowFile) -> bool:
    """Tell the file format from the stream format."""
    return file.read_at(0, len(ARROW_MAGIC)) == ARROW_MAGIC


def iter_messages(file: RowFile, at: int | None = None) -> Iterator[Message]:
    """Yield a file's messages, from the first or from the one at an offset.

    The file format ("ARROW1") is a stream followed by a list of its messages; both are read as
    streams.

    Raises:
        ValueError: If the bytes are not Arrow, or end without Arrow's end-of-stream marker.
    """
    if at is None:
        at = 8 if is_file(file) else 0
    while True:
        mark, size = struct.unpack("<II", file.read_at(at, 8))
        if mark != _CONTINUATION:
            raise ValueError(f"there is no Arrow message at byte {at}")
        if size == 0:
            return
        if size > _MAX_HEADER_BYTES:
            raise ValueError(f"the Arrow message at byte {at} has no valid header")
        header = bytes(file.read_at(at + 8, size))
        fields = _Table.root(header)
        body_start = at + 8 + size
        body_end = body_start + fields.number(3, "<q")
        if not body_start <= body_end <= file.source.num_bytes:
            raise ValueError(f"the Arrow message at byte {at} continues after the end of the file")
        kind = _KINDS.get(fields.number(1, "<B"), "other")
        yield Message(kind, at, header, body_start, body_end)
        at = body_end


def parse_batch(header: bytes) -> BatchHeader:
    """Read the header of a record batch."""
    batch = _Table.root(header).table(2)
    if batch is None:
        raise ValueError("the header of an Arrow record batch is damaged")
    compression = batch.table(3)
    codec = None if compression is None else _CODECS.get(compression.number(0, "<b"))
    if compression is not None and codec is None:
        raise ValueError("an Arrow record batch has an unknown compression")
    num_rows, buffers = batch.number(0, "<q"), batch.pairs(2)
    if num_rows < 0 or any(start < 0 or size < 0 for start, size in buffers):
        raise ValueError("the header of an Arrow record batch is damaged")
    return BatchHeader(num_rows, buffers, codec)


class Batches:
    """The record batches of a file: the offset of each, and its first row.

    Attributes:
        offsets: Where each batch is in the file.
        starts: The first row of each, and the number of all rows.
        buffer_counts: How many buffers batches have.
    """

    def __init__(self, messages: Iterator[Message]) -> None:
        self.offsets: list[int] = []
        self.starts: list[int] = [0]
        self.buffer_counts: set[int] = set()
        for message in messages:
            if message.kind == "batch":
                header = parse_batch(message.header)
                self.offsets.append(message.start)
                self.starts.append(self.starts[-1] + header.num_rows)
                self.buffer_counts.add(len(header.buffers))

    def find(self, row: int) -> int:
        """Return which batch has a row."""
        return bisect_right(self.starts, row) - 1


class ColumnBuffers(Struct, frozen=True):
    """Which buffers of a batch belong to a column.

    Attributes:
        validities: The bitmaps of the structs around it, then its own; its offsets and its text
            follow.
        num_buffers: How many all columns have together.
    """

    validities: list[int]
    num_buffers: int

    @classmethod
    def find(cls, schema: pa.Schema, column: TextColumn) -> ColumnBuffers:
        """Count the buffers of the columns before it, and of the structs around it."""
        fields, at, validities = list(schema), 0, []
        for name in column.names:
            idx = [field.name for field in fields].index(name)
            at += _count_buffers(fields[:idx])
            validities.append(at)
            at += 1
            kind = storage_type(fields[idx].type)
            if len(validities) < len(column.names):
                fields = [kind.field(child) for child in range(kind.num_fields)]
        return cls(validities, _count_buffers(list(schema)))

    @property
    def offsets(self) -> int:
        """Which buffer has its offsets."""
        return self.validities[-1] + 1

    @property
    def text(self) -> int:
        """Which buffer has its text."""
        return self.validities[-1] + 2


def _count_buffers(fields: list[pa.Field]) -> int:
    """Count the buffers of some columns, by having pyarrow write a batch without rows."""
    import pyarrow as pa

    if not fields:
        return 0
    empty = [pa.nulls(0, field.type) for field in fields]
    batch = pa.RecordBatch.from_arrays(empty, names=[str(idx) for idx in range(len(fields))])
    written = pa.ipc.read_message(batch.serialize())
    return len(parse_batch(written.metadata.to_pybytes()).buffers)


class _Table:
    """A table in a flatbuffer; fields are numbered."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - _number(data, at, "<i")

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, _number(data, 0, "<I"))

    def number(self, field: int, form: str) -> int:
        """Return a number; 0 if it is left out."""
        at = self._find(field)
        return 0 if at is None else _number(self._data, at, form)

    def table(self, field: int) -> _Table | None:
        """Return a table inside this one."""
        at = self._find(field)
        return None if at is None else _Table(self._data, at + _number(self._data, at, "<I"))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a list of pairs of 64-bit numbers."""
        at = self._find(field)
        if at is None:
            return []
        at += _number(self._data, at, "<I")
        count = _number(self._data, at, "<I")
        if at + 4 + 16 * count > len(self._data):
            raise ValueError("the header of an Arrow message is damaged")
        return list(struct.iter_unpack("<qq", self._data[at + 4 : at + 4 + 16 * count]))

    def _find(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry >= _number(self._data, self._fields, "<H"):
            return None
        offset = _number(self._data, self._fields + entry, "<H")
        return self._at + offset if offset else None


def _number(data: bytes, at: int, form: str) -> int:
    if not 0 <= at <= len(data) - struct.calcsize(form):
        raise ValueError("the header of an Arrow message is damaged")
    return int(struct.unpack_from(form, data, at)[0])
