"""Snappy's raw format, as parquet pages have it, decompressed in pieces.

Its elements may copy any text before them, but every writer compresses blocks of 64 KiB. That much
is kept of what was decompressed; `parquet_chunk` leaves data that go back further to pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.kernel import load_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["ROOM_BYTES", "iter_snappy"]

_WINDOW_BYTES = 1 << 16
# What was decompressed before, and a piece: both stay in the processor's cache.
ROOM_BYTES = _WINDOW_BYTES + (1 << 17)
# The size at the start has up to 32 bits, seven in each byte.
_MAX_SIZE_BYTES = 5


def iter_snappy(
    stored: Iterator[memoryview], size: int, room: NDArray[np.uint8]
) -> Iterator[memoryview]:
    """Yield `size` bytes that were compressed, in pieces that later ones overwrite.

    Args:
        stored: The compressed bytes.
        size: What they should say that they have.
        room: Memory for `ROOM_BYTES`.

    Raises:
        ValueError: The data are damaged, or go back further than is kept.
    """
    decompress = load_kernel().decompress_snappy
    left, is_begun, to, num_open = b"", False, 0, 0
    for piece in stored:
        data, at = np.frombuffer(left + piece if left else piece, np.uint8), 0
        if not is_begun:
            at = _find_first_element(data, size)
            is_begun = at > 0
        while is_begun:
            if to > _WINDOW_BYTES:
                room[:_WINDOW_BYTES] = room[to - _WINDOW_BYTES : to]
                to = _WINDOW_BYTES
            first = to
            at, to, num_open = decompress(data, at, room, to, num_open)
            if to == first:
                break
            yield room[first:to].data
        left = data[at:].tobytes()
    if left or num_open or not is_begun:
        raise ValueError("the compressed data are cut short")


def _find_first_element(data: NDArray[np.uint8], size: int) -> int:
    """Check the size before the elements; return where they begin, 0 if it is not all there."""
    head = data[:_MAX_SIZE_BYTES].tolist()
    length = next((at + 1 for at, byte in enumerate(head) if byte < 128), None)
    if length is None and len(head) < _MAX_SIZE_BYTES:
        return 0
    if sum((byte & 127) << (7 * at) for at, byte in enumerate(head[:length])) != size:
        raise ValueError("the compressed data have another size than the page")
    return length or _MAX_SIZE_BYTES
