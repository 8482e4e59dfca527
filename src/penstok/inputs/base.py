"""What the rest of the program sees of an input: bytes at any offset, and record boundaries.

It opens nothing and knows no format. `files` implements `OpenInput`; `readers` implements
`RecordScanner` for each format, and `buffered_stream` calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import TypeAlias

    from penstok.types import Source

__all__ = ["MAX_LINE_BYTES", "OpenInput", "OpenScanner", "RecordScanner"]

# A longer line or record is refused by name: it would not fit the memory of a worker.
MAX_LINE_BYTES = 64 << 20


class OpenInput(Protocol):
    """An input that is open for one unit; use it in a `with`.

    Attributes:
        source: Which input it is.
        size: Where its content ends; larger than any position while the end of a stream is unknown.
    """

    source: Source
    size: int

    def __enter__(self) -> OpenInput: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def read_at(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, without what lies outside the content."""
        ...

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` with the content from `start` on."""
        ...

    def map_range(self, start: int, end: int) -> memoryview | None:
        """Return a range where it is in memory already, unchanging; None if it must be read."""
        ...

    def find_line(self, position: int) -> int:
        """Find the first line or record at or after `position`, a unit's start or its end."""
        ...

    def count_lines(self, position: int) -> int | None:
        """Count the lines that end before `position`; None if the input cannot be read again."""
        ...

    def give_back(self, start: int, end: int) -> None:
        """Drop a range from the page cache."""
        ...


class RecordScanner(Protocol):
    """Finds where the records of a stream begin, in one pass from front to back.

    Attributes:
        head: The content before the first record, which every unit needs; empty if there is none.
        position: How much of the content has been scanned.
        wanted: The position passed to the last `find_record`.
    """

    head: bytes
    position: int
    wanted: int

    def skip(self, content: memoryview) -> None:
        """Scan the next content without looking for a record."""
        ...

    def find_record(self, wanted: int, content: memoryview) -> int | None:
        """Find the first record at or after `wanted`; None if that takes more content.

        Args:
            wanted: Not less than in the previous call.
            content: What follows `position`. It is scanned up to the record, or to its end.
        """
        ...

    def explain_long_record(self) -> tuple[str, str]:
        """Say what is too long for a worker's memory, and the next step."""
        ...


# None for a format in which the reader finds the boundaries itself.
OpenScanner: TypeAlias = "Callable[[Source], RecordScanner | None]"
