"""Parquet: rows of token ids in a column of lists, as Hugging Face datasets and axolotl read them.

A row is a document or, with a sequence length, so many tokens; all tokens of a split are in its
rows. A document that is too long for one row is divided, never refused, and counted. It writes no
file; `base` has the protocol, `docs/reference/formats/parquet.md` the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstok.errors import UsageError
from penstok.output.fields import ParquetSink
from penstok.output.formats.base import CopiedFormat, FormatFile
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstok.output.formats.base import FormatOptions, SplitTokens, TokenSource

__all__ = ["COLUMNS", "ParquetFormat"]

COLUMNS: Final = ("input_ids", "attention_mask", "labels")
DEFAULT_FILE_BYTES: Final = 1_000_000_000
# A row is in one page, whose size is an int32, and in memory as a whole: rows of this length take
# 275 MiB with all columns, rows of 16 Mi tokens 690 MiB (pyarrow 26, 2026-11-17).
MAX_ROW_TOKENS: Final = 4 << 20
# What is in memory at a time, unless a row is longer.
GROUP_TOKENS: Final = 1 << 20
# Rows whose places are worked out at a time.
_ROWS: Final = 1 << 16
# Parquet keeps uint16 in four bytes. With `BYTE_STREAM_SPLIT`, which stores
# the bytes of each id separately, zstd makes
# a file 0.73 times as large as `train.bin`, at 200 MB/s of it; without, 0.79 at 110 MB/s; without
# zstd, 2.0 at 170 MB/s (45M GPT-2 tokens of web text, one core, pyarrow 26, 2026-11-17).
_SETTINGS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 1,
    # The mask is all ones.
    "use_dictionary": ["attention_mask.list.element"],
    # The least and the largest id of many documents tell a reader nothing.
    "write_statistics": False,
    # Tokens that are encoded at a time: with the 1,024 of pyarrow it takes 1.1 times as long.
    "write_batch_size": 1 << 16,
}
_SPLIT_BYTES: Final = ("input_ids", "labels")


class _Rows(Struct, frozen=True):
    """Consecutive rows of a split.

    Attributes:
        position: What to ask for to get these rows, and those after them, again.
        bounds: Where each row starts, and where the last ends.
        is_divided: Whether a row is the first of several that are one document.
    """

    position: int
    bounds: NDArray[np.int64]
    is_divided: NDArray[np.bool_]


class _Part(Struct, frozen=True):
    """The rows of one file: where they begin, and how many there are."""

    position: int
    num_skipped: int
    num_rows: int
    num_tokens: int
    split_documents: int


class ParquetFormat(CopiedFormat):
    """Files of about a gigabyte of tokens, with the columns that are asked for."""

    name = "parquet"

    def refuse(self, source: TokenSource, options: FormatOptions) -> None:
        """Refuse columns that are unknown, and rows that are too long.

        Raises:
            UsageError: If the tokens cannot be written like this.
        """
        columns = options.columns
        known = ", ".join(f"`{column}`" for column in COLUMNS)
        unknown = [column for column in columns if column not in COLUMNS]
        if unknown or COLUMNS[0] not in columns or len(set(columns)) < len(columns):
            raise UsageError(
                f"unknown column `{unknown[0]}`; known: {known}"
                if unknown
                else f"the columns `{','.join(columns)}` must have `{COLUMNS[0]}`, and each once",
                where="--columns",
                next_step=f"pass `--columns {','.join(COLUMNS)}` or some of them",
            )
        length = options.sequence_length
        if length is not None and not 1 <= length <= MAX_ROW_TOKENS:
            raise UsageError(
                f"the sequence length {length:,} must be between 1 and {MAX_ROW_TOKENS:,} "
                f"for `parquet`",
                where="--sequence-length",
                next_step="pass a smaller `--sequence-length`, or none for one row per document",
            )
        if options.shard_tokens is not None and options.shard_tokens < max(length or 1, 1):
            raise UsageError(
                f"files of {options.shard_tokens:,} tokens are smaller than one row of "
                f"{length or 1:,}",
                where="--shard-tokens",
                next_step=f"pass `--shard-tokens {length or 1}` or more",
            )
        if source.tokenizer.vocab_size > 2**31:
            raise UsageError(
                f"ids of {source.tokenizer.vocab_size:,} tokens do not fit into int32",
                where=f"tokenizer {source.tokenizer.name}",
                next_step="leave out the format `parquet`",
            )

    def iter_files(self, source: TokenSource, options: FormatOptions) -> Iterator[FormatFile]:
        """Yield the files of each split."""
        most = options.shard_tokens or DEFAULT_FILE_BYTES // np.dtype(source.dtype).itemsize
        for name, split in source.iter_splits():
            iter_rows = _row_source(split, options.sequence_length)
            for idx, part in enumerate(_iter_parts(iter_rows(0), most)):
                bounds = _iter_bounds(iter_rows, part)
                yield FormatFile(
                    f"{name}-{idx:05d}.parquet",
                    part.num_tokens,
                    _iter_content(split, bounds, options.columns),
                    split_documents=part.split_documents,
                )


def _row_source(split: SplitTokens, length: int | None) -> Callable[[int], Iterator[_Rows]]:
    """Return what yields the rows of a split, from a position on."""

    def iter_documents(position: int) -> Iterator[_Rows]:
        for starts, ends in split.iter_documents(position):
            yield _document_rows(position, starts.astype(np.int64), ends.astype(np.int64))
            position += len(starts)

    def iter_packed(position: int) -> Iterator[_Rows]:
        step = length or 1
        num_rows = -(-split.num_tokens // step)
        for first in range(position, num_rows, _ROWS):
            count = min(_ROWS, num_rows - first)
            bounds = np.arange(first, first + count + 1, dtype=np.int64) * step
            np.minimum(bounds, split.num_tokens, out=bounds)
            yield _Rows(first, bounds, np.zeros(count, np.bool_))

    return iter_documents if length is None else iter_packed


def _document_rows(position: int, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> _Rows:
    """Return the rows of consecutive documents: one for each, more for one that is too long."""
    num_rows = np.maximum(-(-(ends - starts) // MAX_ROW_TOKENS), 1)
    first_rows = np.cumsum(num_rows) - num_rows
    numbers = np.arange(num_rows.sum()) - np.repeat(first_rows, num_rows)
    bounds = np.append(np.repeat(starts, num_rows) + numbers * MAX_ROW_TOKENS, ends[-1])
    is_divided = np.zeros(len(numbers), np.bool_)
    is_divided[first_rows[num_rows > 1]] = True
    return _Rows(position, bounds, is_divided)


def _iter_parts(pieces: Iterator[_Rows], most: int) -> Iterator[_Part]:
    """Divide rows among files of at most so many tokens, or of one row that has more."""
    position = skipped = num_rows = num_tokens = divided = 0
    for rows in pieces:
        at, last = 0, len(rows.bounds) - 1
        while at < last:
            if not num_rows:
                position, skipped, num_tokens, divided = rows.position, at, 0, 0
            # As many of these rows as there is room for; the first in a file always.
            stop = _fitting(rows.bounds, at, max(most - num_tokens, 0))
            stop = stop if num_rows else max(stop, at + 1)
            num_rows += stop - at
            num_tokens += int(rows.bounds[stop] - rows.bounds[at])
            divided += int(np.count_nonzero(rows.is_divided[at:stop]))
            at = stop
            if stop < last:
                yield _Part(position, skipped, num_rows, num_tokens, divided)
                num_rows = 0
    if num_rows:
        yield _Part(position, skipped, num_rows, num_tokens, divided)


def _iter_bounds(
    iter_rows: Callable[[int], Iterator[_Rows]], part: _Part
) -> Iterator[NDArray[np.int64]]:
    """Yield the bounds of the rows of each row group of a file.

    Groups do not depend on the pieces in which the rows come, so neither do the bytes.
    """
    skipped, left = part.num_skipped, part.num_rows
    waiting = np.empty(0, np.int64)
    for rows in iter_rows(part.position):
        bounds = rows.bounds[skipped : skipped + left + 1]
        left -= len(bounds) - 1
        skipped = 0
        waiting = np.concatenate([waiting[:-1], bounds])
        at, last = 0, len(waiting) - 1
        while (stop := min(_fitting(waiting, at, GROUP_TOKENS), at + GROUP_TOKENS)) < last:
            stop = max(stop, at + 1)
            yield waiting[at : stop + 1]
            at = stop
        waiting = waiting[at:]
        if not left:
            break
    if len(waiting) > 1:
        yield waiting


def _fitting(bounds: NDArray[np.int64], at: int, num_tokens: int) -> int:
    """Return which bound is the last that is at most so many tokens after bound `at`."""
    return int(np.searchsorted(bounds, bounds[at] + num_tokens, "right")) - 1


def _iter_content(
    split: SplitTokens, groups: Iterator[NDArray[np.int64]], columns: tuple[str, ...]
) -> Iterator[bytes]:
    """Yield the bytes of a file, a row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = pa.uint16() if split.dtype == "uint16" else pa.int32()
    types = {"input_ids": ids, "attention_mask": pa.int8(), "labels": pa.int32()}
    schema = pa.schema([(column, pa.list_(types[column])) for column in columns])
    encodings = {
        f"{column}.list.element": "BYTE_STREAM_SPLIT"
        for column in columns
        if column in _SPLIT_BYTES
    }
    sink = ParquetSink()
    with pq.ParquetWriter(sink, schema, column_encoding=encodings, **_SETTINGS) as writer:
        for bounds in groups:
            offsets = pa.array((bounds - bounds[0]).astype(np.int32))
            values = _load_tokens(split, int(bounds[0]), int(bounds[-1]))
            lists = [
                pa.ListArray.from_arrays(offsets, pa.array(_make_column(column, values)))
                for column in columns
            ]
            writer.write_batch(pa.record_batch(lists, schema=schema))
            yield from sink.take()
    yield from sink.take()


def _make_column(column: str, values: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.integer[Any]]:
    if column == "attention_mask":
        return np.ones(len(values), np.int8)
    if column == "labels":
        return values.astype(np.int32, copy=False)
    return values.view(np.int32) if values.dtype == np.uint32 else values


def _load_tokens(split: SplitTokens, start: int, stop: int) -> NDArray[np.unsignedinteger[Any]]:
    values = np.empty(stop - start, np.dtype(split.dtype))
    at = 0
    for piece in split.iter_tokens(start, stop):
        values[at : at + len(piece)] = piece
        at += len(piece)
    return values
