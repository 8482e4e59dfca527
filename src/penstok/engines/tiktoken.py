"""The tiktoken engine: the reference for ranks. Its ids are the right ones; it is slow."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstok.engines.separators import Separators, decode_pieces
from penstok.errors import EngineError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPlace

__all__ = ["TiktokenEngine"]


class TiktokenEngine:
    """Encodes with tiktoken."""

    name: ClassVar[str] = "tiktoken"

    def __init__(self, tokenizer: Tokenizer, eot: EotPlace) -> None:
        import tiktoken

        self._separators = Separators(tokenizer, eot)
        self._encoding = tiktoken.Encoding(
            name=tokenizer.name,
            pat_str=tokenizer.pattern,
            mergeable_ranks=tokenizer.ranks,
            special_tokens={},
        )

    def encode(self, block: Block, room: object = None) -> NDArray[np.uint32]:
        """Return the ids of all pieces, with those between documents in place."""
        pieces = [self._encode_text(text) for text in decode_pieces(block)]
        ends = np.cumsum([len(piece) for piece in pieces])
        ids = np.fromiter(chain.from_iterable(pieces), np.uint32, int(ends[-1]))
        return self._separators.place(ids, ends, block)

    def _encode_text(self, text: str) -> list[int]:
        try:
            return self._encoding.encode_ordinary(text)
        except BaseException as error:
            # Its regular expressions give up on some million white spaces, by a Rust panic, which
            # is no Exception and has no importable type.
            if type(error).__name__ != "PanicException":
                raise
            raise EngineError(
                "tiktoken cannot encode this text (a very long run of white space?)",
                where=f"a piece of {len(text)} characters that begins with {text[:40]!r}",
                next_step="pass `--engine auto`",
            ) from error
