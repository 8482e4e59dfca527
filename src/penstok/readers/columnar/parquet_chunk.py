"""The pages of one column of text in one row group: decompressed as streams, if that is possible.

It reads what most files have: texts that follow their lengths or are in a dictionary, in pages
without compression, or with zstd, snappy or gzip. Anything else, and any damage, is a
`NotDecodedError` or a `ValueError`. Pages before the rows that are wanted are not decompressed.
`parquet_pages` moves through the rows, `parquet_texts` decodes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstok.inputs.compression import MAX_WINDOW_BYTES
from penstok.inputs.compression.decoders import load_codec
from penstok.kernel import load_kernel
from penstok.readers.columnar.parquet_snappy import iter_snappy
from penstok.readers.columnar.parquet_texts import (
    BATCH_ROWS,
    READ_BYTES,
    IndexedValues,
    NotDecodedError,
    PageClaimError,
    PlainValues,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstok.inputs.compression.decoders import Codec
    from penstok.readers.columnar.file import RowFile
    from penstok.readers.columnar.parquet_layout import Chunk
    from penstok.readers.columnar.parquet_texts import Buffers, Values
    from penstok.types import Compression

__all__ = ["ChunkPages", "Page"]

# What is decompressed at once: it stays in the processor's cache.
_PIECE_BYTES = 1 << 17
# A header has some tens of bytes, or kilobytes with statistics.
_HEADER_BYTES, _MAX_HEADER_BYTES = 1 << 11, 1 << 18
# What is held whole: levels and pages of indexes, and stored pages with a checksum. If they are
# larger, the first are left to pyarrow, and the others are read twice.
_MAX_WHOLE_BYTES = 16 << 20
# A dictionary is held if a page does not have its texts in order. pyarrow takes more for the same.
_MAX_DICTIONARY_BYTES = 128 << 20
# Levels and indexes take four bytes per value, indexes some more while texts are gathered.
_MAX_PAGE_VALUES, _MAX_PAGE_INDEXES = 1 << 24, 1 << 20
# A dictionary is read after the page behind it if it is large, to see whether it has to be held, or
# if the column is at most this long: a remote file has all of it in memory then.
_MAX_BACK_BYTES = 8 << 20
# Old writers did not count the header of a dictionary (PARQUET-816).
_MAX_MISSING_BYTES = 128
# Numbers of parquet.thrift.
_DICTIONARY_PAGE, _DATA_PAGE_V2 = 2, 3
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_UNCOMPRESSED, _SNAPPY = 0, 1
_STREAM_CODECS: dict[int, Compression] = {2: "gzip", 6: "zstd"}


class _Header(NamedTuple):
    """The header of a page; what its version does not have is -1."""

    header_bytes: int
    type: int
    uncompressed_bytes: int
    compressed_bytes: int
    crc: int | None
    num_values: int
    encoding: int
    level_encoding: int
    num_rows: int
    level_bytes: int
    repetition_bytes: int
    is_compressed: bool


class Page:
    """The rows of a page that were not taken yet."""

    def __init__(self, num_rows: int, valid: NDArray[np.bool_] | None, values: Values) -> None:
        self.num_left: int = num_rows
        self._valid = valid
        self._values = values

    def take(
        self, count: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_] | None]:
        """Return the next rows, at most `count`: their text, its offsets, and which have one."""
        count = min(count, self.num_left)
        if self._valid is None:
            text, offsets = self._values.take(count)
            self.num_left -= len(offsets) - 1
            return text, offsets, None
        valid = self._valid[len(self._valid) - self.num_left :][:count]
        text, offsets = np.empty(0, np.uint8), np.zeros(1, np.int64)
        if num_values := int(np.count_nonzero(valid)):
            text, offsets = self._values.take(num_values)
        if len(offsets) - 1 < num_values:
            valid = valid[: np.flatnonzero(valid)[len(offsets) - 1]]
        self.num_left -= len(valid)
        return text, offsets[np.concatenate([[0], np.cumsum(valid)])], valid


class ChunkPages:
    """The pages of one column in one row group, in order."""

    def __init__(self, file: RowFile, chunk: Chunk, max_level: int, buffers: Buffers) -> None:
        if chunk.codec not in (_UNCOMPRESSED, _SNAPPY, *_STREAM_CODECS):
            raise NotDecodedError(f"codec {chunk.codec}")
        self._file = file
        self._chunk = chunk
        self._max_level = max_level
        self._buffers = buffers
        kind = _STREAM_CODECS.get(chunk.codec)
        self._codec = load_codec(kind, MAX_WINDOW_BYTES, file.source.path) if kind else None
        self._at = chunk.start
        self._end = chunk.start + chunk.compressed_bytes
        self._dictionary: tuple[_Header, int] | None = None
        self._is_loaded = self._was_in_order = False

    def open_next(self, num_skipped: int) -> tuple[Page, int]:
        """Open the page that the row after the next `num_skipped` rows is in.

        Return it, and how many of those rows are in pages before it.
        """
        left = num_skipped
        while True:
            header, body = self._read_header()
            body_end = body + header.compressed_bytes
            self._check_claims(header, body_end)
            is_first, self._at = self._at == self._chunk.start, body_end
            if header.type == _DICTIONARY_PAGE:
                if not is_first or header.encoding not in (_PLAIN, _PLAIN_DICTIONARY):
                    raise NotDecodedError("a dictionary with another place or encoding")
                self._dictionary = header, body
                is_small = header.uncompressed_bytes <= _MAX_WHOLE_BYTES
                if is_small and self._chunk.compressed_bytes > _MAX_BACK_BYTES:
                    self._load_dictionary(header, body)
            elif header.num_values <= left:
                left -= header.num_values
            else:
                return self._open(header, body), num_skipped - left

    def _check_claims(self, header: _Header, body_end: int) -> None:
        """Refuse a header that claims more than there is."""
        if body_end > self._end + _MAX_MISSING_BYTES:
            # pyarrow would reserve that much memory, up to 2 GB.
            raise PageClaimError("a page claims more bytes than its column has")
        if header.type != _DICTIONARY_PAGE and header.num_values > self._chunk.num_values:
            raise NotDecodedError("a page with more rows than its row group")
        if body_end > self._end or header.uncompressed_bytes > self._chunk.uncompressed_bytes:
            raise NotDecodedError("a page that is longer than its column")

    def _read_header(self) -> tuple[_Header, int]:
        """Read the next header; return it with the position after it."""
        size = min(_HEADER_BYTES, self._end - self._at)
        while True:
            data = self._buffers.read(self._file, self._at, size)
            try:
                header = _Header(*load_kernel().read_parquet_page(data))
            except ValueError:
                if size == min(_MAX_HEADER_BYTES, self._end - self._at):
                    raise
                size = min(_MAX_HEADER_BYTES, self._end - self._at)
            else:
                return header, self._at + header.header_bytes

    def _load_dictionary(self, header: _Header, body: int) -> None:
        count, size = header.num_values, header.uncompressed_bytes
        if size > _MAX_DICTIONARY_BYTES or count * 4 > size:
            raise NotDecodedError("a dictionary that is too large")
        content = self._iter_content(header, body, header.compressed_bytes, size)
        self._buffers.dictionary.start(count, content)
        self._buffers.dictionary.decode_all(count, size)
        self._is_loaded = True

    def _open(self, header: _Header, body: int) -> Page:
        count = header.num_values
        is_plain = header.encoding == _PLAIN
        if count > (_MAX_PAGE_VALUES if is_plain else _MAX_PAGE_INDEXES):
            raise NotDecodedError("a page with very many values")
        valid = self._decode_levels(self._start_texts(header, body), count)
        texts = self._buffers.page
        num_values = count if valid is None else int(np.count_nonzero(valid))
        if is_plain:
            return Page(count, valid, PlainValues(texts, num_values))
        if header.encoding not in (_PLAIN_DICTIONARY, _RLE_DICTIONARY) or self._dictionary is None:
            raise NotDecodedError(f"encoding {header.encoding}")
        data = texts.take_rest(_MAX_WHOLE_BYTES)
        return Page(count, valid, self._open_indexed(*self._dictionary, data, num_values))

    def _start_texts(self, header: _Header, body: int) -> NDArray[np.uint8] | None:
        """Start to read a page; return the levels that precede its values, if it has any."""
        size, texts = header.uncompressed_bytes, self._buffers.page
        if header.type == _DATA_PAGE_V2:
            level_bytes = header.level_bytes
            is_flat = header.num_rows == header.num_values and header.repetition_bytes == 0
            if not (is_flat and 0 <= level_bytes <= min(header.compressed_bytes, size)):
                raise NotDecodedError("a page with repeated rows")
            if level_bytes > _MAX_WHOLE_BYTES:
                raise NotDecodedError("a page with many levels")
            self._check(header, body)
            levels = self._buffers.read(self._file, body, level_bytes).copy()
            content = self._iter_content(
                header._replace(crc=None),
                body + level_bytes,
                header.compressed_bytes - level_bytes,
                size - level_bytes,
            )
            texts.start(BATCH_ROWS, content)
            return levels
        if self._max_level and header.level_encoding != _RLE:
            raise NotDecodedError("levels with another encoding")
        texts.start(BATCH_ROWS, self._iter_content(header, body, header.compressed_bytes, size))
        if not self._max_level:
            return None
        level_bytes = int(texts.take_raw(4).view(np.uint32)[0])
        if level_bytes > min(size, _MAX_WHOLE_BYTES):
            raise NotDecodedError("more levels than the page has bytes")
        return texts.take_raw(level_bytes)

    def _open_indexed(
        self, dictionary: _Header, body: int, data: NDArray[np.uint8], count: int
    ) -> Values:
        """Decode the indexes of a page, and prepare to read the texts of its dictionary."""
        indexes = np.empty(count, np.uint32)
        if count and not len(data):
            raise NotDecodedError("a page without its indexes")
        if len(data):
            load_kernel().decode_runs(data[1:], int(data[0]), dictionary.num_values, indexes)
        if not self._is_loaded:
            # All texts differ, as they do in most row groups of 1,000 documents, and before writers
            # give up a dictionary: it is read like a plain page, and not held. If another page has
            # indexes, it is loaded after all: it must not be decompressed for every page.
            in_order = count == dictionary.num_values and (indexes == np.arange(count)).all()
            if in_order and not self._was_in_order:
                self._was_in_order = True
                size, stored_bytes = dictionary.uncompressed_bytes, dictionary.compressed_bytes
                content = self._iter_content(dictionary, body, stored_bytes, size)
                self._buffers.page.start(BATCH_ROWS, content)
                return PlainValues(self._buffers.page, count)
            self._load_dictionary(dictionary, body)
        return IndexedValues(self._buffers, indexes)

    def _decode_levels(
        self, levels: NDArray[np.uint8] | None, count: int
    ) -> NDArray[np.bool_] | None:
        """Return which rows have a text; None if all have one."""
        if not self._max_level or levels is None:
            return None
        numbers = np.empty(count, np.uint32)
        limit = self._max_level + 1
        load_kernel().decode_runs(levels, self._max_level.bit_length(), limit, numbers)
        valid: NDArray[np.bool_] = numbers == self._max_level
        return None if valid.all() else valid

    def _check(self, header: _Header, body: int) -> NDArray[np.uint8] | None:
        """Compare a page's checksum, if it has one; return its bytes if they were held for that."""
        if header.crc is None:
            return None
        from isal import isal_zlib

        size, whole, found = header.compressed_bytes, None, 0
        if size <= _MAX_WHOLE_BYTES:
            whole = self._buffers.read(self._file, body, size)
        for piece in self._iter_stored(body, size, whole):
            found = isal_zlib.crc32(piece, found)
        if found != header.crc:
            raise NotDecodedError("a checksum mismatch")
        return whole

    def _iter_content(
        self, header: _Header, start: int, stored_bytes: int, size: int
    ) -> Iterator[bytes | memoryview]:
        """Yield what is stored from `start` on, decompressed, and check its size."""
        whole = self._check(header, start)
        stored = self._iter_stored(start, stored_bytes, whole)
        pieces: Iterator[bytes | memoryview] = stored
        if header.is_compressed and stored_bytes:
            if self._codec is not None:
                pieces = _iter_decompressed(stored, self._codec)
            elif self._chunk.codec == _SNAPPY:
                pieces = iter_snappy(stored, size, self._buffers.snappy_room(size))
        done = 0
        for piece in pieces:
            done += len(piece)
            if done > size:
                break
            yield piece
        if done != size:
            raise NotDecodedError("a page that does not have the size in its header")

    def _iter_stored(
        self, start: int, num_bytes: int, whole: NDArray[np.uint8] | None
    ) -> Iterator[memoryview]:
        """Yield bytes of the file from `start` on, or those in memory, if they are."""
        for at in range(0, num_bytes, READ_BYTES):
            size = min(READ_BYTES, num_bytes - at)
            if whole is None:
                yield self._buffers.read(self._file, start + at, size).data
            else:
                yield whole[at : at + size].data


def _iter_decompressed(stored: Iterator[memoryview], codec: Codec) -> Iterator[bytes]:
    decoder = codec.start()
    try:
        for piece in stored:
            if decoder.eof:
                raise NotDecodedError("more than one frame")
            yield decoder.decompress(piece, _PIECE_BYTES)
            while not (decoder.needs_input or decoder.eof):
                yield decoder.decompress(b"", _PIECE_BYTES)
    except codec.errors as error:
        raise NotDecodedError(str(error)) from error
    if not decoder.eof or decoder.unused_data:
        raise NotDecodedError("a page that is cut short, or has more than one frame")
