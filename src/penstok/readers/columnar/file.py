"""One open parquet or Arrow file, local or remote, and the errors when it cannot be read.

It decodes nothing. The modules of both formats read through it; `inputs` and `storage` open it.
"""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np

from penstok.errors import InputError
from penstok.inputs.content.binary import name_binary
from penstok.inputs.files import SourceFile
from penstok.resources import Resource
from penstok.storage import ObjectInfo, is_url, open_seekable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.types import Source

__all__ = ["RowFile", "SourceStream", "limit_pyarrow", "wrong_start"]

_MAX_REASON = 200


class RowFile(Resource):
    """A file of rows with a seekable stream; use it in a `with`."""

    def __init__(
        self, source: Source, stream: BinaryIO | None = None, *, give_back: bool = False
    ) -> None:
        """Open a file, local or remote, or use a stream.

        Args:
            source: What the file was when the job was planned.
            stream: A seekable binary file that is already open; the caller closes it.
            give_back: Drop pages of a local file that were read from the page cache.
        """
        self.source = source
        self._own = _open(source, give_back=give_back) if stream is None else None
        self.stream: BinaryIO = cast("BinaryIO", self._own) if stream is None else stream

    def close(self) -> None:
        """Close what was opened here."""
        if self._own is not None:
            self._own.close()

    def read_at(self, start: int, size: int) -> memoryview:
        """Read exactly `size` bytes from `start` on."""
        view = np.empty(size, np.uint8).data
        self.read_into(view, start)
        return view

    def read_into(self, view: memoryview, start: int) -> None:
        """Fill a buffer with the bytes from `start` on."""
        done = 0
        self.stream.seek(start)
        while done < len(view):
            count = self.stream.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise EOFError(f"the file ends at byte {start + done}, in the middle of its data")
            done += count

    def announce(self, start: int, end: int) -> None:
        """Announce that a range will be read in order, which saves requests to a server."""
        announce = getattr(self.stream, "announce", None)
        if announce is not None:
            announce(start, end)

    @contextmanager
    def reading(self, what: str, rows: str = "") -> Iterator[None]:
        """Turn exceptions into an `InputError` that says what and where.

        Args:
            what: What cannot be read; a colon and the reason follow.
            rows: Which part of the file.
        """
        try:
            yield
        except _read_errors() as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise InputError(
                f"{what}: {lines[0][:_MAX_REASON]}",
                where=self.source.path + (f", {rows}" if rows else ""),
                next_step="download or write the file again, or leave it out",
            ) from error


def _read_errors() -> tuple[type[Exception], ...]:
    """Return what the readers of a damaged file raise, without loading pyarrow for that."""
    errors = (OSError, EOFError, ValueError)
    pyarrow = sys.modules.get("pyarrow")
    return errors if pyarrow is None else (pyarrow.ArrowException, *errors)


def limit_pyarrow() -> None:
    """Make pyarrow use one core, and free memory at once."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


def wrong_start(wanted: str, path: str, head: bytes) -> InputError:
    """Return the error for a file that does not begin like the format it should have."""
    what = name_binary(head)
    return InputError(
        f"this is {what}, not {wanted}"
        if what
        else f"this is not {wanted}: it begins with {head[:6]!r}",
        where=path,
        next_step="download it again, pass `--input-format` to read it as something else, or leave "
        "such files out with `--on-error skip`",
    )


def _open(source: Source, *, give_back: bool) -> BinaryIO:
    if is_url(source.path):
        info = ObjectInfo(source.num_bytes, source.version, has_ranges=True)
        return open_seekable(source.path, info)
    return cast("BinaryIO", SourceStream(source, give_back=give_back))


class SourceStream(io.RawIOBase):
    """A local input as a binary file, for libraries that need one."""

    def __init__(self, source: Source, *, give_back: bool = False) -> None:
        super().__init__()
        self._file = SourceFile(source)
        self._give_back = give_back
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to where the next read begins."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.source.num_bytes}
        self._at = base[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes; the base class would copy them twice."""
        start, end = self._at, self._file.source.num_bytes
        data = self._file.read_at(start, end if size < 0 else min(start + size, end))
        if self._give_back:
            self._file.give_back(start, start + len(data))
        self._at += len(data)
        return data

    def readinto(self, buffer: memoryview | bytearray) -> int:  # type: ignore[override]
        """Fill a buffer, as far as the file goes."""
        size = min(len(buffer), max(self._file.source.num_bytes - self._at, 0))
        self._file.read_into(memoryview(buffer).cast("B")[:size], self._at)
        if self._give_back:
            self._file.give_back(self._at, self._at + size)
        self._at += size
        return size

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()
