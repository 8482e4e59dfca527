"""The content of one stream on its way through the ring: what of it lies where.

It reads on as far as a unit sees, passes over what an earlier run has done, covers all with a
digest and finds where records begin; documents it leaves to the readers. `feed` asks it for one
unit after the other.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import xxhash

from penstok.errors import ConflictError, InputError
from penstok.inputs.files import MAX_LINE_BYTES
from penstok.inputs.streams import ContentStream
from penstok.kernel import find_kernel_function
from penstok.readers.csv.header import DELIMITERS, read_header
from penstok.readers.csv.scan import CsvScanner
from penstok.types import UNKNOWN_END, Passed, Window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstok.inputs.ring import Ring
    from penstok.types import OnError, Unit

__all__ = ["LONGEST_LOOK_BYTES", "MAX_CARRIED_BYTES", "FedContent", "ReadOptions"]

# How far readers of text look before a unit's start and behind its end (`readers.borders`).
_BEHIND_BYTES = 4 << 20
_AHEAD_BYTES = 7 << 20
# An end of the input that lies this near behind a unit's end is told to it.
_NEAR_BYTES = 4 << 20
_HEAD_BYTES = 4
_PIECE_BYTES = 1 << 20
LONGEST_LOOK_BYTES = _BEHIND_BYTES + max(MAX_LINE_BYTES, _AHEAD_BYTES) + 2 * _PIECE_BYTES
# No more than this is copied to begin again at the start of the ring.
MAX_CARRIED_BYTES = 12 << 20


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How streams are read.

    Attributes:
        wrap_bytes: A unit that would begin behind this begins at the ring's start instead, if it
            can: the rest of the ring is for long lines, and is no memory until one comes.
        on_error: End a damaged stream at the damage, or stop there.
        max_window_bytes: The most that a decoder may keep to look back into.
        give_back: Hand pages that were read back to the system.
    """

    wrap_bytes: int
    on_error: OnError
    max_window_bytes: int
    give_back: bool


class FedContent:
    """A stream while it is read.

    Attributes:
        size: How long its content is; `UNKNOWN_END` before its end was seen.
    """

    def __init__(
        self,
        unit: Unit,
        ring: Ring,
        options: ReadOptions,
        expected: Mapping[tuple[int, int], str],
    ) -> None:
        """Open the stream of a unit.

        Args:
            unit: One of its units.
            ring: What it is read into.
            options: How.
            expected: By input and position, the digest that content must have up to there.
        """
        self.size = UNKNOWN_END
        self._source = source = unit.source
        self._source_idx = unit.source_idx
        self._ring = ring
        self._options = options
        self._expected = expected
        # Where in the ring its first byte would lie, what of it was put there, up to where.
        self._base = ring.position
        self._first = self._filled = 0
        self._hashed = 0
        self._digest = xxhash.xxh3_64()
        self._head = b""
        self._problem = ""
        # A position, and where the first record at or after it begins.
        self._record = (0, 0)
        self._scanner: CsvScanner | None = None
        if source.format in DELIMITERS:
            self._head = read_header(source).raw
            self._scanner = CsvScanner(
                DELIMITERS[source.format], len(self._head), find_kernel_function("scan_csv")
            )
        self._stream = ContentStream(
            source,
            max_window_bytes=options.max_window_bytes,
            give_back=options.give_back,
            is_last=True,
        )

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def can_show(self, unit: Unit) -> bool:
        """Tell whether what a unit sees has not been passed; else it must be opened again."""
        start = _first_seen(unit)
        return (
            unit.source_idx == self._source_idx
            and start >= self._first
            and self._ring.holds(self._base + start)
            and (self._scanner is None or unit.start >= self._scanner.wanted)
        )

    def fill(self, unit: Unit, *, is_sample: bool = False) -> Unit | None:
        """Read until all that can be seen from a unit is in the ring; None if it is not there.

        A sample is not covered by a digest, and leaves everything where it was: the run begins
        there.
        """
        start, is_text = _first_seen(unit), unit.source.format == "text"
        if self._filled < start:
            self._pass_over(start)
        # Before more is read: what lies before the unit may be written over then.
        self._scan_to(start)
        self._ring.hold(self._base + start)
        self._begin_again(start)
        self._read_to(unit.end + (_AHEAD_BYTES if is_text else 1))
        if unit.start >= self.size:
            self._ring.drop_hold()
            return None
        borders = None if is_text else self._find_borders(unit, is_sample=is_sample)
        known_end = min(unit.source_end, self.size)
        return replace(
            unit,
            end=min(unit.end, self.size),
            source_end=known_end if known_end <= unit.end + _NEAR_BYTES else UNKNOWN_END,
            passed=Passed(self._stream.stored_position, "") if is_sample else self._cover(unit),
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

    def _digest_at(self, position: int) -> str:
        """Return the hash of all content up to a position, which must not lie before the last."""
        for view in self._ring.iter_views(
            self._base + self._hashed, self._base + min(position, self._filled)
        ):
            self._digest.update(view)
            self._hashed += len(view)
        return self._digest.hexdigest()

    def _cover(self, unit: Unit) -> Passed:
        """Cover the content up to a unit's end; refuse what is not what it was."""
        before = self._digest_at(unit.start)
        is_same = self._expected.get((self._source_idx, unit.start), before) == before
        passed = Passed(self._stream.stored_position, self._digest_at(min(unit.end, self.size)))
        if not is_same or (unit.passed is not None and unit.passed.digest != passed.digest):
            raise ConflictError(
                "the input holds other text than when it was read before",
                where=f"{self._source.path}, content byte 0 to {unit.end}",
                next_step="bring back the input the job used, or make the output anew with "
                "`--overwrite`",
            )
        return passed

    def _pass_over(self, position: int) -> None:
        """Read on without the ring: what lies before was done by an earlier run."""
        self._digest_at(self._filled)
        self._scan_to(self._filled)
        scratch = memoryview(bytearray(_PIECE_BYTES))
        while self._filled < position and self.size == UNKNOWN_END:
            self._ring.refuse_closed()
            count = self._read(scratch[: position - self._filled])
            self._digest.update(scratch[:count])
            if self._scanner is not None:
                unseen = self._filled - self._scanner.position
                self._scanner.pass_over(scratch[max(count - unseen, 0) : count])
            self._hashed = self._filled
        self._base = self._ring.position - self._filled
        self._first = self._filled

    def _begin_again(self, start: int) -> None:
        """Begin again at the ring's start, with what was read of a unit, if that is not long."""
        ring = self._ring
        source, carried = self._base + start, self._filled - start
        at = source % ring.num_bytes
        is_behind = at + carried == ring.position % ring.num_bytes >= self._options.wrap_bytes
        if not is_behind or not 0 <= carried <= min(MAX_CARRIED_BYTES, at - 1):
            return
        self._digest_at(start)
        ring.begin_again()
        self._base, self._first = ring.position - start, start
        left = ring.view(source, source + carried)
        while left:
            room = ring.wait_for_room(len(left))
            room[:] = left[: len(room)]
            left = left[len(room) :]
            ring.position += len(room)
        ring.move_hold(self._base + start)

    def _read_to(self, position: int) -> None:
        """Read on into the ring, up to a position or the end."""
        while self._filled < position and self.size == UNKNOWN_END:
            self._ring.position += self._read(self._ring.wait_for_room(_PIECE_BYTES))

    def _read(self, room: memoryview) -> int:
        count = 0
        try:
            count = self._stream.readinto(room)
        except InputError as error:
            if self._options.on_error == "stop":
                raise
            self._problem = f"{error.what} ({error.where})"
        if self._scanner is None and self._filled < _HEAD_BYTES:
            self._head = (self._head + bytes(room[:count]))[:_HEAD_BYTES]
        self._filled += count
        if not count:
            self.size = self._filled
        return count

    def _find_borders(self, unit: Unit, *, is_sample: bool) -> tuple[int, int]:
        """Find the first record at or after a unit's start, and at or after its end."""
        if self._scanner is not None:
            scanner = copy.copy(self._scanner) if is_sample else self._scanner
            first = self._scan_to_record(scanner, unit.start)
            return first, self._scan_to_record(scanner, unit.end)
        borders = self._find_line(unit.start), self._find_line(unit.end)
        self._record = unit.end, borders[1]
        return borders

    def _find_line(self, position: int) -> int:
        """Find the first line that begins at or after a position."""
        if position == 0:
            return 0
        if position == self._record[0]:
            return self._record[1]
        at, limit = position - 1, position + MAX_LINE_BYTES
        while True:
            stop = min(self._filled, limit)
            found = self._ring.find(b"\n", self._base + at, self._base + stop)
            if found >= 0:
                return found - self._base + 1
            if self.size < UNKNOWN_END and stop == self._filled:
                return self.size
            if stop == limit:
                raise InputError(
                    f"a line of more than {MAX_LINE_BYTES >> 20} MiB",
                    where=f"{self._source.path}, it goes on at content byte {position}",
                    next_step="decompress the input to a file and pass that: there "
                    "`--on-error skip` leaves such lines out",
                )
            at = stop
            self._read_to(self._filled + 1)

    def _scan_to(self, position: int) -> None:
        if self._scanner is not None:
            start = self._base + self._scanner.position
            for view in self._ring.iter_views(start, self._base + position):
                self._scanner.pass_over(view)

    def _scan_to_record(self, scanner: CsvScanner, position: int) -> int:
        """Find the first record of CSV that begins at or after a position."""
        while True:
            start, left = self._base + scanner.position, self._filled - scanner.position
            found = scanner.find_record(position, self._ring.view(start, start + max(left, 0)))
            if found is not None:
                return found
            if scanner.position < self._filled:
                continue
            if self.size < UNKNOWN_END:
                return self.size
            if self._filled >= position + MAX_LINE_BYTES:
                raise InputError(
                    f"a record of more than {MAX_LINE_BYTES >> 20} MiB"
                    + " (a quote that is never closed?)" * scanner.is_quoted,
                    where=f"{self._source.path}, it goes on at content byte {position}",
                    next_step="mend it, or pass `--input-format text --docs-by line` to take "
                    "each line as it stands",
                )
            self._read_to(self._filled + 1)


def _first_seen(unit: Unit) -> int:
    """Return the first byte that can be seen from a unit: of records only the one before it."""
    behind = _BEHIND_BYTES if unit.source.format == "text" else 1
    return max(unit.start - behind, 0)
