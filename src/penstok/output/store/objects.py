"""An output in an object store: shards by multipart upload, which become objects at the end.

A worker writes to small files on its own machine, a few pieces at a time; each is uploaded when it
is full and deleted. The store shows an object only when its upload is completed, so nothing is ever
half there. Objects cannot be renamed, so a shard is uploaded under its final name at once.
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
from typing import TYPE_CHECKING

from penstok.faults import fault_point
from penstok.output.layout import JOB, WORK, is_final_name
from penstok.output.segments import write_errors
from penstok.output.store.base import PIECE_BYTES, LostShardError
from penstok.storage.object_paths import output_path
from penstok.storage.s3_folder import LostUploadError, S3Folder, join_etags
from penstok.storage.s3_lock import LOCK_NAME, S3Lock
from penstok.types import SPLITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstok.output.layout import Layout
    from penstok.output.store.base import Shard
    from penstok.types import Split

__all__ = ["ObjectPlace"]

# Pieces that wait for the network while the worker goes on; then it waits, too.
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

    def finish(self) -> Shard:
        """Wait until all have arrived; return where they are: nowhere if there was no piece."""
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
        self._number = number
        self._scratch, self._lock = _make_scratch()
        self._pool = ThreadPoolExecutor(1, "upload")
        self.layout = layout.of_task(number, str(self._scratch), "", PIECE_BYTES)
        self._uploads = {
            split: _Upload(folder, self.layout.file_name(split, number), self._pool)
            for split in SPLITS
        }

    def advance(self, tokens: dict[Split, int]) -> None:
        """Upload the pieces that are full."""
        for split, upload in self._uploads.items():
            while (upload.num_pieces + 1) * PIECE_BYTES <= tokens[split] * self.layout.token_bytes:
                upload.add(self._piece(split, upload.num_pieces))

    def seal(self, tokens: dict[Split, int]) -> dict[Split, Shard]:
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
            # What is left then is found and dropped when the job is finished.
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


def _make_scratch() -> tuple[Path, int]:
    """Make a folder for pieces, locked while its process lives; delete those of dead processes.

    `TMPDIR` says where.
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
            # Another process may take it for one that was left, before it is locked.
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


class ObjectPlace:
    """A bucket and the beginning of its objects' names."""

    def __init__(self, url: str) -> None:
        self.path = output_path(url)
        self.name = str(self.path)
        self._folder = S3Folder(self.name)

    def read(self, name: str) -> bytes | None:
        """Return what an object holds."""
        return self._folder.get(name)

    def write(self, name: str, data: bytes) -> None:
        """Put an object."""
        self._folder.put(name, data)
        fault_point("small object written")

    def write_new(self, name: str, data: bytes) -> bool:
        """Put an object on the condition that there is none."""
        return self._folder.put_if_absent(name, data)

    def write_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Upload pieces as they fill up; what fits one piece is put at once."""
        buffer, upload, etags = bytearray(), "", list[str]()
        try:
            for line in lines:
                buffer += line
                if len(buffer) >= PIECE_BYTES:
                    upload = upload or self._folder.begin_upload(name)
                    etags.append(self._send(name, upload, len(etags) + 1, buffer))
            if not upload:
                self._folder.put(name, bytes(buffer))
                return
            if buffer:
                etags.append(self._send(name, upload, len(etags) + 1, buffer))
            self._folder.complete_upload(name, upload, etags)
        except BaseException:
            if upload:
                with contextlib.suppress(Exception):
                    self._folder.abort_upload(name, upload)
            raise

    def _send(self, name: str, upload: str, number: int, buffer: bytearray) -> str:
        etag = self._folder.upload_part(name, upload, number, bytes(buffer))
        buffer.clear()
        return etag

    def iter_names(self, prefix: str) -> Iterator[str]:
        """List the objects that begin so, with no further slash."""
        for name, _ in self._folder.iter_names(prefix, recursive=False):
            yield name

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; the first one before the others."""
        waiting = iter(names)
        self._folder.delete([name for name in [next(waiting, "")] if name])
        self._folder.delete(waiting)

    def begin_task(self, layout: Layout, number: int, attempt: str) -> ObjectTaskFiles:
        """Make what uploads an attempt; the store tells its uploads from those of others."""
        del attempt
        return ObjectTaskFiles(self._folder, layout, number)

    def publish(self, shards: Iterable[tuple[str, Shard, int]]) -> None:
        """Complete the uploads, several at once."""
        with ThreadPoolExecutor(_NUM_REQUESTS) as pool:
            waiting: deque[Future[None]] = deque()
            for name, shard, _ in shards:
                waiting.append(pool.submit(self._complete, name, shard))
                if len(waiting) > 4 * _NUM_REQUESTS:
                    waiting.popleft().result()
            for each in waiting:
                each.result()

    def _complete(self, name: str, shard: Shard) -> None:
        try:
            if shard:
                self._folder.complete_upload(name, shard["upload"], shard["parts"])
            else:
                self._folder.put(name, b"")
        except LostUploadError as error:
            raise LostShardError(
                f"the upload of `{name}` is no longer there: {error.what}",
                where=error.where,
                next_step="run the same command again: the task is done anew, or its part is named",
            ) from error
        fault_point("one upload completed")

    def find_lost(self, shards: Iterable[tuple[str, Shard, int]]) -> set[str]:
        """Compare with the uploads that the store knows, then with what is completed."""
        alive = {upload for _, upload in self._folder.iter_uploads()}
        return {
            name
            for name, shard, _ in shards
            if shard and shard["upload"] not in alive and not self._is_completed(name, shard)
        }

    def _is_completed(self, name: str, shard: Shard) -> bool:
        found = self._folder.find_info(name)
        return found is not None and found[1].strip('"') == join_etags(shard["parts"])

    def clear(self) -> None:
        """Abort the uploads of an output's files; others are not ours."""
        for name, upload in list(self._folder.iter_uploads()):
            if is_final_name(name):
                self._folder.abort_upload(name, upload)

    def tidy(self) -> None:
        """Abort uploads, then delete the work folder's objects; the lock goes with its owner."""
        self.clear()
        last = f"{WORK}/{JOB}"
        names = [name for name, _ in self._folder.iter_names(f"{WORK}/")]
        self._folder.delete(name for name in names if name not in (LOCK_NAME, last))
        self._folder.delete([last])

    def lock(self) -> S3Lock:
        """Lock an object of the work folder."""
        return S3Lock(self._folder)

    def check_room(self, num_bytes: int) -> None:
        """Do nothing: an object store has room."""
