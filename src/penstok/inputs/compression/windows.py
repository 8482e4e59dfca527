"""How much memory a compressed file will take: what its first bytes say of the decoder's window.

It decompresses nothing; what it says of a file's start need not hold for all of it, so `stream`
holds every member to a limit. `sources` asks it, so that the budget knows before the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.inputs.compression.frames import FrameHeader, parse_frame_header

if TYPE_CHECKING:
    from penstok.types import Compression

__all__ = ["find_window_bytes"]

# gzip, bzip2 and lz4 look back less far than this; so do zstd and xz at their usual levels.
_USUAL_BYTES = 8 << 20
_XZ_BLOCK_AT = 12
_XZ_LZMA2 = b"\x21\x01"


def find_window_bytes(kind: Compression, head: bytes) -> int:
    """Return how far back a decoder must look in a file that begins with `head`."""
    window_bytes = 0
    if kind == "zstd":
        header = parse_frame_header(head)
        window_bytes = header.window_bytes if isinstance(header, FrameHeader) else 0
    elif kind == "xz":
        window_bytes = _xz_dictionary_bytes(head)
    return max(window_bytes, _USUAL_BYTES)


def _xz_dictionary_bytes(head: bytes) -> int:
    """Read the size of the dictionary from the first block's header; 0 if it is not plain LZMA2."""
    header = head[_XZ_BLOCK_AT : _XZ_BLOCK_AT + 4 * (head[_XZ_BLOCK_AT] + 1)] if head[12:] else b""
    found = header.find(_XZ_LZMA2, 2)
    if found < 0 or found + 2 >= len(header):
        return 0
    bits = header[found + 2] & 0x3F
    return (2 | (bits & 1)) << (bits // 2 + 11) if bits < 40 else 0
