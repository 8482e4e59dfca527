"""What the importers share: finding files, reading arrays in pieces, looking for end-of-text ids.

The files come from elsewhere and may be damaged or hostile, so every size is compared with the
file before it is used. It reads no layout of its own; the formats do.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.errors import InputError, UsageError, read_error
from penstok.types import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Literal

    from numpy.typing import NDArray

    from penstok.output.formats.base import ImportedFile, ImportOptions
    from penstok.types import EotPosition

__all__ = [
    "bad_file",
    "count_empty",
    "find_dtype",
    "find_files",
    "get_size",
    "iter_array",
    "list_folder",
    "mark_continued",
    "one_document",
    "open_scanned",
    "other_format",
    "read_head",
    "refuse_other_dtype",
    "without_empty",
]

# Entries of an index read at once.
_READ_ENTRIES = 1 << 16


def find_files(paths: Sequence[Path], suffix: str, others: Sequence[str] = ()) -> list[Path]:
    """Return the files with a suffix that the paths name.

    A path is such a file, a folder of them, the same name with one of the other suffixes, or the
    name without a suffix.

    Raises:
        InputError: If there is none.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += list_folder(path, suffix)
        else:
            found.append(_find_file(path, suffix, others))
    return found


def list_folder(folder: Path, *suffixes: str) -> list[Path]:
    """Return the files in a folder that end in the first suffix that any of them has.

    Raises:
        InputError: If there is none, or the folder cannot be read.
    """
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise read_error(error, str(folder)) from error
    for suffix in suffixes:
        if found := [path for path in inside if path.name.endswith(suffix)]:
            return found
    names = " or ".join(f"`{suffix}`" for suffix in suffixes)
    raise InputError(
        f"the folder has no file whose name ends in {names}",
        where=str(folder),
        next_step="pass the files, or the folder they are in",
    )


def _find_file(path: Path, suffix: str, others: Sequence[str]) -> Path:
    if path.name.endswith(suffix):
        return path
    for other in others:
        if path.name.endswith(other):
            return path.with_name(path.name.removesuffix(other) + suffix)
    beside = path.with_name(path.name + suffix)
    return beside if beside.exists() else path


def get_size(path: Path) -> int:
    """Return the size of a regular file.

    Raises:
        InputError: If it is missing, cannot be read, or is something else.
    """
    try:
        if path.is_file():
            return path.stat().st_size
        exists = path.exists()
    except OSError as error:
        raise read_error(error, str(path)) from error
    raise InputError(
        "this is not a file" if exists else "the file does not exist",
        where=str(path),
        next_step="check the name, or pass the folder the file is in",
    )


def read_head(path: Path, num_bytes: int) -> bytes:
    """Return the first bytes of a file, or fewer if it is shorter."""
    get_size(path)
    try:
        with path.open("rb") as file:
            return file.read(num_bytes)
    except OSError as error:
        raise read_error(error, str(path)) from error


def iter_array(path: Path, offset: int, count: int, dtype: str) -> Iterator[NDArray[Any]]:
    """Yield `count` numbers from a byte offset on, in pieces."""
    try:
        with path.open("rb") as file:
            file.seek(offset, os.SEEK_SET)
            while count:
                piece = np.fromfile(file, dtype, min(count, _READ_ENTRIES))
                if not len(piece):
                    raise bad_file(path, "the file ends too early")
                count -= len(piece)
                yield piece
    except OSError as error:
        raise read_error(error, str(path)) from error


def bad_file(path: Path, what: str) -> InputError:
    """Return the error for a file that is not what it should be."""
    return InputError(
        what, where=str(path), next_step="copy the file again from its origin, or write it again"
    )


def other_format(path: Path, what: str) -> InputError:
    """Return the error for a file of another format."""
    return InputError(
        what, where=str(path), next_step="check the file, and pass its format with `--from`"
    )


def refuse_other_dtype(
    dtype: Literal["uint16", "uint32", "int32"], options: ImportOptions, path: Path
) -> None:
    """Refuse a type given by the user that is not the one of the file.

    Raises:
        UsageError: If they differ.
    """
    own = "uint16" if dtype == "uint16" else "uint32"
    if options.dtype not in (None, own):
        raise UsageError(
            f"`--dtype {options.dtype}` was given, but the tokens are {dtype}",
            where=str(path),
            next_step=f"leave `--dtype` out, or pass `--dtype {own}`",
        )


def find_dtype(path: Path, num_tokens: int, index: Path) -> Literal["uint16", "uint32"]:
    """Return the type of as many tokens as an index lists, from the size of their file.

    Raises:
        InputError: If the index is of another file.
    """
    size = get_size(path)
    if size == 2 * num_tokens:
        return "uint16"
    if size == 4 * num_tokens:
        return "uint32"
    raise bad_file(
        path,
        f"the file has {size} bytes, but `{index.name}` lists {num_tokens} tokens: it should have "
        f"{2 * num_tokens} bytes (uint16) or {4 * num_tokens} (uint32)",
    )


def without_empty(
    starts: Iterator[NDArray[np.uint64]], num_tokens: int
) -> Iterator[NDArray[np.uint64]]:
    """Leave out documents without tokens: the next one starts at the same place."""
    last = -1
    for piece in starts:
        kept = piece[piece < num_tokens]
        if len(kept):
            is_new = np.append(int(kept[0]) != last, kept[1:] != kept[:-1])
            last = int(kept[-1])
            if is_new.any():
                yield kept[is_new]


def count_empty(starts: Iterator[NDArray[np.uint64]], num_tokens: int) -> int:
    """Return how many documents have no tokens."""
    num_documents = num_kept = 0

    def counted() -> Iterator[NDArray[np.uint64]]:
        nonlocal num_documents
        for piece in starts:
            num_documents += len(piece)
            yield piece

    for kept in without_empty(counted(), num_tokens):
        num_kept += len(kept)
    return num_documents - num_kept


def one_document(num_tokens: int) -> Iterator[NDArray[np.uint64]]:
    """Yield the start of the only document, if there are tokens."""
    if num_tokens:
        yield np.zeros(1, np.uint64)


def open_scanned(
    files: Sequence[ImportedFile], options: ImportOptions, eot: EotPosition | None
) -> list[ImportedFile]:
    """Divide files without an index into documents at their end-of-text ids.

    Args:
        files: The files; a document may continue in the next.
        options: What the user says; it decides over `eot`.
        eot: Where the format has its end-of-text ids; None if it has no rule.

    Raises:
        UsageError: If the user must say more.
        InputError: If no file has the end-of-text id.
    """
    eot = options.eot or eot
    filled = [file for file in files if file.num_tokens]
    if not filled:
        return [replace(file, eot=eot) for file in files]
    where = str(filled[0].path)
    if eot != "none" and options.eot_id is None:
        raise UsageError(
            "the file does not say which token ends a document",
            where=where,
            next_step="pass `--eot-token ID`, such as `--eot-token 50256` for GPT-2, or "
            "`--eot none` if each file is one document; the first token is "
            f"{_token_at(filled[0], 0)}",
        )
    if eot is None:
        raise UsageError(
            "the file does not say where the end-of-text tokens are",
            where=where,
            next_step="pass `--eot append` if they follow each document (nanoGPT), or "
            "`--eot prepend` if they come first (build-nanogpt)",
        )
    if eot == "none" or options.eot_id is None:
        return [
            replace(file, eot=eot, iter_starts=partial(one_document, file.num_tokens))
            for file in files
        ]
    eot_id = options.eot_id
    if not any(_has_token(file, eot_id) for file in filled):
        raise InputError(
            f"the end-of-text id {eot_id} is not in the file",
            where=where if len(filled) == 1 else f"{where} and {len(filled) - 1} more files",
            next_step="check `--eot-token` and `--dtype`, or pass `--eot none` if each file is one "
            "document",
        )
    return _mark_continued(
        [
            replace(file, eot=eot, iter_starts=partial(_iter_starts, file, eot_id, eot))
            for file in files
        ],
        options,
    )


def mark_continued(files: Sequence[ImportedFile], options: ImportOptions) -> list[ImportedFile]:
    """Find the files with an index that begin inside a document, as shards do.

    An index does not say it, and a document that merely lacks its end-of-text id must not be
    merged with the next. So all documents of all files must begin exactly where their end-of-text
    ids say it; otherwise every file is taken to begin with a document of its own.
    """
    marked = _mark_continued(files, options)
    if any(file.continues for file in marked) and not _agree_with_eot(files, options):
        return list(files)
    return marked


def _agree_with_eot(files: Sequence[ImportedFile], options: ImportOptions) -> bool:
    """Return whether indexes are where end-of-text ids are; reads all tokens if they are."""
    eot_id = options.eot_id
    if eot_id is None or not any(_has_token(file, eot_id) for file in files):
        return False
    return all(
        file.eot is not None and _is_same(file.iter_starts(), _iter_starts(file, eot_id, file.eot))
        for file in files
    )


def _is_same(first: Iterator[NDArray[np.uint64]], second: Iterator[NDArray[np.uint64]]) -> bool:
    """Return whether two streams have the same numbers, in whatever pieces."""
    left, right = next(first, None), next(second, None)
    while left is not None and right is not None:
        count = min(len(left), len(right))
        if np.any(left[:count] != right[:count]):
            return False
        left = left[count:] if count < len(left) else next(first, None)
        right = right[count:] if count < len(right) else next(second, None)
    return left is None and right is None


def _mark_continued(files: Sequence[ImportedFile], options: ImportOptions) -> list[ImportedFile]:
    """Find the files before which a document is open, by the position of end-of-text ids."""
    eot_id = options.eot_id
    marked: list[ImportedFile] = []
    # Whether a document is open where a file ends; nothing is before the first.
    is_open = False
    for file in files:
        continues = False
        if file.num_tokens and eot_id is not None and file.eot == "prepend":
            continues = is_open and _token_at(file, 0) != eot_id
            is_open = True
        elif file.num_tokens and eot_id is not None and file.eot == "append":
            continues = is_open
            is_open = _token_at(file, file.num_tokens - 1) != eot_id
        marked.append(replace(file, continues=continues))
    return marked


def _has_token(file: ImportedFile, token: int) -> bool:
    return any(bool((piece == token).any()) for piece in file.iter_tokens())


def _token_at(file: ImportedFile, position: int) -> int:
    token_bytes = np.dtype(file.dtype).itemsize
    (found,) = iter_array(file.path, file.offset + position * token_bytes, 1, f"<u{token_bytes}")
    return int(found[0])


def _iter_starts(file: ImportedFile, eot_id: int, eot: EotPosition) -> Iterator[NDArray[np.uint64]]:
    """Yield 0, and where end-of-text ids are, or what follows them."""
    at = 0
    for piece in file.iter_tokens():
        starts = np.flatnonzero(piece == eot_id).astype(np.uint64) + np.uint64(at)
        if eot == "append":
            starts += np.uint64(1)
        if at == 0 and (not len(starts) or int(starts[0])):
            starts = np.concatenate([np.zeros(1, np.uint64), starts])
        starts = starts[starts < file.num_tokens]
        at += len(piece)
        if len(starts):
            yield starts
