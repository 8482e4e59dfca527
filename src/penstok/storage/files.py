"""Remote files for readers: random access, a stream from start to end, a Python file object.

Memory is bounded, nothing is written to disk, and a broken connection is resumed where it stopped.
It knows nothing about what the bytes mean. `urls` finds the object; `inputs`, `readers` and `data`
read it.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, cast

from penstok.errors import InputError
from penstok.quantities import plural
from penstok.resources import Resource
from penstok.storage.base import CHUNK_BYTES, RetryPolicy, TransientError
from penstok.storage.urls import find_object, get_object_info
from penstok.types import Struct

if TYPE_CHECKING:
    from penstok.storage.base import Body, ObjectInfo

__all__ = ["RemoteFile", "RemoteStream", "open_seekable", "open_stream"]

# Readers make short reads around an offset, mostly forward: close to it first, then further away.
_SHORT_BYTES = 1 << 18
_BEFORE_BYTES = 1 << 16
_AFTER_BYTES = 1 << 17
_SEARCH_BYTES = 1 << 20
_MAX_WINDOWS = 4
# Size of a request inside a range that the reader has announced.
_READ_AHEAD_BYTES = 8 << 20


class _Window(Struct, frozen=True):
    """Bytes of the file that are in memory."""

    start: int
    view: memoryview

    @property
    def end(self) -> int:
        return self.start + len(self.view)

    def contains(self, start: int, end: int) -> bool:
        return self.start <= start and end <= self.end

    def slice(self, start: int, end: int) -> memoryview:
        return self.view[start - self.start : end - self.start]


_EMPTY = _Window(0, memoryview(b""))


class RemoteFile(Resource):
    """One version of the object behind a URL, with random access; use it in a `with`.

    Short reads are served from windows, long ones go straight into the caller's buffer. It holds
    the range that was prefetched, and at most four windows of about a megabyte.
    """

    def __init__(
        self, url: str, info: ObjectInfo | None = None, retries: RetryPolicy | None = None
    ) -> None:
        """Take an object whose server returns ranges; without `info` it is requested now."""
        self.url = url
        self.info: ObjectInfo = get_object_info(url) if info is None else info
        if not self.info.has_ranges or self.info.num_bytes is None:
            raise InputError(
                "the server does not return parts of this file",
                where=url,
                next_step="download it first, with `curl -fO`, and pass the file",
            )
        self.num_bytes: int = self.info.num_bytes
        self._object = find_object(url)
        self._retries = retries or RetryPolicy()
        self._windows: list[_Window] = []
        self._prefetched = _EMPTY
        self._announced = 0, 0

    def close(self) -> None:
        """Drop what is in memory; connections stay open for the next file."""
        self._windows.clear()
        self._prefetched = _EMPTY

    def prefetch(self, start: int, end: int) -> None:
        """Fetch a range now and keep it, in place of the previous one."""
        self._prefetched = _EMPTY
        self._prefetched = self._fetch_window(*self._clip(start, end))

    def announce(self, start: int, end: int) -> None:
        """Declare that a range will be read from start to end, so that requests can be long."""
        self._announced = self._clip(start, end)

    def read_at(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, without what lies outside the file."""
        start, end = self._clip(start, end)
        self._read_ahead(start, end)
        if end - start <= _SHORT_BYTES or self._prefetched.contains(start, end):
            return bytes(self._get_window(start, end))
        buffer = bytearray(end - start)
        self.fetch_into(memoryview(buffer), start)
        return bytes(buffer)

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` with the bytes from `start` on."""
        end = start + len(buffer)
        if end > self.num_bytes:
            raise InputError(
                f"byte {end} is beyond the end of the file, which has "
                f"{plural(self.num_bytes, 'byte')}",
                where=f"{self.url}, bytes {start} to {end}",
                next_step="report this: a range was planned that lies outside the file",
            )
        self._read_ahead(start, end)
        if len(buffer) <= _SHORT_BYTES or self._prefetched.contains(start, end):
            buffer[:] = self._get_window(start, end)
        else:
            self.fetch_into(buffer, start)

    def fetch_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` with one request for exactly that range; keep nothing in memory.

        After a failure the request continues behind what has arrived. The number of attempts is
        counted again after every chunk, so that a long range makes progress over a bad connection.
        """
        done = 0
        end = start + len(buffer)

        def attempt() -> None:
            nonlocal done
            before = done
            body = self._object.open_range(start + done, end, self.info)
            try:
                while done < len(buffer):
                    count = body.readinto(buffer[done : done + CHUNK_BYTES])
                    if not count:
                        raise TransientError(f"the response ended at byte {start + done}")
                    done += count
            except TransientError:
                if done - before < CHUNK_BYTES:
                    raise
            finally:
                body.close()

        while done < len(buffer):
            self._retries.run(attempt, f"{self.url}, bytes {start} to {end}")

    def _clip(self, start: int, end: int) -> tuple[int, int]:
        start = max(start, 0)
        return start, max(min(end, self.num_bytes), start)

    def _read_ahead(self, start: int, end: int) -> None:
        """Fetch the next part of the announced range, reusing what is in memory of it."""
        window, (first, last) = self._prefetched, self._announced
        is_announced = first <= start < end <= min(last, start + _READ_AHEAD_BYTES)
        if not is_announced or window.contains(start, end):
            return
        reused = window.slice(start, window.end) if window.start <= start < window.end else b""
        buffer = memoryview(bytearray(min(_READ_AHEAD_BYTES, last - start)))
        buffer[: len(reused)] = reused
        self.fetch_into(buffer[len(reused) :], start + len(reused))
        self._prefetched = _Window(start, buffer)

    def _get_window(self, start: int, end: int) -> memoryview:
        """Return a short range from a window; fetch a window around it if there is none."""
        if start == end:
            return memoryview(b"")
        for window in (self._prefetched, *reversed(self._windows)):
            if window.contains(start, end):
                return window.slice(start, end)
        # A read that starts where a window ends is part of a search, which will continue.
        is_search = any(window.start <= start <= window.end for window in self._windows)
        after = _SEARCH_BYTES if is_search else _AFTER_BYTES
        before = 0 if is_search else _BEFORE_BYTES
        window = self._fetch_window(*self._clip(start - before, max(start + after, end)))
        self._windows = [*self._windows[-_MAX_WINDOWS + 1 :], window]
        return window.slice(start, end)

    def _fetch_window(self, start: int, end: int) -> _Window:
        buffer = memoryview(bytearray(end - start))
        self.fetch_into(buffer, start)
        return _Window(start, buffer)


class RemoteStream(Resource):
    """A remote file read from start to end, for compressed files and servers without ranges."""

    def __init__(self, url: str, info: ObjectInfo, retries: RetryPolicy) -> None:
        self.url = url
        self.info = info
        self._object = find_object(url)
        self._retries = retries
        self._body: Body | None = None
        self._offset = 0

    def close(self) -> None:
        """Release the connection."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def read(self, num_bytes: int) -> bytes:
        """Read the next `num_bytes`; fewer only at the end of the file."""
        buffer = bytearray(num_bytes)
        view = memoryview(buffer)
        done = 0
        while done < num_bytes:
            count = self._fill(view[done : done + CHUNK_BYTES])
            if not count:
                break
            done += count
        return bytes(view[:done])

    def _fill(self, buffer: memoryview) -> int:
        """Fill `buffer`, unless the file ends; attempts are counted per call."""
        done = 0

        def attempt() -> None:
            nonlocal done
            while done < len(buffer) and self._offset != self.info.num_bytes:
                count = self._read_some(buffer[done:])
                if not count:
                    return
                done += count

        self._retries.run(attempt, f"{self.url}, byte {self._offset}")
        return done

    def _read_some(self, buffer: memoryview) -> int:
        """Read on; after a failure close the connection, so that the next attempt opens one."""
        try:
            if self._body is None:
                end = self.info.num_bytes if self.info.has_ranges else None
                self._body = self._object.open_range(self._offset, end, self.info)
            count = self._body.readinto(buffer)
            if not count and self.info.num_bytes is not None:
                raise TransientError(f"the response ended at byte {self._offset}")
        except TransientError as error:
            self.close()
            if self._offset and not self.info.has_ranges:
                raise InputError(
                    f"the connection was cut: {error.reason}",
                    where=f"{self.url}, byte {self._offset}",
                    next_step="run the same command again; this server only returns whole files, "
                    "so a local copy (`curl -fO`) is safer",
                ) from error
            raise
        self._offset += count
        return count


def open_stream(
    url: str, info: ObjectInfo | None = None, retries: RetryPolicy | None = None
) -> RemoteStream:
    """Open a file to be read from start to end.

    A broken connection is resumed if the server returns ranges, else it is an error.
    """
    return RemoteStream(
        url, get_object_info(url) if info is None else info, retries or RetryPolicy()
    )


def open_seekable(
    url: str, info: ObjectInfo | None = None, retries: RetryPolicy | None = None
) -> BinaryIO:
    """Open a file object in which pyarrow and others can read and seek."""
    return cast("BinaryIO", _Seekable(RemoteFile(url, info, retries)))


class _Seekable(io.RawIOBase):
    """A remote file as a Python file object."""

    def __init__(self, file: RemoteFile) -> None:
        super().__init__()
        self._file = file
        self._offset = 0

    def size(self) -> int:
        return self._file.num_bytes

    def announce(self, start: int, end: int) -> None:
        self._file.announce(start, end)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._file.num_bytes}
        self._offset = max(origins[whence] + offset, 0)
        return self._offset

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        count = max(min(len(view), self._file.num_bytes - self._offset), 0)
        self._file.read_into(view[:count], self._offset)
        self._offset += count
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        end = self._file.num_bytes if size is None or size < 0 else self._offset + size
        data = self._file.read_at(self._offset, end)
        self._offset += len(data)
        return data

    def read_buffer(self, size: int) -> memoryview:
        """Read without a copy to `bytes`: pyarrow calls this if a file has it."""
        buffer = memoryview(bytearray(max(min(size, self._file.num_bytes - self._offset), 0)))
        self.readinto(buffer)
        return buffer

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
