"""The output folder: temporary name, write at an offset, fsync, rename.

No other module creates, renames or deletes output. It knows no documents; the worker hands it
tokens and an offset, the pipeline tells it to commit.

    OUT/.penstock/lock               one job at a time
    OUT/.penstock/ledger.jsonl       one line for each finished unit, in unit order
    OUT/.penstock/train.bin.partial  written by offset
    OUT/.penstock/renaming           stands while files get their final names
    OUT/train.bin  OUT/val.bin       appear at the end, by rename
    OUT/segments.jsonl               the finished ledger
    OUT/manifest.json                written last: the job exists when this exists
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import xxhash

from penstock.errors import ConflictError, LockedError, PenstockError, UsageError, WriteError
from penstock.quantities import format_bytes
from penstock.types import SPLITS, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from numpy.typing import NDArray

    from penstock.types import Split

__all__ = [
    "LEDGER",
    "MANIFEST",
    "SEGMENTS",
    "Layout",
    "SegmentWriter",
    "Store",
    "is_own_name",
    "write_errors",
]

LEDGER = "ledger.jsonl"
MANIFEST = "manifest.json"
SEGMENTS = "segments.jsonl"
_WORK = ".penstock"
_RENAMING = "renaming"
_OWN_NAME = re.compile(r"(train|val)(_shard_\d{5,})?\.bin|manifest\.json|segments\.jsonl")
_MAX_OPEN_FILES = 4
_MAX_SHARDS = 100_000
_ORPHAN_SECONDS = 30.0
# How much may be written before it is pushed to disk and its pages are given back.
_GIVE_BACK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """Which file and place a token of a split goes to."""

    folder: str
    token_bytes: int
    shard_tokens: int | None

    def file_name(self, split: Split, shard: int) -> str:
        """Return a file's final name."""
        return f"{split}.bin" if self.shard_tokens is None else f"{split}_shard_{shard:05}.bin"

    def partial_path(self, split: Split, shard: int) -> Path:
        """Return where a file is written until the job is done."""
        return Path(self.folder, _WORK, self.file_name(split, shard) + ".partial")

    def final_path(self, split: Split, shard: int) -> Path:
        """Return where a file stands when the job is done."""
        return Path(self.folder, self.file_name(split, shard))

    def num_shards(self, num_tokens: int) -> int:
        """Return how many files a split has; an empty one has one."""
        return 1 if self.shard_tokens is None else max(-(-num_tokens // self.shard_tokens), 1)

    def shard_size(self, num_tokens: int, shard: int) -> int:
        """Return how many tokens of a split of `num_tokens` one file holds."""
        if self.shard_tokens is None:
            return num_tokens
        return min(num_tokens - shard * self.shard_tokens, self.shard_tokens)

    def check_shards(self, num_tokens: int) -> None:
        """Refuse so many shards that their names would no longer sort in order."""
        if self.shard_tokens and num_tokens // self.shard_tokens >= _MAX_SHARDS:
            raise UsageError(
                f"about {num_tokens // self.shard_tokens} shards are too many",
                where="--shard-tokens",
                next_step=f"pass `--shard-tokens {num_tokens // 1000 + 1}` or more",
            )

    def iter_places(self, offset: int, num_tokens: int) -> Iterator[tuple[int, int, int]]:
        """Divide a run of tokens at shard borders: (shard, offset inside it, tokens)."""
        size = self.shard_tokens or max(offset + num_tokens, 1)
        while num_tokens > 0:
            shard, inside = divmod(offset, size)
            fitting = min(num_tokens, size - inside)
            yield shard, inside, fitting
            offset, num_tokens = offset + fitting, num_tokens - fitting


def is_own_name(path: Path, folder: Path) -> bool:
    """Tell whether a path is one that a job writes in its output folder."""
    return bool(_OWN_NAME.fullmatch(path.name)) and path.parent.resolve() == folder.resolve()


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn what the system says when a write fails into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise _write_error(error, path) from error


class SegmentWriter:
    """The worker's side: writes runs of tokens into the partial files."""

    def __init__(self, layout: Layout, *, give_back: bool) -> None:
        self._layout = layout
        self._give_back = give_back
        self._files: dict[Path, int] = {}
        self._unsynced_bytes = 0

    def write(
        self, split: Split, offset: int, tokens: NDArray[np.unsignedinteger[Any]]
    ) -> list[Segment]:
        """Write tokens at an offset of their split; a run across shards is several segments."""
        segments = []
        for shard, inside, count in self._layout.iter_places(offset, len(tokens)):
            data = tokens[:count].view(np.uint8).data
            self._write_at(
                self._layout.partial_path(split, shard), data, inside * self._layout.token_bytes
            )
            digest = xxhash.xxh3_128_hexdigest(data)
            segments.append(Segment(split, shard, inside, count, digest))
            tokens = tokens[count:]
        return segments

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _write_at(self, path: Path, data: memoryview, position: int) -> None:
        try:
            file = self._open(path)
            done = 0
            while done < len(data):
                done += os.pwrite(file, data[done:], position + done)
            self._unsynced_bytes += len(data)
            if self._give_back and self._unsynced_bytes >= _GIVE_BACK_BYTES:
                self._push_out()
        except OSError as error:
            raise _write_error(error, path) from error

    def _open(self, path: Path) -> int:
        if path not in self._files:
            if len(self._files) >= _MAX_OPEN_FILES:
                self.close()
            self._files[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._files[path]

    def _push_out(self) -> None:
        for file in self._files.values():
            os.fsync(file)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        self._unsynced_bytes = 0


class Store:
    """The parent's side: one locked output folder, from empty to committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / _WORK
        self.lock_file = -1
        self._is_new = False

    def __enter__(self) -> Store:
        """Take the folder; a run that was killed leaves a lock nobody holds, which is free."""
        try:
            self._is_new = not self.folder.exists()
            self.lock_file = self._take_lock()
            os.truncate(self.lock_file, 0)
            owner = f"pid {os.getpid()} on {socket.gethostname()}\n"
            os.pwrite(self.lock_file, owner.encode(), 0)
        except BlockingIOError as error:
            raise LockedError(
                f"another run is writing here ({self._lock_owner()})",
                where=str(self.folder),
                next_step="wait for it, or choose another `-o`",
            ) from error
        except OSError as error:
            self._let_go()
            raise _write_error(error, self.folder) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the folder go, with nothing unfinished in it."""
        self._let_go()

    def _let_go(self) -> None:
        with contextlib.suppress(OSError, PenstockError):
            self.clear_partial()
            (self.work / "lock").unlink(missing_ok=True)
            self.work.rmdir()
            if self._is_new:
                self.folder.rmdir()
        if self.lock_file >= 0:
            os.close(self.lock_file)
            self.lock_file = -1

    def _take_lock(self) -> int:
        """Lock the file that is called `lock` now: its last owner may just have deleted it.

        Workers of an owner that was killed hold it until they notice, a moment later.
        """
        path = self.work / "lock"
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while True:
            self.work.mkdir(parents=True, exist_ok=True)
            try:
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_ino == path.stat().st_ino:
                    return lock
            except FileNotFoundError:
                pass
            except BlockingIOError:
                os.close(lock)
                if self._owner_lives() or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
                continue
            os.close(lock)

    def _owner_lives(self) -> bool:
        words = self._lock_owner().split()
        is_here = len(words) == 4 and words[3] == socket.gethostname()
        return not (is_here and words[1].isdecimal() and not psutil.pid_exists(int(words[1])))

    def _lock_owner(self) -> str:
        try:
            return (self.work / "lock").read_text(encoding="utf-8").strip() or "owner unknown"
        except OSError:
            return "owner unknown"

    def clear_partial(self) -> None:
        """Delete what a run that did not finish left behind, also one killed while it renamed."""
        if (self.work / _RENAMING).exists() and not (self.folder / MANIFEST).exists():
            for path in filter(Path.is_file, self._own_names()):
                path.unlink()
        for path in [*self.work.glob("*.partial"), self.work / LEDGER, self.work / _RENAMING]:
            path.unlink(missing_ok=True)

    def refuse_foreign_files(self, *, overwrite: bool) -> None:
        """Refuse a folder in which this job's names are taken by somebody else.

        With `overwrite` files may be; what is no file never.
        """
        taken = [path for path in self._own_names() if not (overwrite and path.is_file())]
        if taken:
            raise ConflictError(
                f"`{taken[0].name}` exists and is not from a finished job of penstock",
                where=str(self.folder),
                next_step="choose another `-o`, or pass `--overwrite` to delete "
                + ", ".join(f"`{path.name}`" for path in taken[:5]),
            )

    def _own_names(self) -> list[Path]:
        """List what carries a name that a job writes; the manifest first."""
        names = sorted(path for path in self.folder.iterdir() if _OWN_NAME.fullmatch(path.name))
        return sorted(names, key=lambda path: path.name != MANIFEST)

    def check_room(self, needed_bytes: int) -> None:
        """Refuse to start what cannot fit."""
        free = shutil.disk_usage(self.folder).free
        if free < needed_bytes:
            raise WriteError(
                f"too little disk: about {format_bytes(needed_bytes)} needed, "
                f"{format_bytes(free)} free",
                where=str(self.folder),
                next_step="make room, or choose another `-o`",
            )

    def commit(self, layout: Layout, tokens: dict[Split, int], manifest: str) -> None:
        """Make the job exist: data, then names, then the manifest.

        What an older job left under these names goes now, its manifest first; until here it was
        whole.
        """
        try:
            files = [
                (split, shard, layout.shard_size(tokens[split], shard))
                for split in SPLITS
                for shard in range(layout.num_shards(tokens[split]))
            ]
            for split, shard, num_tokens in files:
                _finish(layout.partial_path(split, shard), num_tokens * layout.token_bytes)
            _sync(self.work / LEDGER)
            (self.work / _RENAMING).touch()
            _sync(self.work)
            for path in self._own_names():
                path.unlink()
            _sync(self.folder)
            for split, shard, _ in files:
                layout.partial_path(split, shard).replace(layout.final_path(split, shard))
            (self.work / LEDGER).replace(self.folder / SEGMENTS)
            _sync(self.folder)
            temporary = self.work / f"{MANIFEST}.partial"
            temporary.write_text(manifest, encoding="utf-8")
            _sync(temporary)
            temporary.replace(self.folder / MANIFEST)
            _sync(self.folder)
            _sync(self.folder.absolute().parent)
            (self.work / _RENAMING).unlink()
        except OSError as error:
            raise _write_error(error, self.folder) from error


def _finish(path: Path, num_bytes: int) -> None:
    """Give a file its size and push it to disk."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(file, num_bytes)
        os.fsync(file)
    finally:
        os.close(file)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _write_error(error: OSError, path: Path) -> WriteError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return WriteError(
        "the disk is full" if full else f"cannot be written: {error.strerror}",
        where=str(path),
        next_step="make room, then run the same command again"
        if full
        else "check the folder with `ls -ld` and `df`, or choose another `-o`",
    )
