"""The output folder, from empty to committed: temporary names, fsync, rename.

No other module renames or deletes output. It knows no documents and no units; the pipeline tells
it when to begin, when data must be on disk, and when to commit.

    OUT/.penstok/lock               one job at a time
    OUT/.penstok/ledger.jsonl       what is finished; the same command goes on from it
    OUT/.penstok/train.bin.partial  written by offset
    OUT/.penstok/renaming           stands while files get their final names, or lose them
    OUT/.penstok/repairing          stands while damaged files are made whole
    OUT/train.bin  OUT/val.bin       appear at the end, by rename
    OUT/segments.jsonl               the finished ledger
    OUT/skipped.jsonl                inputs that were left out, if any were
    OUT/manifest.json                written last: the job exists when this exists
"""

from __future__ import annotations

import contextlib
import os
import shutil
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, PenstokError, WriteError
from penstok.faults import fault_point
from penstok.output.layout import JOB, LEDGER, MANIFEST, SEGMENTS, SKIPPED, WORK, is_own_name
from penstok.output.ledger.lines import UNIT_START
from penstok.output.segments import write_error, write_errors
from penstok.output.store.lock import take_lock
from penstok.quantities import format_bytes
from penstok.types import SPLITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from penstok.output.layout import Layout
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split

__all__ = [
    "Store",
    "check_free",
    "finish_file",
    "is_unfinished",
    "sync_file",
    "tidy",
    "write_file",
]

_RENAMING = "renaming"
_REPAIRING = "repairing"


class Store:
    """One locked output folder; use it in a `with`.

    What is recorded in the ledger stays when the `with` ends, whatever ended it; everything else
    that is not finished goes.
    """

    def __init__(self, layout: Layout) -> None:
        self.folder = Path(layout.folder)
        self.work = self.folder / WORK
        self.ledger = self.work / LEDGER
        self.lock_file = -1
        self._layout = layout
        self._is_new = False

    def __enter__(self) -> Store:
        """Take the folder, and end what a run was killed in the middle of."""
        try:
            self._is_new = not self.folder.exists()
            self.lock_file = take_lock(self.work / "lock")
            self._recover()
        except OSError as error:
            self._let_go()
            raise write_error(error, self.folder) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the folder go."""
        self._let_go()

    @property
    def is_finished(self) -> bool:
        """Whether the folder holds a finished job."""
        return (self.folder / MANIFEST).exists()

    @property
    def is_repairing(self) -> bool:
        """Whether a repair was not finished."""
        return (self.work / _REPAIRING).exists()

    @property
    def has_units(self) -> bool:
        """Whether an unfinished run recorded anything."""
        try:
            with self.ledger.open("rb") as lines:
                return any(line.startswith(UNIT_START) for line in lines)
        except FileNotFoundError:
            return False

    def clear(self) -> None:
        """Delete what an unfinished run left."""
        with write_errors(self.work):
            for path in self.work.iterdir():
                if path.is_dir():
                    # Of a job of tasks.
                    shutil.rmtree(path)
                elif path.name != "lock":
                    path.unlink()

    def reopen(self) -> None:
        """Turn a finished job into an unfinished one whose units are all done, to add to it."""
        with write_errors(self.folder):
            copy = self.work / f"{SEGMENTS}.partial"
            shutil.copyfile(self.folder / SEGMENTS, copy)
            sync_file(copy)
            copy.replace(self.ledger)
            fault_point("finished ledger copied")
            self._mark(_RENAMING)
            fault_point("reopening begins")
            (self.folder / MANIFEST).unlink()
            sync_file(self.folder)
            fault_point("manifest withdrawn")
            self._recover()

    def refuse_foreign_files(self, *, overwrite: bool) -> None:
        """Refuse a folder in which this job's names are taken by somebody else.

        With `overwrite` files may be; what is no file never.
        """
        taken = [path for path in self._own_names() if not (overwrite and path.is_file())]
        if taken:
            raise ConflictError(
                f"`{taken[0].name}` exists and is not from a finished job of penstok",
                where=str(self.folder),
                next_step="choose another `-o`, or pass `--overwrite` to delete "
                + ", ".join(f"`{path.name}`" for path in taken[:5]),
            )

    def refuse_tasks(self, *, overwrite: bool) -> None:
        """Refuse a folder in which a job of tasks is unfinished; with `overwrite` delete it."""
        if not (self.work / JOB).exists():
            return
        if not overwrite:
            raise ConflictError(
                "another job is unfinished here, whose tasks make shards of their own",
                where=str(self.work / JOB),
                next_step="run the command that was started here, choose another `-o`, or pass "
                "`--overwrite` to drop what is done and start again",
            )
        self.clear()

    def check_room(self, needed_bytes: int, *, adds: bool = False) -> None:
        """Refuse to start what cannot fit; what is written already needs no more room.

        With `adds` that is the finished job here too: it is added to.
        """
        paths = [*self.work.glob("*.partial"), *(self._own_names() if adds else ())]
        written = sum(path.stat().st_blocks * 512 for path in paths)
        check_free(self.folder, needed_bytes - written)

    def sync(self, files: Iterable[tuple[Split, int]], *, give_back: bool) -> None:
        """Push the written tokens of some files to disk; give their pages back if asked."""
        for split, shard in sorted(files):
            path = self._layout.partial_path(split, shard)
            with write_errors(path):
                sync_file(path, give_back=give_back)

    def commit(self, tokens: dict[Split, int], manifest: str, skipped: Iterable[str]) -> None:
        """Make the job exist: data, then names, then the manifest.

        What an older job left under these names goes now, its manifest first; until here it was
        whole.
        """
        with write_errors(self.folder):
            self._finish_files(tokens)
            self._delete_older()
            self._mark(_RENAMING)
            fault_point("renaming begins")
            for split, shard, _ in self._files(tokens):
                self._layout.partial_path(split, shard).replace(
                    self._layout.final_path(split, shard)
                )
                fault_point("one file renamed")
            self.write_skipped(skipped)
            self.ledger.replace(self.folder / SEGMENTS)
            fault_point("ledger renamed")
            sync_file(self.folder)
            self.write_manifest(manifest)
            (self.work / _RENAMING).unlink()

    def write_manifest(self, manifest: str) -> None:
        """Write the manifest: from now on the job exists."""
        with write_errors(self.folder):
            self._write(MANIFEST, [manifest])
            sync_file(self.folder)
            sync_file(self.folder.absolute().parent)
            fault_point("manifest renamed")

    def write_skipped(self, lines: Iterable[str]) -> None:
        """Write the list of what was skipped; none if that is nothing."""
        waiting = iter(lines)
        first = next(waiting, None)
        if first is not None:
            with write_errors(self.folder):
                self._write(SKIPPED, chain([first], waiting))

    def write_segments(self, lines: Iterable[bytes], check: Callable[[Path], None]) -> None:
        """Write the finished ledger anew, whole or not at all.

        Args:
            lines: Its lines; they are not held.
            check: Called with the file before it gets its name; it may raise.
        """
        with write_errors(self.folder):
            temporary = self.work / f"{SEGMENTS}.partial"
            with temporary.open("wb") as file:
                file.writelines(lines)
            sync_file(temporary)
            check(temporary)
            fault_point("finished ledger rebuilt")
            temporary.replace(self.folder / SEGMENTS)
            sync_file(self.folder)

    def take_aside(self, files: Iterable[tuple[Split, int]]) -> None:
        """Take damaged files back under their partial names, to be made whole there."""
        with write_errors(self.folder):
            self._mark(_REPAIRING)
            for split, shard in files:
                path = self._layout.final_path(split, shard)
                if path.exists():
                    path.replace(self._layout.partial_path(split, shard))
                fault_point("one damaged file taken aside")
            sync_file(self.folder)

    def put_back(self, files: Iterable[tuple[Split, int]], tokens: dict[Split, int]) -> None:
        """Give repaired files their size and their final names again."""
        with write_errors(self.folder):
            for split, shard in files:
                partial = self._layout.partial_path(split, shard)
                size = self._layout.shard_size(split, tokens[split], shard)
                finish_file(partial, size * self._layout.token_bytes)
                fault_point("one file repaired")
                partial.replace(self._layout.final_path(split, shard))
            sync_file(self.folder)
            (self.work / _REPAIRING).unlink()

    def _recover(self) -> None:
        """End what a kill interrupted: files that were getting their final names, or losing them.

        With a manifest the job is finished. Without one all files go back under their partial
        names, where the ledger says what they hold.
        """
        if not (self.work / _RENAMING).exists():
            return
        if self.is_finished:
            self.clear()
            return
        if not self.ledger.exists():
            (self.folder / SEGMENTS).replace(self.ledger)
        for path in self._own_names():
            if path.name in (SEGMENTS, SKIPPED):
                path.unlink()
            else:
                self._take_back(path)
            fault_point("one file taken back")
        sync_file(self.folder)
        sync_file(self.work)
        (self.work / _RENAMING).unlink()

    def _take_back(self, path: Path) -> None:
        partial = self.work / f"{path.name}.partial"
        if path.exists() and not partial.exists():
            path.replace(partial)

    def _finish_files(self, tokens: dict[Split, int]) -> None:
        for split, shard, num_tokens in self._files(tokens):
            path = self._layout.partial_path(split, shard)
            finish_file(path, num_tokens * self._layout.token_bytes)
        sync_file(self.ledger)
        sync_file(self.work)
        fault_point("files have their size")

    def _delete_older(self) -> None:
        for path in self._own_names():
            path.unlink()
            fault_point("one older file deleted")
        sync_file(self.folder)

    def _files(self, tokens: dict[Split, int]) -> list[tuple[Split, int, int]]:
        """List split, shard and number of tokens of every file."""
        return [
            (split, shard, self._layout.shard_size(split, tokens[split], shard))
            for split in SPLITS
            for shard in range(self._layout.num_shards(split, tokens[split]))
        ]

    def _own_names(self) -> list[Path]:
        """List what carries a name that a job writes; the manifest first."""
        names = sorted(path for path in self.folder.iterdir() if is_own_name(path, self.folder))
        return sorted(names, key=lambda path: path.name != MANIFEST)

    def _mark(self, name: str) -> None:
        (self.work / name).touch()
        sync_file(self.work)

    def _write(self, name: str, texts: Iterable[str]) -> None:
        """Write a small file whole or not at all."""
        temporary = self.work / f"{name}.partial"
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(texts)
        sync_file(temporary)
        fault_point("small file written")
        temporary.replace(self.folder / name)

    def _let_go(self) -> None:
        with contextlib.suppress(OSError, PenstokError):
            if self.lock_file >= 0 and not self._is_worth_keeping():
                self.clear()
                (self.work / "lock").unlink(missing_ok=True)
            # Only if they are empty.
            self.work.rmdir()
            if self._is_new:
                self.folder.rmdir()
        if self.lock_file >= 0:
            os.close(self.lock_file)
            self.lock_file = -1

    def _is_worth_keeping(self) -> bool:
        """Tell whether a later run can go on from what is here."""
        is_half_way = any((self.work / mark).exists() for mark in (_RENAMING, _REPAIRING))
        return is_half_way or self.has_units


def tidy(layout: Layout) -> None:
    """Delete what a run that was killed at its very end left beside its finished job."""
    if Path(layout.folder, WORK).exists():
        with contextlib.suppress(PenstokError), Store(layout):
            pass


def is_unfinished(folder: OutputPath) -> bool:
    """Tell whether a run has something to go on from here; the folder is not locked for it."""
    work = folder / WORK
    return any((work / name).exists() for name in (LEDGER, JOB, _RENAMING))


def write_file(path: Path, text: str, check: Callable[[Path], None]) -> None:
    """Write one file beside any job, whole or not at all; `check` may refuse it before it is there.

    What is checked is the same file under another name that ends alike.
    """
    temporary = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        with write_errors(path):
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
            sync_file(temporary)
        check(temporary)
        with write_errors(path):
            temporary.replace(path)
            sync_file(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_free(folder: Path, needed_bytes: int) -> None:
    """Refuse to write more to a folder than its disk has room for."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise WriteError(
            f"too little disk: about {format_bytes(needed_bytes)} needed, "
            f"{format_bytes(free)} free",
            where=str(folder),
            next_step="make room, or choose another `-o`",
        )


def finish_file(path: Path, num_bytes: int) -> None:
    """Give a file its size and push it to disk."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        os.ftruncate(file, num_bytes)
        os.fsync(file)
    finally:
        os.close(file)


def sync_file(path: Path, *, give_back: bool = False) -> None:
    """Push a file or folder to disk; give its pages back if asked."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
        if give_back and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
