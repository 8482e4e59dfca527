"""An output in a folder: files are written in a work folder and renamed once they are on disk.

It does not decide what is published or deleted, and when: `jobs.intent` does. Several machines may
write to one folder if they all see it under the same path.

    OUT/.penstok/lock                one run at a time (parts of a job run without it)
    OUT/.penstok/job.jsonl           what the unfinished job is
    OUT/.penstok/tasks/00000.jsonl   the journal of a task that can be resumed
    OUT/.penstok/tasks/00000/        its tokens, written by offset
    OUT/.penstok/tasks/00017-*       the same for one attempt at a task of several
    OUT/.penstok/formats/            complete files of other formats, until they are published
    OUT/.penstok/intent.json         what is being committed or reopened
    OUT/.penstok/repairing           files are being repaired
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shutil
import stat
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from penstok.errors import (
    ConflictError,
    DamageError,
    LockedError,
    PenstokError,
    WriteError,
    limit_error,
    quoted,
)
from penstok.faults import fault_point
from penstok.output.documents import StagedIndex, hash_file, iter_indexes
from penstok.output.layout import JOB, WORK, is_final_name
from penstok.output.store.base import (
    FINISHED,
    INTENT,
    REPAIRING,
    TASKS,
    LostShardError,
    has_progress,
    journal_name,
)
from penstok.output.store.lock import is_current, take_lock
from penstok.output.write_errors import write_errors
from penstok.quantities import format_bytes
from penstok.types import SPLITS, Struct, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from penstok.output.layout import Layout
    from penstok.output.spools import IndexKind
    from penstok.output.store.base import Location, StagedFile
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split

__all__ = ["FolderStore", "describe_leftovers", "write_file"]

_LOCK = f"{WORK}/lock"
_REBUILT = f"{WORK}/indexes"
# Where the files of other formats are until they are published.
_STAGED = {"folder": f"{WORK}/formats"}
_COPY_BYTES = 1 << 20
_unique_numbers = count()


class FolderTaskFiles:
    """The shards of one attempt at a task: a folder of partial files, named in the layout."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._folder = folder
        self._work = layout.work
        self.layout: Layout = layout
        with write_errors(folder):
            (folder / self._work).mkdir(parents=True, exist_ok=True)

    def advance(self, tokens: dict[Split, int]) -> None:
        """Do nothing: the tokens are already in their files."""

    def sync(self, files: Iterable[tuple[Split, int]], *, drop_cache: bool) -> None:
        """Push files to disk; drop their pages from the cache if asked."""
        for split, shard in sorted(files):
            path = self.layout.partial_path(split, shard)
            with write_errors(path):
                _sync(path, drop_cache=drop_cache)
        for split in {split for split, _ in files}:
            for kind in self.layout.index_kinds:
                path = self.layout.spool_path(split, kind)
                # Units in which no document begins write nothing to it.
                with write_errors(path), contextlib.suppress(FileNotFoundError):
                    _sync(path)

    def seal_indexes(
        self, tokens: dict[Split, int], documents: dict[Split, int]
    ) -> dict[Split, list[StagedIndex]]:
        """Turn the spools of each split into files, one of each kind per shard."""
        staged: dict[Split, list[StagedIndex]] = {split: [] for split in SPLITS}
        for split in SPLITS:
            for index in iter_indexes(self.layout, split, tokens[split], documents[split]):
                path = self._folder / self._work / f"{index.name}.partial"
                with write_errors(path):
                    record = index.to_record(*_write_hashed(path, index.content))
                fault_point("one index written")
                staged[split].append(StagedIndex(record, {"folder": self._work}))
        return staged

    def restore_spool(self, split: Split, kind: IndexKind, entries: Iterable[NDArray[Any]]) -> None:
        """Write a spool of a split again."""
        path = self.layout.spool_path(split, kind)
        with write_errors(path):
            _write_hashed(path, (piece.view(np.uint8).data for piece in entries))

    def seal(self, tokens: dict[Split, int]) -> dict[Split, Location]:
        """Give the files their size and push them to disk."""
        with write_errors(self._folder / self._work):
            for split in SPLITS:
                for shard, num_tokens in self.layout.iter_shards(split, tokens[split]):
                    path = self.layout.partial_path(split, shard)
                    _finish_file(path, num_tokens * self.layout.token_bytes)
            _sync(self._folder / self._work)
            _sync(self._folder / TASKS)
            fault_point("task on disk")
        return {split: {"folder": self._work} for split in SPLITS}

    def discard(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self._folder / self._work, ignore_errors=True)


class FolderJournalFile:
    """A journal that is appended to; one of a single attempt gets its name at the end."""

    def __init__(self, path: Path, *, is_resumable: bool, valid_bytes: int) -> None:
        self._final = path
        self._path = path if is_resumable else path.with_name(path.name + ".partial")
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self._path, flags, 0o644)
            # After that comes an incomplete line, or the last line of a job that is being extended.
            os.ftruncate(self._file, valid_bytes)
            os.lseek(self._file, 0, os.SEEK_END)

    def append(self, lines: bytes) -> None:
        """Append lines and push them to disk."""
        with write_errors(self._path):
            middle = len(lines) // 2
            _write_all(self._file, lines[:middle])
            fault_point("journal line torn")
            _write_all(self._file, lines[middle:])
            fault_point("journal not on disk")
            os.fsync(self._file)
            fault_point("journal on disk")

    def finish(self) -> None:
        """Rename the journal of an attempt."""
        if self._path != self._final:
            with write_errors(self._path):
                self._path.replace(self._final)
                _sync(self._final.parent)

    def close(self) -> None:
        """Close it; delete that of an attempt that was not finished."""
        os.close(self._file)
        if self._path != self._final:
            self._path.unlink(missing_ok=True)


class FolderLock(Struct, frozen=True):
    """A lock that is held as long as any process has its file open, and nobody deletes it."""

    file: int
    path: Path

    @property
    def is_lost(self) -> bool:
        """Whether its file was deleted, so that another run may hold a new one."""
        return not is_current(self.file, self.path)


class FolderStore:
    """An output folder."""

    def __init__(self, folder: str) -> None:
        self.name = folder
        self.path: OutputPath = Path(folder)
        self.folder: Path = Path(folder)

    @property
    def is_repairing(self) -> bool:
        """Whether a repair was interrupted."""
        return (self.folder / REPAIRING).exists()

    def read(self, name: str) -> bytes | None:
        """Return the content of a file."""
        path = self.folder / name
        try:
            return path.read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error

    def iter_lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file."""
        path = self.folder / name
        try:
            with path.open("rb") as file:
                yield from file
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _unreadable(path, error) from error

    def write(self, name: str, data: bytes) -> None:
        """Write it under another name, then rename."""
        self.write_lines(name, [data])

    def write_new(self, name: str, data: bytes) -> bool:
        """Write it under another name, then link it, which fails if the name exists."""
        path = self.folder / name
        with write_errors(path):
            temporary = self._write_aside(path, [data])
            try:
                path.hardlink_to(temporary)
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
            _sync(path.parent)
        return True

    def write_lines(
        self, name: str, lines: Iterable[bytes], check: Callable[[Path], None] | None = None
    ) -> None:
        """Write a file of any size, whole or not at all.

        Args:
            name: Its name.
            lines: Its content; it is not kept in memory.
            check: Called with the file before it gets its name; it may raise.
        """
        path = self.folder / name
        with write_errors(path):
            temporary = self._write_aside(path, lines)
            if check is not None:
                check(temporary)
            fault_point("small file written")
            temporary.replace(path)
            _sync(path.parent)

    def iter_names(self, prefix: str) -> Iterator[str]:
        """Yield the files of a folder."""
        for path in self._list(prefix):
            if not path.is_dir():
                yield prefix + path.name

    def delete(self, names: Iterable[str]) -> None:
        """Delete files one by one."""
        with write_errors(self.folder):
            for name in names:
                parents = [] if name.startswith(WORK) else [*Path(name).parents][:-1]
                # What a link leads to is not ours, whatever a manifest says.
                if any((self.folder / parent).is_symlink() for parent in parents):
                    continue
                with contextlib.suppress(NotADirectoryError):
                    (self.folder / name).unlink(missing_ok=True)
                fault_point("one file deleted")
                # The folder of a format goes with its last file.
                for parent in parents:
                    with contextlib.suppress(OSError):
                        (self.folder / parent).rmdir()
            _sync(self.folder)

    def find_foreign(self, name: str, own: Collection[str]) -> str | None:
        """Return the first file under a name that is not one of `own`; None if there is none."""
        path = self.folder / name
        if path.is_symlink() or not path.is_dir():
            is_there = path.is_symlink() or path.exists()
            return name if is_there and name not in own else None
        inside = (self.find_foreign(f"{name}/{each.name}", own) for each in self._list(name))
        return next((each for each in inside if each is not None), None)

    def is_link(self, name: str) -> bool:
        """Return whether a name is a symbolic link."""
        return (self.folder / name).is_symlink()

    def find_entry(self) -> str | None:
        """Return the first name in the folder, other than that of the work folder."""
        return next((path.name for path in self._list("") if path.name != WORK), None)

    def has_files(self, sizes: Iterable[tuple[str, int]]) -> bool:
        """Return whether these files are there with these sizes."""
        return all(_size(self.folder / name) == num_bytes for name, num_bytes in sizes)

    def begin_task(self, layout: Layout, number: int, attempt: str | None) -> FolderTaskFiles:
        """Create the folder of an attempt."""
        work = journal_name(number, attempt).removesuffix(".jsonl")
        if layout.is_by_task:
            return FolderTaskFiles(self.folder, layout.of_task(number, self.name, work, None))
        return FolderTaskFiles(self.folder, replace(layout, work=work))

    def begin_rebuild(self, layout: Layout) -> FolderTaskFiles:
        """Create a folder for new indexes of finished files."""
        return FolderTaskFiles(self.folder, replace(layout, work=_REBUILT))

    def open_journal(
        self, number: int, attempt: str | None, valid_bytes: int = 0
    ) -> FolderJournalFile:
        """Open a journal."""
        path = self.folder / journal_name(number, attempt)
        return FolderJournalFile(path, is_resumable=attempt is None, valid_bytes=valid_bytes)

    def stage_lines(self, name: str, lines: Iterable[bytes]) -> StagedFile:
        """Write a file to the work folder."""
        self.write_lines(f"{WORK}/{name}.partial", lines)
        return name, {"folder": WORK}, (self.folder / WORK / f"{name}.partial").stat().st_size

    def locate(self, name: str, location: Location | None) -> OutputPath:
        """Return the partial file if there is one."""
        path = self.folder / name
        partial = path if location is None else self._partial(name, location)
        return partial if partial.exists() else path

    def stage_file(
        self,
        name: str,
        content: Iterable[bytes | memoryview],
        link_to: OutputPath | None,
        key: str,
        *,
        hash_links: bool = False,
    ) -> tuple[str, Location, int, str]:
        """Write a file of another format, or link it to one with the same bytes.

        A file that was staged before with the same key is kept. Returns its name, location, size
        and digest, which is empty if it is a link, unless `hash_links` asks for it.
        """
        partial, location = self._partial(name, _STAGED), dict(_STAGED)
        done = f"{_STAGED['folder']}/{name}.done"
        words = (self.read(done) or b"").decode(errors="replace").split()
        if len(words) in (2, 3) and words[0] == key and _size(partial) == int(words[1]):
            return name, location, int(words[1]), "".join(words[2:])
        with write_errors(partial):
            partial.parent.mkdir(parents=True, exist_ok=True)
            partial.unlink(missing_ok=True)
            if link_to is not None and _link(partial, Path(str(link_to))):
                num_bytes, digest = partial.stat().st_size, ""
                if hash_links:
                    num_bytes, digest = hash_file(partial)
            else:
                pieces = content if link_to is None else iter_pieces_of(Path(str(link_to)))
                num_bytes, digest = _write_hashed(partial, pieces)
        fault_point("one format file written")
        self.write(done, f"{key} {num_bytes} {digest}".encode())
        return name, location, num_bytes, digest

    def publish(self, files: Iterable[StagedFile]) -> None:
        """Rename each that has not been renamed before."""
        folders = set[Path]()
        with write_errors(self.folder):
            for name, location, num_bytes in files:
                path, partial = self.folder / name, self._partial(name, location)
                if _size(partial) == num_bytes:
                    if path.parent not in folders:
                        path.parent.mkdir(parents=True, exist_ok=True)
                        folders.add(path.parent)
                    partial.replace(path)
                    fault_point("one file published")
                elif _size(path) != num_bytes:
                    raise LostShardError(
                        f"`{name}` is missing or incomplete",
                        where=str(partial),
                        next_step="run the same command again: it repeats the task",
                    )
            for folder in {self.folder, self.folder.absolute().parent, *folders}:
                _sync(folder)

    def unpublish(self, names: Iterable[str], location: Location) -> None:
        """Take files back to where they were before they were published."""
        with write_errors(self.folder):
            (self.folder / location["folder"]).mkdir(parents=True, exist_ok=True)
            for name in names:
                path, partial = self.folder / name, self._partial(name, location)
                if path.is_file() and not partial.exists():
                    self._unshare(path)
                    path.replace(partial)
                fault_point("one file taken back")
            _sync(self.folder / location["folder"])
            _sync(self.folder)

    def _unshare(self, path: Path) -> None:
        """Give a file that has other names bytes of its own: it is about to change."""
        if path.stat().st_nlink > 1:
            self._write_aside(path, iter_pieces_of(path)).replace(path)

    def find_lost(self, files: Iterable[StagedFile]) -> set[str]:
        """Compare the size of each."""
        return {
            name
            for name, location, num_bytes in files
            if num_bytes not in (_size(self._partial(name, location)), _size(self.folder / name))
        }

    def drop_tasks(self) -> None:
        """Delete the folders of all attempts, and what was made of finished ones."""
        work = self.folder / TASKS
        with write_errors(work):
            for path in (self.folder / FINISHED, self.folder / _STAGED["folder"]):
                _drop(path)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for path in work.iterdir():
                    if path.is_dir():
                        _drop(path)

    def has_work(self) -> bool:
        """Look into the work folder; a part that was late leaves empty folders."""
        return bool(self._list(WORK))

    def tidy(self) -> None:
        """Delete the work folder's content, the record of the job last; a held lock stays."""
        work = self.folder / WORK
        last = (Path(INTENT).name, JOB)
        with write_errors(work), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for path in sorted(work.iterdir(), key=lambda path: path.name in last):
                if path.is_dir():
                    _drop(path)
                elif path != self.folder / _LOCK:
                    path.unlink(missing_ok=True)
                fault_point("one thing tidied")
            _sync(self.folder)

    @contextlib.contextmanager
    def lock(self) -> Iterator[FolderLock]:
        """Lock a file of the work folder; at the end, delete what no run could resume."""
        with write_errors(self.folder):
            new = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
            try:
                file = take_lock(self.folder / _LOCK)
            except OSError:
                self._remove_empty(new)
                raise
        try:
            yield FolderLock(file, self.folder / _LOCK)
        except (ConflictError, DamageError, LockedError, WriteError, OSError) as error:
            self._refuse_removed(file, error)
            raise
        finally:
            with contextlib.suppress(OSError, PenstokError):
                is_ours = is_current(file, self.folder / _LOCK)
                has_staged = (self.folder / _STAGED["folder"]).exists()
                if is_ours and not (self.is_repairing or has_staged or has_progress(self)):
                    self.tidy()
                    (self.folder / _LOCK).unlink()
                self._remove_empty(new)
            os.close(file)

    def _refuse_removed(self, lock: int, error: Exception) -> None:
        """Say that somebody deleted the folder, if an error is a consequence of that."""
        with contextlib.suppress(OSError):
            if is_current(lock, self.folder / _LOCK):
                return
            raise WriteError(
                "the output folder was removed during the run"
                if not self.folder.exists()
                else "the files of the run were removed from the output folder while it ran",
                where=self.name,
                next_step="run the same command again",
            ) from error

    def _remove_empty(self, new: Iterable[Path]) -> None:
        """Remove the work folder and the folders that this run created, if they are empty."""
        with contextlib.suppress(OSError):
            (self.folder / WORK).rmdir()
        with contextlib.suppress(OSError):
            for path in new:
                path.rmdir()

    def refuse_not_a_folder(self) -> None:
        """Refuse a file, a device or a dangling link under the name of the output.

        Another part of the job may create the folder between two questions, so one must be enough.
        """
        path, what, is_special = self.folder, f"`{self.name}` is not a folder", False
        try:
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                return
            is_special = not stat.S_ISREG(mode)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                return  # its first use says why it cannot be used
            try:
                what = f"`{self.name}` is a link to `{path.readlink()}`, which does not exist"
            except OSError:
                return  # there is nothing under this name
        next_step = "choose another `-o`"
        if not is_special:
            next_step += f", or move it away: `mv {quoted(path)} {quoted(f'{path}.old')}`"
        raise ConflictError(what, where="OUT", next_step=next_step)

    def refuse_irregular(self) -> None:
        """Refuse links, folders and devices under the names of an output."""
        for path in self._list(""):
            if not is_final_name(path.name):
                continue
            # Another run may delete it meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISREG(path.lstat().st_mode):
                    continue
                raise ConflictError(
                    f"`{path.name}` is not a regular file",
                    where=str(path),
                    next_step=f"move it away: `mv {quoted(path)} {quoted(f'{path}.old')}`, then "
                    "run the same command again",
                )

    def check_room(
        self, num_bytes: int, reused: Iterable[str] = (), *, scratch_bytes: int = 0
    ) -> None:
        """Compare with the free disk space; nothing is written elsewhere."""
        paths = [self.folder / name for name in reused]
        paths += _iter_files(self.folder / TASKS)
        paths += _iter_files(self.folder / _STAGED["folder"])
        written = 0
        for path in paths:
            # Another part may delete an attempt of its own meanwhile.
            with contextlib.suppress(FileNotFoundError):
                written += path.stat().st_blocks * 512
        needed = num_bytes - written
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise WriteError(
                f"too little disk space: about {format_bytes(needed)} needed, "
                f"{format_bytes(free)} free",
                where=str(self.folder),
                next_step="free some space, or choose another `-o`",
            )

    def take_aside(self, names: Iterable[str]) -> None:
        """Take damaged files to the work folder, to be repaired there."""
        with write_errors(self.folder):
            (self.folder / REPAIRING).touch()
            _sync(self.folder / WORK)
            for name in names:
                if (self.folder / name).exists():
                    (self.folder / name).replace(self._partial(name, {"folder": WORK}))
                fault_point("one damaged file taken aside")
            _sync(self.folder)

    def put_back(self, sizes: dict[str, int]) -> None:
        """Give repaired files their size and their final names."""
        with write_errors(self.folder):
            for name, num_bytes in sizes.items():
                partial = self._partial(name, {"folder": WORK})
                _finish_file(partial, num_bytes)
                fault_point("one file repaired")
                partial.replace(self.folder / name)
            _sync(self.folder)
            (self.folder / REPAIRING).unlink()

    def _list(self, prefix: str) -> list[Path]:
        folder = self.folder / prefix
        try:
            return sorted(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(folder, error) from error

    def _partial(self, name: str, location: Location) -> Path:
        return Path(self.folder, location["folder"], f"{name}.partial")

    def _write_aside(self, path: Path, lines: Iterable[bytes]) -> Path:
        """Write a file in the work folder under a name that no other process uses."""
        path.parent.mkdir(parents=True, exist_ok=True)
        work = self.folder / WORK
        work.mkdir(parents=True, exist_ok=True)
        temporary = work / f"{path.name}.{_unique()}.partial"
        try:
            with temporary.open("wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary


def describe_leftovers(folder: OutputPath) -> list[str]:
    """Say what an unfinished run has left beside a finished job; nothing if there is nothing."""
    work = folder / WORK
    if not isinstance(work, Path):
        return []
    num_bytes = 0
    with contextlib.suppress(OSError):
        if not (work / JOB).exists():
            return []
        for path in _iter_files(work):
            with contextlib.suppress(OSError):
                num_bytes += path.lstat().st_blocks * 512
    if not num_bytes:
        return []
    return [
        f"a later run with `--overwrite` is not finished; it has {format_bytes(num_bytes)} in "
        f"{work}: run its command again, or, if no run is writing there, delete it with "
        f"`rm -r {quoted(work)}`"
    ]


def write_file(path: Path, text: str, check: Callable[[Path], None]) -> None:
    """Write one file that belongs to no job, whole or not at all.

    `check` may refuse it before it is there: it is given the same file under another name with the
    same suffix.
    """
    temporary = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        with write_errors(path):
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
            _sync(temporary)
        check(temporary)
        with write_errors(path):
            temporary.replace(path)
            _sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _drop(folder: Path) -> None:
    """Delete a folder so that a process that still writes there loses all of it at once.

    Otherwise it could create a file again that was deleted, and take that for all it wrote.
    """
    aside = folder.with_name(f"dropped.{_unique()}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _link(path: Path, to: Path) -> bool:
    """Give a file another name; return whether the file system can do that."""
    try:
        path.hardlink_to(to)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EACCES):
            return False
        raise
    return True


def _iter_files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and below; another process may delete any of them meanwhile."""
    for each, _, names in os.walk(folder):
        yield from (Path(each, name) for name in names)


def iter_pieces_of(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in pieces."""
    with path.open("rb") as file:
        while piece := file.read(_COPY_BYTES):
            yield piece


def _write_hashed(path: Path, content: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """Write a file and push it to disk; return its size and digest."""
    num_bytes, running = 0, xxhash.xxh3_128()
    with path.open("wb") as file:
        for piece in content:
            file.write(piece)
            running.update(piece)
            num_bytes += memoryview(piece).nbytes
        file.flush()
        os.fsync(file.fileno())
    return num_bytes, running.hexdigest()


def _unreadable(path: Path, error: OSError) -> PenstokError:
    """Return the error for records that a job needs before it can write."""
    return limit_error(error, str(path)) or WriteError(
        f"the output cannot be read: {error.strerror}",
        where=str(path),
        next_step=f"`ls -la {quoted(path.parent)}` shows who may read it; choose another `-o`, or "
        "run the same command as a user who may",
    )


def _unique() -> str:
    return f"{platform.node()}.{os.getpid()}.{next(_unique_numbers)}"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _finish_file(path: Path, num_bytes: int) -> None:
    """Give a file its size and push it to disk."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        os.ftruncate(file, num_bytes)
        os.fsync(file)
    finally:
        os.close(file)


def _sync(path: Path, *, drop_cache: bool = False) -> None:
    """Push a file or folder to disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
        if drop_cache and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
