"""The standard streams of the program: writing to them never fails, whatever they are.

It prints nothing. `app` puts them in place before anything else happens; `messages` asks at the end
whether all data arrived.
"""

from __future__ import annotations

import fcntl
import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import ReadableBuffer

__all__ = ["failure_of", "guard_streams"]


class _LossyFile(io.FileIO):
    """A file that remembers why a write failed, and drops the data and all that follow.

    A full disk or a reader that went away must not end a job that has hours behind it.
    """

    failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, wait for a pipe that is full and does not block, or drop."""
        try:
            while self.failure is None:
                count: int | None = super().write(data)
                if count is not None:
                    return count
                select.select([], [self], [])
        except OSError as error:
            self.failure = error
        return memoryview(data).nbytes


def guard_streams() -> None:
    """Replace standard output and error by streams whose writes cannot fail."""
    # A file name that is not valid in the stream's encoding must not break a message either.
    _occupy([number for number in range(3) if _is_closed(number)])
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _make_stream(number, "utf-8", is_line_buffered=False))
        elif _is_file(stream, number):
            stream.flush()
            is_line_buffered = getattr(stream, "line_buffering", False)
            made = _make_stream(number, stream.encoding, is_line_buffered=is_line_buffered)
            setattr(sys, name, made)


def failure_of(stream: TextIO) -> OSError | None:
    """Return why writing to a stream failed, once; None if all of it was written."""
    stream.flush()
    file = getattr(getattr(stream, "buffer", None), "raw", None)
    if not isinstance(file, _LossyFile):
        return None
    failure = file.failure
    if failure is not None:
        # Reported once; what follows is dropped all the same.
        file.failure = _ReportedError()
    return None if isinstance(failure, _ReportedError) else failure


class _ReportedError(OSError):
    """A failure that was reported."""


def _make_stream(number: int, encoding: str, *, is_line_buffered: bool) -> TextIO:
    file = _LossyFile(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=is_line_buffered,
    )


def _is_file(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (AttributeError, OSError, ValueError):
        return False


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def _occupy(numbers: Sequence[int]) -> None:
    """Put something under the numbers of closed streams.

    Otherwise the next file that is opened, such as the output, would be taken for standard output.
    It is the wrong end of a pipe: whoever writes to it gets an error, as from a closed stream.
    """
    if not numbers:
        return
    ends = os.pipe()
    reading = fcntl.fcntl(ends[0], fcntl.F_DUPFD_CLOEXEC, 3)
    for end in ends:
        os.close(end)
    for number in numbers:
        os.dup2(reading, number)
    os.close(reading)
