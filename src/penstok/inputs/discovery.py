"""Which bytes go in: finds the inputs and looks at each.

It reads no documents and plans no units. `plan` asks it for the list; `inputs` and `streams` open
what it found.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, InputError, PenstokError, UsageError
from penstok.inputs.probe import examine
from penstok.inputs.streams import STANDARD_INPUT
from penstok.storage import expand_url, is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from penstok.types import InputFormat, Source

__all__ = [
    "changed_meanwhile",
    "find_changed",
    "find_sources",
    "look_at_source",
    "natural_key",
    "read_list",
    "refuse_changed",
]

_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")
_NUM_LOOKS = 8


def find_sources(
    inputs: Sequence[str],
    *,
    is_output: Callable[[str], bool],
    on_unusable: Callable[[str, PenstokError], None],
    input_format: InputFormat | None = None,
    text_key: str = "text",
) -> list[Source]:
    """List the files behind `inputs`: arguments in the given order, naturally sorted inside.

    Args:
        inputs: Files, folders, globs and URLs; `-` alone is standard input.
        is_output: Tells what this job writes; it is left out of folders and globs.
        on_unusable: Called with a path that is no file that can be read, and why; it may raise.
        input_format: How every file is read; None where names decide.
        text_key: The column that files of rows must have.
    """
    sources: list[Source] = []
    seen: dict[str, str] = {}
    for argument in inputs:
        if argument == STANDARD_INPUT:
            if len(inputs) > 1:
                raise UsageError(
                    "standard input cannot be joined with other inputs",
                    where=f"INPUT `{STANDARD_INPUT}`",
                    next_step="pass it alone",
                )
            return [examine(argument, input_format, text_key)]
        paths: list[str] = []
        for real, path in _iter_once(_expand(argument)):
            if real in seen:
                raise UsageError(
                    f"the same file is named twice: `{path}` and `{seen[real]}`",
                    where=f"INPUT `{argument}`",
                    next_step="name each input once",
                )
            seen[real] = path
            if is_output(path):
                if path == argument:
                    raise _own_output(path)
                continue
            paths.append(path)
        with closing(_iter_examined(paths, input_format, text_key)) as examined:
            for path, found in examined:
                if isinstance(found, InputError):
                    on_unusable(path, found)
                else:
                    sources.append(found)
    return sources


def _iter_examined(
    paths: Sequence[str], input_format: InputFormat | None, text_key: str
) -> Generator[tuple[str, Source | InputError]]:
    """Look at inputs in their order; at several remote ones at once.

    One after the other, 10,000 objects would take half an hour before the job starts.
    """

    def look(path: str) -> Source | InputError:
        try:
            return examine(path, input_format, text_key)
        except InputError as error:
            return error

    if not any(map(is_url, paths)):
        yield from zip(paths, map(look, paths), strict=True)
        return
    pool = ThreadPoolExecutor(_NUM_LOOKS)
    try:
        yield from zip(paths, pool.map(look, paths), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


def _iter_once(paths: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield (real path, path); links can lead to one file twice, which is then taken once."""
    seen: set[str] = set()
    for path in paths:
        real = path if is_url(path) else os.path.realpath(path)
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
    if is_url(argument):
        yield from expand_url(argument, natural_key)
        return
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
    about = _names_about_rows({entry.name for entry in entries})
    for entry in entries:
        if entry.name.startswith(".") or entry.name in about:
            continue
        if entry.is_dir():
            yield from _walk_into(entry.path, visited=visited)
        else:
            yield entry.path


def _names_about_rows(names: set[str]) -> set[str]:
    """Return the files that only describe others, where `datasets` has written a folder."""
    has_rows = any(name.endswith((".arrow", ".parquet")) for name in names)
    about = {"dataset_info.json", "state.json"} if has_rows else set()
    return (about | {"dataset_dict.json"}) & names


def read_list(path: str) -> list[str]:
    """Read names of inputs, one a line; blank lines and those that begin with `#` are left out.

    Args:
        path: A file, or `-` for standard input.

    Raises:
        InputError: If it cannot be read, or names nothing.
    """
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"the list cannot be read: {error.strerror}",
            where=f"--files-from {path}",
            next_step="check the name with `ls -l`",
        ) from error
    lines = [os.fsdecode(line.strip()) for line in data.splitlines()]
    names = [line for line in lines if line and not line.startswith("#")]
    if not names:
        raise InputError(
            "the list names no input",
            where=f"--files-from {path}",
            next_step="write a file, folder, glob or URL a line",
        )
    return names


def find_changed(sources: Sequence[Source]) -> Source | None:
    """Find an input that is no longer what it was when the job was planned."""
    for source in sources:
        if source.path == STANDARD_INPUT or is_url(source.path):
            continue  # the one cannot be looked at, of the other every answer is compared
        try:
            status = Path(source.path).stat()
        except OSError:
            return source
        if (status.st_size, status.st_mtime_ns) != (source.num_bytes, source.mtime_ns):
            return source
    return None


def changed_meanwhile(source: Source) -> InputError:
    """Say that an input is no longer what it was when the job began."""
    return InputError(
        "the file changed while the job ran",
        where=source.path,
        next_step="wait until nothing writes to it, then pass `--overwrite` to start again",
    )


def look_at_source(path: str, input_format: InputFormat, text_key: str | None = None) -> Source:
    """Describe an input that an earlier run has used, and how it was read.

    Raises:
        InputError: If it is not there, or is no text.
    """
    if not is_url(path) and not os.path.lexists(path):
        raise InputError(
            f"the input `{path}` is not there",
            where=f"seen from `{Path.cwd()}`",
            next_step="bring it back"
            if Path(path).is_absolute()
            else "run this from the folder in which the job was started, or bring it back",
        )
    return examine(path, input_format, text_key)


def refuse_changed(source: Source, *, by_time: bool = True) -> None:
    """Refuse an input that is no longer what it was when the job used it.

    Args:
        source: What it was.
        by_time: Whether another time is a change, too; not where checksums decide in the end.

    Raises:
        InputError: If it cannot be read.
        ConflictError: If it changed.
    """
    if source.path == STANDARD_INPUT:
        raise InputError(
            "this job read standard input, which cannot be read again",
            where=f"INPUT `{STANDARD_INPUT}`",
            next_step="leave out `--source`; to make tokens anew, pipe the text into "
            "`penstok tokenize - --overwrite`",
        )
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
