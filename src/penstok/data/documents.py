"""The documents of a split, one by one: found by the document index, joined across shards.

It reads nothing but the entries and tokens that are asked for, and checks no checksum. `dataset`
opens it; the arrays that `dataset` returns have it as `documents`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from penstok.errors import DamageError, UsageError
from penstok.output.documents import ENTRY_BYTES, HEADER_BYTES
from penstok.quantities import plural
from penstok.storage.object_paths import repair_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstok.data.fields import Fields
    from penstok.output.formats.base import TokenFile
    from penstok.types import Split

__all__ = ["Documents", "HasDocuments", "Ids", "PerDocument", "RangeReader"]

Ids = NDArray[np.unsignedinteger[Any]]
# The index begins with a header as long as this many entries.
_HEADER_ENTRIES = HEADER_BYTES // ENTRY_BYTES
# Entries that are read at a time while documents are streamed.
_READ_ENTRIES = 1 << 14
# Token files, each with its index, that are open at a time: a memory map holds a file open.
_MAX_OPEN_FILES = 8
# Tokens that are read at a time; from an object store, each read is a request.
_READ_TOKENS = 1 << 21


class RangeReader(Protocol):
    """An array in a file or an object, of which ranges are read."""

    def __getitem__(self, key: slice, /) -> NDArray[Any]:
        """Return a range."""
        ...


_T = TypeVar("_T")


class PerDocument(Sequence[_T]):
    """Something that every document of a split has, by its number."""

    _split: Split

    @overload
    def __getitem__(self, key: int) -> _T: ...
    @overload
    def __getitem__(self, key: slice) -> list[_T]: ...
    def __getitem__(self, key: int | slice) -> _T | list[_T]:
        """Read what one document has, or the documents of a slice.

        Raises:
            IndexError: If there is no such document.
            DamageError: If a file is missing or damaged.
        """
        if isinstance(key, slice):
            return [self._read(number) for number in range(*key.indices(len(self)))]
        try:
            number = range(len(self))[key]
        except IndexError as error:
            text = f"document {key} of {len(self)}: the {self._split} split has no such document"
            raise IndexError(text) from error
        return self._read(number)

    def _read(self, number: int) -> _T:
        raise NotImplementedError


class Documents(PerDocument[Ids]):
    """The documents of a split in order: `documents[17]` is an array of ids.

    Nothing is loaded: documents of a folder are views of memory maps, those of an object store are
    read by one request for their place and one for their ids. A document that crosses shards is
    joined, and is a copy. Ids are as they are in the file, with the end-of-text id if there is one.
    """

    def __init__(
        self,
        split: Split,
        files: list[TokenFile],
        open_pair: Callable[[Split, int], tuple[RangeReader, RangeReader]],
    ) -> None:
        """Prepare to read; files are opened when they are needed.

        Args:
            split: The split.
            files: Its token files, in order.
            open_pair: Returns the tokens of a file, by its number, and its index, with the header
                as the first 16 entries.
        """
        self._split = split
        self._files = files
        self._open_pair = open_pair
        self._opened: dict[int, tuple[RangeReader, RangeReader]] = {}
        # The number of the first document of each file, and of all documents.
        self._firsts = list(accumulate((file.num_documents for file in files), initial=0))

    def __getstate__(self) -> dict[str, Any]:
        # A memory map would be pickled with all it maps.
        return self.__dict__ | {"_opened": {}}

    def __len__(self) -> int:
        return self._firsts[-1]

    def __repr__(self) -> str:
        return f"<{plural(len(self), 'document')} of {self._split}>"

    def __iter__(self) -> Iterator[Ids]:
        """Yield document after document, reading ahead."""
        for idx, file in enumerate(self._files):
            # The last one may continue in the next file.
            stop = file.num_entries - 1
            for first in range(int(file.continues), stop, _READ_ENTRIES):
                bounds = self._entries(idx, first, min(first + _READ_ENTRIES, stop) + 1)
                yield from self._iter_between(idx, bounds)
            if file.num_documents:
                yield self._read(self._firsts[idx + 1] - 1)

    def _iter_between(self, idx: int, bounds: list[int]) -> Iterator[Ids]:
        """Yield the documents between neighbouring bounds, several per read."""
        tokens, at = self._pair(idx)[0], 0
        while at < len(bounds) - 1:
            end = max(bisect_right(bounds, bounds[at] + _READ_TOKENS) - 1, at + 1)
            low, piece = bounds[at], tokens[bounds[at] : bounds[end]]
            for start, stop in pairwise(bounds[at : end + 1]):
                yield piece[start - low : stop - low]
            at = end

    def _read(self, number: int) -> Ids:
        idx = bisect_right(self._firsts, number) - 1
        file = self._files[idx]
        entry = number - self._firsts[idx] + file.continues
        start, end = self._entries(idx, entry, entry + 2)
        pieces = [self._pair(idx)[0][start:end]]
        if entry == file.num_entries - 1:
            pieces += self._iter_rest(idx + 1)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _iter_rest(self, idx: int) -> Iterator[Ids]:
        """Yield the rest of a document from the files that it continues in."""
        for later in range(idx, len(self._files)):
            file = self._files[later]
            if file.continues:
                yield self._pair(later)[0][slice(*self._entries(later, 0, 2))]
            # A task in which such a document has no token leaves an empty file.
            if file.num_documents or (file.num_tokens and not file.continues):
                return

    def _pair(self, idx: int) -> tuple[RangeReader, RangeReader]:
        if idx not in self._opened:
            if len(self._opened) >= _MAX_OPEN_FILES:
                del self._opened[next(iter(self._opened))]
            self._opened[idx] = self._open_pair(self._split, idx)
        return self._opened[idx]

    def _entries(self, idx: int, first: int, stop: int) -> list[int]:
        """Read entries of an index, and refuse those that no index has."""
        file = self._files[idx]
        found = self._pair(idx)[1][_HEADER_ENTRIES + first : _HEADER_ENTRIES + stop]
        entries: list[int] = found.tolist()
        is_last = stop == file.num_entries + 1
        is_valid = (
            len(entries) == stop - first
            and all(low <= high for low, high in pairwise(entries))
            and entries[-1] <= file.num_tokens
            and (not is_last or entries[-1] == file.num_tokens)
        )
        if not is_valid:
            raise DamageError(
                f"`{file.index.name}` does not fit `{file.name}`",
                where=str(file.index),
                next_step=repair_step(file.index.parent),
            )
        return entries


class HasDocuments:
    """What an array of all tokens of a split offers besides the tokens."""

    _open_documents: Callable[[], Documents] | None = None
    _open_fields: Callable[[], Fields] | None = None

    @property
    def documents(self) -> Documents:
        """The documents of the split: their number, each by its number, or one after the other.

        Raises:
            DamageError: If the output has no document index.
            UsageError: If it was left out, or this is not the array of a whole split.
        """
        if self._open_documents is None:
            raise UsageError(
                "only the array of a whole split knows its documents",
                where="documents",
                next_step='use `documents("train")` of what `penstok.open` returns',
            )
        return self._open_documents()

    @property
    def fields(self) -> Fields:
        """The fields of records that the job kept: `fields[17]` are those of document 17.

        Raises:
            UsageError: If it kept none, or this is not the array of a whole split.
        """
        if self._open_fields is None:
            raise UsageError(
                "only the array of a whole split knows the fields of its documents",
                where="fields",
                next_step='use `fields("train")` of what `penstok.open` returns',
            )
        return self._open_fields()

    def document(self, number: int) -> Ids:
        """Return the ids of a document, counted from 0; -1 is the last.

        Raises:
            IndexError: If there is no such document.
        """
        return self.documents[number]

    def iter_documents(self) -> Iterator[Ids]:
        """Yield the ids of document after document."""
        return iter(self.documents)
