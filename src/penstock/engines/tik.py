"""The tiktoken engine: the reference. Its ids are the right ones; it is slow."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.engines.eot import decode_pieces, place_eot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.engines.base import EotPlace
    from penstock.tokenizer import Tokenizer
    from penstock.types import Block

__all__ = ["TikEngine"]


class TikEngine:
    """Encodes with tiktoken."""

    name: ClassVar[str] = "tiktoken"

    def __init__(self, tokenizer: Tokenizer, eot: EotPlace) -> None:
        import tiktoken

        self._eot, self._eot_id = eot, tokenizer.eot_id
        self._encoding = tiktoken.Encoding(
            name=tokenizer.name,
            pat_str=tokenizer.pattern,
            mergeable_ranks=tokenizer.ranks,
            special_tokens={tokenizer.eot_text: tokenizer.eot_id},
        )

    def encode(self, block: Block) -> NDArray[np.uint32]:
        """Return the ids of all pieces, with the end-of-text ids in place."""
        pieces = [self._encoding.encode_ordinary(text) for text in decode_pieces(block)]
        ends = np.cumsum([len(piece) for piece in pieces])
        ids = np.fromiter(chain.from_iterable(pieces), np.uint32, int(ends[-1]))
        return place_eot(ids, ends, block, self._eot, self._eot_id)
