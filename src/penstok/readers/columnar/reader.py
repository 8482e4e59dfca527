"""Parquet and Arrow: one row per document, one column is the text.

A unit is an exact range of rows. The reader lists bad rows and gathers texts into blocks; it
decodes nothing itself: `parquet` and `arrow` do, a few rows at a time and without a Python object
per document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import InputError
from penstok.quantities import plural
from penstok.readers.columnar.file import RowFile
from penstok.readers.columnar.texts import MAX_TEXT_BYTES
from penstok.readers.documents import RecordReader, with_fields
from penstok.types import Counts, FieldColumn, RecordFields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstok.readers.base import CutRule, ReaderOptions
    from penstok.readers.buffer import UnitBuffer
    from penstok.readers.columnar.base import OpenField, OpenRows, Rows
    from penstok.readers.columnar.texts import RowTexts
    from penstok.types import Block, Source, Unit

__all__ = ["ColumnarReader"]

# Bounds the memory for positions where documents are short.
_MAX_BLOCK_ROWS = 1 << 15
# Rows whose kept fields are read at once, which may be far longer than their text.
_MAX_KEPT_ROWS = 64


class ColumnarReader(RecordReader):
    """Reads the text of one column from files of rows.

    A file stays open from unit to unit: rows that follow those of the last unit continue from
    there, which saves decoding a large row group again from its start.

    `input_bytes` counts the decompressed text of the rows that were used; a block's `origin` counts
    the same bytes from the unit's start. Bad rows are listed by row number.
    """

    def __init__(
        self, open_rows: OpenRows, open_field: OpenField, cuts: CutRule, options: ReaderOptions
    ) -> None:
        super().__init__(cuts, options)
        self._open_rows = open_rows
        self._kept = _KeptColumns(open_field, options.kept_fields, options.block_bytes)
        self._open: tuple[Source, RowFile, Rows] | None = None

    def iter_blocks(self, unit: Unit) -> Iterator[Block]:
        """Yield the documents of a unit in order; a block is valid until the next one."""
        rows = self._rows_of(unit)
        self._kept.take()  # a unit whose blocks were not all asked for may have left some
        gathered = _Gathered(self._text, self._options.block_bytes)
        for texts in rows.iter_texts(unit.start, unit.end):
            for good in self._iter_good(texts, unit.source):
                if not (gathered.has_room(good) and self._kept.has_room):
                    yield from self._iter_gathered(gathered, unit.source.path)
                gathered.append(good)
                self._kept.append(unit.source, good.first_row, good.num_rows)
                del good
            del texts  # else they would be kept while the next ones are decoded
        yield from self._iter_gathered(gathered, unit.source.path)

    def _rows_of(self, unit: Unit) -> Rows:
        """Open the unit's file, unless the last unit had the same."""
        if self._open is None or self._open[0] != unit.source:
            if self._open is not None:
                self._open[1].close()
                self._open = None
            file = RowFile(unit.source, give_back=self._options.give_back)
            try:
                rows = self._open_rows(file, self._options.text_key)
                self._open = unit.source, file, rows
            except InputError:
                file.close()
                raise
        rows = self._open[2]
        if unit.end > rows.num_rows:
            raise InputError(
                f"the file has {plural(rows.num_rows, 'row')} now, {unit.end:,} or more when "
                "it was planned",
                where=unit.source.path,
                next_step="restore the file, or pass `--overwrite` to start again",
            )
        return rows

    def _iter_good(self, texts: RowTexts, source: Source) -> Iterator[RowTexts]:
        """Yield the rows between the bad ones, about a block at a time."""
        key, at = self._options.text_key, 0

        def describe(row: int) -> str:
            return f"{source.path}, row {row} (the first is row 0)"

        for bad in texts.find_bad().tolist():
            is_null = texts.valid is not None and not texts.valid[bad]
            long = f"has a text of more than {MAX_TEXT_BYTES >> 20} MiB"
            what = "is null, not a string" if is_null else long
            self._refuse(texts.first_row + bad, f"text key `{key}` {what}", describe)
            self._counts += Counts(skipped_records=1)
            yield from self._iter_pieces(texts, at, bad)
            at = bad + 1
        yield from self._iter_pieces(texts, at, texts.num_rows)

    def _iter_pieces(self, texts: RowTexts, start: int, stop: int) -> Iterator[RowTexts]:
        step = _MAX_KEPT_ROWS if self._options.kept_fields else max(stop - start, 1)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            yield from texts.iter_pieces(first, last, self._options.block_bytes)

    def _iter_gathered(self, gathered: _Gathered, path: str) -> Iterator[Block]:
        """Yield the gathered texts as blocks, and start again with none."""
        starts, ends, rows, origin = gathered.take()
        size = int(ends[-1]) if len(ends) else 0
        self._counts += Counts(input_bytes=size, nul_bytes=self._text.count_nul(0, size))
        positions = None
        if self._options.has_positions:
            runs = [np.arange(run.start, run.stop) for run in rows]
            positions = np.concatenate([np.empty(0, np.int64), *runs])
        fields = None
        if self._options.kept_fields and positions is not None:
            fields = RecordFields(positions, self._kept.take())
        blocks = self._iter_blocks(starts, ends, positions, origin, path)
        yield from with_fields(blocks, fields)


class _Gathered:
    """Texts of a unit in one buffer, up to about a block.

    Each is copied as soon as it is decoded, while it is in cache, and its memory is used again for
    the next: keeping them and copying a block at once took a fifth more time.
    """

    def __init__(self, buffer: UnitBuffer, block_bytes: int) -> None:
        self._buffer = buffer
        self._block_bytes = block_bytes
        self._room = np.empty(0, np.uint8)
        self._edges: list[NDArray[np.int64]] = []
        self._rows: list[range] = []
        self._size = self._num_rows = self._origin = 0

    def has_room(self, texts: RowTexts) -> bool:
        """Tell whether texts fit; any fit into an empty buffer."""
        return not self._edges or (
            self._size + texts.num_bytes <= self._block_bytes
            and self._num_rows + texts.num_rows <= _MAX_BLOCK_ROWS
        )

    def append(self, texts: RowTexts) -> None:
        """Copy texts to the end of the buffer."""
        if not self._edges:
            view = self._buffer.room(max(self._block_bytes, texts.num_bytes))
            self._room = np.frombuffer(view, np.uint8)
        first, last = int(texts.offsets[0]), int(texts.offsets[-1])
        self._room[self._size : self._size + last - first] = texts.text[first:last]
        self._edges.append(texts.offsets + (self._size - first))
        self._rows.append(range(texts.first_row, texts.first_row + texts.num_rows))
        self._size += last - first
        self._num_rows += texts.num_rows

    def take(self) -> tuple[NDArray[np.int64], NDArray[np.int64], list[range], int]:
        """Return where texts begin and end, their rows, and how much of the unit came before."""
        edges, rows, origin = self._edges or [np.zeros(1, np.int64)], self._rows, self._origin
        self._origin += self._size
        self._edges, self._rows = [], []
        self._size = self._num_rows = 0
        starts = np.concatenate([edge[:-1] for edge in edges])
        return starts, np.concatenate([edge[1:] for edge in edges]), rows, origin


class _KeptColumns:
    """The fields that a job keeps, of the rows that are gathered for a block.

    Each column has a file of its own: pyarrow reads streams from where they are.
    """

    def __init__(self, open_field: OpenField, names: tuple[str, ...], block_bytes: int) -> None:
        self._open_field = open_field
        self._names = names
        self._block_bytes = block_bytes
        self._source: Source | None = None
        self._files: list[RowFile] = []
        self._rows: list[Rows | None] = []
        self._columns: list[list[FieldColumn]] = [[] for _ in names]
        self._size = 0

    @property
    def has_room(self) -> bool:
        """Whether less than a block is gathered."""
        return self._size < self._block_bytes

    def append(self, source: Source, start: int, num_rows: int) -> None:
        """Read the fields of some rows."""
        if not self._names:
            return
        if source != self._source:
            self._open(source)
        for rows, column in zip(self._rows, self._columns, strict=True):
            if rows is None:
                nowhere = np.zeros(num_rows, np.int64)
                column.append(
                    FieldColumn(memoryview(b""), nowhere, nowhere, np.zeros(num_rows, np.bool_))
                )
                continue
            for texts in rows.iter_texts(start, start + num_rows):
                column.append(_to_column(texts))
                self._size += len(column[-1].data)

    def take(self) -> list[FieldColumn]:
        """Return what was gathered, and start again with nothing."""
        taken = [_join_columns(pieces) for pieces in self._columns]
        self._columns, self._size = [[] for _ in self._names], 0
        return taken

    def _open(self, source: Source) -> None:
        for file in self._files:
            file.close()
        self._files, self._rows, self._source = [], [], None
        for name in self._names:
            self._files.append(RowFile(source))
            self._rows.append(self._open_field(self._files[-1], name))
        self._source = source


def _to_column(texts: RowTexts) -> FieldColumn:
    """Copy the values of some rows, without the bytes that a null may have."""
    valid = np.ones(texts.num_rows, np.bool_) if texts.valid is None else texts.valid
    starts, ends = texts.offsets[:-1], texts.offsets[1:]
    text = texts.text
    if np.any(ends[~valid] > starts[~valid]):
        values = zip(starts[valid].tolist(), ends[valid].tolist(), strict=True)
        data = b"".join(text[start:end].tobytes() for start, end in values)
        lengths = np.where(valid, ends - starts, 0)
        ends = np.cumsum(lengths)
        return FieldColumn(memoryview(data), ends - lengths, ends, valid)
    first = int(starts[0]) if len(starts) else 0
    data = text[first : int(texts.offsets[-1])].tobytes()
    return FieldColumn(memoryview(data), starts - first, ends - first, valid)


def _join_columns(pieces: list[FieldColumn]) -> FieldColumn:
    before = np.cumsum([0, *(len(piece.data) for piece in pieces)]).tolist()
    nothing = np.empty(0, np.int64)
    offsets = list(zip(before, pieces, strict=False))
    return FieldColumn(
        memoryview(b"".join(piece.data for piece in pieces)),
        np.concatenate([nothing, *(piece.starts + at for at, piece in offsets)]),
        np.concatenate([nothing, *(piece.ends + at for at, piece in offsets)]),
        np.concatenate([nothing.astype(np.bool_), *(piece.valid for piece in pieces)]),
    )
