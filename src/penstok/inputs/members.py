"""The bytes of one member of an archive, from front to back.

It finds no members and knows no compression: whoever opens a member passes what opens the content
of the archive. `streams` reads members through it; `archives` found where they are.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from penstok.errors import InputError
from penstok.resources import Resource
from penstok.storage import ObjectInfo, RemoteFile, is_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstok.types import Source

__all__ = ["MemberReader", "close_archives"]

_PIECE_BYTES = 1 << 20
# So much of a member can be read again without starting the archive again: headers of tables.
_MAX_HEAD_BYTES = 8 << 20


class _Content(Protocol):
    """The content of an open archive, from front to back."""

    def readinto(self, buffer: memoryview) -> int: ...

    def close(self) -> None: ...


class MemberReader(Resource):
    """Reads one member; use it in a `with`, or close it."""

    def __init__(
        self, source: Source, open_content: Callable[[Source], _Content], *, is_last: bool
    ) -> None:
        """Open a member.

        Args:
            source: The member.
            open_content: Opens the content of its archive.
            is_last: It will not be opened again: its first bytes are not kept.
        """
        self._source = source
        self._at, self._end = source.offset, source.offset + source.num_bytes
        archive = source.stored
        self._cursor: _Cursor | None = None
        self._file: _LocalFile | RemoteFile | None = None
        if archive.is_stream or archive.compression is not None:
            self._cursor = _take_cursor(archive, self._at) or _Cursor(archive, open_content)
            self._cursor.start_at(self._at, keeps_head=not is_last)
        elif is_url(archive.path):
            info = ObjectInfo(archive.num_bytes, archive.version, has_ranges=True)
            self._file = RemoteFile(archive.path, info)
            self._file.announce(self._at, self._end)
        else:
            self._file = _LocalFile(archive)

    def close(self) -> None:
        """Close the archive, or leave it open for the next member."""
        if self._cursor is not None:
            _leave_open(self._cursor)
            self._cursor = None
        if self._file is not None:
            self._file.close()

    def read(self, num_bytes: int) -> bytes:
        """Read some of the next bytes; none at the end of the member.

        Raises:
            InputError: If the archive ends before the member does.
        """
        stop = min(self._at + min(num_bytes, _PIECE_BYTES), self._end)
        data = b""
        if self._cursor is not None:
            data = self._cursor.read(self._at, stop)
        elif self._file is not None:
            data = self._file.read_at(self._at, stop)
        if not data and self._at < self._end:
            raise InputError(
                "the archive ends inside this member",
                where=f"{self._source.path}, {self._end - self._at} bytes are missing",
                next_step="copy or download the archive again",
            )
        self._at += len(data)
        return data


class _LocalFile(Resource):
    """A local archive without compression."""

    def __init__(self, archive: Source) -> None:
        self._path = archive.path
        try:
            self._fd = os.open(archive.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise self._unreadable(error) from error

    def close(self) -> None:
        os.close(self._fd)

    def read_at(self, start: int, end: int) -> bytes:
        try:
            return os.pread(self._fd, end - start, start)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(
            f"cannot be read: {error.strerror}",
            where=self._path,
            next_step="check the disk and the file's permissions, then run the same command again",
        )


class _Cursor:
    """The content of an archive that can only be read forward, between two of its members.

    The first bytes of the current member are kept, since they may be read several times before
    the member itself is.
    """

    def __init__(self, archive: Source, open_content: Callable[[Source], _Content]) -> None:
        self.archive = archive
        self._process = os.getpid()
        self._content = open_content(archive)
        self._position = 0
        self._head = bytearray()
        self._head_start = 0
        self._keeps_head = True

    def close(self) -> None:
        """Close the archive."""
        self._content.close()

    def can_reach(self, archive: Source, position: int) -> bool:
        """Tell whether a position of an archive can be read; not after a fork, which shares it."""
        is_kept = self._head_start <= position < self._head_start + len(self._head)
        is_ahead = position >= self._position or is_kept
        return self.archive == archive and is_ahead and self._process == os.getpid()

    def start_at(self, position: int, *, keeps_head: bool) -> None:
        """Go to the start of a member."""
        if position > self._position:
            self._head.clear()
            scratch = memoryview(bytearray(_PIECE_BYTES))
            while self._position < position:
                count = self._content.readinto(scratch[: position - self._position])
                if not count:
                    return  # the reader of the member says so
                self._position += count
        if not self._head:
            self._head_start = self._position
        self._keeps_head = keeps_head

    def read(self, start: int, stop: int) -> bytes:
        """Read up to `stop`; `start` is where the last read ended, or where a member starts."""
        at = start - self._head_start
        if 0 <= at < len(self._head):
            return bytes(self._head[at : stop - self._head_start])
        if start != self._position:
            return b""
        buffer = bytearray(stop - start)
        count = self._content.readinto(memoryview(buffer))
        data = bytes(memoryview(buffer)[:count])
        self._position += count
        if self._keeps_head and len(self._head) + count <= _MAX_HEAD_BYTES:
            self._head += data
        else:
            self._keeps_head = False
            self._head.clear()
        return data


# One archive stays open where its last reader stopped: members are read in their order, and without
# this each would start at the beginning of the archive.
_idle: list[_Cursor] = []
_lock = Lock()
# A fork would move the position of the archive in its parent.
os.register_at_fork(after_in_child=_idle.clear)


def _take_cursor(archive: Source, position: int) -> _Cursor | None:
    with _lock:
        cursor = _idle.pop() if _idle else None
    if cursor is None or cursor.can_reach(archive, position):
        return cursor
    cursor.close()
    return None


def _leave_open(cursor: _Cursor) -> None:
    with _lock:
        closing, _idle[:] = list(_idle), [cursor]
    for each in closing:
        each.close()


def close_archives() -> None:
    """Close the archive that was left open."""
    with _lock:
        closing = list(_idle)
        _idle.clear()
    for each in closing:
        each.close()
