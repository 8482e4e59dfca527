"""Files of rows for tests: written in many ways, read back as documents."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from penstok.inputs.files import open_unit
from penstok.readers import Readers
from penstok.readers.base import ReaderOptions
from penstok.readers.columnar import RowFile, open_arrow, open_parquet
from penstok.readers.columnar.base import Rows
from penstok.readers.formats import FORMATS
from penstok.types import (
    Counts,
    DocumentRule,
    InputFormat,
    OnError,
    SkippedRecord,
    Source,
    Unit,
)


class SpaceCuts:
    """Cuts before every space."""

    max_document_bytes: int | None = None

    def mask(self, text: Any) -> Any:
        return text == ord(" ")

    def line_mask(self, text: Any) -> Any:
        return self.mask(text)


def source_of(path: Path) -> Source:
    status = path.stat()
    kind: InputFormat = "parquet" if path.suffix == ".parquet" else "arrow"
    return Source(str(path), status.st_size, status.st_mtime_ns, "", kind)


def write_rows(path: Path, table: pa.Table, **options: Any) -> Path:
    """Write a table by the name of its file: `.parquet`, `.arrow` (a stream) or `.feather`."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, **options)
        return path
    rows = options.pop("row_group_size", None)
    codec = options.pop("compression", None)
    ipc = pa.ipc.IpcWriteOptions(compression=None if codec in ("none", "snappy") else codec)
    make = pa.ipc.new_stream if path.suffix == ".arrow" else pa.ipc.new_file
    with make(str(path), table.schema, options=ipc) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def divide(path: Path, unit_bytes: int = 16 << 20, key: str = "text") -> list[tuple[int, int]]:
    divide_rows = FORMATS[source_of(path).format].divide
    assert divide_rows is not None
    return list(divide_rows(source_of(path), key, unit_bytes))


def open_rows(file: RowFile, key: str) -> Rows:
    open_file = open_parquet if file.source.format == "parquet" else open_arrow
    return open_file(file, key)


def make_readers(
    key: str = "text", *, on_error: OnError = "stop", block_bytes: int = 2 << 20
) -> Readers:
    options = ReaderOptions(
        DocumentRule("record"), key, lambda unit: open_unit(unit, None),
        block_bytes, b"", strip=False, give_back=False, on_error=on_error,
    )  # fmt: skip
    return Readers(SpaceCuts(), options)


def read_unit(readers: Readers, path: Path, start: int, end: int) -> list[bytes]:
    """Read the documents of a range of rows, long ones put together again."""
    source = source_of(path)
    unit = Unit(0, 0, source, start, end, source.num_bytes)
    documents: list[bytes] = []
    for block in readers.choose(unit).iter_blocks(unit):
        pieces = zip(block.starts.tolist(), block.ends.tolist(), block.begins, strict=True)
        for piece_start, piece_end, begins in pieces:
            piece = bytes(block.text[piece_start:piece_end])
            if begins:
                documents.append(piece)
            else:
                documents[-1] += piece
    return documents


def read_all(
    path: Path,
    *,
    key: str = "text",
    unit_bytes: int = 16 << 20,
    on_error: OnError = "stop",
    block_bytes: int = 2 << 20,
) -> tuple[list[bytes], Counts, list[SkippedRecord]]:
    """Read a file unit by unit, as one worker would."""
    readers = make_readers(key, on_error=on_error, block_bytes=block_bytes)
    units = divide(path, unit_bytes, key)
    documents = [text for start, end in units for text in read_unit(readers, path, start, end)]
    reader = readers.choose(Unit(0, 0, source_of(path), 0, 0, 0))
    return documents, reader.take_counts(), reader.take_skipped()


def read_stream(path: Path, key: str = "text") -> list[bytes]:
    """Read a file through a file object, as one that is not local is read."""
    stream = cast("BinaryIO", io.BytesIO(path.read_bytes()))
    with RowFile(source_of(path), stream) as file:
        rows = open_rows(file, key)
        return [text or b"" for text in take_texts(rows, 0, rows.num_rows)]


def take_texts(rows: Rows, start: int, end: int) -> list[bytes | None]:
    """Read a range of rows; None for a row without a text."""
    found: list[bytes | None] = []
    for texts in rows.iter_texts(start, end):
        assert texts.first_row == start + len(found)
        edges = zip(texts.offsets[:-1].tolist(), texts.offsets[1:].tolist(), strict=True)
        values = [texts.text[first:last].tobytes() for first, last in edges]
        valid = [True] * len(values) if texts.valid is None else texts.valid.tolist()
        found += [value if good else None for value, good in zip(values, valid, strict=True)]
    return found
