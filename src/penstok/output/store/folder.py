"""A folder that every node sees: files are written beside their names and renamed when on disk.

It renames and deletes nothing that a job did not make. The rules are those of `store`, which
writes the outputs that one machine makes alone.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.faults import fault_point
from penstok.output.layout import JOB, WORK
from penstok.output.segments import write_errors
from penstok.output.store.base import LostShardError
from penstok.output.store.local import check_free, finish_file, sync_file
from penstok.output.store.lock import take_lock
from penstok.types import SPLITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstok.output.layout import Layout
    from penstok.output.store.base import Shard
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split

__all__ = ["FolderPlace"]

_TASKS, _LOCK = "tasks", "lock"
_attempts = count()


class FolderTaskFiles:
    """One attempt at a task: a folder with a file for each split."""

    def __init__(self, folder: Path, layout: Layout, number: int, attempt: str) -> None:
        self._folder = folder
        self._number = number
        self._work = f"{WORK}/{_TASKS}/{number:05}-{attempt}"
        self.layout = layout.of_task(number, str(folder), self._work, None)
        with write_errors(folder):
            (folder / self._work).mkdir(parents=True, exist_ok=True)

    def advance(self, tokens: dict[Split, int]) -> None:
        """Do nothing: they are where they belong."""

    def seal(self, tokens: dict[Split, int]) -> dict[Split, Shard]:
        """Push both files to disk, at their size."""
        shards: dict[Split, Shard] = {}
        with write_errors(self._folder / self._work):
            for split in SPLITS:
                path = self.layout.partial_path(split, self._number)
                finish_file(path, tokens[split] * self.layout.token_bytes)
                shards[split] = {"path": f"{self._work}/{path.name}"}
            sync_file(self._folder / self._work)
            sync_file(self._folder / WORK / _TASKS)
            fault_point("task on disk")
        return shards

    def discard(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self._folder / self._work, ignore_errors=True)


class FolderLock:
    """A lock that the system keeps while its process lives."""

    is_lost = False


class FolderPlace:
    """An output folder on a file system that every node sees under the same name."""

    def __init__(self, folder: str) -> None:
        self.name = folder
        self.path: OutputPath = Path(folder)
        self._folder = Path(folder)

    def read(self, name: str) -> bytes | None:
        """Return what a file holds."""
        try:
            return (self._folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write aside, then rename."""
        self.write_lines(name, [data])

    def write_new(self, name: str, data: bytes) -> bool:
        """Write aside, then link it, which fails if the name is taken."""
        path = self._folder / name
        with write_errors(path):
            temporary = self._write_aside(path, [data])
            try:
                path.hardlink_to(temporary)
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
            sync_file(path.parent)
        return True

    def write_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Write aside, then rename."""
        path = self._folder / name
        with write_errors(path):
            temporary = self._write_aside(path, lines)
            fault_point("record of a task written")
            temporary.replace(path)
            sync_file(path.parent)

    def iter_names(self, prefix: str) -> Iterator[str]:
        """Yield the files of a folder."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for path in sorted((self._folder / prefix).iterdir()):
                if not path.is_dir():
                    yield prefix + path.name

    def delete(self, names: Iterable[str]) -> None:
        """Delete files one by one."""
        with write_errors(self._folder):
            for name in names:
                (self._folder / name).unlink(missing_ok=True)
                fault_point("one file of a job deleted")
            sync_file(self._folder)

    def begin_task(self, layout: Layout, number: int, attempt: str) -> FolderTaskFiles:
        """Make the folder of an attempt."""
        return FolderTaskFiles(self._folder, layout, number, attempt)

    def publish(self, shards: Iterable[tuple[str, Shard, int]]) -> None:
        """Rename each."""
        with write_errors(self._folder):
            for name, shard, num_bytes in shards:
                path, partial = self._folder / name, self._folder / shard["path"]
                if _size(partial) == num_bytes:
                    partial.replace(path)
                    fault_point("one shard published")
                elif _size(path) != num_bytes:
                    raise _lost(name, partial)
            sync_file(self._folder)

    def find_lost(self, shards: Iterable[tuple[str, Shard, int]]) -> set[str]:
        """Look at the size of each."""
        return {
            name
            for name, shard, num_bytes in shards
            if num_bytes not in (_size(self._folder / shard["path"]), _size(self._folder / name))
        }

    def clear(self) -> None:
        """Delete the folders of all attempts."""
        work = self._folder / WORK / _TASKS
        with write_errors(work), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for path in work.iterdir():
                if path.is_dir():
                    _drop(path)

    def tidy(self) -> None:
        """Delete the work folder: what says that there is a job at the end, then the lock."""
        work = self._folder / WORK
        with write_errors(work), contextlib.suppress(FileNotFoundError):
            for path in sorted(work.iterdir(), key=lambda path: path.name == JOB):
                if path.is_dir():
                    _drop(path)
                elif path.name != _LOCK:
                    path.unlink(missing_ok=True)
                fault_point("one thing tidied")
            (work / _LOCK).unlink(missing_ok=True)
            # Not if somebody still works at a task that another has done.
            with contextlib.suppress(OSError):
                work.rmdir()
            sync_file(self._folder)

    @contextlib.contextmanager
    def lock(self) -> Iterator[FolderLock]:
        """Lock a file of the work folder."""
        with write_errors(self._folder):
            lock = take_lock(self._folder / WORK / _LOCK)
        try:
            yield FolderLock()
        finally:
            os.close(lock)

    def check_room(self, num_bytes: int) -> None:
        """Compare with what is free; what is written already needs no more."""
        written = sum(
            path.stat().st_blocks * 512 for path in (self._folder / WORK).glob(f"{_TASKS}/*/*")
        )
        check_free(self._folder, num_bytes - written)

    def _write_aside(self, path: Path, lines: Iterable[bytes]) -> Path:
        """Write a file in the work folder, of a name that no other process uses."""
        path.parent.mkdir(parents=True, exist_ok=True)
        work = self._folder / WORK
        work.mkdir(parents=True, exist_ok=True)
        unique = f"{platform.node()}.{os.getpid()}.{next(_attempts)}"
        temporary = work / f"{path.name}.{unique}.partial"
        try:
            with temporary.open("wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary


def _drop(folder: Path) -> None:
    """Delete a folder, which who still writes there loses all at once.

    Else it could make a file anew that was deleted already, and take that for all it wrote.
    """
    aside = folder.with_name(f"dropped.{platform.node()}.{os.getpid()}.{next(_attempts)}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _lost(name: str, partial: Path) -> LostShardError:
    return LostShardError(
        f"the tokens of `{name}` are no longer there, or not whole",
        where=str(partial),
        next_step="run the same command again: the task is done anew, or its part is named",
    )
