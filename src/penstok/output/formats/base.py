"""What every output format is made from, and what it must offer.

A format turns tokens with their document index into named streams of bytes; a format that can be
imported also turns such files into tokens with their document starts. It creates no file:
`output.store` writes the streams, `jobs.formats` decides when. `registry` lists the formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from penstok.errors import DamageError, InputError, UsageError
from penstok.output.documents import iter_entries
from penstok.output.layout import MANIFEST
from penstok.storage.object_paths import repair_step
from penstok.types import SPLITS, EotPosition, Split, Struct, TokenizerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from penstok.errors import PenstokError
    from penstok.output.manifest import Manifest
    from penstok.storage.object_paths import OutputPath

__all__ = [
    "CopiedFormat",
    "FormatFile",
    "FormatOptions",
    "ImportOptions",
    "ImportableFormat",
    "ImportedFile",
    "LinkedFormat",
    "OutputFormat",
    "RowNames",
    "SplitTokens",
    "TokenFile",
    "TokenSource",
]

# Read in pieces that stay in the processor's cache until they are written.
_READ_BYTES = 1 << 20


class TokenFile(Struct, frozen=True):
    """One file of tokens and its document index.

    Attributes:
        name: Its final name, such as `train.bin`.
        path: Where it is now.
        num_tokens: How many tokens it has.
        index: Where its document index is now: `num_entries` starts, the first always 0, and then
            `num_tokens`. Of an empty file it is the single entry 0.
        num_documents: How many documents begin in it.
        continues: Whether its first tokens are the rest of a document of the file before; then
            entry 0 of the index is that rest, and not counted in `num_documents`.
    """

    name: str
    path: OutputPath
    num_tokens: int
    index: OutputPath
    num_documents: int
    continues: bool = False

    @property
    def num_entries(self) -> int:
        """How many runs of tokens the index has: the documents, and the rest of an earlier one."""
        return self.num_documents + self.continues

    def iter_entries(self, start: int = 0) -> Iterator[NDArray[np.uint64]]:
        """Yield where each run of tokens starts, and `num_tokens` at the end, in pieces.

        Args:
            start: The number of the first run.

        Raises:
            DamageError: If the index is missing, or is not the index of this file.
        """
        last, count = 0, start
        for piece in iter_entries(self.index, first=start):
            is_first = count == 0
            count += len(piece)
            if (
                (is_first and piece[0])
                or int(piece[0]) < last
                or np.any(piece[1:] < piece[:-1])
                or count > self.num_entries + 1
            ):
                raise _not_its_index(self)
            last = int(piece[-1])
            if count == self.num_entries + 1 and last != self.num_tokens:
                raise _not_its_index(self)
            yield piece
        if count != self.num_entries + 1:
            raise _not_its_index(self)


class SplitTokens(Struct, frozen=True):
    """The token files of one split, in order."""

    dtype: Literal["uint16", "uint32"]
    files: list[TokenFile]

    @property
    def num_tokens(self) -> int:
        """How many tokens the split has."""
        return sum(file.num_tokens for file in self.files)

    @property
    def num_documents(self) -> int:
        """How many documents the split has."""
        return sum(file.num_documents for file in self.files)

    def iter_tokens(
        self, start: int = 0, stop: int | None = None
    ) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
        """Yield the tokens of a range, across files, in pieces; each is valid until the next.

        Raises:
            DamageError: If a file is missing or too short.
        """
        left = (self.num_tokens if stop is None else stop) - start
        buffer = np.empty(_READ_BYTES // np.dtype(self.dtype).itemsize, np.dtype(self.dtype))
        for file in self.files:
            count = min(file.num_tokens - start, left)
            if count > 0:
                yield from _iter_file(file, start, count, buffer)
                left -= count
            start = max(start - file.num_tokens, 0)

    def iter_bytes(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield the same as bytes."""
        for piece in self.iter_tokens(start, stop):
            yield piece.view(np.uint8).data

    def iter_starts(self, first: int = 0) -> Iterator[NDArray[np.uint64]]:
        """Yield where each document starts, counted from the start of the split, in pieces.

        Args:
            first: The number of the first document; those before it are not read.
        """
        before = 0
        for file in self.files:
            at = min(first, file.num_documents)
            first -= at
            # Entry 0 may be the rest of a document that starts in the file before.
            begin, stop = at + file.continues, file.num_entries
            for piece in file.iter_entries(at):
                starts = piece[max(begin - at, 0) : max(stop - at, 0)]
                at += len(piece)
                if len(starts):
                    yield starts + np.uint64(before)
            before += file.num_tokens

    def iter_documents(
        self, first: int = 0
    ) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
        """Yield where documents start and end, counted from the start of the split, in pieces.

        Args:
            first: The number of the first document; those before it are not read.
        """
        waiting: NDArray[np.uint64] | None = None
        for starts in self.iter_starts(first):
            if waiting is not None:
                yield waiting, np.append(waiting[1:], starts[0])
            waiting = starts
        if waiting is not None:
            yield waiting, np.append(waiting[1:], np.uint64(self.num_tokens))


class TokenSource(Struct, frozen=True):
    """The tokens of a job: what a format is made from.

    Attributes:
        tokenizer: What made them.
        eot: Where the end-of-text ids are.
        splits: The files of each split.
    """

    tokenizer: TokenizerRecord
    eot: EotPosition
    splits: dict[Split, SplitTokens]

    def iter_splits(self) -> Iterator[tuple[Split, SplitTokens]]:
        """Yield the splits that have tokens."""
        for name in SPLITS:
            split = self.splits.get(name)
            if split is not None and split.num_tokens:
                yield name, split

    @classmethod
    def from_manifest(cls, manifest: Manifest, path_of: Callable[[str], OutputPath]) -> TokenSource:
        """Return the tokens of a job; `path_of` says where a file is.

        Raises:
            DamageError: If the job has no document index.
        """
        splits = {}
        for split, record in manifest.splits.items():
            indexes = record.indexes_of("documents")
            if len(indexes) != len(record.files):
                raise DamageError(
                    "there is no document index",
                    where=str(path_of(MANIFEST).parent),
                    next_step=repair_step(path_of(MANIFEST).parent),
                )
            splits[split] = SplitTokens(
                manifest.dtype,
                [
                    TokenFile(
                        file.path,
                        path_of(file.path),
                        file.tokens,
                        path_of(index.path),
                        index.documents,
                        index.continues,
                    )
                    for file, index in zip(record.files, indexes, strict=True)
                ],
            )
        return cls(manifest.tokenizer, manifest.settings["eot"], splits)

    @property
    def dtype(self) -> Literal["uint16", "uint32"]:
        """The integer type of a token."""
        return self.splits["train"].dtype


class FormatOptions(Struct, frozen=True, kw_only=True):
    """What a user can choose about the files of a format; a format ignores what it has no use for.

    Attributes:
        sequence_length: Tokens per row of formats that have rows or blocks; None for documents.
        shard_tokens: The most tokens per file of formats with files of their own; None for the
            format's default.
        columns: The columns of formats that have columns; the first is always `input_ids`.
    """

    sequence_length: int | None = None
    shard_tokens: int | None = None
    columns: tuple[str, ...] = ("input_ids",)


class FormatFile(Struct, frozen=True):
    """One file of a format.

    Attributes:
        name: Its name, relative to the folder of the format, with slashes.
        num_tokens: How many tokens it holds; 0 for an index.
        content: Its bytes in pieces, made while they are written. A file that an earlier run has
            written is skipped without asking for its content.
        same_as: A token file that has the same bytes: it is linked, not copied. Then `content` is
            empty.
        dropped_tokens: How many tokens of the split are in no file, because the format has no
            place for them. Each is counted on one file; it is to be reported.
        split_documents: How many documents that begin in this file are divided into several rows,
            because the format limits the length of a row. To be reported, too.
    """

    name: str
    num_tokens: int
    content: Iterable[bytes | memoryview] = ()
    same_as: TokenFile | None = None
    dropped_tokens: int = 0
    split_documents: int = 0


class OutputFormat(Protocol):
    """A family of files that some trainer reads.

    Attributes:
        name: What `--format` takes.
        is_beside: Whether its files are beside the token files, because its reader takes both by
            one prefix. Otherwise they are in a folder of the format's name.
    """

    name: str
    is_beside: bool

    def copied_bytes(self, dtype: str) -> int:
        """Return how many bytes per token are copied, to estimate disk space; links are 0."""
        ...

    def refuse(self, source: TokenSource, options: FormatOptions) -> None:
        """Refuse what a reader of this format could not read, before anything is written.

        Only sizes, settings and the tokenizer are looked at: before a job, a source has no files.

        Raises:
            UsageError: If the tokens cannot be written in this format.
        """
        ...

    def iter_files(self, source: TokenSource, options: FormatOptions) -> Iterator[FormatFile]:
        """Yield the files in the order in which they are to be written."""
        ...


class CopiedFormat:
    """What formats have in common whose files have all tokens again."""

    is_beside = False

    def copied_bytes(self, dtype: str) -> int:
        """All bytes of a token."""
        return np.dtype(dtype).itemsize


class LinkedFormat:
    """What formats have in common whose token files are links."""

    is_beside = False

    def copied_bytes(self, dtype: str) -> int:
        """None: the bytes are the same."""
        return 0

    def refuse(self, source: TokenSource, options: FormatOptions) -> None:
        """Refuse nothing: any tokens fit."""


class RowNames(Struct, frozen=True):
    """What a format calls its rows and files, for messages.

    Attributes:
        format: Its name.
        row: A row of so many tokens: `block`, `sample`.
        file: What rows are in: `chunk`, `shard`.
        usual_length: The next step if a length does not fit.
        why: What would come of a file without a row; empty if that is plain.
    """

    format: str
    row: str
    file: str
    usual_length: str
    why: str = ""

    def refuse_sizes(self, length: int, shard_tokens: int | None, *, fits: bool) -> None:
        """Refuse rows that do not fit into a file, and files that are smaller than a row.

        Raises:
            UsageError: If the two sizes cannot go together.
        """
        if length < 1 or not fits:
            raise UsageError(
                f"the sequence length {length:,} does not fit into a {self.file} of "
                f"`{self.format}`, which is at most 4 GiB",
                where="--sequence-length",
                next_step=self.usual_length,
            )
        if shard_tokens is not None and shard_tokens < length:
            raise UsageError(
                f"{self.file}s of {shard_tokens:,} tokens are smaller than one {self.row} of "
                f"{length:,}{self.why}",
                where="--shard-tokens",
                next_step=f"pass `--shard-tokens {length}` or more, or a smaller "
                "`--sequence-length`",
            )


class ImportOptions(Struct, frozen=True, kw_only=True):
    """What a user says about files that do not say it themselves.

    Attributes:
        dtype: The integer type of a token on disk.
        eot_id: The end-of-text id.
        eot: Where the end-of-text ids are.
    """

    dtype: Literal["uint16", "uint32"] | None = None
    eot_id: int | None = None
    eot: EotPosition | None = None


class ImportedFile(Struct, frozen=True, kw_only=True):
    """One file of tokens that another program has written; it is checked, but not yet read.

    Attributes:
        path: Where it is.
        offset: The byte at which its tokens begin.
        num_tokens: How many tokens it has.
        dtype: How a token is stored. int32 is read as uint32; a negative id is an error.
        iter_starts: Yields where each run of tokens starts, in pieces: the first at 0, each after
            the one before. None is empty; a file without tokens has none. Each call reads anew.
        eot: Where its end-of-text ids are; None if neither the file nor the user says it.
        continues: Whether its first run of tokens is the rest of a document of the file before;
            never of the first file, and only if the end-of-text ids prove it.
        num_empty: How many empty documents its index lists; they are left out.
        index: The file that says where its documents start; None if the tokens do.
    """

    path: Path
    offset: int
    num_tokens: int
    dtype: Literal["uint16", "uint32", "int32"]
    iter_starts: Callable[[], Iterator[NDArray[np.uint64]]]
    eot: EotPosition | None = None
    continues: bool = False
    num_empty: int = 0
    index: Path | None = None

    @property
    def token_dtype(self) -> Literal["uint16", "uint32"]:
        """The integer type of the tokens that `iter_tokens` yields."""
        return "uint16" if self.dtype == "uint16" else "uint32"

    def iter_tokens(self) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
        """Yield all tokens in pieces; each is valid until the next.

        Raises:
            InputError: If the file has changed since it was opened, or an id is negative.
        """
        dtype = np.dtype(self.token_dtype)
        buffer = np.empty(_READ_BYTES // dtype.itemsize, dtype)
        done = 0
        for piece in _iter_range(self.path, self.offset, self.num_tokens, buffer, self._too_short):
            if self.dtype == "int32" and len(piece) and int(piece.view(np.int32).min()) < 0:
                at = done + int(np.argmax(piece.view(np.int32) < 0))
                raise InputError(
                    f"token {at} has the negative id {int(piece.view(np.int32)[at - done])}",
                    where=f"{self.path}, byte {self.offset + at * dtype.itemsize}",
                    next_step="the file is damaged, or does not hold token ids: make it again",
                )
            done += len(piece)
            yield piece

    def _too_short(self) -> InputError:
        return InputError(
            "the file has become shorter while it was read",
            where=str(self.path),
            next_step="wait until no other program writes to it, then run the same command again",
        )


class ImportableFormat(Protocol):
    """A family of files that another program has written and Penstok can import.

    Attributes:
        name: What `convert --from` takes.
    """

    name: str

    def open_files(self, paths: Sequence[Path], options: ImportOptions) -> list[ImportedFile]:
        """Check the files, in the given order, and return what they hold.

        Of a folder, all files of the format in it are taken, sorted by name. The files may be
        hostile: no size or position in them is trusted before it is compared with the file's
        own size, and nothing is unpickled.

        Raises:
            InputError: If a file is missing, damaged, or not of this format.
            UsageError: If the files do not say something that an option must say.
        """
        ...


def _iter_file(
    file: TokenFile, start: int, count: int, buffer: NDArray[np.unsignedinteger[Any]]
) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
    def too_short() -> DamageError:
        return _damage(f"`{file.name}` ends too early", file.path)

    try:
        yield from _iter_range(file.path, start * buffer.itemsize, count, buffer, too_short)
    except FileNotFoundError as error:
        raise _damage(f"`{file.name}` is missing", file.path) from error


def _iter_range(
    path: OutputPath,
    offset: int,
    count: int,
    buffer: NDArray[np.unsignedinteger[Any]],
    too_short: Callable[[], PenstokError],
) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
    """Yield `count` tokens from a byte offset on, in pieces that share one buffer."""
    with path.open("rb") as opened:
        opened.seek(offset)
        while count > 0:
            piece = buffer[: min(count, len(buffer))]
            data = piece.view(np.uint8).data
            while data:
                num_read = opened.readinto(data)
                if not num_read:
                    raise too_short()
                data = data[num_read:]
            count -= len(piece)
            yield piece


def _not_its_index(file: TokenFile) -> DamageError:
    return _damage(f"`{file.index.name}` is not the document index of `{file.name}`", file.index)


def _damage(what: str, path: OutputPath) -> DamageError:
    return DamageError(what, where=str(path), next_step=repair_step(path.parent))
