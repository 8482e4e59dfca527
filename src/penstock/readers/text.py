"""Plain text: documents between separators, one a line, or one a file.

It reads a unit into one reused buffer and yields blocks of pieces that point into it; no document
is copied. It decides no split and repairs no text: `worker` passes its blocks on for that.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.readers.borders import Borders, overlaps_itself
from penstock.readers.buffer import UnitBuffer
from penstock.sources import SourceFile
from penstock.types import Block, Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.readers.base import CutRule, TextOptions
    from penstock.types import DocumentRule, Unit

__all__ = ["HEAD_BYTES", "TextReader"]

# A document's split is decided by its first bytes, so that a unit never waits for the rest.
HEAD_BYTES = 1 << 16
# Bounds what the lists of documents cost where documents are short.
_MAX_BLOCK_DOCUMENTS = 1 << 15
_CARRIAGE_RETURN = 0x0D


@dataclass(frozen=True, slots=True)
class _Region:
    """What a unit owns of its file; positions inside count from `start`."""

    start: int
    size: int
    begins: bool
    closes: bool
    forced_cuts: list[int]

    def next_forced(self, position: int) -> int:
        """Return the first forced cut after `position`; the region's size if there is none."""
        idx = bisect_right(self.forced_cuts, position)
        return self.forced_cuts[idx] if idx < len(self.forced_cuts) else self.size


class TextReader:
    """Reads documents that a separator parts; without a separator, one file is one document."""

    def __init__(self, rule: DocumentRule, cuts: CutRule, options: TextOptions) -> None:
        self._rule = rule
        self._cuts = cuts
        self._options = options
        self._buffer = UnitBuffer()
        self._counts = Counts()

    def take_counts(self) -> Counts:
        """Return what was seen and dropped since the last call."""
        counts, self._counts = self._counts, Counts()
        return counts

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the pieces of a unit in order; a block is valid until the next one is asked for."""
        with SourceFile(unit.source) as file:
            borders = Borders(file, self._rule.separator, self._cuts)
            start, begins = borders.unit_border(unit.start)
            end, closes = borders.unit_border(unit.end)
            if start >= end:
                return
            self._buffer.load(file, start, min(end + HEAD_BYTES, borders.size))
            forced = [cut - start for cut in borders.forced_cuts(start, end)]
            region = _Region(start, end - start, begins, closes or unit.is_last, forced)
            self._counts += self._buffer.count_unit(
                0, region.size, borders.mark_bytes(start), forced
            )
            yield from self._iter_region(region, borders)
            if self._options.give_back:
                file.give_back(start, end)

    def _iter_region(self, region: _Region, borders: Borders) -> Iterator[Block]:
        """Take short documents many at a time and long ones in pieces."""
        position, begins = 0, region.begins
        length = len(self._rule.separator)
        while position < region.size:
            separators = self._find_separators(position, region)
            if len(separators) and separators[-1] <= region.next_forced(position):
                starts = np.concatenate(([position], separators[:-1] + length))
                yield from self._iter_short(starts, separators, begins=begins)
                position = int(separators[-1]) + length
            else:
                end = self._find_end(position, region)
                yield from self._iter_long(position, end, region, borders, begins=begins)
                position = end + length
            begins = True

    def _find_separators(self, position: int, region: _Region) -> NDArray[np.int64]:
        """Find the separators in the next block's worth of text."""
        separator = self._rule.separator
        limit = min(position + self._options.block_bytes, region.size)
        if not separator:
            return np.empty(0, np.int64)
        if not overlaps_itself(separator):
            return self._buffer.find_all(separator, position, limit)[:_MAX_BLOCK_DOCUMENTS]
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
        """Yield one block of whole documents; the first may have begun in the unit before."""
        if self._rule.kind == "line":
            before_end = self._buffer.array(0, int(ends[-1]) + 1)[np.maximum(ends - 1, 0)]
            ends = ends - ((before_end == _CARRIAGE_RETURN) & (ends > starts))
        if self._options.strip:
            trimmed = [
                self._buffer.trim(start, end, left=begins or idx > 0, right=True)
                for idx, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
            ]
            starts, ends = np.array(trimmed, np.int64).T
        kept = ends > starts
        kept[0] |= not begins
        if not kept.all():
            self._counts += Counts(empty_documents=int(len(kept) - kept.sum()))
        starts, ends, begun = starts[kept], ends[kept], np.ones(int(kept.sum()), np.bool_)
        if not len(starts):
            return
        begun[0] = begins or not kept[0]
        heads = np.minimum(ends, starts + HEAD_BYTES)
        yield self._block(starts, ends, begun, np.ones(len(starts), np.bool_), heads)

    def _iter_long(
        self, start: int, end: int, region: _Region, borders: Borders, *, begins: bool
    ) -> Iterator[Block]:
        """Yield one document, or what of it lies in the region, divided at cuts."""
        closes = end < region.size or region.closes
        start, end = self._trim_ends(start, end, region, begins=begins, closes=closes)
        if begins and closes and start == end:
            self._counts += Counts(empty_documents=1)
            return
        head = min(end, start + HEAD_BYTES) if closes else start + HEAD_BYTES
        at = start
        while True:
            stop = min(region.next_forced(at), end)
            if stop - at > self._options.block_bytes:
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

    def _trim_ends(
        self, start: int, end: int, region: _Region, *, begins: bool, closes: bool
    ) -> tuple[int, int]:
        ends_line = self._rule.kind == "line" and start < end < region.size
        if ends_line and self._buffer.view[end - 1] == _CARRIAGE_RETURN:
            end -= 1
        if self._options.strip:
            return self._buffer.trim(start, end, left=begins, right=closes)
        return start, end

    def _block(
        self,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        begins: NDArray[np.bool_],
        closes: NDArray[np.bool_],
        heads: NDArray[np.int64],
    ) -> Block:
        special = self._buffer.mark(self._options.special_text, starts, ends)
        return Block(
            self._buffer.view, starts, ends, begins, closes, heads, special, self._buffer.origin
        )
