"""An output in an object store: multipart uploads that become objects at the commit.

A worker writes small files on its own machine, a few pieces at a time; each is uploaded when it is
full, then deleted. An object appears only when its upload is completed, so nothing is ever half
written; it renames nothing, so a shard is uploaded under its final name. `jobs.commit` publishes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from penstok.errors import WriteError
from penstok.faults import fault_point
from penstok.output.documents import StagedIndex, iter_indexes
from penstok.output.layout import JOB, WORK, is_final_name
from penstok.output.store.base import INTENT, PIECE_BYTES, LostShardError, journal_name
from penstok.output.write_errors import write_errors
from penstok.quantities import format_bytes
from penstok.storage.object_paths import output_path
from penstok.storage.s3_folder import LostUploadError, S3Folder, join_etags
from penstok.storage.s3_lock import LOCK_NAME, S3Lock
from penstok.types import SPLITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstok.output.layout import Layout
    from penstok.output.spools import IndexKind
    from penstok.output.store.base import Location, StagedFile
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split

__all__ = ["ObjectStore"]

# Pieces that may wait for the network while the worker continues; with more, it waits too.
_MAX_WAITING = 2
_NUM_REQUESTS = 16
_SCRATCH = "penstok-pieces-"


class _Upload:
    """One shard on its way: pieces that were uploaded, in order."""

    def __init__(self, folder: S3Folder, name: str, pool: ThreadPoolExecutor) -> None:
        self._folder = folder
        self._name = name
        self._pool = pool
        self._id = ""
        self._etags: list[str] = []
        self._waiting: deque[Future[str]] = deque()
        self._num_pieces = 0

    @property
    def num_pieces(self) -> int:
        """How many pieces were given to it."""
        return self._num_pieces

    def add(self, path: Path) -> None:
        """Upload a piece, and delete it here; waits if too many are on their way."""
        if not self._id:
            self._id = self._folder.begin_upload(self._name)
        self._num_pieces += 1
        self._waiting.append(self._pool.submit(self._send, path, self._num_pieces))
        while len(self._waiting) > _MAX_WAITING:
            self._etags.append(self._waiting.popleft().result())

    def finish(self) -> Location:
        """Wait until all have arrived; return where they are: empty if there was no piece."""
        while self._waiting:
            self._etags.append(self._waiting.popleft().result())
        return {"upload": self._id, "parts": self._etags} if self._id else {}

    def abort(self) -> None:
        """Drop what was uploaded."""
        for waiting in self._waiting:
            waiting.cancel()
        if self._id:
            self._folder.abort_upload(self._name, self._id)

    def _send(self, path: Path, number: int) -> str:
        with write_errors(path):
            data = path.read_bytes()
        etag = self._folder.upload_part(self._name, self._id, number, data)
        path.unlink()
        fault_point("one piece uploaded")
        return etag


class ObjectTaskFiles:
    """One attempt at a task: an upload for each split."""

    def __init__(self, folder: S3Folder, layout: Layout, number: int) -> None:
        self._folder = folder
        self._number = number
        self._scratch, self._lock = _make_scratch()
        self._pool = ThreadPoolExecutor(1, "upload")
        self.layout: Layout = layout.of_task(number, str(self._scratch), "", PIECE_BYTES)
        self._uploads = {
            split: _Upload(folder, self.layout.file_name(split, number), self._pool)
            for split in SPLITS
        }

    def advance(self, tokens: dict[Split, int]) -> None:
        """Upload the pieces that are full."""
        for split, upload in self._uploads.items():
            while (upload.num_pieces + 1) * PIECE_BYTES <= tokens[split] * self.layout.token_bytes:
                upload.add(self._piece(split, upload.num_pieces))

    def sync(self, files: Iterable[tuple[Split, int]], *, drop_cache: bool) -> None:
        """Do nothing: pieces are durable when they are uploaded."""

    def seal_indexes(
        self, tokens: dict[Split, int], documents: dict[Split, int]
    ) -> dict[Split, list[StagedIndex]]:
        """Upload the indexes of each shard."""
        staged: dict[Split, list[StagedIndex]] = {split: [] for split in SPLITS}
        for split in SPLITS:
            for index in iter_indexes(self.layout, split, tokens[split], documents[split]):
                running = xxhash.xxh3_128()
                content = _hashed(map(bytes, index.content), running)
                _, location, num_bytes = _upload(self._folder, index.name, content)
                record = index.to_record(num_bytes, running.hexdigest())
                staged[split].append(StagedIndex(record, location))
        return staged

    def restore_spool(self, split: Split, kind: IndexKind, entries: Iterable[NDArray[Any]]) -> None:
        """Write a spool of a split again."""
        path = self.layout.spool_path(split, kind)
        with write_errors(path), path.open("wb") as file:
            for piece in entries:
                piece.tofile(file)

    def seal(self, tokens: dict[Split, int]) -> dict[Split, Location]:
        """Upload what is left."""
        self.advance(tokens)
        for split, upload in self._uploads.items():
            if tokens[split] * self.layout.token_bytes > upload.num_pieces * PIECE_BYTES:
                upload.add(self._piece(split, upload.num_pieces))
        shards = {split: upload.finish() for split, upload in self._uploads.items()}
        self._close()
        fault_point("task uploaded")
        return shards

    def discard(self) -> None:
        """Abort the uploads."""
        for upload in self._uploads.values():
            # An upload that stays is aborted when the job is finished.
            with contextlib.suppress(Exception):
                upload.abort()
        self._close()

    def _piece(self, split: Split, number: int) -> Path:
        path = self.layout.partial_path(split, self._number)
        return path.with_name(f"{path.name}.{number}")

    def _close(self) -> None:
        self._pool.shutdown()
        shutil.rmtree(self._scratch, ignore_errors=True)
        os.close(self._lock)


def _hashed(content: Iterable[bytes], running: xxhash.xxh3_128) -> Iterator[bytes]:
    """Pass bytes on, and add them to a checksum."""
    for piece in content:
        running.update(piece)
        yield piece


def _upload(folder: S3Folder, name: str, content: Iterable[bytes]) -> StagedFile:
    """Upload pieces as they fill up, and leave the upload open."""
    upload, buffer = folder.begin_upload(name), bytearray()
    etags, num_bytes = list[str](), 0

    def send() -> None:
        etags.append(folder.upload_part(name, upload, len(etags) + 1, bytes(buffer)))
        buffer.clear()

    try:
        for piece in content:
            buffer += piece
            num_bytes += len(piece)
            if len(buffer) >= PIECE_BYTES:
                send()
        if buffer:
            send()
    except BaseException:
        with contextlib.suppress(Exception):
            folder.abort_upload(name, upload)
        raise
    return name, {"upload": upload, "parts": etags}, num_bytes


def _make_scratch() -> tuple[Path, int]:
    """Create a folder for pieces, locked by this process; delete those of dead processes.

    It is created in `TMPDIR`.
    """
    parent = Path(tempfile.gettempdir())
    with write_errors(parent):
        for left in parent.glob(f"{_SCRATCH}*"):
            with contextlib.suppress(OSError):
                lock = _lock_scratch(left)
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_SCRATCH))
            # Before it is locked, another process may take it for one of a dead process.
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                lock = _lock_scratch(folder)
                if folder.exists():
                    return folder, lock
                os.close(lock)


def _lock_scratch(folder: Path) -> int:
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


class ObjectJournalFile:
    """A journal that is kept in memory until it is complete: objects cannot be appended to."""

    def __init__(self, folder: S3Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._lines: list[bytes] = []

    def append(self, lines: bytes) -> None:
        """Keep the lines."""
        self._lines.append(lines)

    def finish(self) -> None:
        """Put the object."""
        self._folder.put(self._name, b"".join(self._lines))
        fault_point("journal uploaded")

    def close(self) -> None:
        """Forget the lines."""
        self._lines.clear()


class ObjectStore:
    """An output under a bucket and key prefix."""

    def __init__(self, url: str) -> None:
        self.path: OutputPath = output_path(url)
        self.name: str = str(self.path)
        self._folder = S3Folder(self.name)

    def read(self, name: str) -> bytes | None:
        """Return what an object holds."""
        return self._folder.get(name)

    def write(self, name: str, data: bytes) -> None:
        """Put an object."""
        self._folder.put(name, data)
        fault_point("small object written")

    def iter_lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of an object."""
        yield from (self._folder.get(name) or b"").splitlines(keepends=True)

    def write_new(self, name: str, data: bytes) -> bool:
        """Put an object, on the condition that it does not exist."""
        return self._folder.put_if_absent(name, data)

    def stage_lines(self, name: str, lines: Iterable[bytes]) -> StagedFile:
        """Upload pieces as they fill up, and leave the upload open."""
        return _upload(self._folder, name, lines)

    def iter_names(self, prefix: str) -> Iterator[str]:
        """List the objects directly under a prefix."""
        for name, _ in self._folder.iter_names(prefix, recursive=False):
            yield name

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; the first one before the others."""
        waiting = iter(names)
        self._folder.delete([name for name in [next(waiting, "")] if name])
        self._folder.delete(waiting)

    def begin_task(self, layout: Layout, number: int, attempt: str | None) -> ObjectTaskFiles:
        """Start the uploads of an attempt; upload ids distinguish attempts."""
        del attempt
        return ObjectTaskFiles(self._folder, layout, number)

    def open_journal(
        self, number: int, attempt: str | None, valid_bytes: int = 0
    ) -> ObjectJournalFile:
        """Create a journal in memory."""
        del valid_bytes
        return ObjectJournalFile(self._folder, journal_name(number, attempt))

    def locate(self, name: str, location: Location | None) -> OutputPath:
        """Return its path; a part of an upload cannot be read."""
        del location
        return self.path / name

    def publish(self, files: Iterable[StagedFile]) -> None:
        """Complete the uploads, several at a time; one that was completed already is fine."""
        with ThreadPoolExecutor(_NUM_REQUESTS) as pool:
            waiting: deque[Future[None]] = deque()
            for name, location, _ in files:
                waiting.append(pool.submit(self._complete, name, location))
                if len(waiting) > 4 * _NUM_REQUESTS:
                    waiting.popleft().result()
            for each in waiting:
                each.result()

    def _complete(self, name: str, location: Location) -> None:
        try:
            if location:
                self._folder.complete_upload(name, location["upload"], location["parts"])
            else:
                self._folder.put(name, b"")
        except LostUploadError as error:
            raise LostShardError(
                f"the upload of `{name}` is missing: {error.what}",
                where=error.where,
                next_step="run the same command again: it repeats the task",
            ) from error
        fault_point("one upload completed")

    def unpublish(self, names: Iterable[str], location: Location) -> None:
        """Do nothing: an object cannot be renamed, and every task has its own."""

    def find_lost(self, files: Iterable[StagedFile]) -> set[str]:
        """Compare with the uploads that the store knows, then with completed objects."""
        alive = {upload for _, upload in self._folder.iter_uploads()}
        return {
            name
            for name, location, _ in files
            if location
            and location["upload"] not in alive
            and not self._is_completed(name, location)
        }

    def _is_completed(self, name: str, location: Location) -> bool:
        found = self._folder.find_info(name)
        return found is not None and found[1].strip('"') == join_etags(location["parts"])

    def drop_tasks(self) -> None:
        """Abort the uploads of an output's files; others are not ours."""
        for name, upload in list(self._folder.iter_uploads()):
            if is_final_name(name):
                self._folder.abort_upload(name, upload)

    def has_work(self) -> bool:
        """List the work folder's objects."""
        return any(True for _ in self._folder.iter_names(f"{WORK}/"))

    def tidy(self) -> None:
        """Abort uploads, then delete the work folder's objects; the lock goes with its owner."""
        self.drop_tasks()
        last = [INTENT, f"{WORK}/{JOB}"]
        names = [name for name, _ in self._folder.iter_names(f"{WORK}/")]
        self._folder.delete(name for name in names if name not in (LOCK_NAME, *last))
        for name in last:
            self._folder.delete([name])

    def lock(self) -> S3Lock:
        """Lock an object of the work folder."""
        return S3Lock(self._folder)

    def refuse_irregular(self) -> None:
        """Do nothing: every object is one that can be overwritten."""

    def check_room(
        self, num_bytes: int, reused: Iterable[str] = (), *, scratch_bytes: int = 0
    ) -> None:
        """Compare the free space for pieces with what tasks write there: an object store has room.

        Other machines of a cluster may have more or less.
        """
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if free < scratch_bytes:
            raise WriteError(
                f"too little disk space for indexes: about {format_bytes(scratch_bytes)} needed, "
                f"{format_bytes(free)} free",
                where=folder,
                next_step="set `TMPDIR` to a folder with more space, or pass a smaller "
                "`--task-size` or fewer `--workers`",
            )
