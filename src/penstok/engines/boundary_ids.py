"""What engines that take `str` share: the documents as text, and the ids at document boundaries.

It encodes nothing. The kernel needs none of it: it takes bytes and writes those ids itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPosition

__all__ = ["BoundaryIds", "decode_texts"]


def decode_texts(block: Block) -> list[str]:
    """Return the texts of a block; raise `UnicodeDecodeError` if one is not valid UTF-8."""
    text = block.text
    return [
        str(text[start:end], "utf-8")
        for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True)
    ]


class BoundaryIds:
    """Inserts end-of-text ids before or after documents, and begin-of-text ids before them."""

    def __init__(self, tokenizer: Tokenizer, eot: EotPosition) -> None:
        self._eot = eot
        self._eot_id = tokenizer.eot_id
        self._bos_id = tokenizer.bos_id

    def join(self, ids: list[NDArray[np.uint32]], block: Block) -> NDArray[np.uint32]:
        """Concatenate the ids of all texts of a block, with those at boundaries inserted."""
        ends = np.cumsum([len(each) for each in ids])
        return self.insert(np.concatenate(ids), ends, block)

    def insert(
        self, ids: NDArray[np.uint32], ends: NDArray[np.int64], block: Block
    ) -> NDArray[np.uint32]:
        """Insert the ids at boundaries; `ends` is where the ids of each text of the block end."""
        # Around a text: an end-of-text and a begin-of-text id before it, an end-of-text id after.
        wanted = np.zeros((len(ends), 3), np.bool_)
        wanted[:, 0] = block.begins & (self._eot == "prepend")
        wanted[:, 1] = block.begins & (self._bos_id is not None)
        wanted[:, 2] = block.closes & (self._eot == "append")
        if not wanted.any():
            return ids
        starts = np.concatenate(([0], ends[:-1]))
        positions = np.column_stack((starts, starts, ends))
        values = np.tile(
            np.array([self._eot_id, self._bos_id or 0, self._eot_id], np.uint32), (len(ends), 1)
        )
        return np.insert(ids, positions[wanted], values[wanted])
