"""Where the frames of a zstd file begin and end (RFC 8878).

It decompresses nothing and trusts no header that the file's size contradicts. `stream` and
`decoders` use it to read a frame's header, `framed` to find all frames.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from penstok.errors import InputError
from penstok.inputs.compression.commands import run_on
from penstok.inputs.compression.detection import is_skippable, starts_member
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "FRAME_HEADER_BYTES",
    "FrameHeader",
    "ZstdFrame",
    "iter_zstd_frames",
    "parse_frame_header",
]

FRAME_HEADER_BYTES = 18  # the maximum, magic included
_MAGIC_BYTES = 4
_SKIPPABLE_HEADER_BYTES = 8
_BLOCK_HEADER_BYTES = 3
_CHECKSUM_BYTES = 4
_MAX_BLOCK_BYTES = 128 << 10
_RAW_BLOCK, _RLE_BLOCK, _RESERVED_BLOCK = 0, 1, 3
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_WINDOW_BYTES = 4 << 10

# The seekable format: a skippable last frame with the sizes of all others.
_SEEK_TABLE_MAGIC = b"\x5e\x2a\x4d\x18"
_SEEK_FOOTER = struct.Struct("<IBI")  # frames, descriptor, magic
_SEEK_FOOTER_MAGIC = 0x8F92EAB1
_SEEK_CHECKSUMS, _SEEK_RESERVED = 0x80, 0x7C
_ENTRIES_PER_READ = 4 << 10


class ZstdFrame(Struct, frozen=True):
    """A frame that can be decompressed alone: the file's bytes from `start` to `end`.

    `content_bytes` is the size in its header, None if there is none. It is not verified until the
    frame is decompressed.
    """

    start: int
    end: int
    content_bytes: int | None


class FrameHeader(Struct, frozen=True):
    """The header of a frame."""

    num_bytes: int
    window_bytes: int
    content_bytes: int | None
    dictionary_id: int
    has_checksum: bool


def parse_frame_header(head: bytes) -> FrameHeader | str | None:
    """Read a frame's header from its first `FRAME_HEADER_BYTES`.

    Returns:
        The header; what is wrong with it; or None if `head` ends inside it.
    """
    if len(head) <= _MAGIC_BYTES:
        return None
    descriptor = head[_MAGIC_BYTES]
    if descriptor & 0b1000:
        return "a reserved bit is set in the frame's header"
    single_segment = bool(descriptor & 0b100000)
    id_at = _MAGIC_BYTES + 1 + (not single_segment)
    size_at = id_at + _DICTIONARY_ID_BYTES[descriptor & 0b11]
    size_code = descriptor >> 6
    num_bytes = size_at + (_CONTENT_SIZE_BYTES[size_code] or single_segment)
    if len(head) < num_bytes:
        return None
    content_bytes: int | None = None
    if num_bytes > size_at:
        content_bytes = int.from_bytes(head[size_at:num_bytes], "little")
        content_bytes += 256 if size_code == 1 else 0
    if single_segment:
        window_bytes = content_bytes or 0
    else:
        window_code = head[_MAGIC_BYTES + 1]
        base = 1 << (10 + (window_code >> 3))
        window_bytes = base + (base >> 3) * (window_code & 0b111)
    return FrameHeader(
        num_bytes,
        window_bytes,
        content_bytes,
        int.from_bytes(head[id_at:size_at], "little"),
        bool(descriptor & 0b100),
    )


def iter_zstd_frames(
    read_at: Callable[[int, int], bytes], num_bytes: int, path: str
) -> Iterator[ZstdFrame]:
    """Yield the frames of a zstd file in order, without skippable ones.

    A seek table at the end of the file is used if it matches the frames, which takes one short read
    per frame. Without one, every block header is read, one short read per 40 kB or so of the file:
    fast on a local disk, too slow if each read is a request.

    Args:
        read_at: Returns the file's bytes from a start to an end.
        num_bytes: The file's size.
        path: Its name, for messages.
    """
    file = _File(read_at, num_bytes, path)
    table = _find_seek_table(file)
    if table is not None and table.matches():
        yield from table.iter_frames()
    else:
        yield from _walk(file)


class _File:
    """Short reads from a file through a small buffer."""

    def __init__(self, read_at: Callable[[int, int], bytes], num_bytes: int, path: str) -> None:
        self.read_at = read_at
        self.num_bytes = num_bytes
        self.path = path
        self._window = b""
        self._start = 0

    def peek(self, position: int, num_bytes: int) -> bytes:
        """Return the bytes at `position`; fewer at the end of the file."""
        at = position - self._start
        if not 0 <= at <= len(self._window) - num_bytes:
            self._start, at = position, 0
            self._window = self.read_at(position, position + max(num_bytes, _WINDOW_BYTES))
        return self._window[at : at + num_bytes]

    def damaged(self, reason: str, position: int) -> InputError:
        return InputError(
            f"damaged zstd data: {reason}",
            where=f"{self.path}, compressed byte {position}",
            next_step=f"check it with `{run_on('zstd -t', self.path)}`, then download or "
            "compress it again",
        )

    def truncated(self) -> InputError:
        return self.damaged("the file ends inside a frame", self.num_bytes)


def _walk(file: _File) -> Iterator[ZstdFrame]:
    """Go from frame to frame by the sizes in all headers."""
    position = 0
    while position < file.num_bytes:
        head = file.peek(position, FRAME_HEADER_BYTES)
        if is_skippable(head):
            position = _end_of_skippable(file, position, head)
            continue
        if not starts_member("zstd", head):
            raise file.damaged("no frame begins here", position)
        header = parse_frame_header(head)
        if isinstance(header, str):
            raise file.damaged(header, position)
        if header is None:
            raise file.truncated()
        end = _end_of_frame(file, position, header)
        yield ZstdFrame(position, end, header.content_bytes)
        position = end


def _end_of_skippable(file: _File, position: int, head: bytes) -> int:
    size = int.from_bytes(head[_MAGIC_BYTES:_SKIPPABLE_HEADER_BYTES], "little")
    end = position + _SKIPPABLE_HEADER_BYTES + size
    if len(head) < _SKIPPABLE_HEADER_BYTES or end > file.num_bytes:
        raise file.truncated()
    return end


def _end_of_frame(file: _File, start: int, header: FrameHeader) -> int:
    """Go from block to block; check that they can contain what the header says."""
    position = start + header.num_bytes
    max_block_bytes = min(header.window_bytes, _MAX_BLOCK_BYTES)
    most = 0
    is_last = False
    while not is_last:
        head = file.peek(position, _BLOCK_HEADER_BYTES)
        if len(head) < _BLOCK_HEADER_BYTES:
            raise file.truncated()
        fields = int.from_bytes(head, "little")
        is_last, kind, size = bool(fields & 1), fields >> 1 & 0b11, fields >> 3
        if kind == _RESERVED_BLOCK:
            raise file.damaged("a block of a reserved type", position)
        if size > max_block_bytes:
            raise file.damaged(
                f"a block of {size} bytes; at most {max_block_bytes} are allowed", position
            )
        most += size if kind in (_RAW_BLOCK, _RLE_BLOCK) else max_block_bytes
        position += _BLOCK_HEADER_BYTES + (1 if kind == _RLE_BLOCK else size)
    position += _CHECKSUM_BYTES if header.has_checksum else 0
    if position > file.num_bytes:
        raise file.truncated()
    if header.content_bytes is not None and header.content_bytes > most:
        raise file.damaged(
            f"a frame too short for the {header.content_bytes} bytes in its header", start
        )
    return position


class _SeekTable(Struct, frozen=True):
    """Sizes of all frames before `start`, where the table's own frame begins."""

    file: _File
    start: int
    num_frames: int
    entry: struct.Struct

    def matches(self) -> bool:
        """Tell whether the table covers the file and a frame begins wherever it says.

        It need not: in two concatenated files, the last table covers the second one only.
        """
        position = 0
        for compressed, content in self._iter_sizes():
            head = self.file.peek(position, FRAME_HEADER_BYTES)
            position += compressed
            if compressed < _SKIPPABLE_HEADER_BYTES or position > self.start:
                return False
            if is_skippable(head):
                continue
            header = parse_frame_header(head) if starts_member("zstd", head) else None
            if not isinstance(header, FrameHeader) or header.content_bytes not in (None, content):
                return False
        return position == self.start

    def iter_frames(self) -> Iterator[ZstdFrame]:
        """Yield the frames in the table."""
        position = 0
        for compressed, content in self._iter_sizes():
            if not is_skippable(self.file.peek(position, _MAGIC_BYTES)):
                yield ZstdFrame(position, position + compressed, content)
            position += compressed

    def _iter_sizes(self) -> Iterator[tuple[int, int]]:
        """Read the entries, a few thousand at a time: the table may be large."""
        position = self.start + _SKIPPABLE_HEADER_BYTES
        for first in range(0, self.num_frames, _ENTRIES_PER_READ):
            num_bytes = min(self.num_frames - first, _ENTRIES_PER_READ) * self.entry.size
            for entry in self.entry.iter_unpack(self.file.read_at(position, position + num_bytes)):
                yield entry[0], entry[1]
            position += num_bytes


def _find_seek_table(file: _File) -> _SeekTable | None:
    footer_at = file.num_bytes - _SEEK_FOOTER.size
    if footer_at < _SKIPPABLE_HEADER_BYTES:
        return None
    num_frames, descriptor, magic = _SEEK_FOOTER.unpack(file.read_at(footer_at, file.num_bytes))
    if magic != _SEEK_FOOTER_MAGIC or descriptor & _SEEK_RESERVED:
        return None
    entry = struct.Struct("<III" if descriptor & _SEEK_CHECKSUMS else "<II")
    size = num_frames * entry.size + _SEEK_FOOTER.size
    start = file.num_bytes - size - _SKIPPABLE_HEADER_BYTES
    if start < 0 or num_frames == 0:
        return None
    head = _SEEK_TABLE_MAGIC + size.to_bytes(_SKIPPABLE_HEADER_BYTES, "little")[:4]
    if file.read_at(start, start + _SKIPPABLE_HEADER_BYTES) != head:
        return None
    return _SeekTable(file, start, num_frames, entry)
