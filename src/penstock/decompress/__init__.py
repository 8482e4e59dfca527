"""Compressed bytes in, their content out, one after the other, in a fixed amount of memory.

It opens no file, goes by no name, and knows nothing of documents or units. `sources` hands it a
function that reads; what comes out goes where plain text would go.
"""

from __future__ import annotations

from penstock.decompress.framed import MAX_FRAME_BYTES, FramedContent, FrameTable, find_frames
from penstock.decompress.frames import ZstdFrame, iter_zstd_frames
from penstock.decompress.kinds import detect_compression
from penstock.decompress.stream import MAX_WINDOW_BYTES, DecompressedStream
from penstock.decompress.windows import find_window_bytes

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_WINDOW_BYTES",
    "DecompressedStream",
    "FrameTable",
    "FramedContent",
    "ZstdFrame",
    "detect_compression",
    "find_frames",
    "find_window_bytes",
    "iter_zstd_frames",
]
