"""Where the records of CSV begin, found in one pass over its content.

Only what comes before a line feed tells whether it is inside quotes, so CSV cannot be read from the
middle. It keeps no content; `inputs.buffered_stream`, which reads the stream in order, calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.inputs.base import MAX_LINE_BYTES
from penstok.kernel import find_kernel_function
from penstok.readers.csv.grammar import CsvState, scan_csv
from penstok.readers.csv.header import CsvDialect, read_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstok.types import Source

__all__ = ["CsvScanner", "open_scanner"]


class CsvScanner:
    r"""Finds records in one pass; a `RecordScanner`.

    Example:
        >>> scanner = CsvScanner(b",")
        >>> scanner.find_record(1, memoryview(b'1,"a\n'))
        >>> scanner.find_record(1, memoryview(b'b"\n2,c\n'))
        8
    """

    def __init__(
        self, delimiter: bytes, head: bytes = b"", scan: Callable[..., Any] | None = None
    ) -> None:
        """Start at the first record.

        Args:
            delimiter: The byte between two fields.
            head: The content before the first record: the header.
            scan: The kernel's `scan_csv`; None if it is not built.
        """
        self.head = head
        self.position: int = len(head)
        self._record = self.position
        self.wanted: int = 0
        self._delimiter = ord(delimiter)
        self._state = int(CsvState.FIELD_START)
        self._scan = scan or scan_csv

    def skip(self, content: memoryview) -> None:
        """Scan the next content without looking for a record."""
        self._advance(content, len(content))

    def find_record(self, wanted: int, content: memoryview) -> int | None:
        """Find the first record at or after `wanted`; None if that takes more content."""
        self.wanted = wanted
        if wanted <= self._record:
            return self._record
        start = self.position
        found = self._advance(content, max(wanted - 1 - start, 0))
        if found < 0:
            return None
        self.position = self._record = start + found
        return self._record

    def explain_long_record(self) -> tuple[str, str]:
        """Say that a record is too long, or a quote is missing, and the next step."""
        is_quoted = self._state == CsvState.QUOTED
        return (
            f"a record of more than {MAX_LINE_BYTES >> 20} MiB"
            + " (a quote that is never closed?)" * is_quoted,
            "correct it, or pass `--input-format text --docs-by line` to take each line as it is",
        )

    def _advance(self, content: memoryview, stop: int) -> int:
        found, self._state = self._scan(
            np.frombuffer(content, np.uint8), stop, self._delimiter, self._state
        )
        self.position += len(content)
        return int(found)


def open_scanner(dialect: CsvDialect, source: Source) -> CsvScanner:
    """Read the header of a source and make a scanner for the records after it.

    Raises:
        InputError: If the header cannot be read or is broken.
    """
    own = dialect.of(source)
    head = read_header(source, own).raw
    return CsvScanner(own.delimiter, head, find_kernel_function("scan_csv"))
