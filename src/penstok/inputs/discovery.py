"""Which files are the input: expands folders, globs, lists and URLs into paths.

It opens no input and ignores what files contain. `readers.probe` probes every path it lists.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.errors import InputError, NotTextError, UsageError, quoted
from penstok.inputs.streams import STANDARD_INPUT, closed_input
from penstok.storage import expand_url, is_url
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["InputPath", "OutputRules", "list_inputs", "natural_key", "read_list"]

_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")
_SPECIAL_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class InputPath(Struct, frozen=True):
    """A path behind an argument.

    Attributes:
        path: The path or URL.
        folder: The folder below which it was found; empty if the user named it. A glob names its
            matches, as if the shell had expanded it.
        problem: Why it cannot be an input, if that is known without opening it.
    """

    path: str
    folder: str = ""
    problem: InputError | None = None


class OutputRules(Struct, frozen=True):
    """How outputs of Penstok are recognized, so that their tokens are not read as text.

    Attributes:
        is_own: Tells whether a path is a file that this job writes; folders and globs leave it out.
        is_own_folder: Tells whether a folder is the output of this job.
        marks: Every output has an entry with one of these names.
        is_other: Tells whether a folder with some of these entries is the output of another job.
    """

    is_own: Callable[[str], bool]
    is_own_folder: Callable[[str], bool]
    marks: frozenset[str]
    is_other: Callable[[str, Iterable[str]], bool]


def list_inputs(
    inputs: Sequence[str],
    *,
    outputs: OutputRules,
    dataset_suffixes: tuple[str, ...] = (),
) -> list[InputPath]:
    """List the files behind `inputs`: arguments in the given order, each expanded in natural order.

    Args:
        inputs: Files, folders, globs and URLs; `-` alone is standard input.
        outputs: Which files are not read because Penstok wrote them.
        dataset_suffixes: Where a folder has such files, the files in which the `datasets` library
            describes them are left out.

    Raises:
        UsageError: If an input has no name, is named twice, or is an output of this job.
        InputError: If an argument matches nothing, or is a folder that cannot be read.
    """
    if "" in inputs:
        raise UsageError(
            "the name of an input is empty",
            where="INPUT",
            next_step="pass the name of a file or folder; `.` is the current folder",
        )
    if STANDARD_INPUT in inputs:
        if len(inputs) > 1:
            raise UsageError(
                "standard input cannot be combined with other inputs",
                where=f"INPUT `{STANDARD_INPUT}`",
                next_step="pass it alone",
            )
        return [InputPath(STANDARD_INPUT)]
    listed: list[InputPath] = []
    seen: dict[str, str] = {}
    walk = _Walk(outputs, dataset_suffixes)
    for argument in inputs:
        for real, found in _iter_once(_expand(argument, walk)):
            path = found.path
            if real in seen:
                raise UsageError(
                    f"the same file is named twice: `{path}` and `{seen[real]}`",
                    where=f"INPUT `{argument}`",
                    next_step="name each input once",
                )
            seen[real] = path
            if not outputs.is_own(path):
                listed.append(found)
            elif path == argument:
                raise UsageError(
                    f"`{path}` is an input, and a file this job would write",
                    where="INPUT, --output",
                    next_step="choose another `-o`",
                )
    if not listed:
        raise InputError(
            "there is nothing to read but the output of this job",
            where=f"INPUT {' '.join(inputs[:3])}",
            next_step="pass the text that it was made from",
        )
    return listed


def _iter_once(paths: Iterable[InputPath]) -> Iterator[tuple[str, InputPath]]:
    """Yield (real path, path), once for each file that several links lead to."""
    seen: set[str] = set()
    for found in paths:
        real = found.path if is_url(found.path) else os.path.realpath(found.path)
        if real not in seen:
            seen.add(real)
            yield real, found


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts `part-2` before `part-10`; equal keys are sorted by name."""
    key = [
        (0, int(part), part) if part.isdecimal() else (1, 0, part)
        for part in _DIGITS.split(name)
        if part
    ]
    return [*key, (-1, 0, name)]


def _expand(argument: str, walk: _Walk) -> Iterable[InputPath]:
    if is_url(argument):
        return _expand_url(argument, walk.outputs)
    path = Path(argument)
    try:
        is_folder, is_there = path.is_dir(), path.exists() or path.is_symlink()
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            where=f"INPUT `{argument[:100]}`",
            next_step=f"check the name and the permissions with `ls -ld {quoted(argument)}`",
        ) from error
    if is_folder:
        return walk.list_folder(argument)
    if is_there:
        return [InputPath(argument)]
    if _GLOB_CHARACTERS.search(argument):
        return _glob(argument, walk)
    raise InputError(
        f"no such file or folder: `{argument}`",
        where=f"INPUT, seen from `{Path.cwd()}`",
        next_step="check the spelling with `ls`",
    )


def _glob(pattern: str, walk: _Walk) -> list[InputPath]:
    """List the files that match, and those in folders that match, as if the shell had expanded it.

    Empty folders count as no match, and what `**` at the end matches are the files in folders.
    """
    matches = list(glob.iglob(pattern, recursive=True))  # noqa: PTH207 keeps paths as typed
    folders = list(filter(os.path.isdir, matches))  # a Path may raise
    files = set(matches).difference(folders)
    found = [InputPath(path) for path in files]
    if pattern.rpartition("/")[2] != "**":
        for folder in folders:
            found += walk.list_folder(folder, may_be_empty=True)
    if not found:
        raise InputError(
            f"no file matches `{pattern}`",
            where=f"INPUT, seen from `{Path.cwd()}`",
            next_step="check the pattern with `ls -d`; `**` matches folders at any depth",
        )
    # Of a file that matches and is in a folder that matches, the first is kept.
    return sorted(found, key=lambda each: natural_key(each.path))


def _expand_url(argument: str, outputs: OutputRules) -> list[InputPath]:
    """List the objects that a URL names; in a folder, leave out outputs and hidden names."""
    urls = expand_url(argument, natural_key, with_hidden=True)
    if urls == [argument] or _GLOB_CHARACTERS.search(argument):
        return [InputPath(url) for url in urls]
    folder = argument.rstrip("/")
    marks: dict[str, set[str]] = {}
    for url in urls:
        for above, name in _iter_above(url, folder):
            if name in outputs.marks:
                marks.setdefault(above, set()).add(name)
    others = {each for each, found in marks.items() if outputs.is_other(each, found)}
    if folder in others:
        raise _named_output(argument)
    listed = [
        InputPath(url, argument)
        for url in urls
        if "/." not in url.removeprefix(folder)
        and not any(above in others for above, _ in _iter_above(url, folder))
    ]
    listed += [InputPath(each, argument, _found_output(each)) for each in others]
    if not listed and not outputs.is_own_folder(folder):
        raise _empty_folder(argument)
    return sorted(listed, key=lambda found: natural_key(found.path))


def _iter_above(url: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield the folders above an object, from `folder` down, each with the name that follows."""
    while url != folder:
        rest = url.removeprefix(f"{folder}/")
        name = rest.partition("/")[0]
        yield folder, name
        folder = f"{folder}/{name}"


class _Walk(Struct, frozen=True):
    """Lists the files in local folders."""

    outputs: OutputRules
    dataset_suffixes: tuple[str, ...]

    def list_folder(self, folder: str, *, may_be_empty: bool = False) -> list[InputPath]:
        """List a folder's files except hidden ones; folders behind links are visited once."""
        found = list(self._walk_into(folder, folder, visited=set()))
        if len(found) == 1 and found[0].path == folder and found[0].problem is not None:
            raise found[0].problem
        if not (found or may_be_empty or self.outputs.is_own_folder(folder)):
            raise _empty_folder(folder)
        return sorted(found, key=lambda each: natural_key(each.path))

    def _walk_into(
        self, folder: str, top: str, *, visited: set[tuple[int, int]]
    ) -> Iterator[InputPath]:
        try:
            status = Path(folder).stat()
            entries = list(os.scandir(folder))
        except OSError as error:
            yield InputPath(folder, top, _unreadable_folder(folder, error))
            return
        if (status.st_dev, status.st_ino) in visited:
            return
        visited.add((status.st_dev, status.st_ino))
        names = {entry.name for entry in entries}
        marks = names & self.outputs.marks
        if marks and self.outputs.is_other(folder, marks):
            is_top = folder == top
            problem = _named_output(folder) if is_top else _found_output(folder)
            yield InputPath(folder, top, problem)
            return
        metadata = _dataset_metadata(names, self.dataset_suffixes)
        for entry in entries:
            if entry.name.startswith(".") or entry.name in metadata:
                continue
            if _is_folder(entry):
                yield from self._walk_into(entry.path, top, visited=visited)
            else:
                yield InputPath(entry.path, top, _find_problem(entry))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads nowhere; `_find_problem` or the probe says so


def _find_problem(entry: os.DirEntry[str]) -> InputError | None:
    """Tell what in a folder is no file; what cannot be read is left to the probe."""
    try:
        if entry.is_file():
            return None
        kind = _SPECIAL_FILES.get(stat.S_IFMT(entry.stat().st_mode))
    except OSError as error:
        kind = "a link that leads to itself" if error.errno == errno.ELOOP else None
    if kind is None:
        return None
    return NotTextError(f"this is {kind}, not a file", where=entry.path)


def _named_output(folder: str) -> InputError:
    return InputError(
        f"the folder `{folder}` is an output of penstok: it holds tokens, not text",
        where="INPUT",
        next_step=f"pass the text it was made from (`penstok show {quoted(folder)}` prints "
        "it); files beside the tokens can be named one by one",
    )


def _found_output(folder: str) -> NotTextError:
    return NotTextError("this folder is an output of penstok", where=folder)


def _unreadable_folder(folder: str, error: OSError) -> InputError:
    return InputError(
        f"the folder cannot be read: {error.strerror}",
        where=folder,
        next_step=f"check its permissions with `ls -ld {quoted(folder)}`, or leave such folders "
        "out with `--on-error skip`",
    )


def _empty_folder(folder: str) -> InputError:
    return InputError(
        f"no files in the folder `{folder}`",
        where="INPUT",
        next_step="pass a folder with text files (hidden files are left out)",
    )


def _dataset_metadata(names: set[str], suffixes: tuple[str, ...]) -> set[str]:
    """Return the files of a folder that only describe others, as `datasets` writes them."""
    is_dataset = any(name.endswith(suffixes) for name in names)
    metadata = {"dataset_info.json", "state.json"} if is_dataset else set()
    return (metadata | {"dataset_dict.json"}) & names


def read_list(path: str, *, is_null: bool = False) -> list[str]:
    """Read the names of inputs, one per line; blank lines and `#` comments are ignored.

    Args:
        path: A file, or `-` for standard input.
        is_null: The names are separated by NUL bytes instead, and taken as they are.

    Raises:
        InputError: If it cannot be read, or names nothing.
        UsageError: If the names are separated in the other way.
    """
    if not path:
        raise UsageError(
            "the name of the list is empty",
            where="--files-from",
            next_step="pass the name of a file, or `-` for standard input",
        )
    if path == STANDARD_INPUT and sys.stdin is None:
        raise closed_input()
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"the list cannot be read: {error.strerror}",
            where=f"--files-from {path}",
            next_step=f"check the name with `ls -l {quoted(path)}`",
        ) from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(
            "the list is UTF-16; it must be UTF-8",
            where=f"--files-from {path}",
            next_step=f"convert it: `iconv -f UTF-16 -t UTF-8 < {quoted(path)} > list.txt`",
        )
    data = data.removeprefix(b"\xef\xbb\xbf")
    _check_separators(path, data, is_null=is_null)
    if is_null:
        names = [os.fsdecode(name) for name in data.split(b"\0") if name]
    else:
        lines = [os.fsdecode(line.strip()) for line in data.splitlines()]
        names = [line for line in lines if line and not line.startswith("#")]
    if not names:
        raise InputError(
            "the list names no input",
            where=f"--files-from {path}",
            next_step="write one file, folder, glob or URL per line"
            if not is_null
            else "write file names, with a NUL byte after each",
        )
    return names


def _check_separators(path: str, data: bytes, *, is_null: bool) -> None:
    if b"\0" in data and not is_null:
        what, step = "the names in the list are separated by NUL bytes", "pass `-0` as well"
    elif is_null and b"\0" not in data and b"\n" in data and not os.path.lexists(data):
        what, step = "the names in the list are separated by line breaks", "leave out `-0`"
    else:
        return
    raise UsageError(what, where=f"--files-from {path}", next_step=step)
