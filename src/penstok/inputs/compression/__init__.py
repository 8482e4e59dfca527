"""Decompression in a fixed amount of memory: gzip, zstd, bzip2, xz and lz4.

It opens no files and knows no documents or units. `streams` and `files` give it a function that
reads compressed bytes.
"""

from __future__ import annotations

from penstok.inputs.compression.decoders import count_fed_workers, find_window_bytes
from penstok.inputs.compression.detection import (
    check_compression,
    content_suffix,
    detect_compression,
)
from penstok.inputs.compression.framed import (
    MAX_FRAME_BYTES,
    FramedContent,
    FrameTable,
    find_frames,
)
from penstok.inputs.compression.frames import ZstdFrame, iter_zstd_frames
from penstok.inputs.compression.stream import MAX_WINDOW_BYTES, DecompressedStream

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_WINDOW_BYTES",
    "DecompressedStream",
    "FrameTable",
    "FramedContent",
    "ZstdFrame",
    "check_compression",
    "content_suffix",
    "count_fed_workers",
    "detect_compression",
    "find_frames",
    "find_window_bytes",
    "iter_zstd_frames",
]
