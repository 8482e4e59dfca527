"""The same documents in other kinds of files: what reading each costs compared with plain text."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from corpora import EOT, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

JSONL, PARQUET, JSONL_ZST, JSONL_GZ = "jsonl", "parquet", "jsonl.zst", "jsonl.gz"
FORMATS = (JSONL, PARQUET, JSONL_ZST, JSONL_GZ)

_READ_BYTES = 1 << 20
# What the files of FineWeb have.
_GROUP_ROWS = 1000
# What the commands `zstd` and `gzip` do without a flag.
_ZSTD_LEVEL, _GZIP_LEVEL = 3, 6


def in_format(text: str, kind: str) -> str:
    """Name the documents of a text in another format."""
    return f"{text}.{kind}"


def write_format(text: Text, kind: str, folder: Path) -> Text:
    """Write the documents of a text in another format; sizes stay those of the plain text."""
    name = in_format(text.name, kind)
    path = folder / name
    documents = _iter_documents(text.path)
    with path.open("wb") as file:
        if kind == PARQUET:
            _write_parquet(documents, text.name, file)
        else:
            with _COMPRESSORS[kind](file) as compressed:
                for number, document in enumerate(documents):
                    record = _record(text.name, number, document)
                    line = json.dumps(record, ensure_ascii=False)
                    compressed.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return Text(name, path, text.num_bytes, text.num_documents)


def _write_parquet(documents: Iterator[str], name: str, file: BinaryIO) -> None:
    schema = pa.schema({"id": pa.string(), "text": pa.string()})
    first = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(documents, _GROUP_ROWS)):
            records = [_record(name, first + idx, text) for idx, text in enumerate(group)]
            writer.write_table(pa.Table.from_pylist(records, schema))
            first += len(group)


def _record(name: str, number: int, document: str) -> dict[str, str]:
    return {"id": f"{name}/{number}", "text": document}


def _iter_documents(path: Path) -> Iterator[str]:
    rest = b""
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            *documents, rest = (rest + data).split(EOT)
            for document in documents:
                yield document.decode()


@contextmanager
def _plain(file: BinaryIO) -> Iterator[BinaryIO]:
    yield file


def _zstd(file: BinaryIO) -> Any:
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
    return compressor.stream_writer(file, closefd=False)


def _gzip(file: BinaryIO) -> Any:
    return gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)


_COMPRESSORS = cast(
    "dict[str, Callable[[BinaryIO], Any]]", {JSONL: _plain, JSONL_ZST: _zstd, JSONL_GZ: _gzip}
)
