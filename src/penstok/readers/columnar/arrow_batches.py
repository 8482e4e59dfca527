"""The record batches of an Arrow file, and where in each of them a column lies."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstok.readers.columnar.columns import storage_type
from penstok.readers.columnar.messages import FILE_MAGIC, parse_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstok.readers.columnar.columns import TextColumn
    from penstok.readers.columnar.file import RowFile
    from penstok.readers.columnar.messages import Message

__all__ = ["DAMAGED", "DAMAGED_ROWS", "Batches", "Place", "is_file"]

DAMAGED = "this Arrow file is damaged or cut short"
DAMAGED_ROWS = "these rows are damaged"


def is_file(file: RowFile) -> bool:
    """Tell the file format from the stream format."""
    return file.read_at(0, len(FILE_MAGIC)) == FILE_MAGIC


class Batches:
    """The record batches of a file: where each stands, and its rows."""

    def __init__(self, messages: Iterator[Message]) -> None:
        self.places: list[int] = []
        self.starts = [0]
        self.buffer_counts: set[int] = set()
        for message in messages:
            if message.kind == "batch":
                head = parse_batch(message.head)
                self.places.append(message.start)
                self.starts.append(self.starts[-1] + head.num_rows)
                self.buffer_counts.add(len(head.buffers))

    def find(self, row: int) -> int:
        """Return which batch holds a row."""
        return bisect_right(self.starts, row) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Which of a batch's buffers belong to a column.

    `validities` are the bitmaps of the structs around it, then its own; its offsets and its text
    follow.
    """

    validities: list[int]
    num_buffers: int

    @classmethod
    def find(cls, schema: pa.Schema, column: TextColumn) -> Place:
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
        """Which buffer holds its offsets."""
        return self.validities[-1] + 1

    @property
    def text(self) -> int:
        """Which buffer holds its text."""
        return self.validities[-1] + 2


def _count_buffers(fields: list[pa.Field]) -> int:
    """Count the buffers of some columns, by asking pyarrow to write a batch without rows."""
    import pyarrow as pa

    if not fields:
        return 0
    empty = [pa.nulls(0, field.type) for field in fields]
    batch = pa.RecordBatch.from_arrays(empty, names=[str(idx) for idx in range(len(fields))])
    written = pa.ipc.read_message(batch.serialize())
    return len(parse_batch(written.metadata.to_pybytes()).buffers)
