"""Parquet and Arrow: one column's text, a range of rows at a time.

It knows no splits or tokens, and writes nothing. `readers.formats` has a row for each of the two;
no other package imports pyarrow.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from penstok.errors import InputError, NotTextError, quoted
from penstok.inputs.content import NotUtf8Error, Sample, choose_encoding
from penstok.readers.columnar.arrow import (
    ARROW_MAGIC,
    check_arrow,
    open_arrow,
    open_arrow_field,
)
from penstok.readers.columnar.file import RowFile
from penstok.readers.columnar.parquet import (
    PARQUET_MAGIC,
    check_parquet,
    open_parquet,
    open_parquet_field,
)
from penstok.readers.columnar.reader import ColumnarReader
from penstok.types import UTF_8, MemoryNeeds, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstok.readers.columnar.base import OpenRows, Rows
    from penstok.types import Source

__all__ = [
    "ARROW_MAGIC",
    "COLUMN_BYTES",
    "INDEX_FACTOR",
    "PARQUET_MAGIC",
    "ColumnarReader",
    "RowFile",
    "check_arrow",
    "check_parquet",
    "count_rows",
    "divide_rows",
    "memory_needs",
    "open_arrow",
    "open_arrow_field",
    "open_parquet",
    "open_parquet_field",
]

# What pyarrow takes once it is loaded: 34 MiB in the parent, 60 in a worker with pages of 1 MiB,
# 99 with pages of 16 MiB. Most parquet files do not need it, which is known only when their pages
# are read. A footer takes seven times its length (one of 19 MB, 5,000 row groups).
_PARENT_BYTES, _WORKER_BYTES = 40 << 20, 96 << 20
INDEX_FACTOR = 7
# What reading one more column takes, beside the footer: a page, and what is decoded of it.
COLUMN_BYTES = 8 << 20
_SAMPLE_BYTES, _SAMPLE_ROWS = 1 << 16, 1 << 10
# Writes a column of bytes as text: file, column and encoding are its arguments.
_DECODE = (
    'python -c "import sys, pyarrow as a, pyarrow.parquet as q; _, path, key, name = sys.argv; '
    "f = a.OSFile(path); m = f.read(4); f.seek(0); t = q.read_table(f) if m == b'PAR1' else "
    "(a.ipc.open_file if m == b'ARRO' else a.ipc.open_stream)(f).read_all(); texts = "
    "[v and v.decode(name, 'replace') for v in t[key].to_pylist()]; q.write_table(t.set_column("
    "t.column_names.index(key), key, [texts]), 'utf8.parquet')\" {} {} {}"
)


def memory_needs(sources: Sequence[Source]) -> MemoryNeeds:
    """Return the memory that pyarrow takes: in the parent, and in each worker."""
    if not any(source.is_rows for source in sources):
        return MemoryNeeds()
    index_bytes = INDEX_FACTOR * max(source.index_bytes for source in sources)
    return MemoryNeeds(
        parent_bytes=_PARENT_BYTES + index_bytes, worker_bytes=_WORKER_BYTES + index_bytes
    )


def count_rows(open_rows: OpenRows, source: Source, text_key: str) -> Source:
    """Return the source with its number of rows; its metadata are read and checked for that.

    Raises:
        InputError: If it is damaged, or has no such column of text in UTF-8.
    """
    if source.is_stream:
        raise InputError(
            f"{source.format} cannot be read from front to back",
            where=source.path,
            next_step="decompress it or save it to a file, and pass that",
        )
    with RowFile(source) as file:
        rows = open_rows(file, text_key)
        if rows.is_binary:
            _check_encoding(source, text_key, _sample_rows(rows))
    return replace(
        source, num_rows=rows.num_rows, is_empty=not rows.num_rows, index_bytes=rows.index_bytes
    )


def _sample_rows(rows: Rows) -> bytes:
    """Return the first texts of a column."""
    sample = b""
    # Damage is reported by the worker that reads up to it.
    with suppress(InputError):
        for texts in rows.iter_texts(0, min(rows.num_rows, _SAMPLE_ROWS)):
            first = int(texts.offsets[0])
            end = min(int(texts.offsets[-1]), first + _SAMPLE_BYTES - len(sample))
            sample += texts.text[first:end].tobytes()
            if len(sample) >= _SAMPLE_BYTES:
                break
    return sample


def _check_encoding(source: Source, text_key: str, sample: bytes) -> None:
    """Refuse a column of bytes that are not text in UTF-8, as `choose_encoding` does with files."""
    others = "pass another `--text-key`, or leave such files out with `--on-error skip`"
    try:
        choose_encoding(source.path, Sample(sample), UTF_8)
    except NotTextError as error:
        what = error.what.removeprefix("this is ")
        raise InputError(
            f"the column `{text_key}` holds {what}", where=source.path, next_step=others
        ) from error
    except NotUtf8Error as error:
        names = error.encodings
        arguments = (quoted(source.path), quoted(text_key), names[0] if names else "ENCODING")
        raise InputError(
            error.what.replace("this", f"the text of column `{text_key}`", 1),
            where=source.path,
            next_step=f"write its text as UTF-8: `{_DECODE.format(*arguments)}`, and pass "
            "`utf8.parquet`; or leave such files out with `--on-error skip`",
        ) from error


def divide_rows(
    open_rows: OpenRows, source: Source, text_key: str, unit_bytes: int
) -> Iterator[tuple[int, int]]:
    """Divide a source into ranges of rows (start, end) with about `unit_bytes` of text each.

    The ranges are consecutive and cover all rows. They depend on the file alone.
    """
    with RowFile(source) as file:
        yield from open_rows(file, text_key).divide(unit_bytes)
