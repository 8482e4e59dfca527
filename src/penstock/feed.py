"""Reads streams once and shows them to all workers: from inputs to windows in a ring.

A thread of the parent reads ahead as far as the ring has room; a place is used again when the unit
that was read from it is written, so a worker may die and its unit be done again. It tells no
documents apart: of records it finds the starts, the rest the readers do.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections import deque
from dataclasses import dataclass, field, replace
from threading import Condition, Thread
from typing import TYPE_CHECKING

import xxhash

from penstock.csv_header import DELIMITERS, read_header
from penstock.csv_scan import CsvScanner
from penstock.decompress import MAX_WINDOW_BYTES
from penstock.engines.native import find_native
from penstock.errors import ConflictError, InputError
from penstock.inputs import MAX_LINE_BYTES
from penstock.ring import Ring
from penstock.streams import ContentStream
from penstock.types import UNKNOWN_END, MemoryNeeds, Passed, Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.types import OnError, Source, Unit

__all__ = ["Feed", "feed_needs", "make_feed"]

# How far readers of text look before a unit's start and behind its end (`readers.borders`).
_BEHIND_BYTES = 4 << 20
_AHEAD_BYTES = 7 << 20
# An end of the input that lies this near behind a unit's end is told to it.
_NEAR_BYTES = 4 << 20
_HEAD_BYTES = 4
_PIECE_BYTES = 1 << 20
_LONGEST_LOOK_BYTES = _BEHIND_BYTES + max(MAX_LINE_BYTES, _AHEAD_BYTES) + 2 * _PIECE_BYTES
# No more than this is copied to begin again at the start of the ring.
_MAX_CARRIED_BYTES = 12 << 20
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
    return Feed(
        _LONGEST_LOOK_BYTES + unit_bytes * (2 * num_workers - 1),
        wrap_bytes=_MAX_CARRIED_BYTES + 2 * unit_bytes * num_workers,
        on_error=on_error,
        max_window_bytes=_window_bytes(sources),
        give_back=give_back,
    )


def feed_needs(sources: Sequence[Source], unit_bytes: int) -> MemoryNeeds:
    """Return the memory a feed takes: two units a worker, once the longest look, and a decoder."""
    if not any(source.is_stream for source in sources):
        return MemoryNeeds(0, 0)
    shared_bytes = _LONGEST_LOOK_BYTES - unit_bytes + _window_bytes(sources)
    return MemoryNeeds(shared_bytes, 2 * unit_bytes)


def _window_bytes(sources: Sequence[Source]) -> int:
    """Return how far a decoder may look back: as far as the first bytes of some input ask for."""
    return min(max(source.window_bytes for source in sources), MAX_WINDOW_BYTES)


class _ClosedError(Exception):
    """Nobody wants what is being read any more."""


@dataclass(slots=True)
class _Content:
    """A stream while it is read: what of its content lies where in the ring.

    Attributes:
        base: Where in the ring its first byte would lie.
        first: The first byte that was put into the ring.
        filled: Behind the last.
        size: How long it is.
        hashed: How far `digest` covers it.
        record: A position, and where the first record at or after it begins.
        scanner: Finds records that are no lines.
    """

    source_idx: int
    source: Source
    stream: ContentStream
    base: int
    first: int = 0
    filled: int = 0
    size: int = UNKNOWN_END
    head: bytes = b""
    hashed: int = 0
    digest: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)
    record: tuple[int, int] = (0, 0)
    scanner: CsvScanner | None = None
    problem: str = ""


class Feed:
    """Fills units of streams; use it in a `with`.

    Attributes:
        lengths: How long the content of an input is, once its end was seen.
        expected: The digest that content must have up to a position, where a run goes on.
        wake_file: Has something to read whenever a unit became ready.
    """

    def __init__(
        self,
        num_bytes: int,
        *,
        wrap_bytes: int,
        on_error: OnError,
        max_window_bytes: int,
        give_back: bool,
    ) -> None:
        """Make a ring to read into.

        Args:
            num_bytes: The size of the ring, enough for the longest look.
            wrap_bytes: A unit that would begin behind this begins at the ring's start instead, if
                it can: the rest of the ring is for long lines, and is no memory until one comes.
            on_error: End a damaged stream at the damage, or stop there.
            max_window_bytes: The most that a decoder may keep to look back into.
            give_back: Hand pages that were read back to the system.
        """
        self.ring = Ring(num_bytes)
        self.lengths: dict[int, int] = {}
        self.expected: dict[tuple[int, int], str] = {}
        self.wake_file, self._waker = os.pipe()
        os.set_blocking(self.wake_file, False)
        os.set_blocking(self._waker, False)
        self._num_bytes = num_bytes
        self._wrap_bytes = wrap_bytes
        self._on_error = on_error
        self._max_window_bytes = max_window_bytes
        self._give_back = give_back
        self._content: _Content | None = None
        self._written = 0
        self._held: deque[int] = deque()
        self._ready: deque[Unit] = deque()
        self._failure: BaseException | None = None
        self._is_done = False
        self._is_closing = False
        self._changed = Condition()
        self._thread: Thread | None = None

    def close(self) -> None:
        """Stop reading."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
            if self._thread.is_alive():
                return  # it waits for a pipe that is silent, and ends with this process
        if self._content is not None:
            self._content.stream.close()
        self.ring.close()
        os.close(self.wake_file)
        os.close(self._waker)

    @property
    def stored_position(self) -> int:
        """How much of the input that is open, as it is stored, has been read."""
        return 0 if self._content is None else self._content.stream.stored_position

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
            with self._changed:
                self._held.popleft()
                self._changed.notify_all()

    def fill_sample(self, unit: Unit) -> Unit | None:
        """Fill one unit at the start of a stream, before the run; None if nothing is there."""
        return self._fill(unit, is_sample=True)

    def _pump(self, units: Iterable[Unit]) -> None:
        try:
            for unit in units:
                filled = self._fill(unit) if unit.source.is_stream else unit
                if filled is not None:
                    self._put(filled)
        except _ClosedError:
            pass
        except BaseException as error:  # noqa: BLE001 the thread's border: raised where units are taken
            self._failure = error
        with self._changed:
            self._is_done = True
        self._wake()

    def _put(self, unit: Unit) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or len(self._ready) < _MAX_READY_UNITS)
            if self._is_closing:
                raise _ClosedError
            self._ready.append(unit)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"\0")

    def _fill(self, unit: Unit, *, is_sample: bool = False) -> Unit | None:
        """Read until all that can be seen from a unit is in the ring; None if it is not there."""
        is_text = unit.source.format == "text"
        start = max(unit.start - (_BEHIND_BYTES if is_text else 1), 0)
        content = self._reach(unit, start)
        with self._changed:
            self._held.append(content.base + start)
        self._wrap(content, start)
        self._read_to(content, unit.end + (_AHEAD_BYTES if is_text else 1))
        if unit.start >= content.size:
            with self._changed:
                self._held.pop()
            return None
        borders = None
        if content.scanner is not None:
            # A sample leaves the scanner where it was: the run begins at the same place.
            scanner = copy.copy(content.scanner) if is_sample else content.scanner
            first = self._scan_to_record(content, scanner, unit.start)
            borders = first, self._scan_to_record(content, scanner, unit.end)
        elif not is_text:
            borders = self._find_record(content, unit.start), self._find_record(content, unit.end)
            content.record = unit.end, borders[1]
        known_end = min(unit.source_end, content.size)
        window = Window(
            base=content.base,
            start=start,
            end=content.filled,
            size=content.size,
            head=content.head,
            borders=borders,
            problem=content.problem if unit.end >= content.size else "",
        )
        return replace(
            unit,
            end=min(unit.end, content.size),
            source_end=known_end if known_end <= unit.end + _NEAR_BYTES else UNKNOWN_END,
            passed=None if is_sample else self._pass(content, unit),
            window=window,
        )

    def _reach(self, unit: Unit, start: int) -> _Content:
        """Go on with the stream that is open, or begin another, up to what the unit sees first."""
        content = self._content
        if (
            content is None
            or content.source_idx != unit.source_idx
            or start < max(content.first, self._written - self._num_bytes - content.base)
            or (content.scanner is not None and unit.start < content.scanner.wanted)
        ):
            content = self._open(unit)
        if content.filled < start:
            self._skip_to(content, start)
        # Before more is read: what lies before the unit may be written over then.
        self._scan_to(content, start)
        return content

    def _open(self, unit: Unit) -> _Content:
        if self._content is not None:
            self._content.stream.close()
        source = unit.source
        header = read_header(source) if source.format in DELIMITERS else None
        stream = ContentStream(
            source,
            max_window_bytes=self._max_window_bytes,
            give_back=self._give_back,
            is_last=True,
        )
        self._content = content = _Content(unit.source_idx, source, stream, self._written)
        if header is not None:
            content.head = header.raw
            content.scanner = CsvScanner(
                DELIMITERS[source.format], len(header.raw), find_native("scan_csv")
            )
        return content

    def _skip_to(self, content: _Content, position: int) -> None:
        """Read on without the ring: what lies before was done by an earlier run."""
        self._hash_to(content, content.filled)
        self._scan_to(content, content.filled)
        scratch = memoryview(bytearray(_PIECE_BYTES))
        while content.filled < position and content.size == UNKNOWN_END:
            with self._changed:
                if self._is_closing:
                    raise _ClosedError
            count = self._read(content, scratch[: position - content.filled])
            content.digest.update(scratch[:count])
            if content.scanner is not None:
                unseen = content.filled - content.scanner.position
                content.scanner.pass_over(scratch[max(count - unseen, 0) : count])
            content.hashed = content.filled
        content.base = self._written - content.filled
        content.first = content.filled

    def _wrap(self, content: _Content, start: int) -> None:
        """Begin again at the ring's start, with what was read of a unit, if that is not long."""
        source, carried = content.base + start, content.filled - start
        at = source % self._num_bytes
        is_behind = at + carried == self._written % self._num_bytes >= self._wrap_bytes
        if not is_behind or not 0 <= carried <= min(_MAX_CARRIED_BYTES, at - 1):
            return
        self._hash_to(content, start)
        self._written = -(-self._written // self._num_bytes) * self._num_bytes
        content.base, content.first = self._written - start, start
        left = self.ring.room(source, source + carried)
        while left:
            end = self._wait_for_room()
            room = self.ring.room(self._written, min(end, self._written + len(left)))
            room[:] = left[: len(room)]
            left = left[len(room) :]
            self._written += len(room)
        with self._changed:
            self._held[-1] = content.base + start

    def _read_to(self, content: _Content, position: int) -> None:
        """Read on into the ring, up to a position or the end."""
        while content.filled < position and content.size == UNKNOWN_END:
            end = self._wait_for_room()
            room = self.ring.room(self._written, min(end, self._written + _PIECE_BYTES))
            count = self._read(content, room)
            self._written += count

    def _wait_for_room(self) -> int:
        """Wait until something can be written; return up to where."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closing or self._held[0] + self._num_bytes > self._written
            )
            if self._is_closing:
                raise _ClosedError
            return self._held[0] + self._num_bytes

    def _read(self, content: _Content, room: memoryview) -> int:
        count = 0
        try:
            count = content.stream.readinto(room)
        except InputError as error:
            if self._on_error == "stop":
                raise
            content.problem = f"{error.what} ({error.where})"
        if content.scanner is None and content.filled < _HEAD_BYTES:
            content.head = (content.head + bytes(room[:count]))[:_HEAD_BYTES]
        content.filled += count
        if not count:
            content.size = self.lengths[content.source_idx] = content.filled
        return count

    def _find_record(self, content: _Content, position: int) -> int:
        """Find the first line that begins at or after a position."""
        if position == 0:
            return 0
        if position == content.record[0]:
            return content.record[1]
        at, limit = position - 1, position + MAX_LINE_BYTES
        while True:
            stop = min(content.filled, limit)
            found = self.ring.find(b"\n", content.base + at, content.base + stop)
            if found >= 0:
                return found - content.base + 1
            if content.size < UNKNOWN_END and stop == content.filled:
                return content.size
            if stop == limit:
                raise InputError(
                    f"a line of more than {MAX_LINE_BYTES >> 20} MiB",
                    where=f"{content.source.path}, it goes on at content byte {position}",
                    next_step="decompress the input to a file and pass that: there "
                    "`--on-error skip` leaves such lines out",
                )
            at = stop
            self._read_to(content, content.filled + 1)

    def _scan_to_record(self, content: _Content, scanner: CsvScanner, position: int) -> int:
        """Find the first record of CSV that begins at or after a position."""
        while True:
            start, left = content.base + scanner.position, content.filled - scanner.position
            found = scanner.find_record(position, self.ring.room(start, start + max(left, 0)))
            if found is not None:
                return found
            if scanner.position < content.filled:
                continue
            if content.size < UNKNOWN_END:
                return content.size
            if content.filled >= position + MAX_LINE_BYTES:
                raise InputError(
                    f"a record of more than {MAX_LINE_BYTES >> 20} MiB"
                    + " (a quote that is never closed?)" * scanner.is_quoted,
                    where=f"{content.source.path}, it goes on at content byte {position}",
                    next_step="mend it, or pass `--input-format text --docs-by line` to take "
                    "each line as it stands",
                )
            self._read_to(content, content.filled + 1)

    def _scan_to(self, content: _Content, position: int) -> None:
        if content.scanner is not None:
            for view in self.ring.iter_views(
                content.base + content.scanner.position, content.base + position
            ):
                content.scanner.pass_over(view)

    def _pass(self, content: _Content, unit: Unit) -> Passed:
        """Cover the content up to a unit's end; refuse what is not what it was."""
        self._hash_to(content, unit.start)
        before = self.expected.get((unit.source_idx, unit.start))
        is_same = before is None or before == content.digest.hexdigest()
        self._hash_to(content, min(unit.end, content.size))
        passed = Passed(content.stream.stored_position, content.digest.hexdigest())
        if not is_same or (unit.passed is not None and unit.passed.digest != passed.digest):
            raise ConflictError(
                "the input holds other text than when it was read before",
                where=f"{content.source.path}, content byte 0 to {unit.end}",
                next_step="bring back the input the job used, or make the output anew with "
                "`--overwrite`",
            )
        return passed

    def _hash_to(self, content: _Content, position: int) -> None:
        for view in self.ring.iter_views(
            content.base + content.hashed, content.base + min(position, content.filled)
        ):
            content.digest.update(view)
            content.hashed += len(view)
