"""Compressed files for the tests, and all of their content at once."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import sys

import lz4.frame

from penstok.inputs.compression import DecompressedStream
from penstok.types import Compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def compress(data: bytes, kind: Compression) -> bytes:
    """Compress as one member, with a checksum of the content."""
    match kind:
        case "gzip":
            return gzip.compress(data, 6, mtime=0)
        case "zstd":
            return compress_zstd(data)
        case "bzip2":
            return bz2.compress(data)
        case "xz":
            return lzma.compress(data, preset=1)
        case "lz4":
            return bytes(lz4.frame.compress(data, content_checksum=True))


def compress_zstd(data: bytes, *, checksum: bool = True, known_size: bool = True) -> bytes:
    options = {int(zstd.CompressionParameter.checksum_flag): int(checksum)}
    if known_size:
        return zstd.compress(data, options=options)
    compressor = zstd.ZstdCompressor(options=options)
    return compressor.compress(data) + compressor.flush()


def skippable_frame(content: bytes, idx: int = 0) -> bytes:
    return struct.pack("<II", 0x184D2A50 + idx, len(content)) + content


def decompress_all(data: bytes, kind: Compression, *, read_bytes: int = 1 << 16) -> bytes:
    """Read the content to its end, `read_bytes` at a time."""
    stream = DecompressedStream(io.BytesIO(data).read, kind, "corpus.x")
    buffer = memoryview(bytearray(read_bytes))
    content = bytearray()
    while count := stream.readinto(buffer):
        content += buffer[:count]
    return bytes(content)
