"""Which files are the input: expands folders, globs, lists and URLs into paths.

It opens no input and ignores what files contain. `readers.probe` probes every path it lists.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.errors import InputError, UsageError
from penstok.inputs.streams import STANDARD_INPUT, closed_input
from penstok.storage import expand_url, is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["list_inputs", "natural_key", "read_list"]

_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")


def list_inputs(
    inputs: Sequence[str],
    *,
    is_output: Callable[[str], bool],
    dataset_suffixes: tuple[str, ...] = (),
) -> list[str]:
    """List the files behind `inputs`: arguments in the given order, each expanded in natural order.

    Args:
        inputs: Files, folders, globs and URLs; `-` alone is standard input.
        is_output: Tells what this job writes; folders and globs leave it out.
        dataset_suffixes: Where a folder has such files, the files in which the `datasets` library
            describes them are left out.

    Raises:
        UsageError: If an input is named twice, or is an output of this job.
        InputError: If an argument matches nothing, or a folder cannot be read.
    """
    if STANDARD_INPUT in inputs:
        if len(inputs) > 1:
            raise UsageError(
                "standard input cannot be combined with other inputs",
                where=f"INPUT `{STANDARD_INPUT}`",
                next_step="pass it alone",
            )
        return [STANDARD_INPUT]
    paths: list[str] = []
    seen: dict[str, str] = {}
    for argument in inputs:
        for real, path in _iter_once(_expand(argument, dataset_suffixes)):
            if real in seen:
                raise UsageError(
                    f"the same file is named twice: `{path}` and `{seen[real]}`",
                    where=f"INPUT `{argument}`",
                    next_step="name each input once",
                )
            seen[real] = path
            if not is_output(path):
                paths.append(path)
            elif path == argument:
                raise UsageError(
                    f"`{path}` is an input, and a file this job would write",
                    where="INPUT, --output",
                    next_step="choose another `-o`",
                )
    return paths


def _iter_once(paths: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield (real path, path), once for each file that several links lead to."""
    seen: set[str] = set()
    for path in paths:
        real = path if is_url(path) else os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            yield real, path


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts `part-2` before `part-10`; equal keys are sorted by name."""
    key = [
        (0, int(part), part) if part.isdecimal() else (1, 0, part)
        for part in _DIGITS.split(name)
        if part
    ]
    return [*key, (-1, 0, name)]


def _expand(argument: str, dataset_suffixes: tuple[str, ...]) -> Iterator[str]:
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
        yield from _walk(argument, dataset_suffixes)
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


def _walk(folder: str, dataset_suffixes: tuple[str, ...]) -> Iterator[str]:
    """List a folder's files except hidden ones; folders behind links are visited once."""
    found = list(_walk_into(folder, dataset_suffixes, visited=set()))
    if not found:
        raise InputError(
            f"no files in the folder `{folder}`",
            where="INPUT",
            next_step="pass a folder with text files (hidden files are left out)",
        )
    yield from sorted(found, key=natural_key)


def _walk_into(
    folder: str, dataset_suffixes: tuple[str, ...], *, visited: set[tuple[int, int]]
) -> Iterator[str]:
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
    metadata = _dataset_metadata({entry.name for entry in entries}, dataset_suffixes)
    for entry in entries:
        if entry.name.startswith(".") or entry.name in metadata:
            continue
        if entry.is_dir():
            yield from _walk_into(entry.path, dataset_suffixes, visited=visited)
        else:
            yield entry.path


def _dataset_metadata(names: set[str], suffixes: tuple[str, ...]) -> set[str]:
    """Return the files of a folder that only describe others, as `datasets` writes them."""
    is_dataset = any(name.endswith(suffixes) for name in names)
    metadata = {"dataset_info.json", "state.json"} if is_dataset else set()
    return (metadata | {"dataset_dict.json"}) & names


def read_list(path: str) -> list[str]:
    """Read the names of inputs, one per line; blank lines and `#` comments are ignored.

    Args:
        path: A file, or `-` for standard input.

    Raises:
        InputError: If it cannot be read, or names nothing.
    """
    if path == STANDARD_INPUT and sys.stdin is None:
        raise closed_input()
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
            next_step="write one file, folder, glob or URL per line",
        )
    return names
