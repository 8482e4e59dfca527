"""The protocol of an output store: atomic small files, shards that appear at the commit, one lock.

It has the protocols and what both kinds of stores share, and opens no file. `folder` and
`objects` implement them, `jobs` and `verification` use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstok.errors import DamageError
from penstok.output.layout import WORK
from penstok.output.ledger.lines import UNIT_START

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from penstok.output.documents import StagedIndex
    from penstok.output.layout import Layout
    from penstok.output.spools import IndexKind
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split

__all__ = [
    "FINISHED",
    "INTENT",
    "PARTS",
    "PIECE_BYTES",
    "REPAIRING",
    "TASKS",
    "UPLOAD_BYTES",
    "HeldLock",
    "JournalFile",
    "Location",
    "LostShardError",
    "OutputStore",
    "StagedFile",
    "TaskFiles",
    "has_progress",
    "journal_name",
]

TASKS, PARTS = f"{WORK}/tasks/", f"{WORK}/parts/"
# What is being committed or reopened: any run that finds it completes it.
INTENT = f"{WORK}/intent.json"
# Where the records of a finished job are while inputs are added to it.
FINISHED = f"{WORK}/finished"
# Damaged files of a finished output are being repaired in the work folder.
REPAIRING = f"{WORK}/repairing"
# Objects are uploaded in pieces: a service takes 10,000 per object, of at least 5 MiB.
PIECE_BYTES = 16 << 20
# One piece that is being sent, held twice, and those waiting on a disk that may be memory as well.
UPLOAD_BYTES = 5 * PIECE_BYTES
# Where a file is until it is published: JSON that only the store itself reads.
Location = dict[str, Any]
# A file that is complete but not published: its final name, where it is, its size in bytes.
StagedFile = tuple[str, Location, int]


class LostShardError(DamageError):
    """Tokens of a finished task are missing: the task must be repeated."""


def journal_name(task: int, attempt: str | None) -> str:
    """Return the name of a task's journal; a task that can be resumed has one attempt only."""
    return f"{TASKS}{task:05}" + ("" if attempt is None else f"-{attempt}") + ".jsonl"


def has_progress(store: OutputStore) -> bool:
    """Return whether an unfinished job has left anything that a later run can resume."""
    if store.read(INTENT) is not None or any(True for _ in store.iter_names(PARTS)):
        return True
    resumable = journal_name(0, None)
    names = [name for name in store.iter_names(TASKS) if name.endswith(".jsonl")]
    return any(name != resumable for name in names) or any(
        line.startswith(UNIT_START) for line in store.iter_lines(resumable)
    )


class TaskFiles(Protocol):
    """The shards of one attempt at a task while they are written.

    Attributes:
        layout: Where a worker of this machine writes.
    """

    layout: Layout

    def advance(self, tokens: dict[Split, int]) -> None:
        """Take note that this many tokens of each split are written and final."""
        ...

    def sync(self, files: Iterable[tuple[Split, int]], *, drop_cache: bool) -> None:
        """Make the tokens written to some files durable, if the store can do so before `seal`."""
        ...

    def seal_indexes(
        self, tokens: dict[Split, int], documents: dict[Split, int]
    ) -> dict[Split, list[StagedIndex]]:
        """Write the indexes of each file that the layout has; call it before `seal`.

        Raises:
            SpoolError: If what the workers wrote for them was lost.
        """
        ...

    def restore_spool(self, split: Split, kind: IndexKind, entries: Iterable[NDArray[Any]]) -> None:
        """Write again what the workers wrote for an index."""
        ...

    def seal(self, tokens: dict[Split, int]) -> dict[Split, Location]:
        """Make all files durable at their final size; return where they are."""
        ...

    def discard(self) -> None:
        """Delete what was written."""
        ...


class JournalFile(Protocol):
    """The file of a journal, open for appending."""

    def append(self, lines: bytes) -> None:
        """Append lines; when this returns they are as durable as the store can make them."""
        ...

    def finish(self) -> None:
        """Give a complete journal its final name."""
        ...

    def close(self) -> None:
        """Close the file; delete a journal that has no final name yet."""
        ...


class HeldLock(Protocol):
    """A lock that this run holds."""

    @property
    def file(self) -> int | None:
        """Worker processes inherit it, so that the lock holds until the last one is gone."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether another run may hold it now."""
        ...


class OutputStore(Protocol):
    """An output that several processes may write to; names are relative, with slashes.

    Attributes:
        name: The output as the user typed it.
        path: The same, for reading what is finished.
    """

    name: str
    path: OutputPath

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        ...

    def iter_lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file of any size; none if it does not exist."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all; when this returns it is durable."""
        ...

    def write_new(self, name: str, data: bytes) -> bool:
        """Do the same unless the file exists; return whether it was written."""
        ...

    def iter_names(self, prefix: str) -> Iterator[str]:
        """Yield the names of files in a folder; `prefix` ends with a slash, or is empty."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files in this order; missing ones are ignored."""
        ...

    def begin_task(self, layout: Layout, number: int, attempt: str | None) -> TaskFiles:
        """Start writing the shards of a task."""
        ...

    def open_journal(self, number: int, attempt: str | None, valid_bytes: int = 0) -> JournalFile:
        """Open a task's journal, truncated to `valid_bytes`."""
        ...

    def stage_lines(self, name: str, lines: Iterable[bytes]) -> StagedFile:
        """Write a file of any size, to be published under `name`; lines are streamed."""
        ...

    def locate(self, name: str, location: Location | None) -> OutputPath:
        """Return where a file is: published, or still where `location` says."""
        ...

    def publish(self, files: Iterable[StagedFile]) -> None:
        """Give files their final names; those that have them already are fine.

        Raises:
            LostShardError: If a file is missing or has another size.
        """
        ...

    def unpublish(self, names: Iterable[str], location: Location) -> None:
        """Take files back to where they were before they were published, if that is possible."""
        ...

    def find_lost(self, files: Iterable[StagedFile]) -> set[str]:
        """Return the names of files that can no longer be published."""
        ...

    def drop_tasks(self) -> None:
        """Delete the tokens of all attempts."""
        ...

    def has_work(self) -> bool:
        """Return whether there is anything that `tidy` would delete."""
        ...

    def tidy(self) -> None:
        """Delete everything that only an unfinished job needs: its tokens, then its records."""
        ...

    def lock(self) -> AbstractContextManager[HeldLock]:
        """Keep other runs from running or committing this job.

        Raises:
            LockedError: If another run holds the lock.
        """
        ...

    def refuse_irregular(self) -> None:
        """Refuse links, folders and devices under the names of an output."""
        ...

    def check_room(
        self, num_bytes: int, reused: Iterable[str] = (), *, scratch_bytes: int = 0
    ) -> None:
        """Refuse to start what cannot fit.

        Args:
            num_bytes: What the output takes, with everything that is deleted at the end.
            reused: Files that count as written.
            scratch_bytes: What the tasks that run at once write for indexes, which a store without
                files keeps in `TMPDIR`.
        """
        ...
