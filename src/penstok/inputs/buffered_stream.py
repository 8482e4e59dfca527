"""One stream on its way through the ring: which part of its content is where.

It reads ahead as far as a unit needs, skips what an earlier run finished, hashes everything and
asks a `RecordScanner` where records begin; documents are left to the readers. `feed` asks it for
one unit after the other.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING

import xxhash

from penstok.errors import ConflictError, InputError
from penstok.inputs.base import MAX_LINE_BYTES
from penstok.inputs.streams import ContentStream
from penstok.types import UNKNOWN_END, StreamCheckpoint, Struct, Window, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstok.inputs.base import OpenScanner, RecordScanner
    from penstok.inputs.ring import Ring
    from penstok.types import OnError, Unit

__all__ = ["LONGEST_WINDOW_BYTES", "BufferedStream", "StreamOptions"]

# How far readers of text read before a unit's start and after its end (`readers.borders`).
_BEHIND_BYTES = 4 << 20
_AHEAD_BYTES = 7 << 20
# If the input ends this close after a unit, the unit is given its end.
_NEAR_BYTES = 4 << 20
_HEAD_BYTES = 4
_PIECE_BYTES = 1 << 20
LONGEST_WINDOW_BYTES = _BEHIND_BYTES + max(MAX_LINE_BYTES, _AHEAD_BYTES) + 2 * _PIECE_BYTES
# At most this much is copied to start again at the beginning of the ring.
_MAX_CARRIED_BYTES = 12 << 20
# About so much of a stream that will be read again stays in the ring. Nearly always the first
# document for val is found before; if not, more would be new memory and gain nothing.
_KEPT_BYTES = 32 << 20


class StreamOptions(Struct, frozen=True):
    """How streams are read.

    Attributes:
        open_scanner: Makes the scanner that finds the records of a stream.
        wrap_bytes: A unit that would begin at this offset of the ring or later begins at the
            ring's start instead, if it can: the rest is for long lines, and takes no memory until
            one comes.
        on_error: End a damaged stream at the damage, or stop there.
        max_window_bytes: The largest window that a decoder may use.
        give_back: Drop pages that were read from the page cache.
        keeps_head: Streams will be read again from their start: nothing of a short one is
            overwritten, and standard input keeps what was read of it.
    """

    open_scanner: OpenScanner
    wrap_bytes: int
    on_error: OnError
    max_window_bytes: int
    give_back: bool
    keeps_head: bool = False


class BufferedStream:
    """A stream that is being read into the ring.

    Attributes:
        size: The length of its content; `UNKNOWN_END` until its end is reached.
    """

    def __init__(
        self,
        unit: Unit,
        ring: Ring,
        options: StreamOptions,
        expected: Mapping[tuple[int, int], str],
    ) -> None:
        """Open the stream of a unit.

        Args:
            unit: One of its units.
            ring: Where its content goes.
            options: How it is read.
            expected: By input and position, the digest that the content before it must have.
        """
        self.size: int = UNKNOWN_END
        self._source = source = unit.source
        self._source_idx = unit.source_idx
        self._ring = ring
        self._options = options
        self._expected = expected
        # Ring position of the content's first byte; range of the content that was put there.
        self._base = ring.position
        self._first = self._filled = 0
        # Where each piece that was read ends, in the content and in the stored input; and those
        # that are ahead in the ring after `start_over`.
        self._pieces: list[tuple[int, int]] = []
        self._ahead: deque[tuple[int, int]] = deque()
        self._stored = 0
        self._hashed = 0
        self._digest = xxhash.xxh3_64()
        self._problem = ""
        # Before the stream: the scanner may read the head of standard input as well.
        self._scanner = options.open_scanner(source)
        self._first_scanner = copy.copy(self._scanner)
        self._head = b"" if self._scanner is None else self._scanner.head
        self._is_head_open = not self._head
        self._stream = ContentStream(
            source,
            max_window_bytes=options.max_window_bytes,
            give_back=options.give_back,
            is_last=not options.keeps_head,
        )

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def start_over(self, options: StreamOptions) -> bool:
        """Go back to the start if the ring still has all that was read; tell whether it has.

        From then on everything is as if that was read again, piece by piece.
        """
        if self._first or not self._ring.holds(self._base):
            return False
        self._options = options
        self._ahead.extend(self._pieces)
        self._scanner = copy.copy(self._first_scanner)
        self._ring.position = self._base
        self._filled = self._stored = self._hashed = 0
        self._digest = xxhash.xxh3_64()
        self.size = UNKNOWN_END
        self._stream.forget_head()
        return True

    def can_fill(self, unit: Unit) -> bool:
        """Tell whether a unit's content can still be had; else the stream must be opened again."""
        start = self._window_start(unit)
        return (
            unit.source_idx == self._source_idx
            and start >= self._first
            and self._ring.holds(self._base + start)
            and (self._scanner is None or unit.start >= self._scanner.wanted)
        )

    def fill(self, unit: Unit, *, is_sample: bool = False) -> Unit | None:
        """Read until the ring holds all that a unit needs; None if the content ends before it.

        A sample is not hashed and leaves the state as it was: the run starts from there.
        """
        start = self._window_start(unit)
        while self._filled < start and self._take_piece():
            pass
        if self._filled < start:
            self._skip_to(start)
        # Before more is read, which may overwrite what precedes the unit.
        self._scan_to(start)
        self._ring.hold(self._base + start)
        self._start_again(unit, start)
        self._read_to(unit.end + (_AHEAD_BYTES if self._scanner is None else 1))
        if unit.start >= self.size:
            self._ring.drop_hold()
            return None
        borders = self._find_borders(unit, is_sample=is_sample)
        known_end = min(unit.source_end, self.size)
        return replace(
            unit,
            end=min(unit.end, self.size),
            source_end=known_end if known_end <= unit.end + _NEAR_BYTES else UNKNOWN_END,
            passed=StreamCheckpoint(self._stored, "") if is_sample else self._verify(unit),
            window=Window(
                base=self._base,
                start=start,
                end=self._filled,
                size=self.size,
                head=self._head,
                borders=borders,
                problem=self._problem if unit.end >= self.size else "",
            ),
        )

    def _window_start(self, unit: Unit) -> int:
        """Return the first byte that a reader of the unit may ask for."""
        return max(unit.start - (_BEHIND_BYTES if self._scanner is None else 1), 0)

    def _digest_at(self, position: int) -> str:
        """Return the hash of all content before a position, which must not go back."""
        for view in self._ring.iter_views(
            self._base + self._hashed, self._base + min(position, self._filled)
        ):
            self._digest.update(view)
            self._hashed += len(view)
        return self._digest.hexdigest()

    def _verify(self, unit: Unit) -> StreamCheckpoint:
        """Hash the content up to a unit's end; refuse it if an earlier run read something else."""
        before = self._digest_at(unit.start)
        is_same = self._expected.get((self._source_idx, unit.start), before) == before
        passed = StreamCheckpoint(self._stored, self._digest_at(min(unit.end, self.size)))
        if not is_same or (unit.passed is not None and unit.passed.digest != passed.digest):
            raise ConflictError(
                "the input holds other text than when it was read before",
                where=f"{self._source.path}, content byte 0 to {unit.end}",
                next_step="restore the input the job used, or start again with `--overwrite`",
            )
        return passed

    def _skip_to(self, position: int) -> None:
        """Read on without the ring: an earlier run finished what comes before."""
        self._digest_at(self._filled)
        self._scan_to(self._filled)
        scratch = memoryview(bytearray(_PIECE_BYTES))
        while self._filled < position and self.size == UNKNOWN_END:
            self._ring.refuse_closed()
            count = self._read(scratch[: position - self._filled])
            self._digest.update(scratch[:count])
            if self._scanner is not None:
                unseen = self._filled - self._scanner.position
                self._scanner.skip(scratch[max(count - unseen, 0) : count])
            self._hashed = self._filled
        self._base = self._ring.position - self._filled
        self._first = self._filled

    def _start_again(self, unit: Unit, start: int) -> None:
        """Continue at the ring's start, with a copy of what a unit already has, if it is short.

        Args:
            unit: The unit.
            start: Where its window begins.
        """
        ring = self._ring
        source, carried = self._base + start, self._filled - start
        at = source % ring.num_bytes
        options = self._options
        wrap_bytes = min(options.wrap_bytes, _KEPT_BYTES if options.keeps_head else UNKNOWN_END)
        is_late = at + unit.start - start >= wrap_bytes
        is_whole = at + carried == ring.position % ring.num_bytes and not self._ahead
        if not (is_late and is_whole) or not 0 <= carried <= min(_MAX_CARRIED_BYTES, at - 1):
            return
        self._digest_at(start)
        ring.start_again()
        self._base, self._first = ring.position - start, start
        left = ring.view(source, source + carried)
        while left:
            room = ring.wait_for_room(len(left))
            room[:] = left[: len(room)]
            left = left[len(room) :]
            ring.advance(len(room))
        ring.move_hold(self._base + start)

    def _read_to(self, position: int) -> None:
        """Read into the ring, up to a position or the end."""
        while self._filled < position and self.size == UNKNOWN_END:
            if not self._take_piece():
                self._ring.advance(self._read(self._ring.wait_for_room(_PIECE_BYTES)))

    def _take_piece(self) -> bool:
        """Take the next piece that is in the ring already; return False if there is none."""
        if not self._ahead:
            return False
        end, self._stored = self._ahead.popleft()
        self._ring.position += end - self._filled
        self._move_to(end)
        return True

    def _read(self, room: memoryview) -> int:
        count = 0
        try:
            count = self._stream.readinto(room)
        except InputError as error:
            if self._options.on_error == "stop":
                raise
            self._problem = f"{error.what} ({error.where})"
        if self._is_head_open:
            self._head = (self._head + bytes(room[:count]))[:_HEAD_BYTES]
            self._is_head_open = len(self._head) < _HEAD_BYTES
        self._stored = self._stream.stored_position
        self._move_to(self._filled + count)
        if self._options.keeps_head:
            self._pieces.append((self._filled, self._stored))
        return count

    def _move_to(self, end: int) -> None:
        """Take note of a piece; an empty one ends the content."""
        if end == self._filled:
            self.size = end
        self._filled = end

    def _scan_to(self, position: int) -> None:
        if self._scanner is not None:
            start = self._base + self._scanner.position
            for view in self._ring.iter_views(start, self._base + position):
                self._scanner.skip(view)

    def _find_borders(self, unit: Unit, *, is_sample: bool) -> tuple[int, int] | None:
        """Find the first record at or after a unit's start, and at or after its end."""
        if self._scanner is None:
            return None
        scanner = copy.copy(self._scanner) if is_sample else self._scanner
        return self._find_record(scanner, unit.start), self._find_record(scanner, unit.end)

    def _find_record(self, scanner: RecordScanner, position: int) -> int:
        """Find the first record that begins at or after a position; at the end, the end."""
        limit = position + MAX_LINE_BYTES
        while True:
            start, stop = scanner.position, min(self._filled, limit)
            view = self._ring.view(self._base + start, self._base + max(start, stop))
            found = scanner.find_record(position, view)
            if found is not None:
                return found
            if scanner.position < stop:
                continue
            if self.size < UNKNOWN_END and stop == self._filled:
                return self.size
            if stop == limit:
                what, next_step = scanner.explain_long_record()
                raise InputError(
                    what,
                    where=f"{self._source.path}, it continues at content byte {position}",
                    next_step=next_step,
                )
            self._read_to(self._filled + 1)
