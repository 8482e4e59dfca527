"""Files of rows, parquet and Arrow: one column's text, a range of rows at a time.

It knows no documents, splits or tokens, and writes nothing. `plan` divides a file into units with
`divide_rows`, `readers.rows` reads a unit's rows with `open_rows`; no other module knows pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.readers.columnar.columns import find_text_column
from penstok.readers.columnar.file import RowFile
from penstok.readers.columnar.texts import MAX_TEXT_BYTES, Rows, RowTexts
from penstok.types import MemoryNeeds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstok.types import Source

__all__ = [
    "MAX_TEXT_BYTES",
    "RowFile",
    "RowTexts",
    "Rows",
    "divide_rows",
    "find_text_column",
    "open_rows",
    "row_needs",
]

# What pyarrow takes once it is loaded: 34 MiB in the parent, 60 in a worker with pages of 1 MiB,
# 99 with pages of 16 MiB. A footer takes seven times its length (one of 19 MB, 5,000 row groups).
_PARENT_BYTES, _WORKER_BYTES = 40 << 20, 96 << 20
_INDEX_FACTOR = 7


def row_needs(sources: Sequence[Source]) -> MemoryNeeds:
    """Return the memory that files of rows take: in the parent, and in each worker."""
    if not any(source.num_rows for source in sources):
        return MemoryNeeds()
    index_bytes = _INDEX_FACTOR * max(source.index_bytes for source in sources)
    return MemoryNeeds(
        parent_bytes=_PARENT_BYTES + index_bytes, worker_bytes=_WORKER_BYTES + index_bytes
    )


def open_rows(file: RowFile, text_key: str) -> Rows:
    """Look at a file's schema, and make ready to read one column.

    Args:
        file: Stays open as long as rows are read.
        text_key: The column's name; dots lead into structs.

    Raises:
        InputError: If the file is damaged, or has no such column of text.
    """
    if file.source.format == "parquet":
        from penstok.readers.columnar.parquet import ParquetRows

        return ParquetRows(file, text_key)
    from penstok.readers.columnar.arrow import open_arrow

    return open_arrow(file, text_key)


def divide_rows(file: RowFile, text_key: str, unit_bytes: int) -> Iterator[tuple[int, int]]:
    """Divide a file into ranges of rows (start, end) with about `unit_bytes` of text each.

    The ranges follow each other and cover all rows. They depend on the file alone. A file without
    rows has none.
    """
    yield from open_rows(file, text_key).divide(unit_bytes)
