"""What engines that take `str` share: text of pieces, and the ids between documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPlace

__all__ = ["Separators", "decode_pieces"]


def decode_pieces(block: Block) -> list[str]:
    """Return the pieces as text; raise `UnicodeDecodeError` where one is not valid UTF-8."""
    text = block.text
    return [
        str(text[start:end], "utf-8")
        for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True)
    ]


class Separators:
    """Puts an end-of-text id where each document closes or begins, and its begin-of-text id."""

    def __init__(self, tokenizer: Tokenizer, eot: EotPlace) -> None:
        self._eot = eot
        self._eot_id = tokenizer.eot_id
        self._bos_id = tokenizer.bos_id

    def place(
        self, ids: NDArray[np.uint32], ends: NDArray[np.int64], block: Block
    ) -> NDArray[np.uint32]:
        """Return the ids with those between documents; `ends` is where each piece's ids end."""
        # What stands around a piece: before it an end-of-text and a begin-of-text id, behind it an
        # end-of-text id.
        wanted = np.zeros((len(ends), 3), np.bool_)
        wanted[:, 0] = block.begins & (self._eot == "prepend")
        wanted[:, 1] = block.begins & (self._bos_id is not None)
        wanted[:, 2] = block.closes & (self._eot == "append")
        if not wanted.any():
            return ids
        starts = np.concatenate(([0], ends[:-1]))
        places = np.column_stack((starts, starts, ends))
        values = np.tile(
            np.array([self._eot_id, self._bos_id or 0, self._eot_id], np.uint32), (len(ends), 1)
        )
        return np.insert(ids, places[wanted], values[wanted])
