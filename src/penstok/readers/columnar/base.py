"""What a columnar format provides: one column of text of an open file.

It reads nothing itself. `parquet` and `arrow` implement it, `reader` and the plan use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from penstok.readers.columnar.file import RowFile
    from penstok.readers.columnar.texts import RowTexts

__all__ = ["OpenField", "OpenRows", "Rows"]


class Rows(Protocol):
    """One column of an open file.

    Attributes:
        num_rows: How many rows it has.
        index_bytes: The stored size of the list of its row groups.
        is_binary: Whether the file says that the column holds bytes, not text.
    """

    num_rows: int
    index_bytes: int
    is_binary: bool

    def divide(self, unit_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows with about `unit_bytes` of text each."""
        ...

    def iter_texts(self, start: int, end: int) -> Iterator[RowTexts]:
        """Yield the texts of a range of rows, some at a time and in order.

        They are valid until the next are asked for.
        """
        ...


# Reads a file's schema and prepares to read the column that a text key names; the file stays open
# as long as rows are read. Raises InputError if the file is damaged or has no such column.
OpenRows: TypeAlias = "Callable[[RowFile, str], Rows]"
# The same for a field that is kept, as text whatever its type; None if the file has no such column.
OpenField: TypeAlias = "Callable[[RowFile, str], Rows | None]"
