"""Parquet and Arrow: one column's text, a range of rows at a time.

It knows no splits or tokens, and writes nothing. `readers.formats` has a row for each of the two;
no other package imports pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstok.errors import InputError
from penstok.readers.columnar.arrow import ARROW_MAGIC, check_arrow, open_arrow
from penstok.readers.columnar.file import RowFile
from penstok.readers.columnar.parquet import PARQUET_MAGIC, check_parquet, open_parquet
from penstok.readers.columnar.reader import ColumnarReader
from penstok.types import MemoryNeeds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstok.readers.columnar.base import OpenRows
    from penstok.types import Source

__all__ = [
    "ARROW_MAGIC",
    "PARQUET_MAGIC",
    "ColumnarReader",
    "RowFile",
    "check_arrow",
    "check_parquet",
    "count_rows",
    "divide_rows",
    "memory_needs",
    "open_arrow",
    "open_parquet",
]

# What pyarrow takes once it is loaded: 34 MiB in the parent, 60 in a worker with pages of 1 MiB,
# 99 with pages of 16 MiB. A footer takes seven times its length (one of 19 MB, 5,000 row groups).
_PARENT_BYTES, _WORKER_BYTES = 40 << 20, 96 << 20
_INDEX_FACTOR = 7


def memory_needs(sources: Sequence[Source]) -> MemoryNeeds:
    """Return the memory that pyarrow takes: in the parent, and in each worker."""
    if not any(source.is_rows for source in sources):
        return MemoryNeeds()
    index_bytes = _INDEX_FACTOR * max(source.index_bytes for source in sources)
    return MemoryNeeds(
        parent_bytes=_PARENT_BYTES + index_bytes, worker_bytes=_WORKER_BYTES + index_bytes
    )


def count_rows(open_rows: OpenRows, source: Source, text_key: str) -> Source:
    """Return the source with its number of rows; its metadata are read and checked for that.

    Raises:
        InputError: If it is damaged, or has no such column of text.
    """
    if source.is_stream:
        raise InputError(
            f"{source.format} cannot be read from front to back",
            where=source.path,
            next_step="decompress it or save it to a file, and pass that",
        )
    with RowFile(source) as file:
        rows = open_rows(file, text_key)
    return replace(
        source, num_rows=rows.num_rows, is_empty=not rows.num_rows, index_bytes=rows.index_bytes
    )


def divide_rows(
    open_rows: OpenRows, source: Source, text_key: str, unit_bytes: int
) -> Iterator[tuple[int, int]]:
    """Divide a source into ranges of rows (start, end) with about `unit_bytes` of text each.

    The ranges are consecutive and cover all rows. They depend on the file alone.
    """
    with RowFile(source) as file:
        yield from open_rows(file, text_key).divide(unit_bytes)
