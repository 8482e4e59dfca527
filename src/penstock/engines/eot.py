"""What engines that take `str` and know no end-of-text share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.types import Block, EotPlace

__all__ = ["decode_pieces", "place_eot"]


def decode_pieces(block: Block) -> list[str]:
    """Return the pieces as text; raise `UnicodeDecodeError` where one is not valid UTF-8."""
    text = block.text
    return [
        str(text[start:end], "utf-8")
        for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True)
    ]


def place_eot(
    ids: NDArray[np.uint32],
    ends: NDArray[np.int64],
    block: Block,
    eot: EotPlace,
    eot_id: int,
) -> NDArray[np.uint32]:
    """Put an end-of-text id where each document closes, or before each that begins.

    `ends` is where the ids of each piece end.
    """
    if eot == "none":
        return ids
    wanted = block.closes if eot == "append" else block.begins
    borders = ends if eot == "append" else np.concatenate(([0], ends[:-1]))
    places = borders[wanted]
    placed = np.empty(len(ids) + len(places), np.uint32)
    # Each id placed moves the later ones by one.
    is_eot = np.zeros(len(placed), np.bool_)
    is_eot[places + np.arange(len(places))] = True
    placed[is_eot] = eot_id
    placed[~is_eot] = ids
    return placed
