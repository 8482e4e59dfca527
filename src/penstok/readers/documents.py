"""Whole documents that lie in memory, from a format that says where each begins and ends.

It trims, drops empty ones, and groups the rest to blocks; it reads nothing. The readers of records
stand on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.readers.borders import refuse_long_document
from penstok.readers.text import HEAD_BYTES
from penstok.types import Block, Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.readers.buffer import UnitBuffer

__all__ = ["DocumentBlocks"]

# How far a cut may lie behind the place where one is wanted, at each look.
_LOOK_BYTES = 1 << 12


class DocumentBlocks:
    """Turns documents in a buffer into blocks.

    A document that is longer than a block is divided at cuts; where it has none it stays whole, so
    that no token of a record ever depends on a forced cut.
    """

    def __init__(self, cuts: CutRule, options: ReaderOptions) -> None:
        self._cuts = cuts
        self._options = options
        self.counts = Counts()

    def iter_blocks(
        self,
        buffer: UnitBuffer,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        origin: int,
        path: str,
    ) -> Iterator[Block]:
        """Yield the documents in order; `origin` in `path` is where they come from."""
        heads = np.minimum(ends, starts + HEAD_BYTES)
        if self._options.strip:
            starts, ends, heads = _trim(buffer, starts, ends)
        kept = ends > starts
        if not kept.all():
            self.counts += Counts(empty_documents=int(len(kept) - kept.sum()))
            starts, ends, heads = starts[kept], ends[kept], heads[kept]
        limit = self._cuts.max_document_bytes
        if limit is not None and (ends - starts > limit).any():
            raise refuse_long_document(f"{path}, a record behind byte {origin}", limit)
        first = 0
        while first < len(starts):
            block_end = starts[first] + self._options.block_bytes
            last = int(np.searchsorted(ends, block_end, "right"))
            if last > first:
                whole = np.ones(last - first, np.bool_)
                chosen = slice(first, last)
                yield self._block(
                    buffer, starts[chosen], ends[chosen], whole, whole, heads[chosen], origin
                )
                first = last
            else:
                start, end, head = int(starts[first]), int(ends[first]), int(heads[first])
                yield from self._iter_long(buffer, start, end, head, origin)
                first += 1

    def _iter_long(
        self, buffer: UnitBuffer, start: int, end: int, head: int, origin: int
    ) -> Iterator[Block]:
        at = start
        while at < end:
            stop = self._find_cut(buffer, at + self._options.block_bytes, end)
            yield self._block(
                buffer,
                np.array([at], np.int64),
                np.array([stop], np.int64),
                np.array([at == start]),
                np.array([stop == end]),
                np.array([head if at == start else at], np.int64),
                origin,
            )
            at = stop

    def _find_cut(self, buffer: UnitBuffer, wanted: int, end: int) -> int:
        """Find the first cut behind a position; the document's end if there is none."""
        while wanted + _LOOK_BYTES < end:
            # One character before and behind is what a cut rule must see.
            window = buffer.array(wanted - 4, wanted + _LOOK_BYTES + 4)
            found = np.flatnonzero(self._cuts.mask(window)[4 : 4 + _LOOK_BYTES])
            if len(found):
                return wanted + int(found[0])
            wanted += _LOOK_BYTES
        return end

    def _block(
        self,
        buffer: UnitBuffer,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        begins: NDArray[np.bool_],
        closes: NDArray[np.bool_],
        heads: NDArray[np.int64],
        origin: int,
    ) -> Block:
        special = buffer.mark(self._options.special_text, starts, ends)
        return Block(buffer.view, starts, ends, begins, closes, heads, special, origin)


def _trim(
    buffer: UnitBuffer, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Leave out white space at the ends; a head ends before the white space at its end too."""
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    left = [buffer.trim_left(start, end) for start, end in pairs]
    right = [buffer.trim_right(start, end) for start, end in zip(left, ends.tolist(), strict=True)]
    heads = [
        buffer.trim_right(start, min(end, start + HEAD_BYTES))
        for start, end in zip(left, right, strict=True)
    ]
    return np.array(left, np.int64), np.array(right, np.int64), np.array(heads, np.int64)
