"""Plain text: documents between separators, one per line, or one per file.

It reads a unit into one reused buffer and yields blocks that refer to it; no document is copied. It
decides no split and repairs no text; the worker does. `borders` finds where units begin.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from penstok.kernel import find_kernel_function
from penstok.readers.borders import Borders, overlaps_itself, refuse_long_document
from penstok.readers.buffer import UnitBuffer
from penstok.types import UNKNOWN_END, Block, Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.types import SkippedRecord, Unit

__all__ = ["HEAD_BYTES", "TextReader"]

# A document's split depends on its first bytes only, so that a unit never needs the rest.
HEAD_BYTES = 1 << 16
# Bounds the memory for positions where documents are short.
_MAX_BLOCK_DOCUMENTS = 1 << 15
_CARRIAGE_RETURN = 0x0D


class _Region(Struct, frozen=True):
    """The part of a file that belongs to a unit; positions in it count from `start`."""

    start: int
    size: int
    begins: bool
    closes: bool
    forced_cuts: list[int]

    def next_forced(self, position: int) -> int:
        """Return the first forced cut after `position`; the region's size if there is none."""
        idx = bisect_right(self.forced_cuts, position)
        return self.forced_cuts[idx] if idx < len(self.forced_cuts) else self.size

    def last_forced(self, start: int, end: int) -> int:
        """Return the last forced cut between two positions; `start` if there is none."""
        idx = bisect_left(self.forced_cuts, end) - 1
        return max(self.forced_cuts[idx], start) if idx >= 0 else start


class TextReader:
    """Reads documents between separators; without a separator, one file is one document."""

    def __init__(self, cuts: CutRule, options: ReaderOptions) -> None:
        self._rule = options.rule
        self._cuts = cuts
        self._options = options
        self._buffer = UnitBuffer(find_kernel_function("find_all"))
        self._counts = Counts()
        self._path = ""

    def take_counts(self) -> Counts:
        """Return what was seen and dropped since the last call."""
        counts, self._counts = self._counts, Counts()
        return counts

    def take_skipped(self) -> list[SkippedRecord]:
        """Return nothing: in plain text there are no bad records."""
        return []

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the pieces of a unit in order; each block is valid until the next one."""
        self._path = unit.source.path
        with self._options.open_unit(unit) as file:
            borders = Borders(file, self._rule.separator, self._cuts)
            start, begins = borders.unit_border(unit.start)
            end, closes = borders.unit_border(unit.end)
            if start >= end:
                if borders.size == borders.text_start:
                    self._counts += Counts(
                        input_bytes=borders.size, byte_order_marks=1, empty_documents=1
                    )
                return
            self._buffer.load(file, start, min(end + HEAD_BYTES, borders.size))
            forced = [cut - start for cut in borders.forced_cuts(start, end)]
            if unit.source_end < UNKNOWN_END:
                closes |= end >= borders.unit_border(unit.source_end)[0]
            region = _Region(start, end - start, begins, closes, forced)
            self._counts += self._buffer.count_unit(
                0, region.size, borders.mark_bytes(start), forced
            )
            yield from self._iter_region(region, borders)
            if self._options.give_back:
                file.give_back(start, end)

    def _iter_region(self, region: _Region, borders: Borders) -> Iterator[Block]:
        """Yield many short documents per block, and long documents in pieces."""
        position, begins = 0, region.begins
        length = len(self._rule.separator)
        while position < region.size:
            separators = self._find_separators(position, region)
            # A document with a forced cut is long; those before it share a block.
            before_cut = np.searchsorted(separators, region.next_forced(position), "right")
            separators = separators[:before_cut]
            if len(separators):
                starts = np.concatenate(([position], separators[:-1] + length))
                yield from self._iter_short(starts, separators, begins=begins)
                position = int(separators[-1]) + length
            else:
                end = self._find_end(position, region)
                yield from self._iter_long(position, end, region, borders, begins=begins)
                position = end + length
            begins = True

    def _find_separators(self, position: int, region: _Region) -> NDArray[np.int64]:
        """Find the separators in the text of the next block."""
        separator = self._rule.separator
        limit = min(position + self._options.block_bytes, region.size)
        if not separator:
            return np.empty(0, np.int64)
        if not overlaps_itself(separator):
            return self._buffer.find_all(separator, position, limit, _MAX_BLOCK_DOCUMENTS)
        positions: list[int] = []
        while len(positions) < _MAX_BLOCK_DOCUMENTS:
            position = self._buffer.find(separator, position, limit)
            if position < 0:
                break
            positions.append(position)
            position += len(separator)
        return np.array(positions, np.int64)

    def _find_end(self, position: int, region: _Region) -> int:
        """Find where the document at `position` ends inside the region."""
        if not self._rule.separator:
            return region.size
        end = self._buffer.find(self._rule.separator, position, region.size)
        return region.size if end < 0 else end

    def _iter_short(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64], *, begins: bool
    ) -> Iterator[Block]:
        """Yield one block of whole documents; the first may have begun in the previous unit."""
        if self._rule.kind == "line":
            before_end = self._buffer.array(0, int(ends[-1]) + 1)[np.maximum(ends - 1, 0)]
            ends = ends - ((before_end == _CARRIAGE_RETURN) & (ends > starts))
        if self._options.strip:
            starts, ends = self._trim_all(starts, ends, begins=begins)
        kept = ends > starts
        kept[0] |= not begins
        if not kept.all():
            self._counts += Counts(empty_documents=int(len(kept) - kept.sum()))
        starts, ends, begun = starts[kept], ends[kept], np.ones(int(kept.sum()), np.bool_)
        if not len(starts):
            return
        begun[0] = begins or not kept[0]
        heads = self._heads(starts, ends)
        yield self._block(starts, ends, begun, np.ones(len(starts), np.bool_), heads)

    def _iter_long(
        self, start: int, end: int, region: _Region, borders: Borders, *, begins: bool
    ) -> Iterator[Block]:
        """Yield one document, or its part in the region, divided at cuts."""
        closes = end < region.size or region.closes
        if self._rule.kind == "line" and self._ends_with_return(start, end, region):
            end -= 1
        # With a forced cut, the rest may belong to another unit, so it may not be empty.
        may_be_empty = begins and closes and region.next_forced(start) >= end
        if self._options.strip and begins:
            # Not past a forced cut: the unit on its other side, if there is one, strips nothing.
            start = self._buffer.trim_left(start, min(region.next_forced(start), end))
        if self._options.strip and closes:
            end = self._buffer.trim_right(region.last_forced(start, end), end)
        if may_be_empty and start == end:
            self._counts += Counts(empty_documents=1)
            return
        limit = np.array([end if closes else start + HEAD_BYTES])
        head = int(self._heads(np.array([start]), limit)[0])
        at = start
        while True:
            stop = min(region.next_forced(at), end)
            is_divided = self._cuts.max_document_bytes is None
            if is_divided and stop - at > self._options.block_bytes:
                wanted = region.start + at + self._options.block_bytes
                stop = min(borders.next_border(wanted) - region.start, stop)
            yield self._block(
                np.array([at], np.int64),
                np.array([stop], np.int64),
                np.array([begins and at == start]),
                np.array([closes and stop == end]),
                np.array([head if at == start else at], np.int64),
            )
            if stop == end:
                return
            at = stop

    def _ends_with_return(self, start: int, end: int, region: _Region) -> bool:
        return start < end < region.size and self._buffer.view[end - 1] == _CARRIAGE_RETURN

    def _trim_all(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64], *, begins: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Strip whole documents; the first is stripped at its start only if it begins here."""
        trim_left, trim_right = self._buffer.trim_left, self._buffer.trim_right
        trimmed = starts.copy()
        first = 0 if begins else 1
        pairs = zip(starts[first:].tolist(), ends[first:].tolist(), strict=True)
        trimmed[first:] = [trim_left(start, end) for start, end in pairs]
        pairs = zip(trimmed.tolist(), ends.tolist(), strict=True)
        return trimmed, np.array([trim_right(start, end) for start, end in pairs], np.int64)

    def _heads(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the text that decides each document's split ends."""
        heads = np.minimum(ends, starts + HEAD_BYTES)
        if not self._options.strip:
            return heads
        # A long document is stripped at its end, maybe units later; its head must not depend on it.
        pairs = zip(starts.tolist(), heads.tolist(), strict=True)
        return np.array([self._buffer.trim_right(start, head) for start, head in pairs], np.int64)

    def _block(
        self,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        begins: NDArray[np.bool_],
        closes: NDArray[np.bool_],
        heads: NDArray[np.int64],
    ) -> Block:
        limit = self._cuts.max_document_bytes
        if limit is not None and (too_long := np.flatnonzero(ends - starts > limit)).size:
            position = self._buffer.origin + int(starts[too_long[0]])
            raise refuse_long_document(f"{self._path}, byte {position}", limit)
        special = self._buffer.mark(self._options.special_text, starts, ends)
        return Block(
            self._buffer.view, starts, ends, begins, closes, heads, special, self._buffer.origin
        )
