"""Bad records: left out and listed, or the end of the job.

It judges no record; the readers of records say what is wrong, and it says where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.errors import InputError
from penstok.types import MAX_LISTED_RECORDS, SkippedRecord

if TYPE_CHECKING:
    from penstok.inputs.base import OpenInput
    from penstok.types import OnError

__all__ = ["Refusals", "name_place"]

# Up to here a message counts the lines before a bad record.
_MAX_COUNTED_BYTES = 1 << 30


class Refusals:
    """The bad records of some units."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._skipped: list[SkippedRecord] = []

    def take(self) -> list[SkippedRecord]:
        """Return those since the last call."""
        skipped, self._skipped = self._skipped, []
        return skipped

    @property
    def room(self) -> int:
        """How many more are listed; what comes behind them is only counted."""
        return MAX_LISTED_RECORDS - len(self._skipped)

    def add(self, file: OpenInput, position: int, what: str) -> None:
        """Note a record that begins at a position.

        Raises:
            InputError: If the first bad one is to stop the job.
        """
        if self._on_error == "stop":
            raise InputError(
                what,
                where=name_place(file, position),
                next_step="mend it, pass another `--text-key`, or leave such records out with "
                "`--on-error skip`",
            )
        self._skipped.append(SkippedRecord(position, what))


def name_place(file: OpenInput, position: int) -> str:
    """Name a place by its byte, and its line where those before can be counted in little time."""
    num_lines = None if position > _MAX_COUNTED_BYTES else file.count_lines(position)
    line = "" if num_lines is None else f"line {num_lines + 1}, "
    return f"{file.source.path}, {line}byte {position}"
