"""Reads each stream once for all workers: a thread that fills the ring ahead of them.

Memory is used again only when its unit is written, so that a unit whose worker died can be
repeated; nothing here parses content. `buffered_stream` keeps track of one stream; the executor
takes filled units from here and releases them.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from threading import Condition, Thread
from typing import TYPE_CHECKING

from penstok.inputs.buffered_stream import (
    LONGEST_WINDOW_BYTES,
    BufferedStream,
    StreamOptions,
)
from penstok.inputs.compression import MAX_WINDOW_BYTES
from penstok.inputs.members import close_archives
from penstok.inputs.ring import Ring, RingClosedError
from penstok.types import UNKNOWN_END, MemoryNeeds, replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstok.inputs.base import OpenScanner
    from penstok.types import OnError, Source, Unit

__all__ = ["Feed", "feed_needs", "make_feed"]

_MAX_READY_UNITS = 256
_STOP_SECONDS = 2.0


def make_feed(
    sources: Sequence[Source],
    num_workers: int,
    unit_bytes: int,
    *,
    open_scanner: OpenScanner,
    on_error: OnError,
    give_back: bool,
    keeps_head: bool = False,
) -> Feed | None:
    """Make a feed for the streams among the inputs; None if there are none.

    With `keeps_head`, it can start over.
    """
    if not any(source.is_stream for source in sources):
        return None
    options = StreamOptions(
        open_scanner=open_scanner,
        wrap_bytes=unit_bytes * (2 * num_workers + 1),
        on_error=on_error,
        max_window_bytes=_window_bytes(sources),
        give_back=give_back,
        keeps_head=keeps_head,
    )
    return Feed(LONGEST_WINDOW_BYTES + unit_bytes * (2 * num_workers - 1), options)


def feed_needs(sources: Sequence[Source], unit_bytes: int) -> MemoryNeeds:
    """Return the memory a feed takes: two units per worker, one longest window, and a decoder."""
    if not any(source.is_stream for source in sources):
        return MemoryNeeds()
    shared_bytes = LONGEST_WINDOW_BYTES - unit_bytes + _window_bytes(sources)
    return MemoryNeeds(parent_bytes=shared_bytes, worker_bytes=2 * unit_bytes)


def _window_bytes(sources: Sequence[Source]) -> int:
    """Return the largest decoder window that the first bytes of an input ask for."""
    return min(max(source.window_bytes for source in sources), MAX_WINDOW_BYTES)


class Feed:
    """Fills units of streams; close it when done.

    Attributes:
        ring: Where workers find the content.
        lengths: By input, the length of its content, once its end was reached.
        expected: By input and position, the digest of the content before it, where a run resumes.
        wake_file: Becomes readable whenever a unit is ready.
    """

    def __init__(self, num_bytes: int, options: StreamOptions) -> None:
        """Make a ring of `num_bytes`, enough for the longest window."""
        self.ring: Ring = Ring(num_bytes)
        self.lengths: dict[int, int] = {}
        self.expected: dict[tuple[int, int], str] = {}
        self.wake_file: int
        self.wake_file, self._waker = os.pipe()
        os.set_blocking(self.wake_file, False)
        os.set_blocking(self._waker, False)
        self._options = options
        self._stream: BufferedStream | None = None
        self._ready: deque[Unit] = deque()
        self._failure: BaseException | None = None
        self._is_done = False
        self._is_closing = False
        self._is_closed = False
        self._changed = Condition()
        self._thread: Thread | None = None

    def close(self) -> None:
        """Stop the thread and free the ring; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self.ring.stop()
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
            if self._thread.is_alive():
                return  # it is blocked by a silent pipe, and ends with this process
        if self._stream is not None:
            self._stream.close()
        close_archives()
        self.ring.close()
        os.close(self.wake_file)
        os.close(self._waker)

    def start_over(self) -> None:
        """Fill units from the start again, the last time: heads are not kept any more.

        Content of the open stream that is still in the ring is not read twice.
        """
        self._options = replace(self._options, keeps_head=False)
        self.ring.release_all()
        self.lengths.clear()
        if self._stream is not None and not self._stream.start_over(self._options):
            self._stream.close()
            self._stream = None

    def change_inputs(self, sources: Sequence[Source]) -> None:
        """Fill units of other inputs from now on; all units of those before must be released.

        The ring stays, and with it the workers that have inherited it.
        """
        if self._thread is not None:
            self._thread.join()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._options = replace(
            self._options, keeps_head=False, max_window_bytes=_window_bytes(sources)
        )
        self.lengths.clear()
        self.expected.clear()

    def iter_filled(self, units: Iterable[Unit]) -> Iterator[Unit | None]:
        """Yield units as they become ready; None while the next one is not.

        `units` is consumed by the thread that reads, just before each is filled, so it may look up
        in `lengths` where an input ends.
        """
        self._is_done = False
        self._thread = Thread(target=self._pump, args=(units,), daemon=True, name="feed")
        self._thread.start()
        while True:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake_file, 1 << 16)
            with self._changed:
                unit = self._ready.popleft() if self._ready else None
                is_done, failure = self._is_done, self._failure
                self._changed.notify_all()
            if unit is None and failure is not None:
                raise failure
            if unit is None and is_done:
                return
            yield unit

    def release(self, unit: Unit) -> None:
        """Free the memory of the oldest unit."""
        if unit.window is not None:
            self.ring.release()

    def fill_sample(self, unit: Unit) -> Unit | None:
        """Fill one unit at the start of a stream, before the run; None if the stream is empty."""
        return self._open(unit).fill(unit, is_sample=True)

    def _pump(self, units: Iterable[Unit]) -> None:
        try:
            for unit in units:
                filled = self.fill(unit)
                if filled is not None:
                    self._put(filled)
        except RingClosedError:
            pass
        except BaseException as error:  # noqa: BLE001 the thread's boundary: raised again where units are taken
            self._failure = error
        with self._changed:
            self._is_done = True
        self._wake()

    def fill(self, unit: Unit) -> Unit | None:
        """Fill one unit of a stream; None if its content ends before. Others stay as they are."""
        if not unit.source.is_stream:
            return unit
        stream = self._open(unit)
        filled = stream.fill(unit)
        if stream.size < UNKNOWN_END:
            self.lengths[unit.source_idx] = stream.size
        return filled

    def _open(self, unit: Unit) -> BufferedStream:
        """Return the open stream if it can fill the unit; else open the unit's stream."""
        if self._stream is None or not self._stream.can_fill(unit):
            if self._stream is not None:
                self._stream.close()
            self._stream = BufferedStream(unit, self.ring, self._options, self.expected)
        return self._stream

    def _put(self, unit: Unit) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or len(self._ready) < _MAX_READY_UNITS)
            if self._is_closing:
                raise RingClosedError
            self._ready.append(unit)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"\0")
