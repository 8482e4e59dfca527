"""datatrove's token files: `.ds` with the ends of its documents and a short description beside it.

It writes what datatrove's tokenizer step writes and nanotron reads, and imports it. Loss masks are
refused. `docs/reference/formats/datatrove.md` has the layout.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from penstok.errors import InputError
from penstok.output.formats.base import FormatFile, ImportedFile, LinkedFormat
from penstok.output.formats.importing import (
    bad_file,
    count_empty,
    find_dtype,
    find_files,
    get_size,
    iter_array,
    mark_continued,
    read_head,
    refuse_other_dtype,
    without_empty,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from penstok.output.formats.base import FormatOptions, ImportOptions, TokenFile, TokenSource

__all__ = ["DatatroveFormat"]

_ENTRY_BYTES = 8
# More than a name and three numbers need.
_MAX_METADATA_BYTES = 1 << 16


class DatatroveFormat(LinkedFormat):
    """`train.ds`, `train.ds.index` and `train.ds.metadata`: read by datatrove and nanotron."""

    name = "datatrove"

    def iter_files(self, source: TokenSource, options: FormatOptions) -> Iterator[FormatFile]:
        """Yield each token file, linked, and what is beside it; an empty one is left out."""
        for split in source.splits.values():
            for file in split.files:
                if not file.num_tokens:
                    continue
                name = file.name.removesuffix(".bin") + ".ds"
                yield FormatFile(name, file.num_tokens, same_as=file)
                yield FormatFile(f"{name}.index", 0, _iter_ends(file))
                token_bytes = np.dtype(split.dtype).itemsize
                described = _metadata(source.tokenizer.name, token_bytes, file.num_tokens)
                yield FormatFile(f"{name}.metadata", 0, [described])

    def open_files(self, paths: Sequence[Path], options: ImportOptions) -> list[ImportedFile]:
        """Check token files and their indexes."""
        files = find_files(paths, ".ds", (".ds.index", ".ds.metadata"))
        return mark_continued([_open_file(path, options) for path in files], options)


def _iter_ends(file: TokenFile) -> Iterator[bytes]:
    is_first = True
    for piece in file.iter_entries():
        yield piece[is_first:].astype("<u8").tobytes()
        is_first = False


def _metadata(tokenizer: str, token_bytes: int, num_tokens: int) -> bytes:
    # datatrove splits the first line at `|`.
    name = " ".join(tokenizer.replace("|", " ").split()) or "unknown"
    return f"{name}|{token_bytes}\n{num_tokens}\n{_short(num_tokens)}".encode()


def _short(num_tokens: int) -> str:
    """Return a number as `humanize.metric(number, unit="T")` does: three digits and a prefix."""
    exponent = math.floor(math.log10(num_tokens)) if num_tokens else 0
    scaled = num_tokens / 10 ** (exponent // 3 * 3)
    digits = 2 - exponent % 3
    if round(scaled, digits) >= 10 ** (exponent % 3 + 1):
        # 999.6 k is rounded to 1.00 M.
        scaled /= 10 ** ((exponent + 1) // 3 * 3 - exponent // 3 * 3)
        exponent += 1
        digits = 2 - exponent % 3
    prefix = " kMGTPE"[exponent // 3].strip()
    return f"{scaled:.{digits}f} {prefix}T"


def _open_file(path: Path, options: ImportOptions) -> ImportedFile:
    index = path.with_name(f"{path.name}.index")
    loss = path.with_name(f"{path.name}.loss")
    get_size(path)
    if loss.exists():
        raise InputError(
            f"the tokens have a loss mask, `{loss.name}`, which Penstok cannot keep",
            where=str(path),
            next_step=f"move `{loss.name}` to another folder to import the tokens without it",
        )
    size = get_size(index)
    if size % _ENTRY_BYTES:
        raise bad_file(index, f"the index has {size} bytes, which is not a multiple of 8")
    num_documents = size // _ENTRY_BYTES
    last = 0
    for ends in iter_array(index, 0, num_documents, "<u8"):
        if int(ends[0]) < last or np.any(ends[1:] < ends[:-1]):
            raise bad_file(index, "the ends of the documents do not increase")
        last = int(ends[-1])
    num_tokens = last
    dtype: Literal["uint16", "uint32"] = options.dtype or "uint16"
    if num_tokens or get_size(path):
        dtype = find_dtype(path, num_tokens, index)
    _check_metadata(path, dtype)
    refuse_other_dtype(dtype, options, path)

    def iter_documents() -> Iterator[NDArray[np.uint64]]:
        start = np.zeros(1, np.uint64)
        for ends in iter_array(index, 0, num_documents, "<u8"):
            yield np.concatenate([start, ends[:-1]])
            start = ends[-1:]

    return ImportedFile(
        path=path,
        offset=0,
        num_tokens=num_tokens,
        dtype=dtype,
        iter_starts=lambda: without_empty(iter_documents(), num_tokens),
        eot=options.eot,
        num_empty=count_empty(iter_documents(), num_tokens),
        index=index,
    )


def _check_metadata(path: Path, dtype: str) -> None:
    """Compare the token size with that of the description, if there is one."""
    metadata = path.with_name(f"{path.name}.metadata")
    if not metadata.exists():
        return
    first = read_head(metadata, _MAX_METADATA_BYTES).partition(b"\n")[0]
    # Without the name of a tokenizer, datatrove writes the size twice.
    token_bytes = str(np.dtype(dtype).itemsize).encode()
    if first.rpartition(b"|")[2].strip() != token_bytes:
        described = first[-40:].decode(errors="replace")
        raise bad_file(metadata, f"the tokens are {dtype}, but the description says `{described}`")
