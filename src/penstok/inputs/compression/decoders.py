"""The decompression libraries behind one interface, and the memory they need (ADR 14).

It reads nothing and does not translate the exceptions that they raise on damage. `stream` makes a
decoder for every member of a file; `probe` asks for the window before a job starts.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, cast

from penstok.errors import UsageError
from penstok.inputs.compression.frames import FrameHeader, parse_frame_header
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstok.types import Compression

__all__ = ["Codec", "Decoder", "count_fed_workers", "find_window_bytes", "load_codec"]

# What liblzma needs besides the dictionary; it takes about 100 kB.
_XZ_EXTRA_BYTES = 1 << 20
# gzip, bzip2 and lz4 have smaller windows; so have zstd and xz at their usual levels.
_USUAL_BYTES = 8 << 20
_XZ_BLOCK_AT = 12
_XZ_LZMA2 = b"\x21\x01"


class Decoder(Protocol):
    """Decompresses one member: the interface of the standard library's `bz2` and `lzma`.

    All implementations release the interpreter's lock while they work, return at most `max_length`
    bytes, verify checksums, and buffer input that they do not need yet.
    """

    @property
    def eof(self) -> bool:
        """Whether the member has ended and its checksum was verified."""

    @property
    def needs_input(self) -> bool:
        """Whether all input was used."""

    @property
    def unused_data(self) -> bytes | None:
        """The input after the end of the member."""

    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes:
        """Add `data` to the input, and return at most `max_length` bytes."""


class Codec(Struct, frozen=True):
    """How to start a member, and what its decoder raises on damage."""

    start: Callable[[], Decoder]
    errors: tuple[type[Exception], ...]


def load_codec(kind: Compression, max_window_bytes: int, path: str) -> Codec:
    """Import the library for `kind`; a decoder uses no more than about `max_window_bytes`."""
    match kind:
        case "gzip":
            from isal import igzip_lib

            return Codec(
                lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP),
                # Its type stub calls the class an instance.
                (cast("type[Exception]", igzip_lib.IsalError),),
            )
        case "zstd":
            if sys.version_info >= (3, 14):
                from compression import zstd
            else:
                from backports import zstd

            lowest, highest = zstd.DecompressionParameter.window_log_max.bounds()
            window_log = min(max((max_window_bytes - 1).bit_length(), lowest), highest)
            options = {int(zstd.DecompressionParameter.window_log_max): window_log}
            return Codec(lambda: zstd.ZstdDecompressor(options=options), (zstd.ZstdError,))
        case "bzip2":
            import bz2

            return Codec(bz2.BZ2Decompressor, (OSError, ValueError))
        case "xz":
            import lzma

            limit = max_window_bytes + _XZ_EXTRA_BYTES
            return Codec(
                lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limit), (lzma.LZMAError,)
            )
        case "lz4":
            try:
                import lz4.frame
            except ImportError as error:
                raise UsageError(
                    "lz4 files need the extra `lz4`, which is not installed",
                    where=path,
                    next_step="run `pip install 'penstok[lz4]'`",
                ) from error
            return Codec(lz4.frame.LZ4FrameDecompressor, (RuntimeError,))


def count_fed_workers(kind: Compression | None) -> int:
    """Return about how many workers one thread can keep busy that decompresses for them (ADR 64).

    gzip and zstd give 500 to 700 MB of text per second, xz 70 and bzip2 30. Inputs without
    compression that only one thread can read, in other encodings, were not measured.
    """
    return 1 if kind in ("xz", "bzip2") else 2


def find_window_bytes(kind: Compression, head: bytes) -> int:
    """Return the window that a decoder needs for a file that begins with `head`.

    Later members may ask for more, so `stream` enforces a limit.
    """
    window_bytes = 0
    if kind == "zstd":
        header = parse_frame_header(head)
        window_bytes = header.window_bytes if isinstance(header, FrameHeader) else 0
    elif kind == "xz":
        window_bytes = _xz_dictionary_bytes(head)
    return max(window_bytes, _USUAL_BYTES)


def _xz_dictionary_bytes(head: bytes) -> int:
    """Read the dictionary size from the first block's header; 0 if it is not plain LZMA2."""
    header = head[_XZ_BLOCK_AT : _XZ_BLOCK_AT + 4 * (head[_XZ_BLOCK_AT] + 1)] if head[12:] else b""
    found = header.find(_XZ_LZMA2, 2)
    if found < 0 or found + 2 >= len(header):
        return 0
    bits = header[found + 2] & 0x3F
    return (2 | (bits & 1)) << (bits // 2 + 11) if bits < 40 else 0
