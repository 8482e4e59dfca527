"""Which compression it is, from the first bytes.

It never looks at a name and decompresses nothing. `sources` asks it about the head of an input,
`stream` about the head of every member of a file.
"""

from __future__ import annotations

import re
from typing import get_args

from penstok.types import Compression

__all__ = ["COMPRESSIONS", "detect_compression", "is_skippable", "starts_member"]

COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)

# zstd and lz4 share the 16 magic numbers of frames to be skipped; a length follows.
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
_SKIPPABLE_HEADER_BYTES = 8
# Text may well begin with "BZh", so the magic of the first block, or of the end, must follow.
_MAGIC: dict[Compression, re.Pattern[bytes]] = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}


def detect_compression(head: bytes) -> Compression | None:
    """Say what the first bytes of a file (some kB are plenty) are compressed with, if at all.

    Frames to be skipped are looked behind as far as `head` goes; only such frames are zstd's.
    """
    position = 0
    while is_skippable(head, position):
        position += _SKIPPABLE_HEADER_BYTES + int.from_bytes(
            head[position + 4 : position + _SKIPPABLE_HEADER_BYTES], "little"
        )
    for kind in ("zstd", "lz4") if position else COMPRESSIONS:
        if _MAGIC[kind].match(head, position):
            return kind
    return "zstd" if position else None


def starts_member(kind: Compression, head: bytes) -> bool:
    """Tell whether a gzip member, a zstd or lz4 frame, a bzip2 or xz stream begins here."""
    if _MAGIC[kind].match(head):
        return True
    return kind in ("zstd", "lz4") and is_skippable(head)


def is_skippable(head: bytes, position: int = 0) -> bool:
    """Tell whether a frame that holds no content begins at `position`."""
    return _SKIPPABLE.match(head, position) is not None
