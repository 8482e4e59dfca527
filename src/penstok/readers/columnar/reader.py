"""Parquet and Arrow: one row, one document.

A unit is a range of rows, exactly. The reader finds bad rows and groups texts to blocks; the file
is read by `row_files`, a few rows at a time and without a Python object for each document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import InputError
from penstok.readers.buffer import UnitBuffer
from penstok.readers.columnar.file import RowFile
from penstok.readers.columnar.texts import MAX_TEXT_BYTES
from penstok.readers.documents import DocumentBlocks
from penstok.types import MAX_LISTED_RECORDS, Counts, SkippedRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.readers.columnar.base import OpenRows, Rows
    from penstok.readers.columnar.texts import RowTexts
    from penstok.types import Block, Source, Unit

__all__ = ["ColumnarReader"]

# Bounds what the lists of documents cost where documents are short.
_MAX_BLOCK_ROWS = 1 << 15


class ColumnarReader:
    """Reads the text of one column from files of rows.

    A file stays open from unit to unit: rows that lie behind those of the unit before go on from
    where that ended, which saves decoding a large row group from its start.

    `input_bytes` counts the bytes of text of the rows that were used, unpacked; a block's `origin`
    counts the same bytes from the unit's start.
    """

    def __init__(self, open_rows: OpenRows, cuts: CutRule, options: ReaderOptions) -> None:
        self._open_rows = open_rows
        self._text_key = options.text_key
        self._options = options
        self._documents = DocumentBlocks(cuts, options)
        self._text = UnitBuffer(options.find_all)
        self._open: tuple[Source, RowFile, Rows] | None = None
        self._skipped: list[SkippedRecord] = []
        self._counts = Counts()

    def take_counts(self) -> Counts:
        """Return what was seen and dropped since the last call."""
        counts = self._counts + self._documents.counts
        self._counts = self._documents.counts = Counts()
        return counts

    def take_skipped(self) -> list[SkippedRecord]:
        """Return the bad rows since the last call; their position is the number of the row."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the documents of a unit in order; a block is valid until the next one."""
        rows = self._rows_of(unit)
        gathered = _Gathered(self._text, self._options.block_bytes)
        for texts in rows.iter_texts(unit.start, unit.end):
            for good in self._iter_good(texts, unit.source):
                if not gathered.has_room(good):
                    yield from self._iter_gathered(gathered, unit.source.path)
                gathered.append(good)
                del good
            del texts  # else they would stay while the next ones are decoded
        yield from self._iter_gathered(gathered, unit.source.path)

    def _rows_of(self, unit: Unit) -> Rows:
        """Open the unit's file, or take it as it was left by the unit before."""
        if self._open is None or self._open[0] != unit.source:
            if self._open is None:
                _spare_memory()
            else:
                self._open[1].close()
                self._open = None
            file = RowFile(unit.source, give_back=self._options.give_back)
            try:
                self._open = unit.source, file, self._open_rows(file, self._text_key)
            except InputError:
                file.close()
                raise
        rows = self._open[2]
        if unit.end > rows.num_rows:
            raise InputError(
                f"the file has {rows.num_rows} rows now, {unit.end} or more when it was planned",
                where=unit.source.path,
                next_step="bring back the file, or pass `--overwrite` to start again",
            )
        return rows

    def _iter_good(self, texts: RowTexts, source: Source) -> Iterator[RowTexts]:
        """Yield the rows between the bad ones, no more than about a block at once."""
        at = 0
        for bad in texts.find_bad().tolist():
            is_null = texts.valid is not None and not texts.valid[bad]
            long = f"has a text of more than {MAX_TEXT_BYTES >> 20} MiB"
            what = "is null, not a string" if is_null else long
            self._refuse(source, texts.first_row + bad, f"text key `{self._text_key}` {what}")
            yield from texts.iter_pieces(at, bad, self._options.block_bytes)
            at = bad + 1
        yield from texts.iter_pieces(at, texts.num_rows, self._options.block_bytes)

    def _iter_gathered(self, gathered: _Gathered, path: str) -> Iterator[Block]:
        """Yield the texts that were laid one after the other as blocks, and forget them."""
        starts, ends, origin = gathered.take()
        size = int(ends[-1]) if len(ends) else 0
        self._counts += Counts(input_bytes=size, nul_bytes=self._text.count_nul(0, size))
        yield from self._documents.iter_blocks(self._text, starts, ends, origin, path)

    def _refuse(self, source: Source, row: int, what: str) -> None:
        if self._options.on_error == "stop":
            raise InputError(
                what,
                where=f"{source.path}, row {row} (the first is row 0)",
                next_step="mend it, pass another `--text-key`, or leave such records out with "
                "`--on-error skip`",
            )
        if len(self._skipped) < MAX_LISTED_RECORDS:
            self._skipped.append(SkippedRecord(row, what))
        self._counts += Counts(skipped_records=1)


class _Gathered:
    """Texts of a unit laid one after the other in a buffer, up to a block's worth at a time.

    Each is copied as soon as it is decoded, while it is in cache, and the memory it was decoded to
    is used again for the next: to keep them and copy a block at once took a fifth more time.
    """

    def __init__(self, buffer: UnitBuffer, block_bytes: int) -> None:
        self._buffer = buffer
        self._block_bytes = block_bytes
        self._room = np.empty(0, np.uint8)
        self._edges: list[NDArray[np.int64]] = []
        self._size = self._num_rows = self._origin = 0

    def has_room(self, texts: RowTexts) -> bool:
        """Tell whether texts fit; into an empty buffer any do."""
        return not self._edges or (
            self._size + texts.num_bytes <= self._block_bytes
            and self._num_rows + texts.num_rows <= _MAX_BLOCK_ROWS
        )

    def append(self, texts: RowTexts) -> None:
        """Copy texts behind those that are there."""
        if not self._edges:
            view = self._buffer.room(max(self._block_bytes, texts.num_bytes))
            self._room = np.frombuffer(view, np.uint8)
        first, last = int(texts.offsets[0]), int(texts.offsets[-1])
        self._room[self._size : self._size + last - first] = texts.text[first:last]
        self._edges.append(texts.offsets + (self._size - first))
        self._size += last - first
        self._num_rows += texts.num_rows

    def take(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return where each text begins and ends, and how much of the unit came before."""
        edges, origin = self._edges or [np.zeros(1, np.int64)], self._origin
        self._origin += self._size
        self._edges = []
        self._size = self._num_rows = 0
        starts = np.concatenate([edge[:-1] for edge in edges])
        return starts, np.concatenate([edge[1:] for edge in edges]), origin


def _spare_memory() -> None:
    """Tell pyarrow to stay on one core, and to hand back at once what it no longer needs."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_memory_pool(pa.system_memory_pool())
