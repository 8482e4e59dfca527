"""Opens the input of one unit: a file, a remote one, zstd frames, a member, a window of a stream.

It lists no inputs and knows no documents. Readers read from what it opens, through the
`OpenInput` of `base`, and cannot tell which of these it is.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from penstok.errors import InputError, read_error
from penstok.inputs.compression import FramedContent, find_frames
from penstok.inputs.streams import count_lines
from penstok.quantities import plural
from penstok.resources import Resource
from penstok.storage import ObjectInfo, RemoteFile, is_url
from penstok.types import replace

if TYPE_CHECKING:
    from penstok.inputs.base import OpenInput
    from penstok.inputs.compression import FrameTable
    from penstok.inputs.ring import RingFile
    from penstok.types import Source, Unit, Window

__all__ = ["SharedInput", "SourceFile", "open_unit"]

# How much more of a remote file is fetched with a unit: most reads outside a unit are near it.
_BEHIND_BYTES = 1 << 16
_AHEAD_BYTES = 1 << 18
_HEAD_BYTES = 4
_FIRST_READ_BYTES = 1 << 14
_MAX_READ_BYTES = 4 << 20
# Mapped memory counts as a worker's own: long lines are read in pieces instead.
_MAX_MAPPED_BYTES = 32 << 20


def open_unit(unit: Unit, ring: RingFile | None) -> OpenInput:
    """Open the input of a unit."""
    if unit.window is not None and ring is not None:
        return _WindowInput(unit, unit.window, ring)
    if unit.source.is_stream:
        raise ValueError(f"unit {unit.index} of a stream was not filled")
    return _open_seekable(unit)


def _open_seekable(unit: Unit) -> _SeekableInput:
    if unit.source.archive is not None:
        return _MemberInput(unit)
    if unit.source.content_bytes:
        return _FramedInput(unit.source)
    if is_url(unit.source.path):
        return _RemoteInput(unit)
    file = SourceFile(unit.source)
    # While this unit is encoded, the disk reads the next one, whichever worker will take it.
    file.announce(unit.end, 2 * unit.end - unit.start)
    return file


class SharedInput:
    """Opens the input of a unit once for several readers, which read it one after the other.

    So a remote range is fetched once, and pages stay in the page cache until the next unit.
    """

    def __init__(self, ring: RingFile | None) -> None:
        self._ring = ring
        self._unit: Unit | None = None
        self._file: OpenInput | None = None
        self._read: set[tuple[int, int]] = set()

    def open_unit(self, unit: Unit) -> OpenInput:
        """Open the input of a unit, or return it as it is open already."""
        if self._file is None or unit is not self._unit:
            self.close()
            self._unit, self._file = unit, open_unit(unit, self._ring)
        return _KeptInput(self._file, self._read)

    def close(self) -> None:
        """Close the input of the last unit, and give its pages back."""
        file, self._file, self._unit = self._file, None, None
        if file is not None:
            with file:
                for start, end in self._read:
                    file.give_back(start, end)
        self._read.clear()


class _KeptInput(Resource):
    """An input that stays open for its next reader."""

    def __init__(self, file: OpenInput, read: set[tuple[int, int]]) -> None:
        self.source = file.source
        self.size: int = file.size
        self._file = file
        self._read = read

    def read_at(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, without what lies outside the content."""
        return self._file.read_at(start, end)

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` with the content from `start` on."""
        self._file.read_into(buffer, start)

    def map_range(self, start: int, end: int) -> memoryview | None:
        """Return a range that is in memory; None if it must be read."""
        return self._file.map_range(start, end)

    def find_line(self, position: int) -> int:
        """Find the first line or record at or after `position`."""
        return self._file.find_line(position)

    def count_lines(self, position: int) -> int | None:
        """Count the lines that end before `position`."""
        return self._file.count_lines(position)

    def give_back(self, start: int, end: int) -> None:
        """Take note of the range: the next reader still needs it."""
        self._read.add((start, end))


class _SeekableInput(Resource):
    """What `OpenInput` needs besides `read_into`."""

    source: Source
    size: int

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` with the content from `start` on."""
        raise NotImplementedError

    def give_back(self, start: int, end: int) -> None:
        """Drop a range from the page cache."""
        raise NotImplementedError

    def read_at(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, without what lies outside the content."""
        start, end = max(start, 0), min(end, self.size)
        buffer = bytearray(max(end - start, 0))
        self.read_into(memoryview(buffer), start)
        return bytes(buffer)

    def map_range(self, start: int, end: int) -> memoryview | None:
        """Return None: a mapped file could change or shrink while it is encoded."""
        return None

    def find_line(self, position: int) -> int:
        """Find the first line that begins at or after a position."""
        if position == 0:
            return 0
        at, size = position - 1, _FIRST_READ_BYTES
        while at < self.size:
            found = self.read_at(at, at + size).find(b"\n")
            if found >= 0:
                return at + found + 1
            at, size = at + size, min(size * 4, _MAX_READ_BYTES)
        return self.size

    def count_lines(self, position: int) -> int | None:
        """Count the lines that end before a position."""
        return sum(
            self.read_at(at, min(at + _MAX_READ_BYTES, position)).count(b"\n")
            for at in range(0, position, _MAX_READ_BYTES)
        )


class _WindowInput(_SeekableInput):
    """The part of a stream that is in the ring for one unit."""

    def __init__(self, unit: Unit, window: Window, ring: RingFile) -> None:
        self.source = unit.source
        self.size = window.size
        self._unit = unit
        self._window = window
        self._ring = ring

    def read_at(self, start: int, end: int) -> bytes:
        """Read a range; the first bytes of the content are there for every unit."""
        if min(end, self.size) <= len(self._window.head):
            return self._window.head[max(start, 0) : end]
        return super().read_at(start, end)

    def read_into(self, buffer: memoryview, start: int) -> None:
        if buffer and not self._window.start <= start <= self._window.end - len(buffer):
            raise InputError(
                f"documents cannot be separated here: that takes byte {start}, which is too far "
                "from the part of a compressed or piped input that is in memory",
                where=f"{self.source.path}, content byte {self._unit.start} to {self._unit.end}",
                next_step="decompress it to a file and pass that, or another `--doc-separator`",
            )
        self._ring.read_into(buffer, self._window.base + start)

    def map_range(self, start: int, end: int) -> memoryview | None:
        """Return a range of the ring, which keeps it until the unit is written."""
        is_held = self._window.start <= start < end <= self._window.end
        if not is_held or end - start > _MAX_MAPPED_BYTES:
            return None
        return self._ring.map_range(self._window.base + start, self._window.base + end)

    def find_line(self, position: int) -> int:
        first, last = self._window.borders or (0, 0)
        return first if position <= self._unit.start else last

    def count_lines(self, position: int) -> int | None:
        return count_lines(self.source, position)

    def give_back(self, start: int, end: int) -> None:
        """Do nothing: `streams` drops the pages of a stream."""


@lru_cache(maxsize=16)
def _fetch_head(source: Source) -> bytes:
    info = ObjectInfo(source.num_bytes, source.version, has_ranges=True)
    with RemoteFile(source.path, info) as file:
        file.prefetch(0, _HEAD_BYTES)
        return file.read_at(0, _HEAD_BYTES)


class _RemoteInput(_SeekableInput):
    """A remote file, of which all that a unit needs is fetched at once."""

    def __init__(self, unit: Unit) -> None:
        self.source = source = unit.source
        self.size = source.num_bytes
        info = ObjectInfo(source.num_bytes, source.version, has_ranges=True)
        self._file = RemoteFile(source.path, info)
        self._file.prefetch(unit.start - _BEHIND_BYTES, unit.end + _AHEAD_BYTES)
        self._start = unit.start - _BEHIND_BYTES

    def close(self) -> None:
        """Free what was fetched."""
        self._file.close()

    def read_at(self, start: int, end: int) -> bytes:
        """Read a range; the first bytes, which every unit needs, are fetched once."""
        if max(start, 0) < end <= min(_HEAD_BYTES, self._start):
            return _fetch_head(self.source)[max(start, 0) : end]
        return super().read_at(start, end)

    def read_into(self, buffer: memoryview, start: int) -> None:
        self._file.read_into(buffer, start)

    def give_back(self, start: int, end: int) -> None:
        """Do nothing: a remote file is not in the page cache."""


class SourceFile(_SeekableInput):
    """A local file that is open for reading at any offset; use it in a `with`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.size: int = source.num_bytes
        try:
            self._fd = os.open(source.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise read_error(error, self.source.path) from error
        if os.fstat(self._fd).st_size != source.num_bytes:
            os.close(self._fd)
            raise self._changed()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def read_at(self, start: int, end: int) -> bytes:
        """Read a range, nearly always with one call and no copy."""
        start, end = max(start, 0), min(end, self.size)
        with suppress(OSError):  # it is raised again by `read_into`, with the path
            if start < end and len(data := os.pread(self._fd, end - start, start)) == end - start:
                return data
        return super().read_at(start, end)

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` with the content from `start` on; refuse a file that became shorter."""
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._fd, [buffer[done:]], start + done)
            except OSError as error:
                raise read_error(error, self.source.path) from error
            if count == 0:
                raise self._changed()
            done += count

    def announce(self, start: int, end: int) -> None:
        """Let the system read a range into the page cache, without waiting for it."""
        if hasattr(os, "posix_fadvise") and start < self.size:
            with suppress(OSError):  # advice only
                os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_WILLNEED)

    def give_back(self, start: int, end: int) -> None:
        """Drop a range from the page cache."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def _changed(self) -> InputError:
        return InputError(
            "the file changed while it was read",
            where=f"{self.source.path}, {plural(self.source.num_bytes, 'byte')} when the job was "
            "planned",
            next_step="wait until nothing writes to it, then pass `--overwrite` to start again",
        )


class _FramedInput(_SeekableInput):
    """A zstd file of many small frames; only those that are read are decompressed."""

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


class _MemberInput(_SeekableInput):
    """A member of an archive that can be read at any offset."""

    def __init__(self, unit: Unit) -> None:
        self.source = source = unit.source
        self.size = source.num_bytes
        start, end = unit.start + source.offset, min(unit.end, self.size) + source.offset
        self._archive = _open_seekable(replace(unit, source=source.stored, start=start, end=end))

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()

    def read_into(self, buffer: memoryview, start: int) -> None:
        self._archive.read_into(buffer, self.source.offset + start)

    def give_back(self, start: int, end: int) -> None:
        self._archive.give_back(self.source.offset + start, self.source.offset + end)


@lru_cache(maxsize=1)
def _load_table(source: Source) -> FrameTable:
    """Find the frames of a file; cached because the next unit is likely to need the same."""
    with SourceFile(source) as file:
        table = find_frames(file.read_at, source.num_bytes, source.path)
    if table is None or table.content_bytes != source.content_bytes:
        raise InputError(
            "the frames of the file changed since the job was planned",
            where=source.path,
            next_step="wait until nothing writes to it, then pass `--overwrite` to start again",
        )
    return table
