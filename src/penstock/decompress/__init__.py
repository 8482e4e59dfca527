"""Compressed bytes in, their content out, one after the other, in a fixed amount of memory.

It opens no file, goes by no name, and knows nothing of documents or units. `sources` hands it a
function that reads; what comes out goes where plain text would go.
"""

from __future__ import annotations

from penstock.decompress.frames import ZstdFrame, iter_zstd_frames
from penstock.decompress.kinds import Compression, detect_compression
from penstock.decompress.stream import MAX_WINDOW_BYTES, DecompressedStream

__all__ = [
    "MAX_WINDOW_BYTES",
    "Compression",
    "DecompressedStream",
    "ZstdFrame",
    "detect_compression",
    "iter_zstd_frames",
]
