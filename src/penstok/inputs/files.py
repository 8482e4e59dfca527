"""An input opened for one unit, to be read at any place near it.

Whether its bytes come from a file or from the ring a stream was read into, no reader can tell. It
finds no inputs and knows no documents; `sources` finds them, readers ask for bytes.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from penstok.errors import InputError
from penstok.inputs.compression import FramedContent, find_frames
from penstok.inputs.streams import count_lines
from penstok.resources import Resource
from penstok.storage import ObjectInfo, RemoteFile, is_url

if TYPE_CHECKING:
    from types import TracebackType

    from penstok.inputs.compression import FrameTable
    from penstok.inputs.ring import RingFile
    from penstok.types import Source, Unit, Window

__all__ = ["MAX_LINE_BYTES", "OpenInput", "SourceFile", "open_unit"]

# A longer line is refused by name: it would not fit the memory of a worker.
MAX_LINE_BYTES = 64 << 20
# What of a remote file is fetched with a unit; most looks beyond its edges are short.
_BEHIND_BYTES = 1 << 16
_AHEAD_BYTES = 1 << 18
_HEAD_BYTES = 4
_FIRST_LOOK_BYTES = 1 << 14
_MAX_LOOK_BYTES = 4 << 20


class OpenInput(Protocol):
    """What readers read; use it in a `with`.

    Attributes:
        source: Which input it is.
        size: Where its content ends; of a stream whose end was not seen, more than any position.
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
        """Read the bytes from `start` to `end`, less what lies outside the content."""
        ...

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` from `start` on."""
        ...

    def find_line(self, position: int) -> int:
        """Find the first line that begins at or after a position: a unit's start or its end."""
        ...

    def count_lines(self, position: int) -> int | None:
        """Count the lines that end before a position; None where nobody can."""
        ...

    def give_back(self, start: int, end: int) -> None:
        """Tell the system that these pages are not needed again."""
        ...


def open_unit(unit: Unit, ring: RingFile | None) -> OpenInput:
    """Open the input of a unit."""
    if unit.window is not None and ring is not None:
        return _WindowFile(unit, unit.window, ring)
    if unit.source.is_stream:
        raise ValueError(f"unit {unit.index} of a stream was not filled")
    if unit.source.content_bytes:
        return _FramedInput(unit.source)
    return _RemoteInput(unit) if is_url(unit.source.path) else SourceFile(unit.source)


class _Seekable(Resource):
    """What follows from reading at any place."""

    source: Source
    size: int

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` from `start` on."""
        raise NotImplementedError

    def read_at(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, less what lies outside the file."""
        start, end = max(start, 0), min(end, self.size)
        buffer = bytearray(max(end - start, 0))
        self.read_into(memoryview(buffer), start)
        return bytes(buffer)

    def find_line(self, position: int) -> int:
        """Find the first line that begins at or after a position."""
        if position == 0:
            return 0
        at, look = position - 1, _FIRST_LOOK_BYTES
        while at < self.size:
            found = self.read_at(at, at + look).find(b"\n")
            if found >= 0:
                return at + found + 1
            at, look = at + look, min(look * 4, _MAX_LOOK_BYTES)
        return self.size

    def count_lines(self, position: int) -> int | None:
        """Count the lines that end before a position."""
        return sum(
            self.read_at(at, min(at + _MAX_LOOK_BYTES, position)).count(b"\n")
            for at in range(0, position, _MAX_LOOK_BYTES)
        )


class _WindowFile(_Seekable):
    """What of a stream can be seen from one unit."""

    def __init__(self, unit: Unit, window: Window, ring: RingFile) -> None:
        self.source = unit.source
        self.size = window.size
        self._unit = unit
        self._window = window
        self._ring = ring

    def read_at(self, start: int, end: int) -> bytes:
        """Read a range; the first bytes of the content can be seen from everywhere."""
        if min(end, self.size) <= len(self._window.head):
            return self._window.head[max(start, 0) : end]
        return super().read_at(start, end)

    def read_into(self, buffer: memoryview, start: int) -> None:
        if buffer and not self._window.start <= start <= self._window.end - len(buffer):
            raise InputError(
                f"documents cannot be told apart here: that needs a look at byte {start}, too far "
                "from where a compressed or piped input is being read",
                where=f"{self.source.path}, content byte {self._unit.start} to {self._unit.end}",
                next_step="decompress it to a file and pass that, or another `--doc-separator`",
            )
        self._ring.read_into(buffer, self._window.base + start)

    def find_line(self, position: int) -> int:
        first, last = self._window.borders or (0, 0)
        return first if position <= self._unit.start else last

    def count_lines(self, position: int) -> int | None:
        return count_lines(self.source, position)

    def give_back(self, start: int, end: int) -> None:
        """Do nothing: who reads the stream does it."""


@lru_cache(maxsize=16)
def _fetch_head(source: Source) -> bytes:
    info = ObjectInfo(source.num_bytes, source.version, has_ranges=True)
    with RemoteFile(source.path, info) as file:
        file.prefetch(0, _HEAD_BYTES)
        return file.read_at(0, _HEAD_BYTES)


class _RemoteInput(_Seekable):
    """A remote file, of which all that a unit needs is asked for at once."""

    def __init__(self, unit: Unit) -> None:
        self.source = source = unit.source
        self.size = source.num_bytes
        info = ObjectInfo(source.num_bytes, source.version, has_ranges=True)
        self._file = RemoteFile(source.path, info)
        self._file.prefetch(unit.start - _BEHIND_BYTES, unit.end + _AHEAD_BYTES)
        self._start = unit.start - _BEHIND_BYTES

    def close(self) -> None:
        """Drop what was fetched."""
        self._file.close()

    def read_at(self, start: int, end: int) -> bytes:
        """Read a range; the first bytes, which every unit asks for, are fetched once."""
        if max(start, 0) < end <= min(_HEAD_BYTES, self._start):
            return _fetch_head(self.source)[max(start, 0) : end]
        return super().read_at(start, end)

    def read_into(self, buffer: memoryview, start: int) -> None:
        self._file.read_into(buffer, start)

    def give_back(self, start: int, end: int) -> None:
        """Do nothing: no page of it is this machine's."""


class SourceFile(_Seekable):
    """An open input that can be read at any place; use it in a `with`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.size = source.num_bytes
        try:
            self._fd = os.open(source.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise self._unreadable(error) from error
        if os.fstat(self._fd).st_size != source.num_bytes:
            os.close(self._fd)
            raise self._changed()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` from `start` on; a file that has become shorter is an error."""
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._fd, [buffer[done:]], start + done)
            except OSError as error:
                raise self._unreadable(error) from error
            if count == 0:
                raise self._changed()
            done += count

    def give_back(self, start: int, end: int) -> None:
        """Tell the system that these pages are not needed again."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(
            f"cannot be read: {error.strerror}",
            where=self.source.path,
            next_step="check the disk and the file's permissions, then run the same command again",
        )

    def _changed(self) -> InputError:
        return InputError(
            "the file changed while it was read",
            where=f"{self.source.path}, {self.source.num_bytes} bytes when the job was planned",
            next_step="wait until nothing writes to it, then pass `--overwrite` to start again",
        )


class _FramedInput(_Seekable):
    """A compressed file of many frames, of which those are unpacked that are asked for."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.size = source.content_bytes
        self._file = SourceFile(source)
        try:
            table = _load_table(source)
        except InputError:
            self._file.close()
            raise
        self._content = FramedContent(table, self._file.read_at)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read_into(self, buffer: memoryview, start: int) -> None:
        self._content.read_into(buffer, start)

    def give_back(self, start: int, end: int) -> None:
        self._file.give_back(*self._content.stored_range(start, end))


@lru_cache(maxsize=1)
def _load_table(source: Source) -> FrameTable:
    """Find the frames of a file; the next unit is likely to be of the same."""
    with SourceFile(source) as file:
        table = find_frames(file.read_at, source.num_bytes, source.path)
    if table is None or table.content_bytes != source.content_bytes:
        raise InputError(
            "the frames of the file are not those that were planned",
            where=source.path,
            next_step="wait until nothing writes to it, then pass `--overwrite` to start again",
        )
    return table
