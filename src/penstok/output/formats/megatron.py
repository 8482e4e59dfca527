"""Megatron's index (`.idx`) of the same token file; `OUT/train` is the prefix of both.

It writes one sequence per document, several for one that is too long for a sequence, and imports
both. Indexes of multimodal data are refused. `docs/reference/formats/megatron.md` has the layout.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from penstok.errors import InputError, UsageError
from penstok.output.formats.base import FormatFile, ImportedFile
from penstok.output.formats.importing import (
    bad_file,
    count_empty,
    find_files,
    get_size,
    iter_array,
    mark_continued,
    other_format,
    read_head,
    refuse_other_dtype,
    without_empty,
)
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Literal

    from numpy.typing import NDArray

    from penstok.output.formats.base import FormatOptions, ImportOptions, TokenFile, TokenSource

__all__ = ["MegatronFormat"]

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEADER = struct.Struct("<9sQBQQ")
# There is no code for uint32; as int32 the bytes are the same while ids are below 2^31. Megatron
# itself writes uint16 only for fewer than 65,500 ids, but it reads the code from the file, so the
# code that fits the token file is right for every vocabulary. (Only `--per-dataset-sequences-path`
# of Megatron-LM takes 8 for up to 65,536 ids and 4 for more without looking; the page says so.)
_CODES = {"uint16": 8, "uint32": 4}
_IMPORTED: dict[int, Literal["uint16", "int32"]] = {8: "uint16", 4: "int32"}
_OTHER_CODES = {1: "uint8", 2: "int8", 3: "int16", 5: "int64", 6: "float64", 7: "float32"}
_MAX_IDS = 1 << 31
_MAX_LENGTH = (1 << 31) - 1


class MegatronFormat:
    """`train.idx` beside `train.bin`: read by Megatron, NeMo, MaxText and others."""

    name = "megatron"
    is_beside = True

    def copied_bytes(self, dtype: str) -> int:
        """None: tokens are read from the files of the output."""
        return 0

    def refuse(self, source: TokenSource, options: FormatOptions) -> None:
        """Refuse ids that int32 cannot hold."""
        if source.dtype == "uint32" and source.tokenizer.vocab_size >= _MAX_IDS:
            raise UsageError(
                f"the vocabulary has {source.tokenizer.vocab_size} ids, and Megatron's index has "
                f"no type for {_MAX_IDS} or more",
                where="--format megatron",
                next_step="choose another format, such as `--format datatrove`",
            )

    def iter_files(self, source: TokenSource, options: FormatOptions) -> Iterator[FormatFile]:
        """Yield one index per token file, also for an empty one."""
        for split in source.splits.values():
            for file in split.files:
                name = file.name.removesuffix(".bin") + ".idx"
                num_sequences, num_divided = _count_sequences(file)
                content = _iter_index(file, split.dtype, num_sequences)
                yield FormatFile(name, 0, content, split_documents=num_divided)

    def open_files(self, paths: Sequence[Path], options: ImportOptions) -> list[ImportedFile]:
        """Check pairs of `.bin` and `.idx`, given by either name or by their prefix."""
        indexes = find_files(paths, ".idx", (".bin",))
        return mark_continued([_open_file(index, options) for index in indexes], options)


class _Sequences(Struct, frozen=True):
    """The sequences of consecutive documents.

    Attributes:
        starts: Where each sequence starts, in tokens.
        lengths: How many tokens it has.
        counts: How many sequences each document has.
    """

    starts: NDArray[np.uint64]
    lengths: NDArray[np.uint64]
    counts: NDArray[np.int64]


def _iter_sequences(file: TokenFile) -> Iterator[_Sequences]:
    """Yield the sequences of a file, in pieces: one per document, more for one that is too long."""
    last: NDArray[np.uint64] = np.empty(0, np.uint64)
    for piece in file.iter_entries():
        bounds = np.concatenate([last, piece])
        starts, lengths, last = bounds[:-1], bounds[1:] - bounds[:-1], bounds[-1:]
        if not len(lengths) or int(lengths.max()) <= _MAX_LENGTH:
            yield _Sequences(starts, lengths, np.ones(len(lengths), np.int64))
            continue
        most = np.uint64(_MAX_LENGTH)
        counts = np.maximum(-(-lengths.astype(np.int64) // _MAX_LENGTH), 1)
        numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        before = numbers.astype(np.uint64) * most
        rest = np.minimum(np.repeat(lengths, counts) - before, most)
        yield _Sequences(np.repeat(starts, counts) + before, rest, counts)


def _count_sequences(file: TokenFile) -> tuple[int, int]:
    """Return how many sequences a file has, and how many documents have several of them."""
    if file.num_tokens <= _MAX_LENGTH:
        return file.num_entries, 0
    num_sequences = num_divided = 0
    for piece in _iter_sequences(file):
        num_sequences += len(piece.starts)
        num_divided += int(np.count_nonzero(piece.counts > 1))
    return num_sequences, num_divided


def _iter_index(file: TokenFile, dtype: str, num_sequences: int) -> Iterator[bytes]:
    num_indices = file.num_entries + 1
    yield _HEADER.pack(_MAGIC, _VERSION, _CODES[dtype], num_sequences, num_indices)
    for piece in _iter_sequences(file):
        yield piece.lengths.astype("<i4").tobytes()
    token_bytes = np.uint64(np.dtype(dtype).itemsize)
    for piece in _iter_sequences(file):
        yield (piece.starts * token_bytes).astype("<i8").tobytes()
    done = 0
    for piece in _iter_sequences(file):
        ends = done + np.cumsum(piece.counts)
        yield (ends - piece.counts).astype("<i8").tobytes()
        done = int(ends[-1]) if len(ends) else done
    yield np.array([done], "<i8").tobytes()


class _Index:
    """An index whose header agrees with the sizes of both files."""

    def __init__(self, path: Path, tokens: Path) -> None:
        self.path = path
        header = read_head(path, _HEADER.size)
        if header[: len(_MAGIC)] != _MAGIC:
            raise other_format(
                path, "this is not a Megatron index: it does not begin with `MMIDIDX`"
            )
        if len(header) < _HEADER.size:
            raise bad_file(path, f"the index ends within its header of {_HEADER.size} bytes")
        _, version, code, self.num_sequences, num_indices = _HEADER.unpack(header)
        if version != _VERSION:
            raise bad_file(path, f"the index has version {version}; known: {_VERSION}")
        if code not in _IMPORTED:
            kind = _OTHER_CODES.get(code, "unknown")
            raise InputError(
                f"the tokens have type {code} ({kind}); known: 4 (int32), 8 (uint16)",
                where=str(path),
                next_step="write the dataset again with token ids as uint16 or int32",
            )
        self.dtype = _IMPORTED[code]
        size, token_bytes = get_size(path), np.dtype(self.dtype).itemsize
        self.pointers_offset = _HEADER.size + 4 * self.num_sequences
        self.indices_offset = self.pointers_offset + 8 * self.num_sequences
        self.num_indices = num_indices
        end = self.indices_offset + 8 * num_indices
        if size != end and size == end + self.num_sequences:
            raise InputError(
                "the index has a mode for each sequence, so this is multimodal data",
                where=str(path),
                next_step="export the text alone; Penstok imports text only",
            )
        if size != end or num_indices < 1:
            raise bad_file(
                path,
                f"the index has {size} bytes, but its header ({self.num_sequences} sequences, "
                f"{num_indices} document indices) asks for {end}",
            )
        num_bytes = get_size(tokens)
        self.num_tokens = self._count_tokens(token_bytes, num_bytes)
        if num_bytes != self.num_tokens * token_bytes:
            raise bad_file(
                tokens,
                f"the file has {num_bytes} bytes, but its index lists {self.num_tokens} tokens of "
                f"{token_bytes} bytes",
            )
        self._check_indices()

    def _count_tokens(self, token_bytes: int, num_bytes: int) -> int:
        """Check that sequences follow each other without a gap; return the number of tokens.

        It stops at the end of the token file, so no sum is beyond int64.
        """
        at = done = 0
        lengths = iter_array(self.path, _HEADER.size, self.num_sequences, "<i4")
        pointers = iter_array(self.path, self.pointers_offset, self.num_sequences, "<i8")
        for length, pointer in zip(lengths, pointers, strict=False):
            if int(length.min()) < 0:
                idx = int(np.argmax(length < 0))
                raise bad_file(
                    self.path, f"sequence {done + idx} has the length {int(length[idx])}"
                )
            ends = np.cumsum(length, dtype=np.int64)
            starts = ends - length
            wrong = pointer != (starts + at) * token_bytes
            if wrong.any():
                idx = int(np.argmax(wrong))
                expected = (at + int(starts[idx])) * token_bytes
                raise InputError(
                    f"sequence {done + idx} is at byte {int(pointer[idx])} instead of {expected}: "
                    "the sequences do not follow each other",
                    where=str(self.path),
                    next_step="write the dataset again with Megatron's `IndexedDatasetBuilder`; "
                    "its sequences follow each other",
                )
            at += int(ends[-1])
            done += len(length)
            if at * token_bytes > num_bytes:
                break
        return at

    def _check_indices(self) -> None:
        last = 0
        is_first = True
        for piece in iter_array(self.path, self.indices_offset, self.num_indices, "<i8"):
            if (
                (is_first and piece[0] != 0)
                or int(piece[0]) < last
                or np.any(piece[1:] < piece[:-1])
            ):
                raise bad_file(self.path, "the document indices do not begin at 0 and increase")
            last, is_first = int(piece[-1]), False
        if last != self.num_sequences:
            raise bad_file(
                self.path,
                f"the last document ends at sequence {last}, but there are {self.num_sequences}",
            )

    def iter_documents(self) -> Iterator[NDArray[np.uint64]]:
        """Yield where each document starts, also empty ones, in pieces."""
        token_bytes = np.dtype(self.dtype).itemsize
        left = self.num_indices - 1
        pieces = iter_array(self.path, self.indices_offset, left, "<i8")
        indices = next(pieces, None)
        done = 0
        for pointers in iter_array(self.path, self.pointers_offset, self.num_sequences, "<i8"):
            while indices is not None:
                count = int(np.searchsorted(indices, done + len(pointers), "left"))
                if count:
                    yield (pointers[indices[:count] - done] // token_bytes).astype(np.uint64)
                if count < len(indices):
                    indices = indices[count:]
                    break
                indices = next(pieces, None)
            done += len(pointers)
        # Empty documents behind the last sequence.
        while indices is not None:
            yield np.full(len(indices), self.num_tokens, np.uint64)
            indices = next(pieces, None)


def _open_file(path: Path, options: ImportOptions) -> ImportedFile:
    tokens = path.with_suffix(".bin")
    index = _Index(path, tokens)
    refuse_other_dtype(index.dtype, options, path)
    return ImportedFile(
        path=tokens,
        offset=0,
        num_tokens=index.num_tokens,
        dtype=index.dtype,
        iter_starts=lambda: without_empty(index.iter_documents(), index.num_tokens),
        eot=options.eot,
        num_empty=count_empty(index.iter_documents(), index.num_tokens),
        index=path,
    )
