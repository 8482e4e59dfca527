"""Plain text: documents between separators, one per line, or one per file.

It reads a unit through a reused window and yields blocks that refer to it; it copies no document,
decides no split and repairs no text; the worker does. `borders` finds where units begin.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

from penstok.kernel import find_kernel_function
from penstok.readers.borders import Borders, refuse_long_document
from penstok.readers.buffer import UnitBuffer
from penstok.types import UNKNOWN_END, Block, Counts, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstok.inputs.base import OpenInput
    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.types import SkippedRecord, Unit

__all__ = ["HEAD_BYTES", "TextReader"]

# A document's split depends on its first bytes only, so that a unit never needs the rest.
HEAD_BYTES = 1 << 16
# Bounds the memory for positions where documents are short.
_MAX_BLOCK_DOCUMENTS = 1 << 15
_CARRIAGE_RETURN = 0x0D
# Shared by all blocks of whole documents; read-only.
_WHOLE = np.ones(_MAX_BLOCK_DOCUMENTS, np.bool_)
_WHOLE.flags.writeable = False


class _Region(Struct, frozen=True):
    """The part of a file that belongs to a unit."""

    start: int
    end: int
    begins: bool
    closes: bool
    forced_cuts: list[int]

    def next_forced(self, position: int) -> int:
        """Return the first forced cut after `position`; the region's end if there is none."""
        idx = bisect_right(self.forced_cuts, position)
        return self.forced_cuts[idx] if idx < len(self.forced_cuts) else self.end

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
        self._find_documents = find_kernel_function("find_documents")
        # Where the documents of a block begin and end, and their heads end.
        self._positions = np.empty((3, _MAX_BLOCK_DOCUMENTS), np.int64)
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
            forced = borders.forced_cuts(start, end)
            if unit.source_end < UNKNOWN_END:
                closes |= end >= borders.unit_border(unit.source_end)[0]
            mark_bytes = borders.mark_bytes(start)
            self._counts += Counts(
                input_bytes=end - start + mark_bytes,
                byte_order_marks=int(mark_bytes > 0),
                forced_cuts=len(forced),
            )
            self._buffer.start(start)
            yield from self._iter_region(_Region(start, end, begins, closes, forced), file, borders)
            if self._options.give_back:
                file.give_back(start, end)

    def _iter_region(self, region: _Region, file: OpenInput, borders: Borders) -> Iterator[Block]:
        """Yield many short documents per block, and long documents in pieces."""
        position, begins = region.start, region.begins
        length = len(self._rule.separator)
        while position < region.end:
            limit = min(position + self._options.block_bytes, region.end)
            self._load(file, position, limit, region)
            # A document with a forced cut is long; those before it share a block.
            before_cut = min(limit, region.next_forced(position) + length)
            block, end = self._find_short(position, before_cut, begins=begins)
            if end > position:
                if block is not None:
                    yield block
                position = end
            else:
                end = self._find_end(position, region, file)
                yield from self._iter_long(position, end, region, borders, begins=begins)
                position = end + length
            begins = True

    def _load(
        self, file: OpenInput, start: int, end: int, region: _Region, *, is_long: bool = False
    ) -> None:
        """Hold the text from `start` to `end`, and count the NUL bytes of what is new."""
        capacity = region.end - start + HEAD_BYTES if is_long else 0
        added = self._buffer.advance(file, start, end, capacity)
        at = len(self._buffer.view) - len(added)
        num_nul = self._buffer.count_nul(at, min(at + len(added), region.end - start))
        if num_nul:
            self._counts += Counts(nul_bytes=num_nul)

    def _find_short(self, position: int, limit: int, *, begins: bool) -> tuple[Block | None, int]:
        """Return the documents that end before `limit`, and where the next one begins.

        There is no block if all of them are empty; the first may have begun in the previous unit.
        """
        separator = self._rule.separator
        if not separator:
            return None, position
        if self._find_documents is None or self._options.strip:
            return self._find_short_slowly(position, limit, begins=begins)
        origin = self._buffer.origin
        starts, ends, heads = self._positions
        kept, num_found, next_start, is_first_kept = self._find_documents(
            np.frombuffer(self._buffer.view, np.uint8),
            position - origin,
            limit - origin,
            separator,
            self._rule.kind == "line",
            not begins,
            HEAD_BYTES,
            starts,
            ends,
            heads,
        )
        if kept < num_found:
            self._counts += Counts(empty_documents=num_found - kept)
        if not kept:
            return None, origin + next_start
        begun = begins or not is_first_kept
        block = self._whole_block(starts[:kept], ends[:kept], heads[:kept], begins=begun)
        return block, origin + next_start

    def _find_short_slowly(
        self, position: int, limit: int, *, begins: bool
    ) -> tuple[Block | None, int]:
        """Do the same without the kernel, or strip documents."""
        separator, origin = self._rule.separator, self._buffer.origin
        at, limit = position - origin, limit - origin
        separators = self._buffer.find_all(separator, at, limit, _MAX_BLOCK_DOCUMENTS)
        if not len(separators):
            return None, position
        starts = np.concatenate(([at], separators[:-1] + len(separator)))
        ends, next_start = separators, origin + int(separators[-1]) + len(separator)
        if self._rule.kind == "line":
            before_end = self._buffer.array(0, int(ends[-1]) + 1)[np.maximum(ends - 1, 0)]
            ends = ends - ((before_end == _CARRIAGE_RETURN) & (ends > starts))
        if self._options.strip:
            starts, ends = self._trim_all(starts, ends, begins=begins)
        kept = ends > starts
        kept[0] |= not begins
        if not kept.all():
            self._counts += Counts(empty_documents=int(len(kept) - kept.sum()))
        if not kept.any():
            return None, next_start
        begun = begins or not kept[0]
        starts, ends = starts[kept], ends[kept]
        block = self._whole_block(starts, ends, self._heads(starts, ends), begins=begun)
        return block, next_start

    def _whole_block(
        self,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        heads: NDArray[np.int64],
        *,
        begins: bool,
    ) -> Block:
        """Make a block of whole documents, the first of which may have begun before."""
        whole = _WHOLE[: len(starts)]
        begun = whole
        if not begins:
            begun = whole.copy()
            begun[0] = False
        return self._block(starts, ends, begun, whole, heads)

    def _find_end(self, position: int, region: _Region, file: OpenInput) -> int:
        """Find where the document at `position` ends inside the region, and hold all of it."""
        separator, buffer = self._rule.separator, self._buffer
        at = 0
        while True:
            held = len(buffer.view)
            found = buffer.find(separator, at, held) if separator else -1
            if found >= 0:
                return position + found
            if position + held >= region.end:
                # Its head may extend into the next unit.
                end = min(region.end + HEAD_BYTES, file.size)
                self._load(file, position, end, region, is_long=True)
                return region.end
            at = max(held - len(separator) + 1, 0)
            limit = min(position + held + self._options.block_bytes, region.end)
            self._load(file, position, limit, region, is_long=True)

    def _iter_long(
        self, start: int, end: int, region: _Region, borders: Borders, *, begins: bool
    ) -> Iterator[Block]:
        """Yield one document, or its part in the region, divided at cuts."""
        origin = self._buffer.origin
        closes = end < region.end or region.closes
        if self._rule.kind == "line" and self._ends_with_return(start, end, region):
            end -= 1
        # With a forced cut, the rest may belong to another unit, so it may not be empty.
        may_be_empty = begins and closes and region.next_forced(start) >= end
        if self._options.strip and begins:
            # Not past a forced cut: the unit on its other side, if there is one, strips nothing.
            limit = min(region.next_forced(start), end)
            start = origin + self._buffer.trim_left(start - origin, limit - origin)
        if self._options.strip and closes:
            limit = region.last_forced(start, end)
            end = origin + self._buffer.trim_right(limit - origin, end - origin)
        if may_be_empty and start == end:
            self._counts += Counts(empty_documents=1)
            return
        limits = np.array([end if closes else start + HEAD_BYTES]) - origin
        head = int(self._heads(np.array([start - origin]), limits)[0])
        at = start
        while True:
            stop = min(region.next_forced(at), end)
            is_divided = self._cuts.max_document_bytes is None
            if is_divided and stop - at > self._options.block_bytes:
                stop = min(borders.next_border(at + self._options.block_bytes), stop)
            yield self._block(
                np.array([at - origin], np.int64),
                np.array([stop - origin], np.int64),
                np.array([begins and at == start]),
                np.array([closes and stop == end]),
                np.array([head if at == start else at - origin], np.int64),
            )
            if stop == end:
                return
            at = stop

    def _ends_with_return(self, start: int, end: int, region: _Region) -> bool:
        last = end - 1 - self._buffer.origin
        return start < end < region.end and self._buffer.view[last] == _CARRIAGE_RETURN

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
        origin = self._buffer.origin
        return Block(
            self._buffer.view,
            starts,
            ends,
            begins,
            closes,
            heads,
            special,
            origin,
            positions=starts + origin if self._options.has_positions else None,
        )
