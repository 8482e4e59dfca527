"""A ring of memory that one process fills and others read: how streams reach the workers.

It knows positions, not inputs; a position goes on growing while its place comes round again, which
is when nobody holds what stands there. `fed_content` fills it in the parent, `inputs` reads it in
the workers, which inherit its file; it is on no disk.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Ring", "RingClosedError", "RingFile"]


class RingClosedError(Exception):
    """Nobody wants what is being written any more."""


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
    """The end that fills it: one thread writes, another lets go of what was read.

    Attributes:
        file: What workers inherit.
        position: Where the next byte is written.
    """

    def __init__(self, num_bytes: int) -> None:
        file = _open_memory(num_bytes)
        self.file = RingFile(file, num_bytes)
        self.position = 0
        self._map = mmap.mmap(file, num_bytes)
        self._view = memoryview(self._map)
        self._held: deque[int] = deque()
        self._is_closing = False
        self._changed = Condition()

    @property
    def num_bytes(self) -> int:
        """How much it holds."""
        return self.file.num_bytes

    def stop(self) -> None:
        """Let whoever writes give up."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()

    def close(self) -> None:
        """Give the memory back; what an error still points at goes when the error does."""
        self._view.release()
        with suppress(BufferError):
            self._map.close()
        os.close(self.file.file)

    def hold(self, position: int) -> None:
        """Keep what stands from a position on until it is let go; positions must not go back."""
        with self._changed:
            self._held.append(position)

    def move_hold(self, position: int) -> None:
        """Hold on to another position than the last one that was given."""
        with self._changed:
            self._held[-1] = position

    def drop_hold(self) -> None:
        """Take back the last hold: nothing was there."""
        with self._changed:
            self._held.pop()

    def let_go(self) -> None:
        """Let the place of the oldest hold be written over."""
        with self._changed:
            self._held.popleft()
            self._changed.notify_all()

    def wait_for_room(self, most: int) -> memoryview:
        """Wait until there is room at `position`; return it, in one piece.

        Raises:
            RingClosedError: If nobody wants it any more.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closing or self._held[0] + self.num_bytes > self.position
            )
            if self._is_closing:
                raise RingClosedError
            end = self._held[0] + self.num_bytes
        return self.view(self.position, min(end, self.position + most))

    def refuse_closed(self) -> None:
        """Raise `RingClosedError` if nobody wants anything any more."""
        with self._changed:
            if self._is_closing:
                raise RingClosedError

    def holds(self, position: int) -> bool:
        """Tell whether what stood at a position has not been written over."""
        return position >= self.position - self.num_bytes

    def begin_again(self) -> None:
        """Go on at the start of the memory."""
        self.position = -(-self.position // self.num_bytes) * self.num_bytes

    def view(self, start: int, end: int) -> memoryview:
        """Return the place of the positions from `start` on, as far as it is in one piece."""
        at = start % self.num_bytes
        return self._view[at : min(at + end - start, self.num_bytes)]

    def iter_views(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield what stands between two positions, in one piece or two."""
        while start < end:
            view = self.view(start, end)
            yield view
            start += len(view)

    def find(self, wanted: bytes, start: int, end: int) -> int:
        """Find a byte between two positions; -1 if it is not there."""
        while start < end:
            at = start % self.num_bytes
            stop = min(at + end - start, self.num_bytes)
            found = self._map.find(wanted, at, stop)
            if found >= 0:
                return start + found - at
            start += stop - at
        return -1


def _open_memory(num_bytes: int) -> int:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("penstok")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, num_bytes)
    return file
