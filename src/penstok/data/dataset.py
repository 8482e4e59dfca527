"""Read the tokens of a finished job back, without loading them into memory.

It checks the sizes of files, not their contents (`verification` does), and writes nothing. Files
are memory-mapped, objects in S3 are read in ranges by `remote_tokens`; `api`, `info` and `show`
use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstok.data.remote_tokens import RemoteTokens
from penstok.errors import DamageError, InputError, UsageError, quoted, read_error
from penstok.jobs.definition import INTEGER, convert_argument
from penstok.output.layout import MANIFEST, SEGMENTS
from penstok.output.ledger.reader import LedgerReader
from penstok.output.manifest import Manifest
from penstok.quantities import plural
from penstok.storage.object_paths import ObjectPath, output_path, repair_step
from penstok.types import SPLITS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

    from penstok.data.settings import ShowSettings
    from penstok.output.manifest import FileRecord
    from penstok.storage.object_paths import OutputPath
    from penstok.tokenizers import Tokenizer
    from penstok.types import Split

__all__ = ["Dataset", "Tokens", "open_dataset"]

Tokens: TypeAlias = NDArray[np.unsignedinteger[Any]] | RemoteTokens


class Dataset:
    """The splits of a finished job as read-only arrays; only what is used is read.

    The arrays of a folder are memory maps. Those of an object store are `RemoteTokens`, where each
    slice is a request.
    """

    def __init__(self, folder: OutputPath, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._remote: dict[str, RemoteTokens] = {}
        self._tokenizer: Tokenizer | None = None
        self.dtype: np.dtype[Any] = np.dtype(manifest.dtype).newbyteorder("<")

    @property
    def train(self) -> Tokens:
        """The tokens of the train split."""
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
        """Copy the tokens that `penstok show` would print."""
        total = self.manifest.splits[settings.split].tokens
        if settings.at >= total:
            raise UsageError(
                f"the {settings.split} split has only {plural(total, 'token')}",
                where=f"--at {settings.at}",
                next_step=f"pass `--at` from 0 to {max(total - 1, 0)}, or another `--split`",
            )
        return self.read(settings.split, settings.at, settings.tokens)

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
        return self._open(files[0])

    def _open(self, file: FileRecord) -> Tokens:
        if isinstance(self.folder, ObjectPath):
            if file.path not in self._remote:
                self._remote[file.path] = self._open_remote(self.folder / file.path, file)
            return self._remote[file.path]
        return self._map(self.folder / file.path, file)

    def _open_remote(self, path: ObjectPath, file: FileRecord) -> RemoteTokens:
        """Get an object's size and version, once; all later reads are of that version."""
        try:
            info = path.get_info()
        except FileNotFoundError as error:
            raise _missing(path) from error
        if info.num_bytes != file.bytes:
            raise _wrong_size(path, info.num_bytes, file)
        return RemoteTokens(path, self.dtype, info)

    def _map(self, path: Path, file: FileRecord) -> NDArray[np.unsignedinteger[Any]]:
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
            empty = np.empty(0, self.dtype)
            empty.flags.writeable = False
            return empty
        try:
            return np.memmap(path, self.dtype, "r")
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
