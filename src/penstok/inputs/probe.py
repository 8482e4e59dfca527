"""What an input is, by a look at its edges: where it is, how large, of which kind and compression.

It reads no documents, and lists nothing. `sources` shows it every input it has found; what it says
is recorded, so that a later run can tell whether an input is still the same.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from penstok.errors import InputError
from penstok.inputs.compression import detect_compression, find_frames, find_window_bytes
from penstok.inputs.files import SourceFile
from penstok.inputs.kinds import find_format, refuse_other_compression
from penstok.inputs.streams import STANDARD_INPUT, read_head
from penstok.readers.columnar import RowFile, open_rows
from penstok.readers.csv.header import DELIMITERS, find_column, read_header
from penstok.storage import RemoteFile, get_object_info, is_url, open_stream
from penstok.types import ROW_FORMATS, Source

if TYPE_CHECKING:
    from penstok.types import InputFormat

__all__ = ["examine"]

_EDGE_BYTES = 1 << 12


def examine(path: str, input_format: InputFormat | None, text_key: str | None) -> Source:
    """Look at one input.

    Args:
        path: A file, a URL, or `-` for standard input.
        input_format: How it is read; None where its name decides.
        text_key: The column that a file of rows or a table must have; None if they do not matter.

    Raises:
        InputError: If it cannot be read, or is not what it should be.
    """
    if path == STANDARD_INPUT:
        head = read_head(Source(path, 0, 0, ""), _EDGE_BYTES)
        edges = xxhash.xxh3_64_hexdigest(head)
        source = Source(path, 0, 0, edges, is_stream=True, is_empty=not head)
    elif is_url(path):
        source, head = _look_at_url(path)
    else:
        source, head = _look_at_file(path)
    compression = detect_compression(head)
    refuse_other_compression(path, head, compression)
    if compression is not None:
        source = replace(
            source,
            compression=compression,
            is_stream=True,
            window_bytes=find_window_bytes(compression, head),
        )
        source = _find_frames(source)
        head = read_head(source, _EDGE_BYTES)
    source = replace(source, format=find_format(path, head, input_format), is_empty=not head)
    if source.format in DELIMITERS:
        # Only what comes before tells whether a line feed in CSV stands inside quotes.
        source = replace(source, is_stream=True, content_bytes=0)
        if head and text_key is not None:
            find_column(read_header(source), text_key, source)
    if source.format in ROW_FORMATS and head and text_key is not None:
        return _count_rows(source, text_key)
    return source


def _look_at_file(path: str) -> tuple[Source, bytes]:
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                f"not a regular file: `{path}`",
                where="INPUT",
                next_step=f"pipe it in: `cat {path} | penstok tokenize -`",
            )
        with open(path, "rb") as file:  # noqa: PTH123 surrogate paths stay as they are
            head = os.pread(file.fileno(), _EDGE_BYTES, 0)
            tail = os.pread(file.fileno(), _EDGE_BYTES, max(status.st_size - _EDGE_BYTES, 0))
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            where=path,
            next_step="check it with `ls -l`, or leave such files out with `--on-error skip`",
        ) from error
    edges = xxhash.xxh3_64_hexdigest(head + tail)
    return Source(path, status.st_size, status.st_mtime_ns, edges), head


def _look_at_url(url: str) -> tuple[Source, bytes]:
    """Look at a remote file; what its server calls its version stands for its time and edges."""
    info = get_object_info(url)
    if info.has_ranges:
        with RemoteFile(url, info) as file:
            file.prefetch(0, _EDGE_BYTES)
            head = file.read_at(0, _EDGE_BYTES)
    else:
        with open_stream(url, info) as stream:
            head = stream.read(_EDGE_BYTES)
    edges = xxhash.xxh3_64_hexdigest(info.version.encode() + head)
    source = Source(
        url, info.num_bytes or 0, 0, edges, is_stream=not info.has_ranges, version=info.version
    )
    return source, head


def _find_frames(source: Source) -> Source:
    """Let a local zstd file be entered anywhere, if its frames allow it."""
    if source.compression != "zstd" or source.path == STANDARD_INPUT or is_url(source.path):
        return source
    table = None
    # Damage is told by who reads it from front to back: up to there it can be used.
    with SourceFile(source) as file, suppress(InputError):
        table = find_frames(file.read_at, source.num_bytes, source.path)
    if table is None:
        return source
    return replace(source, is_stream=False, content_bytes=table.content_bytes)


def _count_rows(source: Source, text_key: str) -> Source:
    """Open a file of rows, to see that it is whole as far as its metadata tell."""
    if source.is_stream:
        raise InputError(
            f"{source.format} cannot be read from front to back",
            where=source.path,
            next_step="decompress it or save it to a file, and pass that",
        )
    with RowFile(source) as file:
        rows = open_rows(file, text_key)
    return replace(
        source, num_rows=rows.num_rows, is_empty=not rows.num_rows, index_bytes=rows.index_bytes
    )
