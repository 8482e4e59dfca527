"""The info about one input that do not depend on its format: size, time, compression, version.

It reads a sample only, and lists nothing. `readers.probe` adds the format and the encoding;
`changes` compares the info with those recorded earlier.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from penstok.errors import InputError, NotTextError, quoted
from penstok.inputs.compression import (
    check_compression,
    detect_compression,
    find_frames,
    find_window_bytes,
)
from penstok.inputs.compression.commands import run_on
from penstok.inputs.content import Sample
from penstok.inputs.files import SourceFile
from penstok.inputs.streams import STANDARD_INPUT, read_head
from penstok.storage import RemoteFile, get_object_info, is_url, open_stream
from penstok.types import Source, replace

if TYPE_CHECKING:
    from penstok.types import OnError

__all__ = [
    "HEAD_BYTES",
    "inner_ranges",
    "probe_content",
    "probe_stored",
    "refuse_compressed_twice",
]

_EDGE_BYTES = 1 << 12
# How much is sampled at the start, and in the middle and at the end: a licence in English often
# precedes text in another language. Multiples of 4, so that UTF-32 is not cut.
HEAD_BYTES, _INNER_BYTES = 1 << 16, 1 << 14


def probe_content(path: str, *, on_error: OnError = "stop") -> tuple[Source, Sample]:
    """Return an input's info, and a sample of its content, decompressed.

    Args:
        path: A file, a URL, or `-` for standard input.
        on_error: Whether damage after some content is an error, or ends the sample.

    Raises:
        InputError: If it cannot be read, or is not compressed the way its name says.
    """
    source, sample = probe_stored(path)
    head = sample.head[:_EDGE_BYTES]
    compression = detect_compression(head)
    check_compression(path, head, compression)
    if compression is not None:
        source = replace(
            source,
            compression=compression,
            is_stream=True,
            window_bytes=find_window_bytes(compression, head),
        )
        source = _find_frames(source)
        head = read_head(source, HEAD_BYTES, on_error=on_error)
        sample = Sample(head or read_head(source, HEAD_BYTES))
        refuse_compressed_twice(source, sample.head)
    return source, sample


def refuse_compressed_twice(source: Source, head: bytes) -> None:
    """Refuse content that is compressed once more.

    Raises:
        InputError: If it is.
    """
    inner, outer = detect_compression(head[:_EDGE_BYTES]), source.compression
    if inner is not None and outer is not None:
        archive = "" if source.archive is None else source.archive.path
        raise InputError(
            f"this is {inner} inside {outer}",
            where=source.path,
            next_step=f"decompress it once: `{run_on(f'{outer} -dc', source.path, archive)} > "
            "plain`, then pass `plain`",
        )


def probe_stored(path: str) -> tuple[Source, Sample]:
    """Return the info that a change would alter, and a sample of the bytes as they are stored.

    Raises:
        InputError: If it cannot be read.
    """
    if path == STANDARD_INPUT:
        head = read_head(Source(path, 0, 0, ""), HEAD_BYTES)
        edges = xxhash.xxh3_64_hexdigest(head[:_EDGE_BYTES])
        return Source(path, 0, 0, edges, is_stream=True), Sample(head)
    return _probe_url(path) if is_url(path) else _probe_file(path)


def _probe_file(path: str) -> tuple[Source, Sample]:
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise NotTextError(
                f"not a regular file: `{path}`",
                where="INPUT",
                next_step=_piping_step(path, status.st_mode),
            )
        with open(path, "rb") as file:  # noqa: PTH123 surrogate paths stay as they are
            head = os.pread(file.fileno(), HEAD_BYTES, 0)
            inner = _read_inner(file.fileno(), status.st_size) if len(head) == HEAD_BYTES else ()
            tail = (inner[-1] if inner else head)[-_EDGE_BYTES:]
    except OSError as error:
        is_dangling = isinstance(error, FileNotFoundError) and Path(path).is_symlink()
        raise InputError(
            f"this is a link to `{Path(path).readlink()}`, which does not exist"
            if is_dangling
            else f"cannot be read: {error.strerror}",
            where=path,
            next_step=f"check it with `ls -l {quoted(path)}`, or leave such files out with "
            "`--on-error skip`",
        ) from error
    if head and not status.st_size:
        # As the files in /proc do: how much there is shows only when it is read.
        raise InputError(
            "the file reports a size of 0, but it has text",
            where=path,
            next_step=f"pipe it in: `cat {quoted(path)} | penstok tokenize -`",
        )
    edges = xxhash.xxh3_64_hexdigest(head[:_EDGE_BYTES] + tail)
    return Source(path, status.st_size, status.st_mtime_ns, edges), Sample(head, inner)


def _piping_step(path: str, mode: int) -> str:
    """Say how what is no file can be read."""
    if path == "/dev/stdin" or path.startswith(("/dev/fd/", "/proc/self/fd/")):
        # The shell has opened it for this program, and no other can open it.
        return f"pass `{STANDARD_INPUT}` for standard input, as in `COMMAND | penstok tokenize -`"
    if stat.S_ISSOCK(mode):
        return "write what the program behind it sends to a file, and pass that"
    return f"pipe it in: `cat {quoted(path)} | penstok tokenize -`"


def _read_inner(file: int, num_bytes: int) -> tuple[bytes, ...]:
    """Read from the middle and up to the end of a file."""
    return tuple(os.pread(file, end - start, start) for start, end in inner_ranges(num_bytes))


def inner_ranges(num_bytes: int) -> list[tuple[int, int]]:
    """Return which bytes of an input of this size are sampled besides its first ones."""
    last = max(num_bytes - _INNER_BYTES, 0)
    # What UTF-16 and UTF-32 begin with stays at an even position.
    return [(start - start % 4, start + _INNER_BYTES) for start in (last // 2, last)]


def _probe_url(url: str) -> tuple[Source, Sample]:
    """Probe a remote file; its server's version is used for its time and last bytes."""
    info = get_object_info(url)
    if info.has_ranges:
        with RemoteFile(url, info) as file:
            file.prefetch(0, HEAD_BYTES)
            head = file.read_at(0, HEAD_BYTES)
    else:
        with open_stream(url, info) as stream:
            head = stream.read(HEAD_BYTES)
    edges = xxhash.xxh3_64_hexdigest(info.version.encode() + head[:_EDGE_BYTES])
    source = Source(
        url, info.num_bytes or 0, 0, edges, is_stream=not info.has_ranges, version=info.version
    )
    return source, Sample(head)


def _find_frames(source: Source) -> Source:
    """Make a local zstd file seekable if it consists of small frames."""
    if source.compression != "zstd" or source.path == STANDARD_INPUT or is_url(source.path):
        return source
    table = None
    # Damage is reported by the stream that reads up to it: what precedes it can be used.
    with SourceFile(source) as file, suppress(InputError):
        table = find_frames(file.read_at, source.num_bytes, source.path)
    if table is None:
        return source
    return replace(source, is_stream=False, content_bytes=table.content_bytes)
