"""A file that is one giant document: read as spans, so that part of it can go to val.

A span is about 64 KiB of text between two cuts, at line ends if there are any. It decides no split;
the worker's splitter does, which is given the spans next to each block for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.readers.borders import MAX_RUN_BYTES, Borders
from penstok.readers.buffer import UnitBuffer
from penstok.readers.text import HEAD_BYTES
from penstok.types import UNKNOWN_END, Block, Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.types import SkippedRecord, Unit

__all__ = ["SpanReader"]

_SPAN_BYTES = 1 << 16


class SpanReader:
    """Reads a giant document span by span.

    Border k is the first line end in the k-th 64 KiB of the file, or else the first cut there, or
    else a forced cut. So every worker finds the same spans by itself.
    """

    def __init__(self, cuts: CutRule, options: ReaderOptions) -> None:
        self._cuts = cuts
        self._options = options
        self._buffer = UnitBuffer()
        self._counts = Counts()

    def take_counts(self) -> Counts:
        """Return what was seen and dropped since the last call."""
        counts, self._counts = self._counts, Counts()
        return counts

    def take_skipped(self) -> list[SkippedRecord]:
        """Return nothing: in plain text there are no bad records."""
        return []

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the spans of a unit in order; each block is valid until the next one."""
        with self._options.open_unit(unit) as file:
            borders = Borders(file, b"", self._cuts)
            start, end = _next_border(borders, unit.start), _next_border(borders, unit.end)
            if start >= end:
                return
            left = _previous_border(borders, start)
            is_end_known = unit.source_end < UNKNOWN_END
            document_end = _next_border(borders, unit.source_end) if is_end_known else UNKNOWN_END
            right = end if end >= document_end else _next_border(borders, end + 1)
            self._buffer.load(file, left, right)
            self._counts += self._buffer.count_unit(
                start - left,
                end - left,
                borders.mark_bytes(start),
                borders.forced_cuts(start, end),
            )
            inner = (_find_border(borders, number) for number in _numbers(start, end))
            edges = [left, start, *(edge for edge in inner if edge and start < edge < end), end]
            positions = np.array([*edges, right], np.int64) - left
            if self._options.strip:
                positions = self._trim(
                    positions,
                    is_start=left == borders.text_start,
                    is_end=right >= document_end,
                )
                if positions[0] == positions[-1] and start == borders.text_start:
                    self._counts += Counts(empty_documents=1)
            yield from self._iter_spans(positions)
            if self._options.give_back:
                file.give_back(start, end)

    def _trim(self, edges: NDArray[np.int64], *, is_start: bool, is_end: bool) -> NDArray[np.int64]:
        """Strip the document; spans that become empty are dropped.

        Every unit that reads an end of it does so, in its own span or in its neighbour's.
        """
        if is_start:
            first = edges[edges > 0][0]
            edges[edges == 0] = self._buffer.trim_left(0, int(first))
        last = edges[-1]
        if is_end and edges[0] < last:
            before = edges[edges < last][-1]
            edges[edges == last] = self._buffer.trim_right(int(before), int(last))
        return np.concatenate((edges[:1], np.unique(edges[1:-1]), edges[-1:]))

    def _iter_spans(self, edges: NDArray[np.int64]) -> Iterator[Block]:
        """Group spans into blocks; the first and last pair of `edges` are neighbouring spans."""
        first, stop = 1, len(edges) - 2
        while first < stop:
            full = edges[first] + self._options.block_bytes
            last = min(max(int(np.searchsorted(edges, full, "right")) - 1, first + 1), stop)
            yield self._block(edges[first - 1 : last + 2])
            first = last

    def _block(self, edges: NDArray[np.int64]) -> Block:
        starts, ends = edges[1:-2], edges[2:-1]
        heads = np.minimum(ends, starts + HEAD_BYTES)
        before, after = self._head(edges[0], edges[1]), self._head(edges[-2], edges[-1])
        special = self._buffer.mark(self._options.special_text, starts, ends)
        unset = np.zeros(len(starts), np.bool_)
        return Block(
            self._buffer.view,
            starts,
            ends,
            begins=unset,
            closes=unset,
            heads=heads,
            special=special,
            origin=self._buffer.origin,
            spans=True,
            before=before,
            after=after,
            positions=starts + self._buffer.origin if self._options.has_positions else None,
        )

    def _head(self, start: int, end: int) -> memoryview | None:
        """Return the text that decides the split of a neighbour; None if there is none."""
        return self._buffer.view[start : min(end, start + HEAD_BYTES)] if start < end else None


def _numbers(start: int, end: int) -> range:
    """Return the numbers of borders that can lie between two positions, without 0, the start."""
    return range(max(start // _SPAN_BYTES, 1), -(-end // _SPAN_BYTES))


def _find_border(borders: Borders, number: int) -> int | None:
    """Find border `number`; None if that part of the text has none."""
    start = number * _SPAN_BYTES
    end = min(start + _SPAN_BYTES, borders.size)
    cut = borders.first_cut(start, end, at_line=True)
    if cut is None:
        cut = borders.first_cut(start, end)
    if cut is None and start % MAX_RUN_BYTES == 0:
        forced = borders.next_border(start)
        cut = forced if forced < end else None
    return cut


def _next_border(borders: Borders, position: int) -> int:
    """Find the first span border at or after `position`."""
    if position <= borders.text_start:
        return borders.text_start
    for number in _numbers(position, borders.size):
        border = _find_border(borders, number)
        if border is not None and border >= position:
            return border
    return borders.size


def _previous_border(borders: Borders, position: int) -> int:
    """Find the last span border before `position`; the document's start is one."""
    for number in reversed(_numbers(0, position)):
        border = _find_border(borders, number)
        if border is not None and border < position:
            return border
    return borders.text_start
