"""Objects of all other services that fsspec knows, such as Google Cloud and Azure.

fsspec cannot pin a version, so the object's info is requested again after every range and compared.
It writes nothing. S3 and web servers have faster modules of their own, `s3` and `web`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from penstok.errors import InputError, PenstokError, UsageError
from penstok.storage.base import (
    LOOKUP_RETRIES,
    ObjectInfo,
    TransientError,
    changed_error,
    first_line,
    missing_package_error,
    register_closer,
    status_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.storage.base import Body

__all__ = ["FsspecObject", "iter_fsspec_urls"]


class _Service(NamedTuple):
    """What a service needs: a package, the extra that installs it, and credentials."""

    package: str = "fsspec"
    extra: str = ""
    credentials: str = "those of this service, as its fsspec package reads them"


_GOOGLE_CLOUD = _Service(
    "gcsfs",
    "gs",
    "`gcloud auth application-default login`, or `GOOGLE_APPLICATION_CREDENTIALS`",
)
_HUGGING_FACE = _Service("huggingface_hub", "hf", "`hf auth login`, or `HF_TOKEN`")
_SERVICES = {"gs": _GOOGLE_CLOUD, "gcs": _GOOGLE_CLOUD, "hf": _HUGGING_FACE}
_REQUEST_BYTES = 8 << 20
# What changes with the object, the most reliable first: Google's, Azure's, others'.
_VERSION_KEYS = ("generation", "etag", "ETag", "md5Hash", "blob_id", "mtime", "updated")


class FsspecObject:
    """One object, read through fsspec."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._path = url.partition("://")[2]

    def get_info(self) -> ObjectInfo:
        """Request what fsspec calls the object's info."""
        info = _call(self._url, "info", self._path)
        if info.get("type") == "directory":
            raise InputError("this is a folder", where=self._url, next_step="pass its files")
        size = info.get("size")
        versions = (str(info[key]) for key in _VERSION_KEYS if info.get(key))
        return ObjectInfo(size, next(versions, ""), has_ranges=size is not None)

    def open_range(self, start: int, end: int | None, info: ObjectInfo) -> Body:
        """Return a body that reads the range in requests of at most `_REQUEST_BYTES`."""
        return _FsspecBody(self, start, end if end is not None else info.num_bytes or 0, info)

    def load_range(self, start: int, end: int, info: ObjectInfo) -> bytes:
        """Read a range in one request, then check that the object has not changed."""
        data: bytes = _call(self._url, "cat_file", self._path, start=start, end=end)
        if (found := self.get_info()) != info:
            now = f"{found.num_bytes} bytes, version {found.version} now"
            raise changed_error(self._url, info, now)
        if len(data) != end - start:
            raise TransientError(f"{len(data)} bytes arrived instead of {end - start}")
        return data


class _FsspecBody:
    def __init__(self, remote: FsspecObject, start: int, end: int, info: ObjectInfo) -> None:
        self._remote = remote
        self._offset = start
        self._end = end
        self._info = info
        self._data = memoryview(b"")

    def readinto(self, buffer: memoryview, /) -> int:
        if not self._data and self._offset < self._end:
            stop = min(self._offset + _REQUEST_BYTES, self._end)
            self._data = memoryview(self._remote.load_range(self._offset, stop, self._info))
            self._offset = stop
        count = min(len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def close(self) -> None:
        self._data = memoryview(b"")


def iter_fsspec_urls(url: str) -> Iterator[str]:
    """Yield the URL of every object below the folder `url`, or of the one object."""
    scheme, _, path = url.partition("://")
    for name in LOOKUP_RETRIES.run(lambda: _call(url, "find", path.rstrip("/")), url):
        yield f"{scheme}://{name}"


def _call(url: str, method: str, *arguments: Any, **options: Any) -> Any:
    """Call one of fsspec's methods; translate its errors."""
    credentials = _find_service(url).credentials
    try:
        return getattr(_file_system(url), method)(*arguments, **options)
    except (PenstokError, TransientError):
        raise
    except NotImplementedError as error:
        raise _unreadable_scheme_error(url) from error
    except FileNotFoundError as error:
        raise status_error(url, 404, "", credentials=credentials) from error
    except PermissionError as error:
        raise status_error(url, 403, first_line(error), credentials=credentials) from error
    except Exception as error:
        # Each service has its own errors, which fsspec passes on.
        status = _find_status(error)
        if status is None:
            raise TransientError(f"{type(error).__name__}: {first_line(error)}") from error
        raise status_error(url, status, first_line(error), credentials=credentials) from error


def _find_service(url: str) -> _Service:
    return _SERVICES.get(url.partition("://")[0].lower(), _Service())


def _find_status(error: Exception) -> int | None:
    """Find the HTTP status in an error, if it has one."""
    response = getattr(error, "response", None)
    for holder, name in ((response, "status_code"), (error, "status"), (error, "code")):
        status = str(getattr(holder, name, ""))
        if status.isdecimal() and int(status) >= 400:
            return int(status)
    return None


def _file_system(url: str) -> Any:
    scheme = url.partition("://")[0]
    try:
        return _cached_file_system(scheme)
    except ImportError as error:
        service = _find_service(url)
        if not service.extra:
            raise UsageError(
                f"URLs with `{scheme}://` need another package: {first_line(error)}",
                where=f"INPUT `{url}`",
                next_step="install it, or download the file and pass that",
            ) from error
        raise missing_package_error(url, service.package, service.extra) from error
    except (TypeError, OSError) as error:
        # FTP, SMB, zip and the like are opened with more than their scheme: a host, a user, a file.
        raise _unreadable_scheme_error(url) from error
    except ValueError as error:
        raise InputError(
            f"unknown URL scheme `{scheme}://`",
            where=f"INPUT `{url}`",
            next_step="pass a file, or a URL that starts with `s3://`, `gs://`, `hf://` or "
            "`https://`",
        ) from error


def _unreadable_scheme_error(url: str) -> InputError:
    return InputError(
        f"URLs with `{url.partition('://')[0]}://` cannot be read",
        where=f"INPUT `{url}`",
        next_step="download the file and pass that",
    )


@functools.cache
def _cached_file_system(scheme: str) -> Any:
    import fsspec

    register_closer(_cached_file_system.cache_clear)
    # Without the listings cache a changed object is noticed.
    return fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)
