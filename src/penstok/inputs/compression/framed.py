"""Random access to a zstd file of many small frames.

It keeps the offset of each frame and two decompressed frames, never all content. Files of one
frame, of large frames, or of frames without a content size are left to `stream`. `probe` asks
whether a file can be read this way, `files` opens it for a worker.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from penstok.errors import InputError
from penstok.inputs.compression.detection import is_skippable
from penstok.inputs.compression.frames import (
    FRAME_HEADER_BYTES,
    FrameHeader,
    ZstdFrame,
    iter_zstd_frames,
    parse_frame_header,
)
from penstok.inputs.compression.stream import DecompressedStream
from penstok.types import Struct, field, force_setattr

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_FRAME_BYTES", "FrameTable", "FramedContent", "find_frames"]

# Of content; larger frames would cost more at the ends of units than they save.
MAX_FRAME_BYTES = 8 << 20
_CACHED_FRAMES = 2


class FrameTable(Struct, frozen=True):
    """Where the frames of a file are, and where in the content each begins."""

    path: str
    frames: list[ZstdFrame]
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = (frame.content_bytes or 0 for frame in self.frames)
        force_setattr(self, "starts", [0, *accumulate(sizes)])

    @property
    def content_bytes(self) -> int:
        """The length of the content, if the frames' headers are right."""
        return self.starts[-1]


def find_frames(
    read_at: Callable[[int, int], bytes], num_bytes: int, path: str
) -> FrameTable | None:
    """Find the frames of a file of many small frames; None if it is not such a file.

    Args:
        read_at: Returns the file's bytes from a start to an end.
        num_bytes: The file's size.
        path: Its name, for messages.

    Raises:
        InputError: If its headers are damaged.
    """
    head = read_at(0, FRAME_HEADER_BYTES)
    if not is_skippable(head) and not _is_small(parse_frame_header(head)):
        return None
    frames: list[ZstdFrame] = []
    for frame in iter_zstd_frames(read_at, num_bytes, path):
        if frame.content_bytes is None or frame.content_bytes > MAX_FRAME_BYTES:
            return None
        frames.append(frame)
    return FrameTable(path, frames) if len(frames) > 1 else None


def _is_small(header: FrameHeader | str | None) -> bool:
    """Tell whether a frame has a content size and is small; else finding its end takes long."""
    if not isinstance(header, FrameHeader) or header.content_bytes is None:
        return False
    return header.content_bytes <= MAX_FRAME_BYTES


class FramedContent:
    """The content of a file of frames."""

    def __init__(self, table: FrameTable, read_at: Callable[[int, int], bytes]) -> None:
        self.table = table
        self._read_at = read_at
        self._load = lru_cache(_CACHED_FRAMES)(self._decompress)

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` with the content from `start` on.

        Raises:
            InputError: If a frame is damaged, or has another length than its header says.
        """
        done = 0
        while done < len(buffer):
            idx = bisect_right(self.table.starts, start + done) - 1
            at = start + done - self.table.starts[idx]
            piece = memoryview(self._load(idx))[at : at + len(buffer) - done]
            buffer[done : done + len(piece)] = piece
            done += len(piece)

    def stored_range(self, start: int, end: int) -> tuple[int, int]:
        """Return where in the file the frames of a range of content lie."""
        frames = self.table.frames
        last = min(bisect_right(self.table.starts, max(end - 1, start)) - 1, len(frames) - 1)
        return frames[bisect_right(self.table.starts, start) - 1].start, frames[last].end

    def _decompress(self, idx: int) -> bytearray:
        frame = self.table.frames[idx]
        left = memoryview(self._read_at(frame.start, frame.end))

        def read(num_bytes: int) -> bytes:
            nonlocal left
            piece, left = left[:num_bytes], left[num_bytes:]
            return bytes(piece)

        stream = DecompressedStream(read, "zstd", self.table.path, start=frame.start)
        size = frame.content_bytes or 0
        content = bytearray(size + 1)
        found = stream.readinto(memoryview(content))
        # One more read, for damage after the last byte.
        if found != size or stream.readinto(memoryview(bytearray(1))):
            raise InputError(
                f"damaged zstd data: a frame does not have the {size} bytes in its header",
                where=f"{self.table.path}, compressed byte {frame.start}",
                next_step="download or compress the file again",
            )
        del content[size:]
        return content
