"""Arrow's own files, in the file and the stream format: one column, a few rows at a time.

Nothing is mapped into memory, so a file that shrinks is an error and not a crash. A column with
plain offsets is read by `arrow_plain`; what has none (dictionaries, views) is left to pyarrow, in
`arrow_decoded`. `open_rows` makes it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from penstok.readers.columnar.arrow_batches import DAMAGED, Batches, Place, is_file
from penstok.readers.columnar.arrow_decoded import DecodedRows
from penstok.readers.columnar.arrow_plain import PlainRows
from penstok.readers.columnar.columns import find_text_column
from penstok.readers.columnar.file import wrong_start
from penstok.readers.columnar.messages import FILE_MAGIC, iter_messages

if TYPE_CHECKING:
    from penstok.readers.columnar.base import Rows
    from penstok.readers.columnar.file import RowFile
    from penstok.readers.columnar.messages import Message

__all__ = ["ARROW_MAGIC", "check_arrow", "open_arrow"]

ARROW_MAGIC = FILE_MAGIC
_STREAM_START = b"\xff\xff\xff\xff"  # no magic: only a name makes it one


def check_arrow(path: str, head: bytes) -> None:
    """Refuse an input that is neither an Arrow file nor an Arrow stream.

    Raises:
        InputError: If so.
    """
    if not head.startswith((ARROW_MAGIC, _STREAM_START)):
        raise wrong_start("an Arrow file", path, head)


def open_arrow(file: RowFile, text_key: str) -> Rows:
    """Look at an Arrow file's schema and heads, and choose how its rows are read."""
    import pyarrow as pa

    with file.reading(DAMAGED):
        _check_end(file)
        messages = iter_messages(file)
        first = next(messages, None)
        if first is None or first.kind != "schema":
            raise ValueError("it does not begin with a schema")
        schema = pa.ipc.read_schema(pa.py_buffer(_message_bytes(first)))
        column = find_text_column(schema, text_key, file.source.path)
        batches = Batches(messages)
        place = Place.find(schema, column)
    has_offsets = column.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    # Views before the column add buffers, as many as they like: then its place is not known.
    if has_offsets and batches.buffer_counts <= {place.num_buffers}:
        return PlainRows(file, column, place, batches)
    return DecodedRows(file, column, schema, batches)


def _check_end(file: RowFile) -> None:
    """Refuse a file that was cut short; a stream that was is found out at its last message."""
    size, length = file.source.num_bytes, len(FILE_MAGIC)
    if is_file(file) and file.read_at(size - length, length) != FILE_MAGIC:
        raise ValueError("its end is missing")


def _message_bytes(message: Message) -> bytes:
    return struct.pack("<II", 0xFFFFFFFF, len(message.head)) + message.head
