"""Which bytes go in: finds the inputs, looks at each, opens them.

It reads no documents and plans no units. `plan` asks it for the list, readers for open files; no
other module opens an input.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from penstock.errors import ConflictError, InputError, PenstockError, UsageError
from penstock.kinds import find_format
from penstock.types import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from penstock.types import InputFormat

__all__ = [
    "SourceFile",
    "find_changed",
    "find_sources",
    "look_at_source",
    "natural_key",
    "refuse_changed",
]

_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_EDGE_BYTES = 1 << 12
_DIGITS = re.compile(r"(\d+)")


def find_sources(
    inputs: Sequence[str],
    *,
    is_output: Callable[[Path], bool],
    on_unusable: Callable[[str, PenstockError], None],
    input_format: InputFormat | None = None,
) -> list[Source]:
    """List the files behind `inputs`: arguments in the given order, naturally sorted inside.

    Args:
        inputs: Files, folders and globs.
        is_output: Tells what this job writes; it is left out of folders and globs.
        on_unusable: Called with a path that is no file that can be read, and why; it may raise.
        input_format: How every file is read; None where names decide.
    """
    sources: list[Source] = []
    seen: dict[str, str] = {}
    for argument in inputs:
        for real, path in _iter_once(_expand(argument)):
            if real in seen:
                raise UsageError(
                    f"the same file is named twice: `{path}` and `{seen[real]}`",
                    where=f"INPUT `{argument}`",
                    next_step="name each input once",
                )
            seen[real] = path
            if is_output(Path(path)):
                if path == argument:
                    raise _own_output(path)
                continue
            try:
                sources.append(_check(path, input_format))
            except InputError as error:
                on_unusable(path, error)
    return sources


def _iter_once(paths: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield (real path, path); links can lead to one file twice, which is then taken once."""
    seen: set[str] = set()
    for path in paths:
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            yield real, path


def _own_output(path: str) -> UsageError:
    return UsageError(
        f"`{path}` is an input, and a file this job would write",
        where="INPUT, --output",
        next_step="choose another `-o`",
    )


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key by which `part-2` comes before `part-10`; ties fall to the name itself."""
    key = [
        (0, int(part), part) if part.isdecimal() else (1, 0, part)
        for part in _DIGITS.split(name)
        if part
    ]
    return [*key, (-1, 0, name)]


def _expand(argument: str) -> Iterator[str]:
    if argument == "-":
        raise UsageError(
            "standard input is not read yet",
            where="INPUT `-`",
            next_step="save it first: `... > corpus.txt`, then `penstock tokenize corpus.txt`",
        )
    if "://" in argument:
        raise UsageError(
            f"URLs are not read yet: `{argument}`",
            where="INPUT",
            next_step="copy the data to a local folder and pass that",
        )
    path = Path(argument)
    try:
        is_folder, is_there = path.is_dir(), path.exists() or path.is_symlink()
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            where=f"INPUT `{argument[:100]}`",
            next_step="check the name and the permissions with `ls -l`",
        ) from error
    if is_folder:
        yield from _walk(argument)
    elif is_there:
        yield argument
    elif _GLOB_CHARACTERS.search(argument):
        yield from _glob(argument)
    else:
        raise InputError(
            f"no such file or folder: `{argument}`",
            where=f"INPUT, seen from `{Path.cwd()}`",
            next_step="check the spelling with `ls`",
        )


def _glob(pattern: str) -> Iterator[str]:
    found = [
        path
        for path in glob.iglob(pattern, recursive=True)  # noqa: PTH207 keeps paths as typed
        if not Path(path).is_dir()
    ]
    if not found:
        raise InputError(
            f"no file matches `{pattern}`",
            where=f"INPUT, seen from `{Path.cwd()}`",
            next_step="check the pattern with `ls`; `**` goes into folders",
        )
    yield from sorted(found, key=natural_key)


def _walk(folder: str) -> Iterator[str]:
    """List a folder's files, hidden ones left out, each folder behind links visited once."""
    found = list(_walk_into(folder, visited=set()))
    if not found:
        raise InputError(
            f"no files in the folder `{folder}`",
            where="INPUT",
            next_step="pass a folder with text files (hidden files are left out)",
        )
    yield from sorted(found, key=natural_key)


def _walk_into(folder: str, *, visited: set[tuple[int, int]]) -> Iterator[str]:
    try:
        status = Path(folder).stat()
        entries = list(os.scandir(folder))
    except OSError as error:
        raise InputError(
            f"the folder cannot be read: {error.strerror}",
            where=folder,
            next_step="check its permissions with `ls -ld`",
        ) from error
    if (status.st_dev, status.st_ino) in visited:
        return
    visited.add((status.st_dev, status.st_ino))
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk_into(entry.path, visited=visited)
        else:
            yield entry.path


def _check(path: str, input_format: InputFormat | None) -> Source:
    """Look at one file: there, readable, of a kind that is read as far as its head tells."""
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                f"not a regular file: `{path}`",
                where="INPUT",
                next_step="copy its content to a file and pass that",
            )
        with open(path, "rb") as file:  # noqa: PTH123 surrogate paths stay as they are
            head, edges = _read_edges(file.fileno(), status.st_size)
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            where=path,
            next_step="check it with `ls -l`, or leave such files out with `--on-error skip`",
        ) from error
    return Source(
        path, status.st_size, status.st_mtime_ns, edges, find_format(path, head, input_format)
    )


def _read_edges(file: int, num_bytes: int) -> tuple[bytes, str]:
    """Return the first bytes of a file, and a hash of them and the last."""
    head = os.pread(file, _EDGE_BYTES, 0)
    tail = os.pread(file, _EDGE_BYTES, max(num_bytes - _EDGE_BYTES, 0))
    return head, xxhash.xxh3_64_hexdigest(head + tail)


def find_changed(sources: Sequence[Source]) -> Source | None:
    """Find an input that is no longer what it was when the job was planned."""
    for source in sources:
        try:
            status = Path(source.path).stat()
        except OSError:
            return source
        if (status.st_size, status.st_mtime_ns) != (source.num_bytes, source.mtime_ns):
            return source
    return None


def look_at_source(path: str, input_format: InputFormat) -> Source:
    """Describe an input that an earlier run has used, and how it was read.

    Raises:
        InputError: If it is not there, or is no text.
    """
    if not os.path.lexists(path):
        raise InputError(
            f"the input `{path}` is not there",
            where=f"seen from `{Path.cwd()}`",
            next_step="bring it back"
            if Path(path).is_absolute()
            else "run this from the folder in which the job was started, or bring it back",
        )
    return _check(path, input_format)


def refuse_changed(source: Source, *, by_time: bool = True) -> None:
    """Refuse an input that is no longer what it was when the job used it.

    Args:
        source: What it was.
        by_time: Whether another time is a change, too; not where checksums decide in the end.

    Raises:
        InputError: If it cannot be read.
        ConflictError: If it changed.
    """
    found = look_at_source(source.path, source.format)
    step = "bring back the file the job used, or make the output anew with `--overwrite`"
    if found.num_bytes != source.num_bytes:
        what = f"the input has {found.num_bytes} bytes now, {source.num_bytes} when it was used"
    elif found.edges != source.edges:
        what = "the input holds other text than when it was used"
    elif by_time and found.mtime_ns != source.mtime_ns:
        what = "the input was written to since it was used"
        seconds, rest = divmod(source.mtime_ns, 10**9)
        when = f"@{seconds}.{rest:09}"
        step = f"if it is the same text, `touch -d {when} {shlex.quote(source.path)}` says so"
    else:
        return
    raise ConflictError(what, where=source.path, next_step=step)


class SourceFile:
    """An open input that can be read at any place; use it in a `with`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        try:
            self._fd = os.open(source.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise self._unreadable(error) from error
        if os.fstat(self._fd).st_size != source.num_bytes:
            os.close(self._fd)
            raise self._changed()

    def __enter__(self) -> SourceFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def read_at(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, less what lies outside the file."""
        start, end = max(start, 0), min(end, self.source.num_bytes)
        buffer = bytearray(max(end - start, 0))
        self.read_into(memoryview(buffer), start)
        return bytes(buffer)

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` from `start` on; a file that has become shorter is an error."""
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._fd, [buffer[done:]], start + done)
            except OSError as error:
                raise self._unreadable(error) from error
            if count == 0:
                raise self._changed()
            done += count

    def give_back(self, start: int, end: int) -> None:
        """Tell the system that these pages are not needed again."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(
            f"cannot be read: {error.strerror}",
            where=self.source.path,
            next_step="check the disk and the file's permissions, then run the same command again",
        )

    def _changed(self) -> InputError:
        return InputError(
            "the file changed while it was read",
            where=f"{self.source.path}, {self.source.num_bytes} bytes when the job was planned",
            next_step="wait until nothing writes to it, then pass `--overwrite` to start again",
        )
