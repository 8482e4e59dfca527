"""Read the tokens of a finished job back, without copying them into memory.

It checks sizes, not contents (that is `verify`'s work), and writes nothing. Training scripts and
the commands `info` and `show` use it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import DamageError, UsageError
from penstock.manifest import Manifest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.manifest import FileRecord
    from penstock.types import Split

__all__ = ["Dataset", "open_dataset"]


class Dataset:
    """The splits of a finished job as read-only arrays that the system pages in as needed."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.dtype = np.dtype(manifest.dtype).newbyteorder("<")

    @property
    def train(self) -> NDArray[np.unsignedinteger[Any]]:
        """The tokens of the train split."""
        return self._whole("train")

    @property
    def val(self) -> NDArray[np.unsignedinteger[Any]]:
        """The tokens of the val split."""
        return self._whole("val")

    def shards(self, split: Split) -> list[NDArray[np.unsignedinteger[Any]]]:
        """Return the files of a split, in order."""
        return [self._map(file) for file in self.manifest.splits[split].files]

    def read(self, split: Split, start: int, num_tokens: int) -> NDArray[np.unsignedinteger[Any]]:
        """Copy tokens from `start` on, across shards; fewer where the split ends."""
        pieces = []
        for file in self.manifest.splits[split].files:
            if start < file.tokens and num_tokens > 0:
                piece = self._map(file)[start : start + num_tokens]
                pieces.append(piece)
                num_tokens -= len(piece)
            start = max(start - file.tokens, 0)
        return np.concatenate([np.empty(0, self.dtype), *pieces])

    def _whole(self, split: Split) -> NDArray[np.unsignedinteger[Any]]:
        files = self.manifest.splits[split].files
        if len(files) != 1:
            raise UsageError(
                f"the {split} split has {len(files)} shards, which are no single array",
                where=str(self.folder),
                next_step=f'use `.shards("{split}")`, or `.read("{split}", start, num_tokens)`',
            )
        return self._map(files[0])

    def _map(self, file: FileRecord) -> NDArray[np.unsignedinteger[Any]]:
        path = self.folder / file.path
        try:
            size = path.stat().st_size
        except OSError as error:
            raise _damage(f"`{file.path}` is missing", path) from error
        if size != file.bytes:
            raise _damage(f"`{file.path}` has {size} bytes where {file.bytes} belong", path)
        if file.tokens == 0:
            # An empty file cannot be mapped.
            empty = np.empty(0, self.dtype)
            empty.flags.writeable = False
            return empty
        return np.memmap(path, self.dtype, "r")


def open_dataset(folder: str | Path) -> Dataset:
    """Open the output of a finished job.

    Raises:
        DamageError: If there is no finished job in the folder.
    """
    path = Path(folder)
    return Dataset(path, Manifest.load(path))


def _damage(what: str, path: Path) -> DamageError:
    return DamageError(
        what,
        where=str(path),
        next_step=f"`penstock verify {path.parent} --repair` makes what is damaged anew",
    )
