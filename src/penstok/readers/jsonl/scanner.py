"""Where the lines of a stream begin: after every line feed.

It keeps no content and parses no line. `inputs.buffered_stream` calls it, as it calls the scanner
of any format.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstok.inputs.base import MAX_LINE_BYTES

if TYPE_CHECKING:
    from penstok.types import Source

__all__ = ["LineScanner", "open_scanner"]

_LINE_FEED = re.compile(rb"\n")


class LineScanner:
    r"""Finds lines in one pass; a `RecordScanner`.

    Example:
        >>> scanner = LineScanner()
        >>> scanner.find_record(1, memoryview(b"one"))
        >>> scanner.find_record(1, memoryview(b" line\nand another"))
        9
    """

    def __init__(self) -> None:
        self.head = b""
        self.position: int = 0
        self.wanted: int = 0
        self._line = 0

    def skip(self, content: memoryview) -> None:
        """Scan the next content without looking for a line."""
        self.position += len(content)

    def find_record(self, wanted: int, content: memoryview) -> int | None:
        """Find the first line at or after `wanted`; None if that takes more content."""
        self.wanted = wanted
        if wanted <= self._line:
            return self._line
        found = _LINE_FEED.search(content, max(wanted - 1 - self.position, 0))
        self.position += len(content) if found is None else found.end()
        if found is None:
            return None
        self._line = self.position
        return self._line

    def explain_long_record(self) -> tuple[str, str]:
        """Say that a line is too long, and the next step."""
        return (
            f"a line of more than {MAX_LINE_BYTES >> 20} MiB",
            "decompress the input to a file and pass that: there `--on-error skip` leaves such "
            "lines out",
        )


def open_scanner(source: Source) -> LineScanner:
    """Make a scanner; lines need nothing from the source."""
    return LineScanner()
