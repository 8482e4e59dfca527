"""A ring of memory that one process fills and others read: how streams reach the workers.

It knows positions, not inputs; a position goes on growing while its place comes round again. `feed`
fills it in the parent, `inputs` reads it in the workers, which inherit its file; it is on no disk.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Ring", "RingFile"]


@dataclass(frozen=True, slots=True)
class RingFile:
    """What a worker needs to read a ring: the open file it inherits."""

    file: int
    num_bytes: int

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` from position `start` on."""
        done = 0
        while done < len(buffer):
            at = (start + done) % self.num_bytes
            size = min(len(buffer) - done, self.num_bytes - at)
            done += os.preadv(self.file, [buffer[done : done + size]], at)


class Ring:
    """The end that fills it; what may be overwritten, its user must know."""

    def __init__(self, num_bytes: int) -> None:
        file = _open_memory(num_bytes)
        self.file = RingFile(file, num_bytes)
        self._map = mmap.mmap(file, num_bytes)
        self._view = memoryview(self._map)

    def close(self) -> None:
        """Give the memory back; what an error still points at goes when the error does."""
        self._view.release()
        with suppress(BufferError):
            self._map.close()
        os.close(self.file.file)

    def room(self, start: int, end: int) -> memoryview:
        """Return the place of the positions from `start` on, as far as it is in one piece."""
        at = start % self.file.num_bytes
        return self._view[at : min(at + end - start, self.file.num_bytes)]

    def iter_views(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield what stands between two positions, in one piece or two."""
        while start < end:
            view = self.room(start, end)
            yield view
            start += len(view)

    def find(self, wanted: bytes, start: int, end: int) -> int:
        """Find a byte between two positions; -1 if it is not there."""
        while start < end:
            at = start % self.file.num_bytes
            stop = min(at + end - start, self.file.num_bytes)
            found = self._map.find(wanted, at, stop)
            if found >= 0:
                return start + found - at
            start += stop - at
        return -1


def _open_memory(num_bytes: int) -> int:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("penstock")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, num_bytes)
    return file
