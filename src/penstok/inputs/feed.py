"""Reads streams once and shows them to all workers: from inputs to windows in a ring.

A thread of the parent reads ahead as far as the ring has room; a place is used again when the unit
that was read from it is written, so a worker may die and its unit be done again. What of a stream
lies where is `fed_content`'s; the executor takes units from here, and says when they are written.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from threading import Condition, Thread
from typing import TYPE_CHECKING

from penstok.inputs.compression import MAX_WINDOW_BYTES
from penstok.inputs.fed_content import (
    LONGEST_LOOK_BYTES,
    MAX_CARRIED_BYTES,
    FedContent,
    ReadOptions,
)
from penstok.inputs.ring import Ring, RingClosedError
from penstok.types import UNKNOWN_END, MemoryNeeds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstok.types import OnError, Source, Unit

__all__ = ["Feed", "feed_needs", "make_feed"]

_MAX_READY_UNITS = 256
_STOP_SECONDS = 2.0


def make_feed(
    sources: Sequence[Source],
    num_workers: int,
    unit_bytes: int,
    *,
    on_error: OnError,
    give_back: bool,
) -> Feed | None:
    """Make what reads the streams among the inputs; None if there are none."""
    if not any(source.is_stream for source in sources):
        return None
    options = ReadOptions(
        wrap_bytes=MAX_CARRIED_BYTES + 2 * unit_bytes * num_workers,
        on_error=on_error,
        max_window_bytes=_window_bytes(sources),
        give_back=give_back,
    )
    return Feed(LONGEST_LOOK_BYTES + unit_bytes * (2 * num_workers - 1), options)


def feed_needs(sources: Sequence[Source], unit_bytes: int) -> MemoryNeeds:
    """Return the memory a feed takes: two units a worker, once the longest look, and a decoder."""
    if not any(source.is_stream for source in sources):
        return MemoryNeeds()
    shared_bytes = LONGEST_LOOK_BYTES - unit_bytes + _window_bytes(sources)
    return MemoryNeeds(parent_bytes=shared_bytes, worker_bytes=2 * unit_bytes)


def _window_bytes(sources: Sequence[Source]) -> int:
    """Return how far a decoder may look back: as far as the first bytes of some input ask for."""
    return min(max(source.window_bytes for source in sources), MAX_WINDOW_BYTES)


class Feed:
    """Fills units of streams; close it in the end.

    Attributes:
        ring: What is shown to the workers.
        lengths: How long the content of an input is, once its end was seen.
        expected: The digest that content must have up to a position, where a run goes on.
        wake_file: Has something to read whenever a unit became ready.
    """

    def __init__(self, num_bytes: int, options: ReadOptions) -> None:
        """Make a ring of so many bytes, enough for the longest look."""
        self.ring = Ring(num_bytes)
        self.lengths: dict[int, int] = {}
        self.expected: dict[tuple[int, int], str] = {}
        self.wake_file, self._waker = os.pipe()
        os.set_blocking(self.wake_file, False)
        os.set_blocking(self._waker, False)
        self._options = options
        self._content: FedContent | None = None
        self._ready: deque[Unit] = deque()
        self._failure: BaseException | None = None
        self._is_done = False
        self._is_closing = False
        self._changed = Condition()
        self._thread: Thread | None = None

    def close(self) -> None:
        """Stop reading."""
        self.ring.stop()
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
            if self._thread.is_alive():
                return  # it waits for a pipe that is silent, and ends with this process
        if self._content is not None:
            self._content.close()
        self.ring.close()
        os.close(self.wake_file)
        os.close(self._waker)

    def iter_filled(self, units: Iterable[Unit]) -> Iterator[Unit | None]:
        """Yield units as they become ready; None while the next one is not.

        `units` is walked through in the thread that reads, just ahead of it, so it may ask
        `lengths` where an input ends.
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
        """Let the place of the oldest unit be used again."""
        if unit.window is not None:
            self.ring.let_go()

    def fill_sample(self, unit: Unit) -> Unit | None:
        """Fill one unit at the start of a stream, before the run; None if nothing is there."""
        return self._reach(unit).fill(unit, is_sample=True)

    def _pump(self, units: Iterable[Unit]) -> None:
        try:
            for unit in units:
                filled = self._fill(unit) if unit.source.is_stream else unit
                if filled is not None:
                    self._put(filled)
        except RingClosedError:
            pass
        except BaseException as error:  # noqa: BLE001 the thread's border: raised where units are taken
            self._failure = error
        with self._changed:
            self._is_done = True
        self._wake()

    def _fill(self, unit: Unit) -> Unit | None:
        content = self._reach(unit)
        filled = content.fill(unit)
        if content.size < UNKNOWN_END:
            self.lengths[unit.source_idx] = content.size
        return filled

    def _reach(self, unit: Unit) -> FedContent:
        """Go on with the stream that is open, or begin another."""
        if self._content is None or not self._content.can_show(unit):
            if self._content is not None:
                self._content.close()
            self._content = FedContent(unit, self.ring, self._options, self.expected)
        return self._content

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
