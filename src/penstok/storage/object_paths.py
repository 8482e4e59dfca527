"""Paths of outputs: a local folder, or `ObjectPath`, the part of `pathlib.Path` that readers need.

It writes nothing and caches no response. Everything that reads finished outputs takes an
`OutputPath`, which is either; the rest of `storage` makes the requests.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from penstok.errors import UsageError, quoted
from penstok.storage.base import ObjectMissingError
from penstok.storage.files import RemoteFile, open_seekable
from penstok.storage.s3 import iter_keys
from penstok.storage.urls import get_object_info, is_url
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.storage.base import ObjectInfo

__all__ = [
    "OPEN_OBJECT_BYTES",
    "ObjectPath",
    "ObjectStat",
    "OpenObjects",
    "OutputPath",
    "output_path",
    "repair_step",
]

# One file of each split is read in turn.
_MAX_OPEN_OBJECTS = 2
# The most that one `OpenObjects` holds: the windows of its files.
OPEN_OBJECT_BYTES = _MAX_OPEN_OBJECTS * (4 << 20)
# Lines are read through it; requests are as long as the windows behind it.
_BUFFER_BYTES = 1 << 16


class ObjectStat(Struct, frozen=True):
    """The result of `ObjectPath.stat`, with the field name of `os.stat`."""

    st_size: int


class ObjectPath(Struct, frozen=True):
    """An object in S3, or a folder of them: `s3://BUCKET/NAME`, without a trailing slash.

    As for files, a missing object is a `FileNotFoundError`. Failed requests are retried, and are an
    `InputError` in the end.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last component."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The folder that contains it; a bucket is its own parent."""
        scheme, _, path = self.url.partition("://")
        folder = path.rpartition("/")[0]
        return ObjectPath(f"{scheme}://{folder}") if folder else self

    def resolve(self) -> ObjectPath:
        """Return the path itself: there are no links and no relative names."""
        return self

    def get_info(self) -> ObjectInfo:
        """Request size and version."""
        with _missing_as_os_error(self):
            return get_object_info(self.url)

    def stat(self) -> ObjectStat:
        """Request the size."""
        return ObjectStat(self.get_info().num_bytes or 0)

    def exists(self) -> bool:
        """Tell whether the object exists; folders do not, only the objects in them."""
        try:
            self.get_info()
        except FileNotFoundError:
            return False
        return True

    def is_file(self) -> bool:
        """Tell whether the object exists."""
        return self.exists()

    def open(self, mode: Literal["rb"] = "rb") -> io.BufferedReader:
        """Open one version of the object for random access."""
        raw = cast("io.RawIOBase", open_seekable(self.url, self.get_info()))
        return io.BufferedReader(raw, _BUFFER_BYTES)

    def read_bytes(self) -> bytes:
        """Read the whole object into memory."""
        info = self.get_info()
        with _missing_as_os_error(self), RemoteFile(self.url, info) as file:
            return file.read_at(0, file.num_bytes)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Read the whole object into memory, as text."""
        return self.read_bytes().decode(encoding)

    def list_sizes(self) -> dict[str, int]:
        """Return name and size of the objects in this folder, with one request per thousand."""
        folder = f"{self.url}/"
        prefix = folder.partition("://")[2].partition("/")[2]
        sizes = {key.removeprefix(prefix): size for key, size in iter_keys(folder, recursive=False)}
        # Some tools mark a folder by an object with its name.
        sizes.pop("", None)
        return sizes

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield the objects in this folder."""
        for name in self.list_sizes():
            yield self / name


OutputPath: TypeAlias = Path | ObjectPath


def output_path(location: str | os.PathLike[str] | ObjectPath) -> OutputPath:
    """Return the path of an output: a folder, or a URL, which `Path` would change.

    Raises:
        UsageError: If it is a URL with another scheme than `s3://`, or a name that no output has.
    """
    if isinstance(location, ObjectPath):
        return location
    text = os.fspath(location)
    if not is_url(text):
        _refuse_name(text)
        return Path(text)
    scheme, _, path = text.partition("://")
    if scheme.lower() not in ("s3", "s3a"):
        raise UsageError(
            f"outputs cannot be stored in `{scheme}://`; known: folders and `s3://`",
            where=f"OUT `{text}`",
            next_step="pass a folder, or `s3://BUCKET/NAME`",
        )
    path = path.rstrip("/")
    if not path or path.startswith("/"):
        raise UsageError(
            "the URL has no bucket", where=f"OUT `{text}`", next_step="pass `s3://BUCKET/NAME`"
        )
    if not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise UsageError(
            "the URL contains `//`, `/./` or `/../`, which services treat differently",
            where=f"OUT `{text}`",
            next_step="pass `s3://BUCKET/NAME`",
        )
    return ObjectPath(f"{scheme.lower()}://{path}")


def _refuse_name(text: str) -> None:
    """Refuse a folder that was hardly meant, such as the current one for an empty variable."""
    if not text:
        what, next_step = "the name of the output is empty", "pass a folder; `.` is the current one"
    elif text == "-":
        what = "an output is a folder and cannot be written to standard output"
        next_step = "pass a folder, such as `tokens`"
    elif text.startswith("~"):
        what = f"the shell has not replaced `~` in `{text}`"
        next_step = "leave out the quotes, or pass the full name; `./~` is a folder of that name"
    elif text.startswith("/") and not text.strip("/."):
        what, next_step = "the root folder cannot be an output", "pass a folder in it"
    elif "\0" in text:
        what, next_step = f"{text!r} cannot be the name of a folder", "pass a name without it"
    else:
        return
    raise UsageError(what, where="OUT", next_step=next_step)


def repair_step(folder: OutputPath) -> str:
    """Return the next step for a damaged output."""
    if isinstance(folder, ObjectPath):
        return (
            f"start again: `penstok tokenize INPUT... -o {quoted(folder)} --overwrite`; or "
            "download it, run `penstok verify DIR --repair`, and upload the repaired files"
        )
    return f"`penstok verify {quoted(folder)} --repair` re-encodes what is damaged"


class OpenObjects:
    """The last few objects that were read, kept open; for one thread."""

    def __init__(self) -> None:
        self._files: dict[ObjectPath, RemoteFile] = {}

    def read_into(self, path: ObjectPath, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position` on; return how many bytes the object has of it."""
        with _missing_as_os_error(path):
            file = self._get(path)
            count = max(min(len(buffer), file.num_bytes - position), 0)
            if count:
                file.read_into(buffer[:count], position)
        return count

    def close(self) -> None:
        """Close them and drop what they hold."""
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
    """Raise what a file system would for a missing object."""
    try:
        yield
    except ObjectMissingError as error:
        what = os.strerror(errno.ENOENT)
        raise FileNotFoundError(errno.ENOENT, what, str(path)) from error
