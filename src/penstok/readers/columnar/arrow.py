"""Arrow's own files, in the file and the stream format: one column, a few rows at a time.

Nothing is memory-mapped, so that a file that shrinks is an error and not a crash. Columns with
offsets are read by `arrow_plain`; what has none (dictionaries, views) is decoded by pyarrow, in
`arrow_decoded`. `readers.formats` points here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from penstok.readers.columnar.arrow_decoded import DecodedArrowRows
from penstok.readers.columnar.arrow_layout import (
    ARROW_MAGIC,
    DAMAGED,
    Batches,
    ColumnBuffers,
    is_file,
    iter_messages,
)
from penstok.readers.columnar.arrow_plain import PlainArrowRows
from penstok.readers.columnar.columns import find_kept_column, find_text_column
from penstok.readers.columnar.file import limit_pyarrow, wrong_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstok.readers.columnar.arrow_layout import Message
    from penstok.readers.columnar.base import Rows
    from penstok.readers.columnar.file import RowFile

__all__ = ["ARROW_MAGIC", "check_arrow", "open_arrow", "open_arrow_field"]

_STREAM_START = b"\xff\xff\xff\xff"  # not unique enough to detect the format by


def check_arrow(path: str, head: bytes) -> None:
    """Refuse an input that begins like neither an Arrow file nor an Arrow stream.

    Raises:
        InputError: If so.
    """
    if not head.startswith((ARROW_MAGIC, _STREAM_START)):
        raise wrong_start("an Arrow file", path, head)


def open_arrow(file: RowFile, text_key: str) -> Rows:
    """Read an Arrow file's schema and message headers, and choose how its rows are read."""
    import pyarrow as pa

    with file.reading(DAMAGED):
        schema, messages = _read_schema(file)
        column = find_text_column(schema, text_key, file.source.path)
        batches = Batches(messages)
        buffers = ColumnBuffers.find(schema, column)
    has_offsets = column.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    # Views before the column add any number of buffers: then those of the column are not known.
    if has_offsets and batches.buffer_counts <= {buffers.num_buffers}:
        return PlainArrowRows(file, column, buffers, batches)
    return DecodedArrowRows(file, column, schema, batches)


def open_arrow_field(file: RowFile, key: str) -> Rows | None:
    """Prepare to read a column of any type as text; None if the file has no such column."""
    with file.reading(DAMAGED):
        schema, messages = _read_schema(file)
        try:
            column = find_kept_column(schema, key, file.source.path)
        except KeyError:
            return None
        return DecodedArrowRows(file, column, schema, Batches(messages))


def _read_schema(file: RowFile) -> tuple[pa.Schema, Iterator[Message]]:
    """Read the schema of a file; return it with the messages after it."""
    import pyarrow as pa

    limit_pyarrow()
    _check_end(file)
    messages = iter_messages(file)
    first = next(messages, None)
    if first is None or first.kind != "schema":
        raise ValueError("it does not begin with a schema")
    return pa.ipc.read_schema(pa.py_buffer(_message_bytes(first))), messages


def _check_end(file: RowFile) -> None:
    """Refuse a file that was cut short; a stream that was is refused at its last message."""
    size, length = file.source.num_bytes, len(ARROW_MAGIC)
    if is_file(file) and file.read_at(size - length, length) != ARROW_MAGIC:
        raise ValueError("its end is missing")


def _message_bytes(message: Message) -> bytes:
    return struct.pack("<II", 0xFFFFFFFF, len(message.header)) + message.header
