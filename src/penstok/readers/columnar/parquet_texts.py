"""The texts of parquet pages: decoded by the kernel, in memory that is used again for every page.

It knows no headers or row groups. `parquet_chunk` gives it decompressed pages piece by piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstok.kernel import load_kernel
from penstok.readers.columnar.parquet_snappy import room_bytes
from penstok.readers.columnar.texts import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstok.readers.columnar.file import RowFile

__all__ = [
    "BATCH_ROWS",
    "READ_BYTES",
    "Buffers",
    "IndexedValues",
    "NotDecodedError",
    "PageClaimError",
    "PlainValues",
    "TextBuffer",
    "Values",
]

# What is read and yielded at once: it stays in the processor's cache.
READ_BYTES = 1 << 18
_BATCH_BYTES = 1 << 18
BATCH_ROWS = 1 << 10


class NotDecodedError(Exception):
    """Something that only pyarrow decodes, or damage that it describes."""


class PageClaimError(Exception):
    """A page claims too much memory; pyarrow, which would reserve it, is not asked."""


class Values(Protocol):
    """The texts of a page, without its nulls."""

    def take(self, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the next texts, at least one and at most `count`, and their offsets."""
        ...


class PlainValues:
    """Texts that follow their lengths, decoded as they are decompressed."""

    def __init__(self, texts: TextBuffer, count: int) -> None:
        self._texts = texts
        self._num_left = count
        if not count:
            texts.finish()

    def take(self, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the next texts, about a batch of them."""
        self._texts.decode(count, _BATCH_BYTES)
        self._num_left -= self._texts.num_texts
        if not self._num_left:
            self._texts.finish()
        return self._texts.data, self._texts.offsets


class IndexedValues:
    """Texts of a dictionary, by their indexes."""

    def __init__(self, buffers: Buffers, indexes: NDArray[np.uint32]) -> None:
        self._buffers = buffers
        self._indexes = indexes
        offsets = buffers.dictionary.offsets
        lengths = offsets[1:][indexes] - offsets[:-1][indexes]
        self._ends = np.cumsum(lengths, out=lengths)
        self._follow = np.diff(indexes.view(np.int32), prepend=-1) == 1
        self._at = 0

    def take(self, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the next texts: of the dictionary itself if they follow each other there."""
        dictionary, at = self._buffers.dictionary, self._at
        before = int(self._ends[at - 1]) if at else 0
        limit = before + _BATCH_BYTES
        end = at + int(np.searchsorted(self._ends[at : at + count], limit, "right"))
        self._at = end = max(end, at + 1)
        if self._follow[at + 1 : end].all():
            first = int(self._indexes[at])
            return dictionary.data, dictionary.offsets[first : first + end - at + 1]
        room = self._buffers.room(int(self._ends[end - 1]) - before)
        offsets = np.zeros(end - at + 1, np.int64)
        indexes = self._indexes[at:end]
        load_kernel().gather_texts(dictionary.data, dictionary.offsets, indexes, room, offsets[1:])
        return room, offsets


class Buffers:
    """Memory that is used again for every page."""

    def __init__(self) -> None:
        self.page: TextBuffer = TextBuffer()
        self.dictionary: TextBuffer = TextBuffer()
        self._room = np.empty(0, np.uint8)
        self._stored = np.empty(0, np.uint8)
        self._snappy_room = np.empty(0, np.uint8)

    def snappy_room(self, size: int) -> NDArray[np.uint8]:
        """Return room to decompress a page of some size with snappy."""
        needed = room_bytes(size)
        if needed > len(self._snappy_room):
            self._snappy_room = np.empty(needed + needed // 4, np.uint8)
        return self._snappy_room[:needed]

    def room(self, size: int) -> NDArray[np.uint8]:
        """Return room for gathered texts."""
        if size > len(self._room):
            self._room = np.empty(max(size, _BATCH_BYTES), np.uint8)
        return self._room[:size]

    def read(self, file: RowFile, start: int, size: int) -> NDArray[np.uint8]:
        """Read stored bytes, in place of those that were read last."""
        if size > len(self._stored):
            self._stored = np.empty(max(size, READ_BYTES), np.uint8)
        found = self._stored[:size]
        file.read_into(found.data, start)
        return found


class TextBuffer:
    """Texts without the lengths before them, from a page that arrives in pieces."""

    def __init__(self) -> None:
        self.data: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._offsets = np.zeros(1, np.int64)
        self._copy = load_kernel().copy_plain_texts
        self._pieces: Iterator[bytes | memoryview] = iter(())
        self._piece = np.empty(0, np.uint8)
        # Where the next byte of the piece is, where the last text ends so far, and how many of its
        # bytes are missing.
        self._at = self._end = self._num_open = 0
        self.num_texts: int = 0

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each text begins in `data`, and where the last one ends."""
        return self._offsets[: self.num_texts + 1]

    def start(self, capacity: int, pieces: Iterator[bytes | memoryview]) -> None:
        """Hold nothing, and up to `capacity` texts of these pieces from now on."""
        if capacity >= len(self._offsets):
            self._offsets = np.zeros(capacity + 1, np.int64)
        self._pieces = pieces
        self._piece = np.empty(0, np.uint8)
        self._at = self._end = self._num_open = self.num_texts = 0

    def take_raw(self, size: int) -> NDArray[np.uint8]:
        """Return bytes before the first text."""
        while len(self._piece) - self._at < size:
            self._add_next()
        self._at += size
        return self._piece[self._at - size : self._at].copy()

    def take_rest(self, max_bytes: int) -> NDArray[np.uint8]:
        """Return all bytes, if there are no texts."""
        rest = [self._piece[self._at :].tobytes()]
        num_bytes = len(rest[0])
        for piece in self._pieces:
            rest.append(bytes(piece))
            num_bytes += len(piece)
            if num_bytes > max_bytes:
                raise NotDecodedError("a page of indexes that is too large")
        return np.frombuffer(b"".join(rest), np.uint8)

    def decode_all(self, count: int, num_bytes: int) -> None:
        """Decode `count` texts in `num_bytes`, which are all that there is."""
        self._reserve(num_bytes)
        while self.num_texts < count:
            self._add_next()
            self._decode(count)
        self.finish()

    def decode(self, count: int, num_bytes: int) -> None:
        """Decode one or more texts, up to `count`, until they have about `num_bytes`.

        They take the place of the texts before.
        """
        first = int(self._offsets[self.num_texts])
        self._end -= first
        self.data[: self._end] = self.data[first : first + self._end]
        self.num_texts = 0
        self._decode(count)
        while self.num_texts < count and self._offsets[self.num_texts] < num_bytes:
            self._add_next()
            self._decode(count)

    def finish(self) -> None:
        """Read to the end, to find damage; bytes after the last text do not count.

        fastparquet leaves some, and pyarrow ignores them too.
        """
        for _ in self._pieces:
            pass

    def _decode(self, count: int) -> None:
        """Decode what is left of a piece, up to `count` texts in all."""
        self._reserve(self._end + len(self._piece) - self._at)
        ends = self._offsets[self.num_texts + 1 : count + 1]
        self._at, self._end, self._num_open, found = self._copy(
            self._piece, self._at, self.data, self._end, self._num_open, MAX_TEXT_BYTES, ends
        )
        self.num_texts += found

    def _add_next(self) -> None:
        """Go on to the next piece; a few bytes may be left of the last one."""
        # Before the next piece, which may take the place of the last one in memory.
        left = self._piece[self._at :].tobytes()
        piece = next(self._pieces, None)
        if piece is None:
            raise EOFError("the page has fewer texts than it should")
        self._piece, self._at = np.frombuffer(left + piece if left else piece, np.uint8), 0

    def _reserve(self, size: int) -> None:
        if size > len(self.data):
            larger = np.empty(max(size + size // 4, 4 * _BATCH_BYTES), np.uint8)
            larger[: self._end] = self.data[: self._end]
            self.data = larger
