"""Read the tokens of a finished job back, without loading them into memory.

It checks the sizes of files, not their contents (`verification` does), and writes nothing. Files
are memory-mapped, objects in S3 are read in ranges by `remote_tokens`; `documents` finds documents
in both. `api`, `info` and `show` use it.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from penstok.data.documents import Documents, HasDocuments
from penstok.data.fields import Fields
from penstok.data.remote_tokens import RemoteTokens
from penstok.errors import DamageError, InputError, UsageError, quoted, read_error
from penstok.jobs.definition import INTEGER, convert_argument
from penstok.output.documents import ENTRY_BYTES
from penstok.output.formats.base import TokenSource
from penstok.output.layout import MANIFEST, SEGMENTS
from penstok.output.ledger.reader import LedgerReader
from penstok.output.manifest import FileRecord, Manifest
from penstok.quantities import plural
from penstok.storage.object_paths import ObjectPath, output_path, repair_step
from penstok.types import SPLITS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from penstok.data.documents import RangeReader
    from penstok.data.settings import ShowSettings
    from penstok.errors import PenstokError
    from penstok.storage.object_paths import OutputPath
    from penstok.tokenizers import Tokenizer
    from penstok.types import Split

__all__ = ["Dataset", "MappedTokens", "Tokens", "open_dataset"]

# Tokens of a document that are decoded and printed at a time.
_SHOWN_TOKENS = 1 << 16


class MappedTokens(HasDocuments, np.memmap[Any, np.dtype[np.unsignedinteger[Any]]]):
    """The read-only memory map of a token file, which knows the documents of its split.

    It is a `numpy.memmap`; a slice of it is a plain one.
    """

    # For type checkers, these are those of an array.
    if not TYPE_CHECKING:

        def __getitem__(self, key: Any) -> Any:
            """Index it as any array."""
            found = super().__getitem__(key)
            return found.view(np.memmap) if isinstance(found, MappedTokens) else found

        def __array_wrap__(self, array: Any, *_: Any) -> Any:
            """Return results of arithmetic as plain arrays and numbers, as a memory map does."""
            if array is self:
                return array
            plain = array.view(np.ndarray)
            return plain if plain.ndim else plain[()]


Tokens: TypeAlias = MappedTokens | RemoteTokens


class Dataset:
    """The splits of a finished job as read-only arrays; only what is used is read.

    The arrays of a folder are memory maps. Those of an object store are `RemoteTokens`, where each
    slice is a request.
    """

    def __init__(self, folder: OutputPath, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._remote: dict[str, RemoteTokens] = {}
        self._documents: dict[Split, Documents] = {}
        self._fields: dict[Split, Fields] = {}
        self._tokenizer: Tokenizer | None = None
        self.dtype: np.dtype[Any] = np.dtype(manifest.dtype).newbyteorder("<")

    @property
    def train(self) -> Tokens:
        """The tokens of the train split; `train.document(17)` are those of one document."""
        return self._whole("train")

    @property
    def val(self) -> Tokens:
        """The tokens of the val split."""
        return self._whole("val")

    def shards(self, split: Split) -> list[Tokens]:
        """Return the files of a split, in order.

        Raises:
            UsageError: If there is no such split.
        """
        return [self._open(file) for file in self._files(split)]

    def documents(self, split: Split) -> Documents:
        """Return the documents of a split; one that crosses shards is joined.

        Raises:
            DamageError: If the output has no document index, or a damaged one.
            UsageError: If there is no such split, or the index was left out.
        """
        files = self._files(split)
        if split not in self._documents:
            self._documents[split] = self._open_documents(split, files)
        return self._documents[split]

    def fields(self, split: Split) -> Fields:
        """Return the fields of records that the job kept, one row per document of a split.

        Raises:
            UsageError: If there is no such split, or the output was made without `--keep`.
        """
        self._files(split)
        if split not in self._fields:
            self._fields[split] = Fields(self.folder, self.manifest, split)
        return self._fields[split]

    def read(self, split: Split, start: int, num_tokens: int) -> NDArray[np.unsignedinteger[Any]]:
        """Copy tokens from `start` on, across shards; fewer at the end of the split.

        Raises:
            UsageError: If there is no such split, or a number is not a whole one from 0 on.
        """
        for name, value in (("start", start), ("num_tokens", num_tokens)):
            if convert_argument(name, INTEGER, value) < 0:
                raise UsageError(
                    f"`{value}` is less than 0", where=name, next_step="pass 0 or more"
                )
        pieces = []
        for file in self._files(split):
            if start < file.tokens and num_tokens > 0:
                piece = self._open(file)[start : start + num_tokens]
                pieces.append(piece)
                num_tokens -= len(piece)
            start = max(start - file.tokens, 0)
        return np.concatenate([np.empty(0, self.dtype), *pieces])

    def read_shown(self, settings: ShowSettings) -> NDArray[np.unsignedinteger[Any]]:
        """Return the tokens that `penstok show` would print."""
        if settings.document is not None:
            return self._read_document(settings, settings.document)
        total = self.manifest.splits[settings.split].tokens
        if settings.at >= total:
            raise UsageError(
                f"the {settings.split} split has only {plural(total, 'token')}",
                where=f"--at {settings.at}",
                next_step=f"pass `--at` from 0 to {max(total - 1, 0)}, or another `--split`",
            )
        return self.read(settings.split, settings.at, settings.num_tokens or 0)

    def _read_document(
        self, settings: ShowSettings, number: int
    ) -> NDArray[np.unsignedinteger[Any]]:
        documents = self.documents(settings.split)
        if number >= len(documents):
            raise UsageError(
                f"the {settings.split} split has only {plural(len(documents), 'document')}",
                where=f"--document {number}",
                next_step=f"pass `--document` from 0 to {len(documents) - 1}, or another `--split`"
                if documents
                else "pass another `--split`",
            )
        return documents[number][: settings.num_tokens]

    def iter_decoded(self, ids: NDArray[np.unsignedinteger[Any]]) -> Iterator[str]:
        """Yield the text of tokens of this output in pieces: a document can be long.

        Raises:
            DamageError: If the tokenizer has no such ids.
            UsageError: If the tokenizer cannot be loaded any more.
        """
        tokenizer, decoder = self._load_tokenizer(), getincrementaldecoder("utf-8")("replace")
        for start in range(0, len(ids), _SHOWN_TOKENS):
            found = tokenizer.decode_bytes(ids[start : start + _SHOWN_TOKENS].tolist())
            yield decoder.decode(found)
        yield decoder.decode(b"", final=True)

    def decode(self, ids: Iterable[int] | RemoteTokens) -> str:
        """Return the text of ids, with the tokenizer of the job.

        Text that was cut in the middle of a character has U+FFFD there.

        Raises:
            UsageError: If the tokenizer cannot be loaded any more, or has no such ids.
        """
        self._load_tokenizer()
        try:
            return self.decode_stored(ids)
        except DamageError as error:
            raise UsageError(
                error.what,
                where="ids",
                next_step="pass ids of this tokenizer; if this output contains such an id, run "
                f"`penstok verify {quoted(self.folder)} --full`",
            ) from error

    def decode_stored(self, ids: Iterable[int] | RemoteTokens) -> str:
        """Return the text of tokens that were read from this output.

        Raises:
            DamageError: If the tokenizer has no such ids.
            UsageError: If the tokenizer cannot be loaded any more.
        """
        found = self._load_tokenizer().decode_bytes(_as_ids(ids).tolist())
        return found.decode(errors="replace")

    def _load_tokenizer(self) -> Tokenizer:
        from penstok.tokenizers import load_recorded_tokenizer

        if self._tokenizer is None:
            try:
                self._tokenizer = load_recorded_tokenizer(self.manifest.tokenizer)
            except UsageError as error:
                self._refuse_changed_record()
                raise UsageError(
                    error.what,
                    where=str(self.folder / MANIFEST),
                    next_step=f"{error.next_step}; or print ids instead: "
                    f"`penstok show {quoted(self.folder)} --ids`",
                ) from error
        return self._tokenizer

    def _refuse_changed_record(self) -> None:
        """Refuse a manifest whose tokenizer is not that of the ledger, if there is one."""
        try:
            recorded = LedgerReader(self.folder / SEGMENTS).job.tokenizer
        except (DamageError, InputError):
            return
        if recorded != self.manifest.tokenizer:
            what = "the manifest was changed: `tokenizer` differs from the ledger"
            raise _damage(what, self.folder / MANIFEST)

    def _files(self, split: Split) -> list[FileRecord]:
        if split not in SPLITS:
            raise UsageError(
                f"there is no split `{split}`; known: {', '.join(SPLITS)}",
                where="split",
                next_step=f'pass `"{SPLITS[0]}"`',
            )
        return self.manifest.splits[split].files

    def _whole(self, split: Split) -> Tokens:
        files = self._files(split)
        if len(files) != 1:
            raise UsageError(
                f"the {split} split has {len(files)} shards and cannot be opened as one array",
                where=str(self.folder),
                next_step=f'use `.shards("{split}")`, or `.read("{split}", start, num_tokens)`',
            )
        tokens = self._open(files[0])
        tokens._open_documents = partial(self.documents, split)
        tokens._open_fields = partial(self.fields, split)
        return tokens

    def _open_documents(self, split: Split, files: list[FileRecord]) -> Documents:
        is_left_out = self.manifest.settings.get("document_index") == "none"
        if is_left_out or len(self.manifest.splits[split].indexes_of("documents")) != len(files):
            raise self._no_index(is_left_out=is_left_out)
        source = TokenSource.from_manifest(self.manifest, lambda name: self.folder / name)
        return Documents(split, source.splits[split].files, self._open_pair)

    def _open_pair(self, split: Split, idx: int) -> tuple[RangeReader, RangeReader]:
        """Open a token file and its index."""
        record = self.manifest.splits[split]
        index, entry = record.indexes_of("documents")[idx], np.dtype("<u8")
        path = self.folder / index.path
        file = FileRecord(index.path, index.bytes, index.bytes // ENTRY_BYTES, index.digest)
        tokens = self._open(record.files[idx])
        if isinstance(path, ObjectPath):
            return tokens, self._open_remote(path, file, entry)
        # Plain arrays are quicker to slice.
        return np.asarray(tokens), np.asarray(self._map(path, file, entry))

    def _no_index(self, *, is_left_out: bool) -> PenstokError:
        again = "run the command that made it again, with `--overwrite`"
        if is_left_out:
            return UsageError(
                "this output was made without a document index",
                where=str(self.folder / MANIFEST),
                next_step=f"{again} and without `--document-index none`",
            )
        can_find = self.manifest.settings.get("eot") != "none"
        return DamageError(
            "this output has no document index; an older version made it",
            where=str(self.folder / MANIFEST),
            next_step=repair_step(self.folder) if can_find else again,
        )

    def _open(self, file: FileRecord) -> Tokens:
        if isinstance(self.folder, ObjectPath):
            if file.path not in self._remote:
                self._remote[file.path] = self._open_remote(
                    self.folder / file.path, file, self.dtype
                )
            return self._remote[file.path]
        return self._map(self.folder / file.path, file, self.dtype).view(MappedTokens)

    def _open_remote(
        self, path: ObjectPath, file: FileRecord, dtype: np.dtype[Any]
    ) -> RemoteTokens:
        """Get an object's size and version, once; all later reads are of that version."""
        try:
            info = path.get_info()
        except FileNotFoundError as error:
            raise _missing(path) from error
        if info.num_bytes != file.bytes:
            raise _wrong_size(path, info.num_bytes, file)
        return RemoteTokens(path, dtype, info)

    def _map(self, path: Path, file: FileRecord, dtype: np.dtype[Any]) -> NDArray[Any]:
        try:
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise _missing(path) from error
        except OSError as error:
            raise read_error(error, str(path)) from error
        if size != file.bytes:
            raise _wrong_size(path, size, file)
        if file.tokens == 0:
            # An empty file cannot be mapped.
            empty = np.empty(0, dtype)
            empty.flags.writeable = False
            return empty
        try:
            return np.memmap(path, dtype, "r")
        except OSError as error:
            raise read_error(error, str(path)) from error


def open_dataset(folder: str | os.PathLike[str] | ObjectPath) -> Dataset:
    """Open the output of a finished job: a folder, or `s3://BUCKET/NAME`.

    Raises:
        DamageError: If there is no finished job.
        InputError: If the folder or the object store cannot be read.
    """
    path = output_path(folder)
    return Dataset(path, Manifest.load(path))


def _as_ids(ids: Any) -> NDArray[np.integer[Any]]:
    """Return ids as an array, unless they are something else."""
    try:
        found = np.asarray(ids if hasattr(ids, "__len__") else list(ids))
    except (TypeError, ValueError, OverflowError):
        found = np.empty((0, 0))
    if found.ndim == 1 and (found.dtype.kind in "iu" or not found.size):
        return found
    raise UsageError(
        f"these are not ids: `{str(ids)[:40]}`",
        where="ids",
        next_step="pass a list or an array of whole numbers, such as `[464, 717]`",
    )


def _missing(path: OutputPath) -> DamageError:
    return _damage(f"`{path.name}` is missing", path)


def _wrong_size(path: OutputPath, size: int | None, file: FileRecord) -> DamageError:
    found = "an unknown size" if size is None else plural(size, "byte")
    return _damage(f"`{path.name}` has {found} instead of {plural(file.bytes, 'byte')}", path)


def _damage(what: str, path: OutputPath) -> DamageError:
    return DamageError(what, where=str(path), next_step=repair_step(path.parent))
