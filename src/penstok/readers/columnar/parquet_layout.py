"""Where the pages of a column of text are in a parquet file, read from its footer by the kernel.

It reads no rows. If the footer is damaged, or the column is not plain text or bytes, it returns
None; pyarrow then reads the file, or reports what is wrong. `parquet_pages` uses the layout.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstok.kernel import find_kernel_function
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstok.readers.columnar.file import RowFile

__all__ = ["PARQUET_MAGIC", "Chunk", "ColumnLayout", "find_layout"]

PARQUET_MAGIC = b"PAR1"
# The length of the footer and the magic number end a file.
_END_BYTES = 8
# Most footers are in the last bytes that are read first.
_TAIL_BYTES = 64 << 10
_MAX_FOOTER_BYTES = 64 << 20
_MAX_DEPTH = 64
# Numbers of parquet.thrift; the last two are the annotations of text, old and new.
_ABSENT = -1
_BYTE_ARRAY = 6
_REQUIRED, _OPTIONAL = 0, 1
_UTF8, _STRING = 0, 1


class Chunk(NamedTuple):
    """One column in one row group; `start` is the position of its first page in the file."""

    num_rows: int
    num_values: int
    start: int
    compressed_bytes: int
    uncompressed_bytes: int
    codec: int


class ColumnLayout(Struct, frozen=True):
    """Where a column of text is.

    Attributes:
        chunks: Its parts, one per row group.
        row_starts: The first row of each row group, and the number of rows.
        max_level: The definition level of a row that has a text: the number of parents that could
            be null, itself included.
        is_binary: Whether the file says that it holds bytes, not text.
        index_bytes: The size of the footer.
    """

    chunks: list[Chunk]
    row_starts: list[int]
    max_level: int
    is_binary: bool
    index_bytes: int


class _Element(NamedTuple):
    name: bytes
    type: int
    repetition: int
    num_children: int
    converted_type: int
    logical_type: int


class _Leaf(NamedTuple):
    """A column without children.

    Attributes:
        names: The path to it.
        nodes: The numbers of the elements of that path: two columns may have the same name.
        element: The column itself.
        is_plain: Whether all around it are structs.
        max_level: As in `ColumnLayout`.
    """

    names: tuple[bytes, ...]
    nodes: tuple[int, ...]
    element: _Element
    is_plain: bool
    max_level: int


def find_layout(file: RowFile, text_key: str) -> ColumnLayout | None:
    """Find the column that a text key names; None if pyarrow has to read it, or to refuse it."""
    read_schema = find_kernel_function("read_parquet_schema")
    read_chunks = find_kernel_function("read_parquet_chunks")
    if read_schema is None or read_chunks is None:
        return None
    try:
        footer = _read_footer(file)
        elements = [_Element(*each) for each in read_schema(footer)]
        names = _find_names(elements, text_key)
        column, leaf = _find_leaf(list(_iter_leaves(elements)), names)
        chunks = [Chunk(*each) for each in read_chunks(footer, column)]
    except (ValueError, EOFError):
        return None
    annotations = leaf.element.converted_type, leaf.element.logical_type
    is_binary = annotations == (_ABSENT, _ABSENT)
    is_text = annotations[0] in (_ABSENT, _UTF8) and annotations[1] in (_ABSENT, _STRING)
    if not (leaf.is_plain and is_text and leaf.element.type == _BYTE_ARRAY):
        return None
    size = file.source.num_bytes
    for chunk in chunks:
        is_inside = chunk.start + chunk.compressed_bytes <= size
        if chunk.num_values != chunk.num_rows or not is_inside:
            return None
    row_starts = [0, *accumulate(chunk.num_rows for chunk in chunks)]
    return ColumnLayout(chunks, row_starts, leaf.max_level, is_binary, len(footer))


def _read_footer(file: RowFile) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    size = file.source.num_bytes
    tail = file.read_at(max(size - _TAIL_BYTES, 0), min(size, _TAIL_BYTES))
    length = int.from_bytes(tail[-_END_BYTES:-4], "little")
    if tail[-4:] != PARQUET_MAGIC or length > min(size - _END_BYTES, _MAX_FOOTER_BYTES):
        raise ValueError("the file has no footer")
    if length + _END_BYTES > len(tail):
        tail = file.read_at(size - _END_BYTES - length, length + _END_BYTES)
    return np.frombuffer(tail, np.uint8)[len(tail) - _END_BYTES - length : -_END_BYTES]


def _find_names(elements: Sequence[_Element], text_key: str) -> tuple[bytes, ...]:
    """Divide a text key at its dots, unless a column has exactly that name."""
    key = text_key.encode()
    top = (leaf.names[0] for leaf in _iter_leaves(elements))
    return (key,) if key in top else tuple(key.split(b"."))


def _find_leaf(leaves: Sequence[_Leaf], names: tuple[bytes, ...]) -> tuple[int, _Leaf]:
    """Find a column by its path; its number is that in row groups."""
    path = b".".join(names)
    found = [idx for idx, leaf in enumerate(leaves) if b".".join(leaf.names) == path]
    for depth in range(1, len(names) + 1):
        start = names[:depth]
        if len({leaf.nodes[:depth] for leaf in leaves if leaf.names[:depth] == start}) > 1:
            raise ValueError("two columns have the same name")
    if len(found) != 1 or leaves[found[0]].names != names:
        raise ValueError("the path leads to no column, or to two")
    return found[0], leaves[found[0]]


def _iter_leaves(elements: Sequence[_Element]) -> Iterator[_Leaf]:
    """Yield the columns of a schema, a tree that is listed depth first."""
    left = iter(enumerate(elements))

    def walk(
        num_children: int,
        parents: tuple[bytes, ...],
        parent_nodes: tuple[int, ...],
        level: int,
        *,
        is_plain: bool,
    ) -> Iterator[_Leaf]:
        for _ in range(num_children):
            node, each = next(left, (0, None))
            # A group has children and a column has a type.
            if each is None or (each.type == _ABSENT) != (each.num_children > 0):
                raise ValueError("the schema is damaged")
            if len(parents) == _MAX_DEPTH:
                raise ValueError("the schema is nested too deeply")
            names, nodes = (*parents, each.name), (*parent_nodes, node)
            # Lists and maps are repeated or annotated; any other group is a struct.
            plain = is_plain and each.repetition in (_REQUIRED, _OPTIONAL)
            inner_level = level + (each.repetition == _OPTIONAL)
            if not each.num_children:
                yield _Leaf(names, nodes, each, plain, inner_level)
                continue
            plain = plain and (each.converted_type, each.logical_type) == (_ABSENT, _ABSENT)
            yield from walk(each.num_children, names, nodes, inner_level, is_plain=plain)

    _, root = next(left, (0, None))
    yield from walk(0 if root is None else root.num_children, (), (), 0, is_plain=True)
