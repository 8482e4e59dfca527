"""Remote files from start to end, and as Python file objects, in bounded memory.

It decides nothing about what the bytes mean. What cannot be entered in the middle (compressed
files, servers without ranges) is read through a stream; pyarrow reads parquet through a seekable.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, cast

from penstok.errors import InputError
from penstok.resources import Resource
from penstok.storage.base import PIECE_BYTES, PassingError
from penstok.storage.files import RemoteFile
from penstok.storage.retries import Retries
from penstok.storage.transports import find_transport, look_at_url

if TYPE_CHECKING:
    from penstok.storage.base import Body, RemoteFacts

__all__ = ["RemoteStream", "open_seekable", "open_stream"]


def open_stream(
    url: str, facts: RemoteFacts | None = None, retries: Retries | None = None
) -> RemoteStream:
    """Read a file from start to end; close it, or use it in a `with`.

    A connection that is cut is an error, or is continued from its place where ranges work.
    """
    return RemoteStream(url, look_at_url(url) if facts is None else facts, retries or Retries())


class RemoteStream(Resource):
    """A remote file read from start to end."""

    def __init__(self, url: str, facts: RemoteFacts, retries: Retries) -> None:
        self.url = url
        self.facts = facts
        self._transport = find_transport(url)
        self._retries = retries
        self._body: Body | None = None
        self._at = 0

    def close(self) -> None:
        """Let go of the connection."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def read(self, num_bytes: int) -> bytes:
        """Read the next `num_bytes`; fewer only at the end of the file."""
        buffer = bytearray(num_bytes)
        view = memoryview(buffer)
        done = 0
        while done < num_bytes:
            count = self._fill(view[done : done + PIECE_BYTES])
            if not count:
                break
            done += count
        return bytes(view[:done])

    def _fill(self, buffer: memoryview) -> int:
        """Fill `buffer`, unless the file ends; so many tries are for all of it."""
        done = 0

        def attempt() -> None:
            nonlocal done
            while done < len(buffer) and self._at != self.facts.num_bytes:
                count = self._read_some(buffer[done:])
                if not count:
                    return
                done += count

        self._retries.run(attempt, f"{self.url}, byte {self._at}")
        return done

    def _read_some(self, buffer: memoryview) -> int:
        """Read on; where that fails, drop the connection, so that the next try makes a new one."""
        try:
            if self._body is None:
                self._body = self._ask()
            count = self._body.readinto(buffer)
            if not count and self.facts.num_bytes is not None:
                raise PassingError(f"the answer ended at byte {self._at}")
        except PassingError as error:
            self.close()
            if self._at and not self.facts.is_ranged:
                raise self._cut(error) from error
            raise
        self._at += count
        return count

    def _ask(self) -> Body:
        end = self.facts.num_bytes if self.facts.is_ranged else None
        return self._transport.ask(self._at, end, self.facts)

    def _cut(self, error: PassingError) -> InputError:
        return InputError(
            f"the connection was cut: {error.answer}",
            where=f"{self.url}, byte {self._at}",
            next_step="run the same command again; this server gives out whole files only, "
            "so a copy on this machine (`curl -fO`) is safer",
        )


def open_seekable(
    url: str, facts: RemoteFacts | None = None, retries: Retries | None = None
) -> BinaryIO:
    """Return a file object that pyarrow and others can read and seek in."""
    return cast("BinaryIO", _Seekable(RemoteFile(url, facts, retries)))


class _Seekable(io.RawIOBase):
    """What Python asks of a file object, on top of a remote file."""

    def __init__(self, file: RemoteFile) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    def size(self) -> int:
        """Return the file's size."""
        return self._file.num_bytes

    def announce(self, start: int, end: int) -> None:
        """Say that a range will be read from start to end."""
        self._file.announce(start, end)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.num_bytes}
        self._at = max(origin[whence] + offset, 0)
        return self._at

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        count = max(min(len(view), self._file.num_bytes - self._at), 0)
        self._file.read_into(view[:count], self._at)
        self._at += count
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        end = self._file.num_bytes if size is None or size < 0 else self._at + size
        data = self._file.read_at(self._at, end)
        self._at += len(data)
        return data

    def read_buffer(self, size: int) -> memoryview:
        """Read without a copy to `bytes`: pyarrow asks for this where a file has it."""
        buffer = memoryview(bytearray(max(min(size, self._file.num_bytes - self._at), 0)))
        self.readinto(buffer)
        return buffer

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
