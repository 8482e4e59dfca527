"""What the readers of records share: documents in memory become blocks, bad records are listed.

It strips documents, drops empty ones, and divides long ones; it parses nothing. The readers for
JSON Lines, CSV, parquet and Arrow derive from `RecordReader`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import InputError
from penstok.inputs.streams import locate
from penstok.kernel import find_kernel_function
from penstok.readers.borders import refuse_long_document
from penstok.readers.buffer import UnitBuffer
from penstok.readers.extraction import GOOD
from penstok.readers.text import HEAD_BYTES
from penstok.types import (
    MAX_LISTED_RECORDS,
    Block,
    Counts,
    FieldColumn,
    RecordFields,
    SkippedRecord,
    replace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstok.inputs.base import OpenInput
    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.readers.extraction import Extracted, Extractor

__all__ = ["RecordReader", "describe_position", "with_fields"]

# How much text is searched for a cut at once.
_WINDOW_BYTES = 1 << 12
# Before this position, a message counts the lines before a bad record.
_MAX_COUNTED_BYTES = 1 << 30


class RecordReader:
    """The part of a `Reader` that is the same for all formats with records.

    A document that is longer than a block is divided at cuts; if it has none it stays whole, so
    that no token of a record ever depends on a forced cut.
    """

    def __init__(self, cuts: CutRule, options: ReaderOptions) -> None:
        self._cuts = cuts
        self._options = options
        self._text = UnitBuffer(find_kernel_function("find_all"))
        self._counts = Counts()
        self._skipped: list[SkippedRecord] = []

    def take_counts(self) -> Counts:
        """Return what was seen and dropped since the last call."""
        counts, self._counts = self._counts, Counts()
        return counts

    def take_skipped(self) -> list[SkippedRecord]:
        """Return the bad records since the last call."""
        skipped, self._skipped = self._skipped, []
        return skipped

    @property
    def _skipped_room(self) -> int:
        """How many more bad records are listed; the rest is only counted."""
        return MAX_LISTED_RECORDS - len(self._skipped)

    def _refuse(self, position: int, what: str, describe: Callable[[int], str]) -> None:
        """List a bad record, or stop.

        Args:
            position: Where it begins.
            what: What is wrong with it.
            describe: Names its position in a message; that may take time.

        Raises:
            InputError: If bad records are to stop the job.
        """
        if self._options.on_error == "stop":
            raise InputError(
                what,
                where=describe(position),
                next_step="correct it, pass another `--text-key`, or leave such records out with "
                "`--on-error skip`",
            )
        if self._skipped_room > 0:
            self._skipped.append(SkippedRecord(position, what))

    def _iter_records(
        self,
        extractor: Extractor,
        data: memoryview,
        origin: int,
        file: OpenInput,
        kept: Sequence[Extractor | None] = (),
    ) -> Iterator[Block]:
        """Yield the documents of whole records that begin at `origin` in a file.

        About a block of text is extracted at a time, so that it stays in the CPU's cache.

        Args:
            extractor: Extracts the text.
            data: The records.
            origin: Where they begin.
            file: The input.
            kept: Extract the fields that the job keeps; None for one that the input does not have.
        """
        while data:
            found = extractor.extract(data, self._text.room(len(data)), self._options.block_bytes)
            bad = np.flatnonzero(found.codes != GOOD)
            self._counts += Counts(
                invalid_utf8=found.num_lone_surrogates,
                nul_bytes=self._text.count_nul(0, len(found.text)),
                skipped_records=len(bad),
            )
            for idx in bad[: self._skipped_room].tolist():
                what = extractor.explain(data, found, idx)
                self._refuse(
                    origin + int(found.records[idx]), what, partial(describe_position, file)
                )
            ends = self._find_ends(found, data, origin, file)
            good = found.codes == GOOD
            positions = found.records[good] + origin if self._options.has_positions else None
            fields = None
            if kept:
                records = data[: found.consumed]
                columns = [_extract_column(each, records, len(found.codes)) for each in kept]
                fields = RecordFields(found.records + origin, columns)
            starts, path = found.starts[good], file.source.path
            blocks = self._iter_blocks(starts, ends[good], positions, origin, path)
            yield from with_fields(blocks, fields)
            data, origin = data[found.consumed :], origin + found.consumed

    def _find_ends(
        self, found: Extracted, data: memoryview, origin: int, file: OpenInput
    ) -> NDArray[np.int64]:
        """Return where the texts end; a format may shorten some."""
        return found.ends

    def _iter_blocks(
        self,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        positions: NDArray[np.int64] | None,
        origin: int,
        path: str,
    ) -> Iterator[Block]:
        """Yield the documents between `starts` and `ends` of `_text`.

        Args:
            starts: Where each document begins.
            ends: Where it ends.
            positions: Where its record begins in the input, if that is wanted.
            origin: Where the first one begins in `path`, for messages.
            path: The input.
        """
        buffer = self._text
        heads = np.minimum(ends, starts + HEAD_BYTES)
        if self._options.strip:
            starts, ends, heads = _trim(buffer, starts, ends)
        kept = ends > starts
        if not kept.all():
            self._counts += Counts(empty_documents=int(len(kept) - kept.sum()))
            starts, ends, heads = starts[kept], ends[kept], heads[kept]
            positions = None if positions is None else positions[kept]
        limit = self._cuts.max_document_bytes
        if limit is not None and (ends - starts > limit).any():
            raise refuse_long_document(f"{path}, a record after byte {origin}", limit)
        first = 0
        while first < len(starts):
            block_end = starts[first] + self._options.block_bytes
            last = int(np.searchsorted(ends, block_end, "right"))
            if last > first:
                whole = np.ones(last - first, np.bool_)
                chosen = slice(first, last)
                yield self._block(
                    starts[chosen],
                    ends[chosen],
                    whole,
                    whole,
                    heads[chosen],
                    None if positions is None else positions[chosen],
                    origin,
                )
                first = last
            else:
                start, end, head = int(starts[first]), int(ends[first]), int(heads[first])
                position = None if positions is None else positions[first : first + 1]
                yield from self._iter_long(start, end, head, position, origin)
                first += 1

    def _iter_long(
        self, start: int, end: int, head: int, position: NDArray[np.int64] | None, origin: int
    ) -> Iterator[Block]:
        at = start
        while at < end:
            stop = self._find_cut(at + self._options.block_bytes, end)
            yield self._block(
                np.array([at], np.int64),
                np.array([stop], np.int64),
                np.array([at == start]),
                np.array([stop == end]),
                np.array([head if at == start else at], np.int64),
                position,
                origin,
            )
            at = stop

    def _find_cut(self, wanted: int, end: int) -> int:
        """Find the first cut after a position; the document's end if there is none."""
        while wanted + _WINDOW_BYTES < end:
            # A cut rule needs one character before and one after the cut.
            left = max(wanted - 4, 0)
            window = self._text.array(left, wanted + _WINDOW_BYTES + 4)
            marked = self._cuts.mask(window)[wanted - left : wanted - left + _WINDOW_BYTES]
            found = np.flatnonzero(marked)
            if len(found):
                return wanted + int(found[0])
            wanted += _WINDOW_BYTES
        return end

    def _block(
        self,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        begins: NDArray[np.bool_],
        closes: NDArray[np.bool_],
        heads: NDArray[np.int64],
        positions: NDArray[np.int64] | None,
        origin: int,
    ) -> Block:
        special = self._text.mark(self._options.special_text, starts, ends)
        return Block(
            self._text.view,
            starts,
            ends,
            begins,
            closes,
            heads,
            special,
            origin,
            positions=positions,
        )


def with_fields(blocks: Iterator[Block], fields: RecordFields | None) -> Iterator[Block]:
    """Yield blocks with the fields that the job keeps, of their documents and maybe of others."""
    for block in blocks:
        yield block if fields is None else replace(block, fields=fields)


def _extract_column(
    extractor: Extractor | None, records: memoryview, num_records: int
) -> FieldColumn:
    """Extract the values of a kept field from records; a bad record has none."""
    if extractor is None:
        nowhere = np.zeros(num_records, np.int64)
        return FieldColumn(memoryview(b""), nowhere, nowhere, np.zeros(num_records, np.bool_))
    # Pages that no value is written to take no memory.
    found = extractor.extract(records, np.empty(len(records), np.uint8).data)
    return FieldColumn(found.text, found.starts, found.ends, found.codes == GOOD)


def describe_position(file: OpenInput, position: int) -> str:
    """Name a position by its byte, and its line if those before can be counted in little time."""
    num_lines = None if position > _MAX_COUNTED_BYTES else file.count_lines(position)
    line = "" if num_lines is None else f"line {num_lines + 1}, "
    located = locate(file.source, position)
    if located is None:
        return f"{file.source.path}, {line}byte {position} of its text as UTF-8"
    return f"{file.source.path}, {line}byte {located[0]}"


def _trim(
    buffer: UnitBuffer, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Strip white space at both ends of documents, and at the end of their heads."""
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    left = [buffer.trim_left(start, end) for start, end in pairs]
    right = [buffer.trim_right(start, end) for start, end in zip(left, ends.tolist(), strict=True)]
    heads = [
        buffer.trim_right(start, min(end, start + HEAD_BYTES))
        for start, end in zip(left, right, strict=True)
    ]
    return np.array(left, np.int64), np.array(right, np.int64), np.array(heads, np.int64)
