"""Where an output lies: in a folder of this machine, or in an object store.

An `ObjectPath` is the little of `pathlib.Path` that reading an output needs, by requests to S3. It
writes nothing and caches no answer. Whatever reads finished outputs takes an `OutputPath`, which is
either; `remote` makes the requests.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from penstok.errors import UsageError
from penstok.storage import (
    MissingError,
    RemoteFile,
    is_url,
    list_folder,
    look_at_url,
    open_seekable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.storage import RemoteFacts

__all__ = [
    "OPEN_OBJECT_BYTES",
    "ObjectPath",
    "ObjectStatus",
    "OpenObjects",
    "OutputPath",
    "mending_step",
    "output_path",
]

# A split of each kind is read in turn.
_MAX_OPEN_OBJECTS = 2
# What one `OpenObjects` holds at the most: the windows of its files.
OPEN_OBJECT_BYTES = _MAX_OPEN_OBJECTS * (4 << 20)
# Lines are read through it; the windows behind it are longer, so that a request is.
_BUFFER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """What `ObjectPath.stat` tells, under the name that `os.stat` has for it."""

    st_size: int


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """An object in S3, or a folder of them: `s3://BUCKET/NAME`, without a slash at its end.

    What is not there is a `FileNotFoundError`, as for files; a server that fails is tried again and
    is an `InputError` in the end.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The folder it lies in; a bucket lies in itself."""
        scheme, _, path = self.url.partition("://")
        folder = path.rpartition("/")[0]
        return ObjectPath(f"{scheme}://{folder}") if folder else self

    def resolve(self) -> ObjectPath:
        """Return the path itself: there are no links and no relative names."""
        return self

    def look(self) -> RemoteFacts:
        """Ask for size and version."""
        with _missing_as_os_error(self):
            return look_at_url(self.url)

    def stat(self) -> ObjectStatus:
        """Ask for the size."""
        return ObjectStatus(self.look().num_bytes or 0)

    def exists(self) -> bool:
        """Tell whether there is such an object; of folders only their objects exist."""
        try:
            self.look()
        except FileNotFoundError:
            return False
        return True

    def is_file(self) -> bool:
        """Tell whether there is such an object."""
        return self.exists()

    def open(self, mode: Literal["rb"] = "rb") -> io.BufferedReader:
        """Open it to be read at any place; what is read is that of one version."""
        facts = self.look()
        raw = cast("io.RawIOBase", open_seekable(self.url, facts))
        return io.BufferedReader(raw, _BUFFER_BYTES)

    def read_bytes(self) -> bytes:
        """Read all of it into memory."""
        facts = self.look()
        with _missing_as_os_error(self), RemoteFile(self.url, facts) as file:
            return file.read_at(0, file.num_bytes)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Read all of it into memory, as text."""
        return self.read_bytes().decode(encoding)

    def list_sizes(self) -> dict[str, int]:
        """Return the names and sizes of the objects in this folder: a request for a thousand."""
        return list_folder(self.url)

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield the objects in this folder."""
        for name in self.list_sizes():
            yield self / name


OutputPath: TypeAlias = Path | ObjectPath


def output_path(place: str | os.PathLike[str] | ObjectPath) -> OutputPath:
    """Say where an output lies: a folder, or a URL, which `Path` would spoil.

    Raises:
        UsageError: If it is a URL of another kind than `s3://`.
    """
    if isinstance(place, ObjectPath):
        return place
    text = os.fspath(place)
    if not is_url(text):
        return Path(text)
    scheme, _, path = text.partition("://")
    if scheme.lower() not in ("s3", "s3a"):
        raise UsageError(
            f"an output cannot lie in `{scheme}://`; known: folders and `s3://`",
            where=f"OUT `{text}`",
            next_step="pass a folder, or `s3://BUCKET/NAME`",
        )
    path = path.rstrip("/")
    if not path or path.startswith("/"):
        raise UsageError(
            "a URL without a bucket", where=f"OUT `{text}`", next_step="pass `s3://BUCKET/NAME`"
        )
    if not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise UsageError(
            "a URL with `//`, `/./` or `/../` in it, which services do not take alike",
            where=f"OUT `{text}`",
            next_step="pass `s3://BUCKET/NAME`",
        )
    return ObjectPath(f"{scheme.lower()}://{path}")


def mending_step(folder: OutputPath) -> str:
    """Say what makes a damaged output whole."""
    if isinstance(folder, ObjectPath):
        return (
            f"make it anew: `penstok tokenize INPUT... -o {folder} --overwrite`; or download it, "
            "`penstok verify DIR --repair`, and upload what that made whole"
        )
    return f"`penstok verify {folder} --repair` makes what is damaged anew"


class OpenObjects:
    """The last few objects that were read, kept open; it serves one thread."""

    def __init__(self) -> None:
        self._files: dict[ObjectPath, RemoteFile] = {}

    def read_into(self, path: ObjectPath, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position` on; return how much of it the object has."""
        with _missing_as_os_error(path):
            file = self._get(path)
            count = max(min(len(buffer), file.num_bytes - position), 0)
            if count:
                file.read_into(buffer[:count], position)
        return count

    def close(self) -> None:
        """Drop what they hold."""
        while self._files:
            self._files.popitem()[1].close()

    def _get(self, path: ObjectPath) -> RemoteFile:
        if path not in self._files:
            if len(self._files) >= _MAX_OPEN_OBJECTS:
                self.close()
            self._files[path] = RemoteFile(path.url)
        return self._files[path]


@contextlib.contextmanager
def _missing_as_os_error(path: ObjectPath) -> Iterator[None]:
    """Turn a server's word that there is nothing into what a file system would say."""
    try:
        yield
    except MissingError as error:
        what = os.strerror(errno.ENOENT)
        raise FileNotFoundError(errno.ENOENT, what, str(path)) from error
