"""OLMo's token files: raw ids named `.npy`, and a compressed table of documents beside each.

It writes what the dolma toolkit writes and OLMo-core reads, and imports it. NumPy's own `.npy`
files are the format `raw`. `docs/reference/formats/olmo.md` has the layout.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from penstok.errors import InputError, UsageError, read_error
from penstok.output.formats.base import FormatFile, ImportedFile, LinkedFormat
from penstok.output.formats.importing import (
    bad_file,
    find_dtype,
    find_files,
    get_size,
    mark_continued,
    one_document,
    open_scanned,
    read_head,
    refuse_other_dtype,
    without_empty,
)

if TYPE_CHECKING:
    import gzip
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from numpy.typing import NDArray

    from penstok.output.formats.base import FormatOptions, ImportOptions, TokenFile, TokenSource

    # Where documents start, and where they end.
    _Columns: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.uint64]]

__all__ = ["OlmoFormat"]

_NUMPY_MAGIC = b"\x93NUMPY"
# Rows formatted or parsed at once.
_PIECE = 1 << 15
# For such rows, level 4 takes a third of the time of level 6 and makes 3 % fewer bytes (a million
# rows, zlib 1.2.13, November 2026).
_LEVEL = 4
# One row of the table; those of dolma have an id, a file name and a line number.
_MAX_ROW_BYTES = 1 << 20
_READ_BYTES = 1 << 20
# The start of a row; no position has more than 18 digits.
_PLAIN_ROW = re.compile(rb"^([0-9]{1,18}),([0-9]{1,18})[,\r\n]", re.MULTILINE)


class OlmoFormat(LinkedFormat):
    """`train.npy` and `train.csv.gz`: read by OLMo-core."""

    name = "olmo"

    def iter_files(self, source: TokenSource, options: FormatOptions) -> Iterator[FormatFile]:
        """Yield each token file, linked, and its table; a file without tokens is left out."""
        for split in source.splits.values():
            first = 0
            for file in split.files:
                if file.num_tokens:
                    stem = file.name.removesuffix(".bin")
                    yield FormatFile(f"{stem}.npy", file.num_tokens, same_as=file)
                    # The rest of a document has the number of that document.
                    content = _iter_compressed(file, first - file.continues)
                    yield FormatFile(f"{stem}.csv.gz", 0, content)
                first += file.num_documents

    def open_files(self, paths: Sequence[Path], options: ImportOptions) -> list[ImportedFile]:
        """Check token files and their tables; without a table, look for end-of-text ids."""
        files = find_files(paths, ".npy", (".csv.gz",))
        tables = [_table(path) for path in files]
        if any(table.exists() for table in tables):
            pairs = zip(files, tables, strict=True)
            opened = [_open_file(path, table, options) for path, table in pairs]
            return mark_continued(opened, options)
        return open_scanned([_open_bare(path, options) for path in files], options, "append")


def _table(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".npy") + ".csv.gz")


def _iter_compressed(file: TokenFile, first: int) -> Iterator[bytes]:
    import zlib

    # 31 is a gzip header without time and name, so the bytes are the same each time.
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    for rows in _iter_rows(file, first):
        yield compressor.compress(rows)
    yield compressor.flush()


def _iter_rows(file: TokenFile, first: int) -> Iterator[bytes]:
    """Yield rows of start, end, number of the document in its split, file, number in the file."""
    last: NDArray[np.uint64] = np.empty(0, np.uint64)
    done = 0
    name = file.name.replace("%", "%%")
    for piece in file.iter_entries():
        entries = np.concatenate([last, piece])
        last = entries[-1:]
        for at in range(0, len(entries) - 1, _PIECE):
            part = entries[at : at + _PIECE + 1].astype(np.int64)
            count = len(part) - 1
            numbers = np.arange(done, done + count)
            columns = np.stack([part[:-1], part[1:], numbers + first, numbers + 1], 1)
            # One format string for many rows takes two thirds of the time of a loop.
            row = f"%d,%d,%d,{name},%d\r\n"
            yield (row * count % tuple(columns.ravel().tolist())).encode()
            done += count


def _open_file(path: Path, table: Path, options: ImportOptions) -> ImportedFile:
    _refuse_numpy(path)
    num_tokens = num_empty = 0
    for starts, stops in _iter_table(table):
        if int(starts[0]) != num_tokens or np.any(starts[1:] != stops[:-1]):
            raise bad_file(table, "the documents do not follow each other without a gap")
        num_tokens = int(stops[-1])
        num_empty += int(np.count_nonzero(starts == stops))
    dtype: Literal["uint16", "uint32"] = options.dtype or "uint16"
    if num_tokens or get_size(path):
        dtype = find_dtype(path, num_tokens, table)
    refuse_other_dtype(dtype, options, path)

    def iter_documents() -> Iterator[NDArray[np.uint64]]:
        return (starts for starts, _ in _iter_table(table))

    return ImportedFile(
        path=path,
        offset=0,
        num_tokens=num_tokens,
        dtype=dtype,
        iter_starts=lambda: without_empty(iter_documents(), num_tokens),
        eot=options.eot,
        num_empty=num_empty,
        index=table,
    )


def _open_bare(path: Path, options: ImportOptions) -> ImportedFile:
    _refuse_numpy(path)
    size = get_size(path)
    if options.dtype is None:
        raise UsageError(
            f"the file does not say the type of its tokens, and `{_table(path).name}` is missing",
            where=str(path),
            next_step="pass `--dtype uint16` or `--dtype uint32`",
        )
    if size % np.dtype(options.dtype).itemsize:
        raise bad_file(
            path,
            f"the file has {size} bytes, which is not a multiple of the size of {options.dtype}",
        )
    num_tokens = size // np.dtype(options.dtype).itemsize
    return ImportedFile(
        path=path,
        offset=0,
        num_tokens=num_tokens,
        dtype=options.dtype,
        iter_starts=partial(one_document, num_tokens),
    )


def _refuse_numpy(path: Path) -> None:
    if read_head(path, len(_NUMPY_MAGIC)) == _NUMPY_MAGIC:
        raise InputError(
            "this file has NumPy's header, which files of OLMo do not have",
            where=str(path),
            next_step="pass `--from raw`",
        )


def _iter_table(table: Path) -> Iterator[_Columns]:
    """Yield where documents start and end, as the table lists them, in pieces.

    Raises:
        InputError: If it is not such a table.
    """
    import csv
    import gzip
    import zlib

    num_rows = 0
    get_size(table)
    try:
        with gzip.open(table, "rb") as file:
            for starts, stops in _iter_plain_rows(file):
                num_rows += len(starts)
                yield starts, stops
            lines = _Lines(file, table)
            rows: list[tuple[int, int]] = []
            for row in csv.reader(lines, strict=True):
                lines.num_bytes = 0
                num_rows += 1
                rows.append(_parse(row))
                if len(rows) == _PIECE:
                    yield _columns(rows)
                    rows = []
            if rows:
                yield _columns(rows)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise bad_file(table, "the file is not complete and valid gzip") from error
    except OSError as error:
        raise read_error(error, str(table)) from error
    except (ValueError, csv.Error) as error:
        raise bad_file(
            table, f"row {num_rows} is not a document: `start,end,id,src,loc` is expected"
        ) from error


def _iter_plain_rows(file: gzip.GzipFile) -> Iterator[_Columns]:
    """Yield the rows before the first that has quotes or is wrong; leave the file there.

    It takes a third of the time of the CSV reader.
    """
    done, rest = 0, b""
    while data := file.read(_READ_BYTES):
        lines, newline, rest = (rest + data).rpartition(b"\n")
        if len(rest) > _MAX_ROW_BYTES or b'"' in lines:
            break
        if newline:
            found = _PLAIN_ROW.findall(lines + newline)
            if len(found) != lines.count(b"\n") + 1:
                break
            columns = _columns(found)
            if np.any(columns[0] > columns[1]):
                break
            yield columns
            done += len(lines) + 1
    file.seek(done)


def _columns(
    rows: Sequence[tuple[int | bytes, int | bytes]],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    table = np.array(rows).astype(np.uint64)
    return table[:, 0], table[:, 1]


def _parse(row: list[str]) -> tuple[int, int]:
    start, stop = (int(_number(value)) for value in row[:2])
    if start > stop:
        raise ValueError
    return start, stop


def _number(value: str) -> str:
    """Return the digits of a position; no position has more than 18."""
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise ValueError
    return value


class _Lines:
    """Lines of text for the CSV reader, none of them too long; a row may have several."""

    def __init__(self, file: gzip.GzipFile, path: Path) -> None:
        self._file = file
        self._path = path
        self.num_bytes = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(_MAX_ROW_BYTES)
        self.num_bytes += len(line)
        if not line:
            raise StopIteration
        if self.num_bytes >= _MAX_ROW_BYTES:
            raise bad_file(self._path, f"a row is longer than {_MAX_ROW_BYTES} bytes")
        return line.decode(errors="replace")
