"""Import of bare token files, as nanoGPT and build-nanogpt write them.

Such files hold ids alone, at most behind NumPy's header; the user says what they do not. Writing
them needs no format: the token files of an output are such files already.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from penstok.errors import InputError, UsageError
from penstok.output.formats.base import ImportedFile
from penstok.output.formats.importing import (
    bad_file,
    get_size,
    list_folder,
    one_document,
    open_scanned,
    read_head,
    refuse_other_dtype,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstok.output.formats.base import ImportOptions

__all__ = ["RawFormat"]

_NUMPY_MAGIC = b"\x93NUMPY"
# As NumPy writes it. Its own parser takes more, and fails in ways that cannot all be named: it
# tokenizes the header as Python.
_NUMPY_HEADER = re.compile(
    rb"\{'descr': '([!-&(-~]{1,20})', 'fortran_order': (?:True|False), 'shape': \(([0-9, ]*)\), \}"
    rb" *\n?"
)
_ONE_DIMENSION = re.compile("[0-9]{1,20},")
_MAX_HEADER_BYTES = 1 << 16
_TYPES: dict[str, Literal["uint16", "uint32", "int32"]] = {
    "<u2": "uint16",
    "<u4": "uint32",
    "<i4": "int32",
}
# Headers of other formats, so that they are not read as tokens.
_OTHER_FORMATS = {
    b"MMIDIDX": "megatron",
    (20240520).to_bytes(4, "little"): "llmc",
    (20240801).to_bytes(4, "little"): "llmc",
}


class RawFormat:
    """Ids without anything else: `train.bin` of nanoGPT, or a real `.npy` file."""

    name = "raw"

    def open_files(self, paths: Sequence[Path], options: ImportOptions) -> list[ImportedFile]:
        """Check bare files; the options say type, end-of-text id and its position."""
        chosen: list[Path] = []
        for path in paths:
            chosen += list_folder(path, ".bin", ".npy") if path.is_dir() else [path]
        return open_scanned([_open_file(path, options) for path in chosen], options, None)


def _open_file(path: Path, options: ImportOptions) -> ImportedFile:
    head = read_head(path, 8)
    size = get_size(path)
    for magic, name in _OTHER_FORMATS.items():
        if head.startswith(magic):
            raise InputError(
                "this is not a bare file of tokens: it has a header",
                where=str(path),
                next_step=f"pass `--from {name}`",
            )
    if head.startswith(_NUMPY_MAGIC):
        return _open_numpy(path, size, options)
    if options.dtype is None:
        raise UsageError(
            "the file does not say the type of its tokens",
            where=str(path),
            next_step="pass `--dtype uint16` (GPT-2) or `--dtype uint32`",
        )
    token_bytes = np.dtype(options.dtype).itemsize
    if size % token_bytes:
        raise bad_file(path, f"the file has {size} bytes, which is not a multiple of {token_bytes}")
    return _imported(path, 0, size // token_bytes, options.dtype)


def _open_numpy(path: Path, size: int, options: ImportOptions) -> ImportedFile:
    """Read NumPy's header; an array of objects, which would be a pickle, has no known type."""
    head = read_head(path, _MAX_HEADER_BYTES)
    # The length of the header has two bytes in version 1, and four in later ones.
    length_bytes = 2 if head[6:7] == b"\1" else 4
    start = 8 + length_bytes
    offset = start + int.from_bytes(head[8:start], "little")
    match = _NUMPY_HEADER.fullmatch(head[start:offset])
    if match is None or len(head) < offset:
        raise bad_file(path, "the header is not that of one array that NumPy has saved")
    descr, shape = (field.decode("ascii") for field in match.groups())
    if descr not in _TYPES or not _ONE_DIMENSION.fullmatch(shape):
        raise InputError(
            f"the file holds an array of `{descr}` with the shape ({shape})",
            where=str(path),
            next_step="save one array of uint16, uint32 or int32 with one dimension",
        )
    dtype, num_tokens = _TYPES[descr], int(shape.rstrip(","))
    if size != offset + num_tokens * np.dtype(dtype).itemsize:
        raise bad_file(
            path, f"the file has {size} bytes, but its header lists {num_tokens} of {dtype}"
        )
    refuse_other_dtype(dtype, options, path)
    return _imported(path, offset, num_tokens, dtype)


def _imported(
    path: Path, offset: int, num_tokens: int, dtype: Literal["uint16", "uint32", "int32"]
) -> ImportedFile:
    return ImportedFile(
        path=path,
        offset=offset,
        num_tokens=num_tokens,
        dtype=dtype,
        iter_starts=partial(one_document, num_tokens),
    )
