"""Compressed bytes in, their content out, one after the other, in a fixed amount of memory.

It opens no file, goes by no name, and knows nothing of documents or units. `sources` hands it a
function that reads; what comes out goes where plain text would go.
"""

from __future__ import annotations

from penstok.inputs.compression.framed import (
    MAX_FRAME_BYTES,
    FramedContent,
    FrameTable,
    find_frames,
)
from penstok.inputs.compression.frames import ZstdFrame, iter_zstd_frames
from penstok.inputs.compression.kinds import detect_compression
from penstok.inputs.compression.stream import MAX_WINDOW_BYTES, DecompressedStream
from penstok.inputs.compression.windows import find_window_bytes

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
