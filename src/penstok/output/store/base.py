"""What a place is: small files written whole, shards that appear at the end, one job at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstok.errors import DamageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from penstok.output.layout import Layout
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split

__all__ = [
    "PIECE_BYTES",
    "UPLOAD_BYTES",
    "HeldLock",
    "LostShardError",
    "Place",
    "Shard",
    "TaskFiles",
]

# Objects are uploaded in pieces: a service takes 10,000 for one, of 5 MiB at the least.
PIECE_BYTES = 16 << 20
# One that is sent, twice in memory, and those that wait on a disk that may be memory, too.
UPLOAD_BYTES = 5 * PIECE_BYTES
# Where a shard is until it is published: JSON that the place itself made.
Shard = dict[str, Any]


class LostShardError(DamageError):
    """Tokens of a finished task are no longer where they were: the task must be done anew."""


class TaskFiles(Protocol):
    """The shards of one attempt at a task, while they are written.

    Attributes:
        layout: Where a worker of this machine writes.
    """

    layout: Layout

    def advance(self, tokens: dict[Split, int]) -> None:
        """Say that so many tokens of each split are written and will not change."""
        ...

    def seal(self, tokens: dict[Split, int]) -> dict[Split, Shard]:
        """Make all of them durable; return where they are."""
        ...

    def discard(self) -> None:
        """Drop what was written."""
        ...


class HeldLock(Protocol):
    """A lock that this run has."""

    @property
    def is_lost(self) -> bool:
        """Whether another run may have it now."""
        ...


class Place(Protocol):
    """An output that many may write to at once; names are relative to it, parted by slashes.

    Attributes:
        name: What a user calls it.
        path: The same, to read what is finished there.
    """

    name: str
    path: OutputPath

    def read(self, name: str) -> bytes | None:
        """Return what a file holds; None if there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all; when this returns, it is durable."""
        ...

    def write_new(self, name: str, data: bytes) -> bool:
        """Do the same unless it is there already; tell whether it was not."""
        ...

    def write_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Write a file of any size, whole or not at all; the lines are not held."""
        ...

    def iter_names(self, prefix: str) -> Iterator[str]:
        """Yield the names of files that begin so; `prefix` ends with a slash, or is empty.

        What lies in folders below is left out.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, in this order; those that are gone are fine."""
        ...

    def begin_task(self, layout: Layout, number: int, attempt: str) -> TaskFiles:
        """Begin to write the shards of a task."""
        ...

    def publish(self, shards: Iterable[tuple[str, Shard, int]]) -> None:
        """Give shards their final names: (name, where it is, bytes). Those that have them are fine.

        Raises:
            LostShardError: If one is not there, or not whole.
        """
        ...

    def find_lost(self, shards: Iterable[tuple[str, Shard, int]]) -> set[str]:
        """Return the names of shards that are no longer there to publish."""
        ...

    def clear(self) -> None:
        """Drop the tokens of all attempts."""
        ...

    def tidy(self) -> None:
        """Delete everything that only an unfinished job needs: its tokens, then its records."""
        ...

    def lock(self) -> AbstractContextManager[HeldLock]:
        """Let no other run give out this job's tasks or finish it.

        Raises:
            LockedError: If another does.
        """
        ...

    def check_room(self, num_bytes: int) -> None:
        """Refuse to start what cannot fit, where that can be known."""
        ...
