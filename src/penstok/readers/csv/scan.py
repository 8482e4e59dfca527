"""Where the records of CSV begin, found in one pass over its content.

Only what comes before tells whether a line feed stands inside quotes, so no place in CSV can be
entered without all bytes before it. It holds no content; `feed`, which sees all of it in order,
shows it piece by piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.readers.csv.fallback import CsvState, scan_csv

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CsvScanner"]


class CsvScanner:
    r"""Goes through CSV once, from front to back.

    Attributes:
        position: How far it has come.
        wanted: From where on a record was wanted last.
        record: Where that one begins.

    Example:
        >>> scanner = CsvScanner(b",")
        >>> scanner.find_record(1, memoryview(b'1,"a\n'))
        >>> scanner.find_record(1, memoryview(b'b"\n2,c\n'))
        8
    """

    def __init__(
        self, delimiter: bytes, start: int = 0, scan: Callable[..., Any] | None = None
    ) -> None:
        """Begin at a record.

        Args:
            delimiter: What stands between two fields, one byte.
            start: Where the first record begins.
            scan: The kernel's `scan_csv`; None where it is not built.
        """
        self.position = self.record = start
        self.wanted = 0
        self._delimiter = ord(delimiter)
        self._state = int(CsvState.FIELD_START)
        self._scan = scan or scan_csv

    @property
    def is_quoted(self) -> bool:
        """Whether it has stopped inside quotes."""
        return self._state == CsvState.QUOTED

    def pass_over(self, csv: memoryview) -> None:
        """Go through the content that comes next."""
        self._advance(csv, len(csv))

    def find_record(self, wanted: int, csv: memoryview) -> int | None:
        """Find the first record that begins at or after `wanted`; None if that needs more content.

        Args:
            wanted: Never less than in the call before.
            csv: The content from `position` on. It is gone through up to the record, or to its end.
        """
        self.wanted = wanted
        if wanted <= self.record:
            return self.record
        start = self.position
        found = self._advance(csv, max(wanted - 1 - start, 0))
        if found < 0:
            return None
        self.position = self.record = start + found
        return self.record

    def _advance(self, csv: memoryview, stop: int) -> int:
        found, self._state = self._scan(
            np.frombuffer(csv, np.uint8), stop, self._delimiter, self._state
        )
        self.position += len(csv)
        return int(found)
