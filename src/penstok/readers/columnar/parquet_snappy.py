"""Snappy's raw format, as parquet pages have it, decompressed in pieces.

Its elements may copy any text before them. Most writers compress blocks of 64 KiB, which is what is
kept of a large page; a page of up to 16 MiB is kept whole, because some go back further.
`parquet_chunk` decompresses pages with it, and leaves what it cannot to pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.kernel import load_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["iter_snappy", "room_bytes"]

_WINDOW_BYTES = 1 << 16
_MAX_WHOLE_BYTES = 16 << 20
# What is decompressed at once: it stays in the processor's cache.
_PIECE_BYTES = 1 << 17
# The size at the start has up to 32 bits, seven in each byte.
_MAX_SIZE_BYTES = 5


def room_bytes(size: int) -> int:
    """Return how much memory is needed to decompress a page of some size."""
    return (size if size <= _MAX_WHOLE_BYTES else _WINDOW_BYTES) + _PIECE_BYTES


def iter_snappy(
    stored: Iterator[memoryview], size: int, room: NDArray[np.uint8]
) -> Iterator[memoryview]:
    """Yield `size` bytes that were compressed, in pieces that later ones overwrite.

    Args:
        stored: The compressed bytes.
        size: How many bytes they have decompressed, by the header of the page.
        room: Memory for `room_bytes(size)` or more.

    Raises:
        ValueError: The data are damaged, or go back further than is kept.
    """
    decompress = load_kernel().decompress_snappy
    left, is_begun, to, num_open, num_left = b"", False, 0, 0, size
    for piece in stored:
        data, at = np.frombuffer(left + piece if left else piece, np.uint8), 0
        if not is_begun:
            at = _find_first_element(data, size)
            is_begun = at > 0
        while is_begun:
            if to + _PIECE_BYTES > len(room):
                room[:_WINDOW_BYTES] = room[to - _WINDOW_BYTES : to]
                to = _WINDOW_BYTES
            first = to
            at, to, num_open = decompress(data, at, room[: to + _PIECE_BYTES], to, num_open)
            num_left -= to - first
            if to == first or num_left < 0:
                break
            yield room[first:to].data
        left = data[at:].tobytes()
    if left or num_left or num_open or not is_begun:
        raise ValueError("the compressed data are cut short, or longer than their size")


def _find_first_element(data: NDArray[np.uint8], size: int) -> int:
    """Check the size before the elements; return where they begin, 0 if it is not all there."""
    head = data[:_MAX_SIZE_BYTES].tolist()
    length = next((at + 1 for at, byte in enumerate(head) if byte < 128), 0)
    if not length and len(head) == _MAX_SIZE_BYTES:
        raise ValueError("the size of the compressed data is damaged")
    if length and sum((byte & 127) << (7 * at) for at, byte in enumerate(head[:length])) != size:
        raise ValueError("the compressed data have another size than the page")
    return length
