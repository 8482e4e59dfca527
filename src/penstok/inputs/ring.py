"""A ring buffer in shared memory that the parent fills and workers read: how streams reach them.

It knows positions, not inputs: a position keeps growing, and its memory is used again once nothing
holds it. `buffered_stream` fills it in the parent, `files` reads it in the workers, which inherit
its file descriptor; it is never on disk.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import deque
from contextlib import suppress
from threading import Condition
from typing import TYPE_CHECKING

from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Ring", "RingClosedError", "RingFile"]


class RingClosedError(Exception):
    """The ring was closed while content was being written to it."""


class RingFile(Struct, frozen=True):
    """The open file through which a worker reads the ring."""

    file: int
    num_bytes: int

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` with what begins at position `start`."""
        done = 0
        while done < len(buffer):
            at = (start + done) % self.num_bytes
            size = min(len(buffer) - done, self.num_bytes - at)
            done += os.preadv(self.file, [buffer[done : done + size]], at)

    def map_range(self, start: int, end: int) -> memoryview | None:
        """Return the memory between two positions; None if it is not contiguous.

        It stays mapped as long as the view exists.
        """
        at = start % self.num_bytes
        skipped = at % mmap.ALLOCATIONGRANULARITY
        if at + end - start > self.num_bytes:
            return None
        mapped = mmap.mmap(
            self.file,
            skipped + end - start,
            # All pages at once: one fault per page would take longer than copying it.
            flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0),
            prot=mmap.PROT_READ,
            offset=at - skipped,
        )
        return memoryview(mapped)[skipped:]


class Ring:
    """The writing end: one thread writes, another releases what was read.

    Attributes:
        file: What workers inherit.
        position: Where the next byte goes.
    """

    def __init__(self, num_bytes: int) -> None:
        file = _open_memory(num_bytes)
        self.file: RingFile = RingFile(file, num_bytes)
        self.position: int = 0
        self._map = mmap.mmap(file, num_bytes)
        self._view = memoryview(self._map)
        # Memory from here on has not been used yet.
        self._used_bytes = 0
        self._scratch = memoryview(b"")
        self._held: deque[int] = deque()
        self._is_closing = False
        self._changed = Condition()

    @property
    def num_bytes(self) -> int:
        """Its capacity."""
        return self.file.num_bytes

    def stop(self) -> None:
        """Make `wait_for_room` and `refuse_closed` raise from now on."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()

    def close(self) -> None:
        """Free the memory; views that an exception still refers to are freed with it."""
        self._view.release()
        with suppress(BufferError):
            self._map.close()
        os.close(self.file.file)

    def hold(self, position: int) -> None:
        """Protect everything from a position on until it is released; positions never decrease."""
        with self._changed:
            self._held.append(position)

    def move_hold(self, position: int) -> None:
        """Move the last hold to another position."""
        with self._changed:
            self._held[-1] = position

    def drop_hold(self) -> None:
        """Remove the last hold."""
        with self._changed:
            self._held.pop()

    def release(self) -> None:
        """Remove the oldest hold, so that its memory can be overwritten."""
        with self._changed:
            self._held.popleft()
            self._changed.notify_all()

    def release_all(self) -> None:
        """Remove all holds, and keep the content, which no longer counts as this process's memory.

        A process with much memory of its own is not forked, and forks do not copy the ring.
        """
        with self._changed:
            self._held.clear()
            self._changed.notify_all()
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def wait_for_room(self, most: int) -> memoryview:
        """Wait until there is room at `position`; return memory for what `advance` puts there.

        Memory that was not used yet is written by a system call: through the map, the system would
        clear every page first, and handle a fault for each. Of 48 MiB that takes half of the time.

        Raises:
            RingClosedError: If the ring was closed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closing or self._held[0] + self.num_bytes > self.position
            )
            if self._is_closing:
                raise RingClosedError
            end = self._held[0] + self.num_bytes
        room = self.view(self.position, min(end, self.position + most))
        if self.position % self.num_bytes < self._used_bytes:
            return room
        if len(self._scratch) < len(room):
            self._scratch = memoryview(bytearray(len(room)))
        return self._scratch[: len(room)]

    def advance(self, count: int) -> None:
        """Put the first `count` bytes of the last room at `position`, and move that behind them."""
        at = self.position % self.num_bytes
        done = count if at < self._used_bytes else 0
        while done < count:
            done += os.pwrite(self.file.file, self._scratch[done:count], at + done)
        self.position += count
        self._used_bytes = max(self._used_bytes, at + count)

    def refuse_closed(self) -> None:
        """Raise `RingClosedError` if the ring was closed."""
        with self._changed:
            if self._is_closing:
                raise RingClosedError

    def holds(self, position: int) -> bool:
        """Tell whether the content at a position has not been overwritten."""
        return position >= self.position - self.num_bytes

    def start_again(self) -> None:
        """Continue at the start of the memory."""
        self.position = -(-self.position // self.num_bytes) * self.num_bytes

    def view(self, start: int, end: int) -> memoryview:
        """Return the memory of the positions from `start` on, as far as it is contiguous."""
        at = start % self.num_bytes
        return self._view[at : min(at + end - start, self.num_bytes)]

    def iter_views(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield the memory between two positions, as one view or two."""
        while start < end:
            view = self.view(start, end)
            yield view
            start += len(view)


def _open_memory(num_bytes: int) -> int:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("penstok")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, num_bytes)
    return file
