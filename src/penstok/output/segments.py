"""Runs of tokens inside output files: written at an offset, read back, summarized, compared.

It knows nothing about documents or the order of units, and renames nothing. `worker` writes through
it; `jobs.resume` and `verification` read through it. Files are partial until their job is done.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import xxhash

from penstok.errors import DamageError, is_refused, read_error
from penstok.faults import fault_point
from penstok.kernel import find_kernel_function
from penstok.output.fields import UnitFields
from penstok.output.spools import ENTRY_TYPES
from penstok.output.token_runs import TokenSpool
from penstok.output.write_errors import write_errors
from penstok.storage.object_paths import ObjectPath, OpenObjects, repair_step
from penstok.types import Segment, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from penstok.output.layout import Layout
    from penstok.output.spools import IndexKind
    from penstok.output.token_runs import TokenRun
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split

__all__ = [
    "REMOTE_READ_BYTES",
    "OpenFiles",
    "SegmentReader",
    "SegmentSink",
    "SegmentSummary",
    "SegmentWriter",
    "SinkKind",
    "make_sink",
]

SinkKind = Literal["write", "compare", "digest", "fields", "count"]

_MAX_OPEN_FILES = 4
# Read back in pieces that stay in the processor's cache while they are hashed and summarized.
_READ_BYTES = 1 << 20
# Written in pieces that are hashed first: the tokens of a unit have left the cache by then, and
# hashing, which prefetches, brings them back. Larger pieces let the file system take larger pages:
# of 88 MB, hashing and writing took 26 ms in pieces of 256 KiB, 19 with reserved blocks in pieces
# of 512 KiB, 18 in pieces of 1 MiB, which is more than the second-level cache of many processors.
_WRITE_BYTES = 1 << 19
# Shorter runs are not worth a system call.
_MIN_RESERVED_BYTES = 1 << 20
# From an object store, one request per piece of this size.
REMOTE_READ_BYTES = 8 << 20


class OpenFiles:
    """Keeps the most recently used files open."""

    def __init__(self, flags: int) -> None:
        self._flags = flags | os.O_CLOEXEC
        self._files: dict[Path, int] = {}

    def get(self, path: Path) -> int:
        """Return an open file for a path."""
        if path not in self._files:
            if len(self._files) >= _MAX_OPEN_FILES:
                self.close()
            self._files[path] = os.open(path, self._flags, 0o644)
        return self._files[path]

    def close(self) -> None:
        """Close all of them."""
        while self._files:
            os.close(self._files.popitem()[1])


class SegmentSink(Protocol):
    """Takes the tokens of units, each run at its offset."""

    def write(self, split: Split, offset: int, tokens: TokenRun) -> list[Segment]:
        """Take tokens at an offset of their split."""
        ...

    def open_spool(self, dtype: str) -> TokenSpool | None:
        """Make room on disk for tokens that wait; None if they will not be read."""
        ...

    def write_entries(
        self, split: Split, kind: IndexKind, num_before: int, entries: Iterable[NDArray[Any]]
    ) -> None:
        """Take the entries of an index for documents after `num_before` ones of their split."""
        ...

    def begin_fields(self, unit_idx: int) -> UnitFields | None:
        """Start taking the kept fields of a unit; None if they are not wanted."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


def make_sink(kind: SinkKind, layout: Layout) -> SegmentSink:
    """Create the sink for a worker's tokens."""
    if kind == "compare":
        return SegmentComparer(layout)
    if kind == "digest":
        return SegmentDigester(layout)
    if kind == "fields":
        return FieldsWriter(layout)
    if kind == "count":
        return SegmentDropper()
    return SegmentWriter(layout) if layout.piece_bytes is None else PieceWriter(layout)


class SegmentWriter:
    """Writes runs of tokens into partial files."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        # A link planted under a partial name must not lead a write out of the folder: O_NOFOLLOW.
        self._files = OpenFiles(os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)
        self._reserve_disk_space = find_kernel_function("reserve_disk_space")

    def write(self, split: Split, offset: int, tokens: TokenRun) -> list[Segment]:
        """Write tokens at an offset of their split; a run across shards is several segments."""
        segments, first = list[Segment](), 0
        for shard, inside, count in self._layout.iter_shard_ranges(split, offset, len(tokens)):
            path, token_bytes = self._layout.partial_path(split, shard), self._layout.token_bytes
            position = inside * token_bytes
            running = xxhash.xxh3_128()
            with write_errors(path):
                self._reserve(path, position, count * token_bytes)
                for data in _iter_bytes(tokens, first, count):
                    for at in range(0, len(data), _WRITE_BYTES):
                        piece = data[at : at + _WRITE_BYTES]
                        running.update(piece)
                        self._write_at(path, piece, position)
                        position += len(piece)
            segments.append(Segment(split, shard, inside, count, running.hexdigest()))
            first += count
        return segments

    def open_spool(self, dtype: str) -> TokenSpool:
        """Use the disk that the tokens will be written to."""
        return TokenSpool(Path(self._layout.folder, self._layout.work), dtype)

    def write_entries(
        self, split: Split, kind: IndexKind, num_before: int, entries: Iterable[NDArray[Any]]
    ) -> None:
        """Write entries into the spool of their kind."""
        if kind not in self._layout.index_kinds:
            return
        path = self._layout.spool_path(split, kind)
        position = num_before * ENTRY_TYPES[kind].itemsize
        with write_errors(path):
            for piece in entries:
                data = piece.view(np.uint8).data
                self._write_whole(path, data, position)
                position += len(data)

    def begin_fields(self, unit_idx: int) -> UnitFields | None:
        """Start writing the kept fields of a unit."""
        if "fields" not in self._layout.index_kinds:
            return None
        return UnitFields(self._layout, unit_idx)

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _reserve(self, path: Path, position: int, num_bytes: int) -> None:
        """Get the blocks of a long run at once; if the disk is full, the write says so."""
        if self._reserve_disk_space is not None and num_bytes >= _MIN_RESERVED_BYTES:
            self._reserve_disk_space(self._files.get(path), position, num_bytes)

    def _write_at(self, path: Path, data: memoryview, position: int) -> None:
        self._write_whole(path, data, position)

    def _write_whole(self, path: Path, data: memoryview, position: int) -> None:
        file = self._files.get(path)
        done = 0
        while done < len(data):
            done += os.pwrite(file, data[done:], position + done)
            fault_point("worker wrote some tokens")


class PieceWriter(SegmentWriter):
    """Writes runs of tokens into pieces of files, each piece a separate file."""

    def _reserve(self, path: Path, position: int, num_bytes: int) -> None:
        """Do nothing: the pieces are uploaded and deleted soon."""

    def _write_at(self, path: Path, data: memoryview, position: int) -> None:
        for name, inside, count in iter_pieces(path, position, len(data), self._layout.piece_bytes):
            self._write_whole(name, data[:count], inside)
            data = data[count:]


def iter_pieces(
    path: Path, position: int, num_bytes: int, piece_bytes: int | None
) -> Iterator[tuple[Path, int, int]]:
    """Divide a range of a file at piece boundaries: (piece, offset in the piece, bytes)."""
    size = piece_bytes or position + num_bytes
    while num_bytes > 0:
        number, inside = divmod(position, size)
        fitting = min(num_bytes, size - inside)
        yield path.with_name(f"{path.name}.{number}"), inside, fitting
        position, num_bytes = position + fitting, num_bytes - fitting


class SegmentDropper:
    """Drops all that it is given: tokens only had to be counted, or a subclass takes some of it."""

    def close(self) -> None:
        """Do nothing."""

    def write_entries(
        self, split: Split, kind: IndexKind, num_before: int, entries: Iterable[NDArray[Any]]
    ) -> None:
        """Do nothing."""

    def begin_fields(self, unit_idx: int) -> UnitFields | None:
        """Take none."""
        return None

    def write(self, split: Split, offset: int, tokens: TokenRun) -> list[Segment]:
        """Return no segment."""
        return []

    def open_spool(self, dtype: str) -> TokenSpool | None:
        """Hold none."""
        return None


class SegmentDigester(SegmentDropper):
    """Computes checksums of runs of tokens; opens no file."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def write(self, split: Split, offset: int, tokens: TokenRun) -> list[Segment]:
        """Return the segments that writing would return."""
        segments, first = list[Segment](), 0
        for shard, inside, count in self._layout.iter_shard_ranges(split, offset, len(tokens)):
            running = xxhash.xxh3_128()
            for data in _iter_bytes(tokens, first, count):
                running.update(data)
            segments.append(Segment(split, shard, inside, count, running.hexdigest()))
            first += count
        return segments

    def open_spool(self, dtype: str) -> TokenSpool:
        """Use the system's folder for temporary files: the output may be read-only."""
        return TokenSpool(None, dtype)


class FieldsWriter(SegmentDigester):
    """Writes the kept fields of units, and computes the checksums of their tokens."""

    def begin_fields(self, unit_idx: int) -> UnitFields | None:
        """Start writing the kept fields of a unit."""
        return UnitFields(self._layout, unit_idx)


class SegmentComparer(SegmentDropper):
    """Compares runs of tokens with the final files; changes no file.

    An index is compared with the tokens, not with the text, and kept fields have a checksum.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._reader = SegmentReader(layout.finished_path, layout.token_bytes)

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def write(self, split: Split, offset: int, tokens: TokenRun) -> list[Segment]:
        """Return the ranges that differ, each from its first differing token to its last."""
        differing, start = list[Segment](), 0
        for shard, inside, count in self._layout.iter_shard_ranges(split, offset, len(tokens)):
            segment = Segment(split, shard, inside, count, "")
            found = self._compare(segment, tokens, start)
            if found is not None:
                first, last = found
                differing.append(Segment(split, shard, inside + first, last - first + 1, ""))
            start += count
        return differing

    def open_spool(self, dtype: str) -> TokenSpool:
        """Use the system's folder for temporary files: the output may be read-only."""
        return TokenSpool(None, dtype)

    def _compare(self, segment: Segment, tokens: TokenRun, start: int) -> tuple[int, int] | None:
        """Return the first and last token that differ from those at `start`; None if none does."""
        found: list[int] = []
        at = 0
        try:
            for piece in self._reader.iter_tokens(segment):
                inside = 0
                for expected in tokens.iter_pieces(start + at, len(piece)):
                    differs = piece[inside : inside + len(expected)] != expected
                    differing = at + inside + np.flatnonzero(differs)
                    if len(differing):
                        found += [int(differing[0]), int(differing[-1])]
                    inside += len(expected)
                at += len(piece)
        except DamageError:
            found += [at, segment.num_tokens - 1]
        return (found[0], found[-1]) if found else None


def _iter_bytes(tokens: TokenRun, first: int, count: int) -> Iterator[memoryview]:
    return (piece.view(np.uint8).data for piece in tokens.iter_pieces(first, count))


class SegmentSummary(Struct, frozen=True):
    """What reading a segment once shows.

    Attributes:
        digest: Its checksum.
        max_id: Its largest id.
        num_eot: How many end-of-text ids it has.
        first_id: Its first id.
        last_id: Its last id.
    """

    digest: str
    max_id: int
    num_eot: int
    first_id: int
    last_id: int


class SegmentReader:
    """Reads runs of tokens back; one reader serves one thread."""

    def __init__(self, path_of: Callable[[Split, int], OutputPath], token_bytes: int) -> None:
        """Read files at `path_of`: `layout.partial_path` or `layout.finished_path`."""
        self._path_of = path_of
        self._token_bytes = token_bytes
        self._dtype = np.dtype(f"<u{token_bytes}")
        self._files = OpenFiles(os.O_RDONLY)
        self._objects = OpenObjects()
        self._buffer = bytearray(_READ_BYTES)

    def iter_tokens(self, segment: Segment) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
        """Yield a segment's tokens in pieces; a piece is valid until the next is asked for.

        Raises:
            DamageError: If the file is missing, ends too early, or the disk fails.
            InputError: If there is no permission to read it.
        """
        path = self._path_of(segment.split, segment.shard)
        position = segment.offset_tokens * self._token_bytes
        end = position + segment.num_tokens * self._token_bytes
        if isinstance(path, ObjectPath) and len(self._buffer) < REMOTE_READ_BYTES:
            self._buffer = bytearray(REMOTE_READ_BYTES)
        while position < end:
            piece = memoryview(self._buffer)[: end - position]
            self._fill(piece, path, position)
            yield np.frombuffer(piece, self._dtype)
            position += len(piece)

    def iter_files(
        self, layout: Layout, split: Split, num_tokens: int
    ) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
        """Yield all tokens of a split in pieces, file after file."""
        for shard, count in layout.iter_shards(split, num_tokens):
            yield from self.iter_tokens(Segment(split, shard, 0, count, ""))

    def digest(self, segment: Segment) -> str:
        """Return the checksum of the tokens where a segment is recorded."""
        running = xxhash.xxh3_128()
        for piece in self.iter_tokens(segment):
            running.update(piece.data)
        return running.hexdigest()

    def summarize(
        self,
        segment: Segment,
        iter_eot: Callable[[NDArray[np.unsignedinteger[Any]]], Iterable[NDArray[np.uint64]]],
        on_eot: Callable[[NDArray[np.uint64]], None],
    ) -> SegmentSummary:
        """Read a segment once: its checksum, its largest, first and last id, its end-of-text ids.

        Hashing and searching let other threads run.

        Args:
            segment: Which.
            iter_eot: Finds end-of-text ids in some tokens.
            on_eot: Called with their places in the file, in pieces.
        """
        running = xxhash.xxh3_128()
        max_id = num_eot = last_id = 0
        first_id, position = -1, segment.offset_tokens
        for piece in self.iter_tokens(segment):
            running.update(piece.data)
            max_id = max(max_id, int(piece.max()))
            for found in iter_eot(piece):
                num_eot += len(found)
                on_eot(found + np.uint64(position))
            first_id = int(piece[0]) if first_id < 0 else first_id
            last_id, position = int(piece[-1]), position + len(piece)
        return SegmentSummary(running.hexdigest(), max_id, num_eot, first_id, last_id)

    def read_id(self, split: Split, shard: int, offset: int) -> int:
        """Read one token."""
        (piece,) = self.iter_tokens(Segment(split, shard, offset, 1, ""))
        return int(piece[0])

    def is_intact(self, segment: Segment) -> bool:
        """Return whether the tokens of a segment still have their checksum."""
        try:
            return self.digest(segment) == segment.digest
        except DamageError:
            return False

    def close(self) -> None:
        """Close the files."""
        self._files.close()
        self._objects.close()

    def _fill(self, piece: memoryview, path: OutputPath, position: int) -> None:
        try:
            done = 0
            while done < len(piece):
                count = self._read_some(piece[done:], path, position + done)
                if count == 0:
                    raise _unreadable(f"`{path.name}` ends too early", path, position + done)
                done += count
        except OverflowError as error:
            raise _unreadable(f"`{path.name}` ends too early", path, position) from error
        except OSError as error:
            if is_refused(error):
                raise read_error(error, str(path)) from error
            what = "is missing" if isinstance(error, FileNotFoundError) else str(error.strerror)
            raise _unreadable(f"`{path.name}` {what}", path, position) from error

    def _read_some(self, piece: memoryview, path: OutputPath, position: int) -> int:
        if isinstance(path, ObjectPath):
            return self._objects.read_into(path, piece, position)
        return os.preadv(self._files.get(path), [piece], position)


def _unreadable(what: str, path: OutputPath, position: int) -> DamageError:
    return DamageError(what, where=f"{path}, byte {position}", next_step=repair_step(path.parent))
