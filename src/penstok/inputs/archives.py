"""The members of tar archives: which there are, where they begin, and their first bytes.

It reads an archive once from front to back, or only its headers where it can seek, and extracts
nothing. `readers.probe` makes inputs of the members; `members` and `files` read them.
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from penstok.errors import InputError, NotTextError, quoted
from penstok.inputs.compression import (
    DecompressedStream,
    check_compression,
    content_suffix,
    detect_compression,
    find_window_bytes,
)
from penstok.inputs.content import Sample
from penstok.inputs.content.binary import name_binary
from penstok.inputs.files import open_unit
from penstok.inputs.probe import HEAD_BYTES, inner_ranges, refuse_compressed_twice
from penstok.inputs.streams import STANDARD_INPUT, ContentStream
from penstok.resources import Resource
from penstok.types import Source, Unit, replace

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Generator, Iterator

    from penstok.inputs.base import OpenInput

__all__ = ["is_tar", "iter_members", "no_files", "refuse_broken_tar", "refuse_piped_tar"]

_BLOCK_BYTES = 512
_CHECKSUM = slice(148, 156)
_MAGIC, _MAGIC_AT = b"ustar", 257
_SUFFIXES = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst", ".tlz4")
_OCTAL = re.compile(rb" *0*([0-7]{1,7})[ \0]*")
# Smaller members are read whole; in larger ones, the samples follow one another.
_WHOLE_BYTES = 4 * HEAD_BYTES
_PIECE_BYTES = 1 << 20
# A header that announces more is damaged or an attack: names and attributes are short.
_MAX_HEADER_BYTES = 16 << 20
# Where a program that does not know extended headers has extracted them as files.
_PAX_FOLDER = re.compile(r"PaxHeaders?(\.\d+)?")


def is_tar(head: bytes) -> bool:
    """Tell whether content that begins with `head` is a tar archive, by its header's checksum."""
    found = _OCTAL.fullmatch(head[_CHECKSUM])
    if len(head) < _BLOCK_BYTES or found is None or not head[0]:
        return False
    header = head[: _CHECKSUM.start] + b" " * 8 + head[_CHECKSUM.stop : _BLOCK_BYTES]
    signed = sum(header) - 256 * sum(byte >= 128 for byte in header)
    return int(found[1], 8) in (sum(header), signed)


def refuse_broken_tar(source: Source, sample: Sample) -> None:
    """Refuse what was a tar archive, by its name or its magic number, and is not read as one.

    Without this, a damaged archive would be one more binary file, which folders leave out.

    Raises:
        InputError: If it is damaged.
        NotTextError: If it is an archive without members.
    """
    head = sample.head[:_BLOCK_BYTES]
    is_short, has_name = len(head) < _BLOCK_BYTES, content_suffix(source.path) in _SUFFIXES
    # Text may have any name, and has no zero bytes; nor does a header that is cut in its name.
    if not head or (0 not in head and (not has_name or not is_short or b"\n" in head)):
        return
    if has_name and not any(part.strip(b"\0") for part in (sample.head, *sample.others)):
        raise no_files(source)
    if not head.startswith(_MAGIC, _MAGIC_AT) and (not has_name or name_binary(sample.head)):
        return
    where, step = source.path, _next_step(source, "leaves it out")
    what = "it is cut off in its first header" if is_short else "bad checksum in its first header"
    raise InputError(f"damaged tar archive: {what}", where=where, next_step=step)


def no_files(archive: Source) -> NotTextError:
    """Return the error for an archive that has no files."""
    return NotTextError(
        f"no files in the archive `{archive.path}`",
        where="INPUT",
        next_step="pass an archive with text files (hidden files are left out)",
    )


def refuse_piped_tar(source: Source) -> None:
    """Refuse an archive on standard input, which cannot be read twice.

    Raises:
        InputError: If it is one.
    """
    if source.path == STANDARD_INPUT:
        raise InputError(
            "this is a tar archive, and its members cannot be read from standard input",
            where=f"INPUT `{STANDARD_INPUT}`",
            next_step="save it to a file and pass that, or pipe in the text of its members: "
            "`tar -xOf FILE | penstok tokenize -`",
        )


def iter_members(archive: Source) -> Iterator[tuple[str, tuple[Source, Sample] | InputError]]:
    """Yield the name of each member with its info and a sample, or with why it cannot be used.

    Hidden members and folders are left out. If the archive is damaged, the error has the archive's
    name and comes last.
    """
    names: dict[str, int] = {}
    try:
        with _Content(archive) as content, closing(_iter_headers(content, archive)) as headers:
            for header in headers:
                name = header.name.removeprefix("./").replace("\0", "\\0")
                if header.isdir() or _is_hidden(name):
                    continue
                names[name] = number = names.get(name, 0) + 1
                path = f"{archive.path}/{name}" + (f" ({number})" if number > 1 else "")
                try:
                    yield path, _probe_member(archive, content, path, header)
                except _BrokenArchiveError:
                    raise
                except InputError as error:
                    yield path, error
    except InputError as error:
        yield archive.path, error


class _BrokenArchiveError(InputError):
    """The archive itself is damaged, not one of its members."""


def _is_hidden(name: str) -> bool:
    return any(
        (part.startswith(".") and part not in (".", "..")) or _PAX_FOLDER.fullmatch(part)
        for part in name.split("/")
    )


def _iter_headers(content: _Content, archive: Source) -> Generator[tarfile.TarInfo]:
    """Yield the header of each member; `tarfile` itself takes damage for the end of an archive."""
    import tarfile

    has_end = False
    at = 0
    try:
        tar = tarfile.TarFile(
            fileobj=content,  # type: ignore[arg-type]
            encoding="utf-8",
            errors="surrogateescape",
        )
        header = tar.firstmember  # type: ignore[attr-defined]
        while True:
            if header is not None:
                if header.offset_data < at or header.size < 0 or tar.offset <= at:
                    raise _damaged(archive, "an impossible size", at)
                # The size of a sparse member includes what is not stored.
                if archive.size < header.offset_data + header.size and not header.issparse():
                    raise _cut_off(archive, f"`{header.name}`")
                at, has_end = tar.offset, False
                yield header
                tar.members.clear()  # type: ignore[attr-defined]
            content.seek(at)
            try:
                header = tarfile.TarInfo.fromtarfile(tar)
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
                header, has_end = None, True
                at += _BLOCK_BYTES
            except tarfile.EmptyHeaderError:  # type: ignore[attr-defined]
                break
            except tarfile.TruncatedHeaderError as error:  # type: ignore[attr-defined]
                # `tar` reads archives that end inside the zeros behind their end marker.
                if has_end and not content.last.strip(b"\0"):
                    break
                raise _cut_off(archive, "a header") from error
    except (tarfile.TarError, ValueError, LookupError, OverflowError, RecursionError) as error:
        raise _damaged(archive, str(error) or type(error).__name__, at) from error
    if not has_end:
        raise _BrokenArchiveError(
            "the archive has no end marker: it is cut off, or was not written to its end",
            where=f"{archive.path}, after {at} bytes of content",
            next_step=_next_step(archive),
        )


def _damaged(archive: Source, reason: str, at: int) -> _BrokenArchiveError:
    return _BrokenArchiveError(
        f"the archive is damaged: {reason}",
        where=f"{archive.path}, content byte {at}",
        next_step=_next_step(archive),
    )


def _cut_off(archive: Source, inside: str) -> _BrokenArchiveError:
    return _BrokenArchiveError(
        f"the archive is cut off: it ends inside {inside}",
        where=archive.path,
        next_step=_next_step(archive),
    )


def _next_step(archive: Source, skipping: str = "reads what comes before") -> str:
    return (
        f"check it with `tar -tf {quoted(archive.path)}`, then copy or download it again; "
        f"`--on-error skip` {skipping}"
    )


def _probe_member(
    archive: Source, content: _Content, path: str, header: tarfile.TarInfo
) -> tuple[Source, Sample]:
    """Return a member's info, and a sample of its content, decompressed."""
    if header.issym() or header.islnk():
        raise NotTextError(f"this is a link to `{header.linkname}` in an archive", where=path)
    if not header.isreg():
        raise NotTextError("this is not a file but a special entry of the archive", where=path)
    if header.issparse():
        raise InputError(
            "sparse members of archives cannot be read",
            where=path,
            next_step=f"extract them: `tar -xf {quoted(archive.path)}`",
        )
    source = Source(
        path,
        header.size,
        archive.mtime_ns,
        archive.edges,
        is_stream=archive.is_stream,
        window_bytes=archive.window_bytes,
        version=archive.version,
        archive=archive,
        offset=header.offset_data,
    )
    content.seek(header.offset_data)
    end = header.offset_data + header.size
    wanted = header.size if header.size <= _WHOLE_BYTES else HEAD_BYTES
    first = content.read(wanted)
    if len(first) < wanted:
        raise _cut_off(archive, f"`{header.name}`")
    compression = detect_compression(first)
    check_compression(path, first, compression)
    sample = Sample(first[:HEAD_BYTES])
    if compression is not None:
        window_bytes = archive.window_bytes + find_window_bytes(compression, first)
        source = replace(source, compression=compression, is_stream=True, window_bytes=window_bytes)
        unread = first

        def read(num_bytes: int) -> bytes:
            nonlocal unread
            data, unread = unread, b""
            return data or content.read(min(num_bytes, end - content.tell()))

        buffer = bytearray(HEAD_BYTES)
        stream = DecompressedStream(read, compression, path, archive=archive.path)
        count = stream.readinto(memoryview(buffer))
        sample = Sample(bytes(memoryview(buffer)[:count]))
        refuse_compressed_twice(source, sample.head)
    elif header.size > HEAD_BYTES:
        sample = replace(sample, others=tuple(_iter_inner(content, header, first)))
    if is_tar(sample.head):
        raise NotTextError("this is an archive inside an archive", where=path)
    return source, sample


def _iter_inner(content: _Content, header: tarfile.TarInfo, first: bytes) -> Iterator[bytes]:
    """Read from the middle and up to the end of a member, as from a file."""
    for start, end in inner_ranges(header.size):
        if end <= len(first):
            yield first[start:end]
        else:
            # Damage is reported by whoever looks for the next header; what precedes it can be used.
            with suppress(InputError):
                content.seek(header.offset_data + start)
                yield content.read(end - start)


class _Content(Resource):
    """The content of an archive as `tarfile` reads it: forward, or by seeking if that is free.

    Attributes:
        last: What was read last.
    """

    def __init__(self, archive: Source) -> None:
        self._stream: ContentStream | None = None
        self._file: OpenInput | None = None
        self._position = 0
        self.last = b""
        if archive.is_stream:
            self._stream = ContentStream(archive)
        else:
            self._file = open_unit(Unit(0, 0, archive, 0, HEAD_BYTES, archive.size), None)

    def close(self) -> None:
        """Close the archive."""
        if self._stream is not None:
            self._stream.close()
        if self._file is not None:
            self._file.__exit__(None, None, None)

    def tell(self) -> int:
        """Return the position in the content."""
        return self._position

    def seek(self, position: int) -> None:
        """Go forward to a position; behind the end, nothing is left to read."""
        if self._stream is None:
            self._position = position
            return
        scratch = memoryview(bytearray(min(max(position - self._position, 0), _PIECE_BYTES)))
        while self._position < position:
            count = self._stream.readinto(scratch[: position - self._position])
            if not count:
                break
            self._position += count

    def read(self, num_bytes: int) -> bytes:
        """Read the next bytes; fewer only at the end."""
        if not 0 <= num_bytes <= _MAX_HEADER_BYTES:
            raise ValueError(f"a header of {num_bytes} bytes")
        data = b""
        if self._file is not None:
            data = self._file.read_at(self._position, self._position + num_bytes)
        elif self._stream is not None:
            buffer = bytearray(num_bytes)
            done = 0
            while done < num_bytes and (count := self._stream.readinto(memoryview(buffer)[done:])):
                done += count
            data = bytes(buffer[:done])
        self._position += len(data)
        self.last = data
        return data
