"""The indexes beside a token file: where each document starts in it, and where it came from.

They are plain NumPy files, so `numpy.load(path, mmap_mode="r")` opens them. While a job runs,
workers write one entry per document to a spool of each kind, by offset; at the end every spool
becomes one index per token file. `output.store` writes the indexes, `output.formats` and `data`
read them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from penstok.errors import DamageError, is_refused, quoted, read_error
from penstok.kernel import find_kernel_function
from penstok.output.fields import FieldSpool, iter_parquet
from penstok.output.spools import ENTRY_TYPES, IndexKind, are_in_order, iter_spool, lost_spool
from penstok.storage.object_paths import repair_step
from penstok.types import Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from penstok.output.layout import Layout
    from penstok.storage.object_paths import OutputPath
    from penstok.types import EotPosition, Split

__all__ = [
    "ENTRY_BYTES",
    "HEADER_BYTES",
    "DocumentFinder",
    "IndexContent",
    "IndexRecord",
    "StagedIndex",
    "check_index",
    "describe_index",
    "digest_index",
    "hash_file",
    "index_name",
    "iter_entries",
    "iter_indexes",
    "npy_header",
]

ENTRY_BYTES = 8
# The header is padded to this size, whatever the number of entries.
HEADER_BYTES = 128
_MAGIC = b"\x93NUMPY\x01\x00"
_SHAPE = re.compile(rb"'descr': (.*), 'fortran_order': False, 'shape': \((\d+),\)")
_NAMES: dict[IndexKind, str] = {"documents": "a document index", "origins": "a list of origins"}
_READ_ENTRIES = 1 << 16
# How many tokens are searched at once, and how many ends are found at most.
_FIND_TOKENS = 1 << 20
_FIND_ENDS = 1 << 16


def index_name(token_file: str, kind: IndexKind = "documents") -> str:
    """Return the name of an index beside a token file: `train_documents.npy`."""
    suffix = "parquet" if kind == "fields" else "npy"
    return token_file.removesuffix(".bin") + f"_{kind}.{suffix}"


def npy_header(num_entries: int, descr: str | list[Any] = "<u8") -> bytes:
    """Return the header of a one-dimensional NumPy file."""
    fields = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({num_entries},), }}"
    length = HEADER_BYTES - len(_MAGIC) - 2
    return _MAGIC + length.to_bytes(2, "little") + fields.ljust(length - 1).encode() + b"\n"


def iter_entries(
    path: OutputPath, kind: IndexKind = "documents", first: int = 0, stop: int | None = None
) -> Iterator[NDArray[Any]]:
    """Yield the entries of an index in pieces; that of documents has the total at the end.

    Args:
        path: The file.
        kind: What it should be.
        first: The first entry to read.
        stop: The entry before which to stop; None for all.

    Raises:
        DamageError: If the file is missing, or is not such an index.
    """
    dtype = ENTRY_TYPES[kind]
    try:
        with path.open("rb") as file:
            match = _SHAPE.search(file.read(HEADER_BYTES))
            if match is None or match[1].decode("latin-1") != repr(_descr(dtype)):
                raise _damage(f"`{path.name}` is not {_NAMES[kind]}", path)
            left = int(match[2]) - first if stop is None else stop - first
            file.seek(HEADER_BYTES + first * dtype.itemsize)
            while left > 0:
                data = file.read(min(left, _READ_ENTRIES) * dtype.itemsize)
                if not data or len(data) % dtype.itemsize:
                    raise _damage(f"`{path.name}` ends too early", path)
                left -= len(data) // dtype.itemsize
                yield np.frombuffer(data, dtype)
    except FileNotFoundError as error:
        raise _damage(f"`{path.name}` is missing", path) from error


def _descr(dtype: np.dtype[Any]) -> str | list[Any]:
    return dtype.str if dtype.names is None else dtype.descr


class DocumentFinder:
    """Finds where documents start in runs of tokens, by their end-of-text ids.

    The id is a special token, which no text becomes, so every one of them is a document's end, or
    its start with `prepend`.
    """

    def __init__(self, eot_id: int, eot: EotPosition) -> None:
        self._eot_id, self._is_append = eot_id, eot == "append"
        self._find = find_kernel_function("find_ids") or _find_ids
        self._found = np.empty(_FIND_ENDS, np.uint32)

    def iter_first_starts(
        self,
        tokens: Iterable[NDArray[np.unsignedinteger[Any]]],
        offset: int,
        num_documents: int,
        *,
        continues: bool = False,
    ) -> Iterator[NDArray[np.uint64]]:
        """Yield, in pieces, where the documents start that begin in the tokens of one unit.

        Its last document may have no token there: those of a document whose first bytes were
        invalid and removed are all in the next unit.

        Args:
            tokens: The tokens, in pieces, without those of a carried document.
            offset: The number of tokens before them, which is added to all starts.
            num_documents: How many documents begin there.
            continues: Whether they begin with the rest of a passage of a giant document.
        """
        if self._is_append and num_documents and not continues:
            yield np.array([offset], np.uint64)
            num_documents -= 1
        for piece in tokens:
            for found in self.iter_ids(piece, offset + self._is_append):
                if num_documents:
                    starts = found[:num_documents]
                    num_documents -= len(starts)
                    yield starts
            offset += len(piece)

    def iter_starts(
        self, pieces: Iterable[NDArray[np.unsignedinteger[Any]]], offset: int = 0
    ) -> Iterator[NDArray[np.uint64]]:
        """Yield, in pieces, where documents start in all tokens of a split, or a task.

        Args:
            pieces: The tokens, in pieces, beginning with a document.
            offset: The number of tokens before them, which is added to all starts.
        """
        starts_next = self._is_append
        for piece in pieces:
            if starts_next and len(piece):
                yield np.array([offset], np.uint64)
                starts_next = False
            for starts in self.iter_ids(piece, offset + self._is_append):
                # What follows the last token may not exist.
                starts_next = self._is_append and int(starts[-1]) == offset + len(piece)
                yield starts[:-1] if starts_next else starts
            offset += len(piece)

    def iter_ids(
        self, tokens: NDArray[np.unsignedinteger[Any]], offset: int = 0
    ) -> Iterator[NDArray[np.uint64]]:
        """Yield the positions of end-of-text ids, in pieces that are not empty.

        Args:
            tokens: The tokens.
            offset: Is added to all positions.
        """
        at = 0
        while at < len(tokens):
            count = self._find(tokens[at : at + _FIND_TOKENS], self._eot_id, self._found)
            is_full = count == len(self._found)
            searched = int(self._found[-1]) + 1 if is_full else _FIND_TOKENS
            if count:
                # The type must be named: NumPy 1.26 adds a small number without widening.
                yield np.add(self._found[:count], np.uint64(at + offset), dtype=np.uint64)
            at += searched


def _find_ids(ids: NDArray[np.unsignedinteger[Any]], wanted: int, out: NDArray[np.uint32]) -> int:
    """Do what the kernel does, at half its speed."""
    found = np.flatnonzero(ids == wanted)[: len(out)]
    out[: len(found)] = found
    return len(found)


class IndexRecord(Struct, frozen=True, omit_defaults=True):
    """An index beside a token file, as the manifest lists it.

    Attributes:
        kind: What it says about the documents of the file: `documents` is where they start in
            it, `origins` where they came from, `fields` what their records had besides the text.
            `mask`, which tokens count for the loss, is reserved: no job writes it yet.
        path: Its name.
        bytes: Its size.
        digest: The xxh3_128 of its content.
        documents: How many documents begin in the token file.
        continues: Whether the token file begins with the rest of a document of the file before.
        values: Of fields: per column, how many documents have a value.
    """

    kind: IndexKind
    path: str
    bytes: int
    digest: str
    documents: int
    continues: bool
    values: dict[str, int] = field(default_factory=dict)

    @property
    def expected_bytes(self) -> int:
        """The size of an index of so many documents; one of starts has the total at its end.

        That of fields depends on their values, that of a mask on the tokens.
        """
        if self.kind in ("fields", "mask"):
            return self.bytes
        is_starts = self.kind == "documents"
        num_entries = self.documents + is_starts * (self.continues + 1)
        return HEADER_BYTES + num_entries * ENTRY_TYPES[self.kind].itemsize


def check_index(path: OutputPath, record: IndexRecord) -> None:
    """Compare an index with its recorded size and checksum.

    Raises:
        DamageError: If it is missing, cannot be read, or was changed.
    """
    num_bytes, digest = digest_index(path)
    if num_bytes != record.bytes:
        raise _damage(f"the index has {num_bytes:,} bytes instead of {record.bytes:,}", path)
    if digest != record.digest:
        raise _damage("checksum mismatch: it was changed", path)


def describe_index(path: OutputPath, num_tokens: int) -> IndexRecord:
    """Return the record of an index whose token file begins with a document.

    Raises:
        DamageError: If it is missing, or is not an index of so many tokens.
    """
    num_entries, last = 0, 0
    for piece in iter_entries(path):
        is_first = num_entries == 0
        if piece[0] < last or np.any(piece[1:] < piece[:-1]) or (is_first and piece[0] != 0):
            raise _damage(f"`{path.name}` is not a document index", path)
        num_entries, last = num_entries + len(piece), int(piece[-1])
    num_bytes, digest = digest_index(path)
    if last != num_tokens or num_bytes != HEADER_BYTES + num_entries * ENTRY_BYTES:
        raise _damage(f"`{path.name}` is not the index of {num_tokens:,} tokens", path)
    return IndexRecord("documents", path.name, num_bytes, digest, num_entries - 1, continues=False)


def hash_file(path: OutputPath, on_piece: Callable[[bytes], None] | None = None) -> tuple[int, str]:
    """Read a file in pieces; return its size and the xxh3_128 of its content.

    Args:
        path: The file.
        on_piece: Called with every piece; all but the last have whole entries of an index.

    Raises:
        OSError: If it cannot be read.
    """
    running, num_bytes = xxhash.xxh3_128(), 0
    with path.open("rb") as file:
        while piece := file.read(_READ_ENTRIES * ENTRY_BYTES):
            running.update(piece)
            num_bytes += len(piece)
            if on_piece is not None:
                on_piece(piece)
    return num_bytes, running.hexdigest()


def digest_index(path: OutputPath) -> tuple[int, str]:
    """Return the size and the checksum of an index.

    Raises:
        DamageError: If it is missing or cannot be read.
    """
    try:
        return hash_file(path)
    except FileNotFoundError as error:
        raise _damage("the index is missing", path) from error
    except OSError as error:
        if is_refused(error):
            raise read_error(error, str(path)) from error
        raise _damage(f"the index cannot be read: {error.strerror}", path) from error


class StagedIndex(Struct, frozen=True):
    """An index that is written but not published; only the store reads its location."""

    record: IndexRecord
    location: dict[str, Any]


class IndexContent(Struct, frozen=True):
    """One index of one token file, to be written.

    Attributes:
        kind: What it says.
        name: Its final name.
        num_documents: How many documents start in the file.
        continues: Whether its first tokens are the rest of a document of the file before.
        content: The bytes of the index, made while they are written.
        values: Of fields: how many documents have a value, once the bytes are made.
    """

    kind: IndexKind
    name: str
    num_documents: int
    continues: bool
    content: Iterable[bytes | memoryview]
    values: dict[str, int] = field(default_factory=dict)

    def to_record(self, num_bytes: int, digest: str) -> IndexRecord:
        """Return the record of the index, once it is written."""
        return IndexRecord(
            self.kind,
            self.name,
            num_bytes,
            digest,
            self.num_documents,
            self.continues,
            dict(self.values),
        )


class _FileDocuments(Struct, frozen=True):
    """The documents of one token file.

    Attributes:
        first: How many documents of the split begin before them.
        count: How many there are.
        low: How many tokens of the split come before the file.
        high: How many there are at its end.
        continues: Whether its first tokens are the rest of a document of the file before.
    """

    first: int
    count: int
    low: np.uint64
    high: np.uint64
    continues: bool


def iter_indexes(
    layout: Layout, split: Split, num_tokens: int, num_documents: int
) -> Iterator[IndexContent]:
    """Divide the spools of a split among its token files, and yield the indexes of each.

    Raises:
        SpoolError: If a spool is too short, or its entries are not in order.
    """
    if not layout.index_kinds:
        return
    shards = dict(layout.iter_shards(split, num_tokens))
    starts = layout.spool_path(split, "documents")
    divided = _divide_documents(starts, num_documents, list(shards.values()))
    names = layout.kept_fields
    fields = FieldSpool(layout.spool_path(split, "fields"), len(names))
    for shard, file in zip(shards, divided, strict=True):
        for kind in layout.index_kinds:
            name, values = index_name(layout.file_name(split, shard), kind), dict[str, int]()
            content: Iterable[bytes | memoryview]
            if kind == "fields":
                rows = fields.iter_rows(file.first, file.count)
                content = iter_parquet(rows, names, file.count, values)
            else:
                content = _CONTENTS[kind](layout.spool_path(split, kind), file)
            yield IndexContent(kind, name, file.count, file.continues, content, values)


def _divide_documents(
    spool: Path, num_documents: int, file_tokens: Sequence[int]
) -> Iterator[_FileDocuments]:
    """Find which documents begin in which file; the spool may be longer than needed."""
    bounds = np.zeros(len(file_tokens) + 1, np.uint64)
    np.cumsum(file_tokens, out=bounds[1:])
    firsts = np.zeros(len(bounds), np.int64)
    last = -1
    for piece in iter_spool(spool, "documents", 0, num_documents):
        if int(piece[0]) < max(last, 0) or not are_in_order(piece):
            raise lost_spool(spool, "its entries are not in order")
        last = int(piece[-1])
        firsts += np.searchsorted(piece, bounds)
    if last > int(bounds[-1]):
        raise lost_spool(spool, "it has a start after the last token")
    # Documents without a token at the end of a split start where it ends.
    firsts[-1] = num_documents
    for (first, end), (low, high) in zip(pairwise(firsts.tolist()), pairwise(bounds), strict=True):
        start = next(iter_spool(spool, "documents", first, min(end - first, 1)), None)
        continues = bool(high > low if start is None else start[0] != low)
        yield _FileDocuments(first, end - first, low, high, continues)


def _iter_starts(spool: Path, file: _FileDocuments) -> Iterator[bytes | memoryview]:
    """Yield the starts, counted from the file's own; a rest of a document starts at 0."""
    yield npy_header(file.count + file.continues + 1)
    if file.continues:
        yield bytes(ENTRY_BYTES)
    for piece in iter_spool(spool, "documents", file.first, file.count):
        yield np.subtract(piece, file.low, out=piece).view(np.uint8).data
    yield (file.high - file.low).tobytes()


def _iter_origins(spool: Path, file: _FileDocuments) -> Iterator[bytes | memoryview]:
    """Yield the origins as they are: a rest of a document has none, and there is no total."""
    dtype = ENTRY_TYPES["origins"]
    yield npy_header(file.count, dtype.descr)
    last = np.zeros(1, dtype)
    for piece in iter_spool(spool, "origins", file.first, file.count):
        if not (are_in_order(piece) and are_in_order(np.concatenate((last, piece[:1])))):
            raise lost_spool(spool, "its entries are not in order")
        last = piece[-1:]
        yield piece.view(np.uint8).data


# How the content of an index is made from the spool of its kind.
_CONTENTS: dict[IndexKind, Callable[[Path, _FileDocuments], Iterator[bytes | memoryview]]] = {
    "documents": _iter_starts,
    "origins": _iter_origins,
}


def _damage(what: str, path: OutputPath) -> DamageError:
    next_step = repair_step(path.parent)
    if path.name.endswith(index_name("", "origins")):
        # The tokens do not say where documents came from.
        next_step = f"start again: `penstok tokenize INPUT... -o {quoted(path.parent)} --overwrite`"
    return DamageError(what, where=str(path), next_step=next_step)
