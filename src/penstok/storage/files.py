"""A remote file that can be read at any place, with few requests and in bounded memory.

Short reads are served from windows, long ones go straight to where they are wanted; nothing is
written to disk. Readers use it like an open local file; `streams` reads it from start to end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstok.errors import InputError
from penstok.resources import Resource
from penstok.storage.base import PIECE_BYTES, PassingError
from penstok.storage.retries import Retries
from penstok.storage.transports import find_transport, look_at_url

if TYPE_CHECKING:
    from penstok.storage.base import RemoteFacts

__all__ = ["RemoteFile"]

# Readers look around a place in short reads, mostly forward: near it first, then ever farther.
_SHORT_BYTES = 1 << 18
_BEHIND_BYTES = 1 << 16
_AHEAD_BYTES = 1 << 17
_FAR_AHEAD_BYTES = 1 << 20
_MAX_WINDOWS = 4
# Where a reader has said that it goes through a range: a request for so much.
_READ_AHEAD_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes of the file that were fetched before."""

    start: int
    view: memoryview

    @property
    def end(self) -> int:
        """Where they end."""
        return self.start + len(self.view)

    def holds(self, start: int, end: int) -> bool:
        """Tell whether a range lies inside."""
        return self.start <= start and end <= self.end

    def slice(self, start: int, end: int) -> memoryview:
        """Return a range that lies inside."""
        return self.view[start - self.start : end - self.start]


class RemoteFile(Resource):
    """An object behind a URL, as it was when it was looked at; use it in a `with`.

    It holds the range that was prefetched, and four windows of about a megabyte at the most.
    """

    def __init__(
        self, url: str, facts: RemoteFacts | None = None, retries: Retries | None = None
    ) -> None:
        """Take an object that allows ranges; without `facts`, look at it now."""
        self.url = url
        self.facts = look_at_url(url) if facts is None else facts
        if not self.facts.is_ranged or self.facts.num_bytes is None:
            raise InputError(
                "the server does not give out parts of this file",
                where=url,
                next_step="download it first, with `curl -fO`, and pass the file",
            )
        self.num_bytes = self.facts.num_bytes
        self._transport = find_transport(url)
        self._retries = retries or Retries()
        self._windows: list[_Window] = []
        self._prefetched = _Window(0, memoryview(b""))
        self._announced = 0, 0

    def close(self) -> None:
        """Drop what was fetched; connections are kept for the next file."""
        self._windows.clear()
        self._prefetched = _Window(0, memoryview(b""))

    def prefetch(self, start: int, end: int) -> None:
        """Fetch a range at once and keep it, in place of the one before."""
        start, end = self._clip(start, end)
        self._prefetched = _Window(0, memoryview(b""))
        self._prefetched = self._fetch_window(start, end)

    def announce(self, start: int, end: int) -> None:
        """Say that a range will be read from start to end: it is fetched in long pieces."""
        self._announced = self._clip(start, end)

    def read_at(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, less what lies outside the file."""
        start, end = self._clip(start, end)
        self._read_ahead(start, end)
        if end - start <= _SHORT_BYTES or self._prefetched.holds(start, end):
            return bytes(self._look(start, end))
        buffer = bytearray(end - start)
        self._fill(memoryview(buffer), start)
        return bytes(buffer)

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` from `start` on."""
        end = start + len(buffer)
        if end > self.num_bytes:
            raise InputError(
                f"there is nothing behind byte {self.num_bytes}",
                where=f"{self.url}, bytes {start} to {end}",
                next_step="report this: a range was planned that lies outside the file",
            )
        self._read_ahead(start, end)
        if len(buffer) <= _SHORT_BYTES or self._prefetched.holds(start, end):
            buffer[:] = self._look(start, end)
        else:
            self._fill(buffer, start)

    def fetch_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` from `start` on with one request for just that; keep nothing of it."""
        self._fill(buffer, start)

    def give_back(self, start: int, end: int) -> None:
        """Do nothing: a remote file takes no pages of this machine's cache."""

    def _clip(self, start: int, end: int) -> tuple[int, int]:
        start = max(start, 0)
        return start, max(min(end, self.num_bytes), start)

    def _read_ahead(self, start: int, end: int) -> None:
        """Fetch the next piece of what was announced, behind what of it is here already."""
        here, last = self._prefetched, self._announced[1]
        is_ahead = self._announced[0] <= start < end <= min(last, start + _READ_AHEAD_BYTES)
        if not is_ahead or here.holds(start, end):
            return
        kept = here.slice(start, here.end) if here.start <= start < here.end else memoryview(b"")
        buffer = memoryview(bytearray(min(_READ_AHEAD_BYTES, last - start)))
        buffer[: len(kept)] = kept
        self._fill(buffer[len(kept) :], start + len(kept))
        self._prefetched = _Window(start, buffer)

    def _look(self, start: int, end: int) -> memoryview:
        """Return a short range from a window; fetch one around it if there is none."""
        if start == end:
            return memoryview(b"")
        for window in (self._prefetched, *reversed(self._windows)):
            if window.holds(start, end):
                return window.slice(start, end)
        # A look that goes on where a window ends is a search: it will go on.
        goes_on = any(window.start <= start <= window.end for window in self._windows)
        ahead = _FAR_AHEAD_BYTES if goes_on else _AHEAD_BYTES
        behind = 0 if goes_on else _BEHIND_BYTES
        window = self._fetch_window(*self._clip(start - behind, max(start + ahead, end)))
        self._windows = [*self._windows[-_MAX_WINDOWS + 1 :], window]
        return window.slice(start, end)

    def _fetch_window(self, start: int, end: int) -> _Window:
        buffer = memoryview(bytearray(end - start))
        self._fill(buffer, start)
        return _Window(start, buffer)

    def _fill(self, buffer: memoryview, start: int) -> None:
        """Fetch a range straight into `buffer`; after a failure, go on behind what arrived.

        So many tries are for every piece, as in a stream: a long range over a bad line gets on.
        """
        done = 0
        end = start + len(buffer)

        def attempt() -> None:
            nonlocal done
            before = done
            body = self._transport.ask(start + done, end, self.facts)
            try:
                while done < len(buffer):
                    count = body.readinto(buffer[done : done + PIECE_BYTES])
                    if not count:
                        raise PassingError(f"the answer ended at byte {start + done}")
                    done += count
            except PassingError:
                if done - before < PIECE_BYTES:
                    raise
            finally:
                body.close()

        while done < len(buffer):
            self._retries.run(attempt, f"{self.url}, bytes {start} to {end}")
