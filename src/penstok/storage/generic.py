"""Whatever else fsspec knows (Google Cloud, Azure, ...): the whole range in one call, then a look.

It has no way to pin a version, so it looks at the object again after every range: what it hands out
was read while the object was the one that was planned. Faster ways exist for the web and for S3.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from penstok.errors import InputError, PenstokError
from penstok.storage.base import (
    PassingError,
    RemoteFacts,
    changed,
    explain_status,
    missing_package,
    on_close,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.storage.base import Body

__all__ = ["GenericTransport", "iter_names"]

_PACKAGES = {"gs": ("gcsfs", "gs"), "gcs": ("gcsfs", "gs"), "hf": ("huggingface_hub", "hf")}
_CREDENTIALS = {
    "gs": "`gcloud auth application-default login`, or `GOOGLE_APPLICATION_CREDENTIALS`",
    "hf": "`hf auth login`, or `HF_TOKEN`",
}
_STREAM_BYTES = 8 << 20
# What shows a change, the surest first: Google's, Azure's and others', any.
_VERSION_KEYS = ("generation", "etag", "ETag", "md5Hash", "blob_id", "mtime", "updated")


class GenericTransport:
    """The way to one object through fsspec."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._path = url.partition("://")[2]

    def look(self) -> RemoteFacts:
        """Ask for what fsspec calls the object's info."""
        info = _call(self._url, "info", self._path)
        if info.get("type") == "directory":
            raise InputError("this is a folder", where=self._url, next_step="pass its files")
        found = (str(info[key]) for key in _VERSION_KEYS if info.get(key))
        return RemoteFacts(
            info.get("size"), next(found, ""), is_ranged=info.get("size") is not None
        )

    def ask(self, start: int, end: int | None, facts: RemoteFacts) -> Body:
        """Read a range, and see that the object is still the same."""
        return _GenericBody(self, start, end if end is not None else facts.num_bytes or 0, facts)

    def load(self, start: int, end: int, facts: RemoteFacts) -> bytes:
        """Read a range in one request, and look at the object after it."""
        data: bytes = _call(self._url, "cat_file", self._path, start=start, end=end)
        if (seen := self.look()) != facts:
            raise changed(self._url, facts, f"{seen.num_bytes} bytes, version {seen.version} now")
        if len(data) != end - start:
            raise PassingError(f"{len(data)} bytes came instead of {end - start}")
        return data


class _GenericBody:
    """A range as it is asked for: in requests as long as the reader's, at most `_STREAM_BYTES`."""

    def __init__(
        self, transport: GenericTransport, start: int, end: int, facts: RemoteFacts
    ) -> None:
        self._transport = transport
        self._at = start
        self._end = end
        self._facts = facts
        self._data = memoryview(b"")

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of `buffer`."""
        if not self._data and self._at < self._end:
            stop = min(self._at + _STREAM_BYTES, self._end)
            self._data = memoryview(self._transport.load(self._at, stop, self._facts))
            self._at = stop
        count = min(len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def close(self) -> None:
        """Drop what is left."""
        self._data = memoryview(b"")


def iter_names(url: str) -> Iterator[str]:
    """Yield every object under the folder `url`, or the one of that name."""
    scheme, _, path = url.partition("://")
    for name in _call(url, "find", path.rstrip("/")):
        yield f"{scheme}://{name}"


def _call(url: str, method: str, *arguments: Any, **options: Any) -> Any:
    """Call one of fsspec's methods; say what an error means."""
    scheme = url.partition("://")[0]
    credentials = _CREDENTIALS.get(
        scheme, "those of this service, as its fsspec package takes them"
    )
    try:
        return getattr(_file_system(url), method)(*arguments, **options)
    except (PenstokError, PassingError):
        raise
    except FileNotFoundError as error:
        raise explain_status(url, 404, "", credentials=credentials) from error
    except PermissionError as error:
        raise explain_status(url, 403, _words(error), credentials=credentials) from error
    except Exception as error:
        # Each service has errors of its own, which fsspec passes on as they are.
        status = _status(error)
        if status is None:
            raise PassingError(f"{type(error).__name__}: {_words(error)}") from error
        raise explain_status(url, status, _words(error), credentials=credentials) from error


def _status(error: Exception) -> int | None:
    """Find the HTTP status in an error, if it has one."""
    response = getattr(error, "response", None)
    for holder, name in ((response, "status_code"), (error, "status"), (error, "code")):
        status = str(getattr(holder, name, ""))
        if status.isdecimal() and int(status) >= 400:
            return int(status)
    return None


def _words(error: Exception) -> str:
    return str(error)[:200]


def _file_system(url: str) -> Any:
    scheme = url.partition("://")[0]
    try:
        return _cached_file_system(scheme)
    except ImportError as error:
        package, extra = _PACKAGES.get(scheme, ("fsspec", ""))
        raise missing_package(url, package, extra) from error
    except ValueError as error:
        raise InputError(
            f"no way to read `{scheme}://` is known",
            where=f"INPUT `{url}`",
            next_step="pass a file, or a URL that begins with s3, gs, hf, https",
        ) from error


@functools.cache
def _cached_file_system(scheme: str) -> Any:
    import fsspec

    # Listings are never taken from memory: an object that changed must show.
    options = {"use_listings_cache": False, "skip_instance_cache": True}
    on_close(_cached_file_system.cache_clear)
    return fsspec.filesystem(scheme, **options)
