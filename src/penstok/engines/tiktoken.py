"""The tiktoken engine: the reference for ranks.

Its ids are correct by definition, and it is slow. It only encodes with ranks and a pattern; added
tokens and normalization are done by the engines that wrap it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstok.engines.base import cannot_encode
from penstok.engines.boundary_ids import BoundaryIds, decode_texts
from penstok.errors import EngineError
from penstok.tokenizers import ByteLevel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.errors import UsageError
    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPosition

__all__ = ["TiktokenEngine"]


class TiktokenEngine:
    """Encodes with tiktoken."""

    name: ClassVar[str] = "tiktoken"

    def __init__(self, tokenizer: Tokenizer, eot: EotPosition) -> None:
        import tiktoken

        self._boundary_ids = BoundaryIds(tokenizer, eot)
        self._encoding = tiktoken.Encoding(
            name=tokenizer.name,
            pat_str=tokenizer.pattern,
            mergeable_ranks=tokenizer.ranks,
            special_tokens={},
        )

    @staticmethod
    def find_obstacle(tokenizer: Tokenizer) -> UsageError | None:
        """Return an error unless the ids follow from ranks."""
        model = tokenizer.model
        if isinstance(model, ByteLevel):
            return None
        return cannot_encode("tiktoken", tokenizer, model.why)

    @staticmethod
    def is_reference(tokenizer: Tokenizer) -> bool:
        """Tell whether the ids follow from ranks and a pattern alone."""
        return isinstance(tokenizer.model, ByteLevel) and tokenizer.model.is_plain

    def encode(self, block: Block, out: object = None) -> NDArray[np.uint32]:
        """Return the ids of all documents, with those at boundaries in place."""
        return self._boundary_ids.join(list(map(self.encode_text, decode_texts(block))), block)

    def encode_text(self, text: str) -> NDArray[np.uint32]:
        """Return the ids of one text."""
        try:
            return np.array(self._encoding.encode_ordinary(text), np.uint32)
        except BaseException as error:
            # Its regular expressions fail on a million white spaces in a row, with a Rust panic,
            # which is not an Exception and has no importable type.
            if type(error).__name__ != "PanicException":
                raise
            raise EngineError(
                "tiktoken cannot encode this text (a very long run of white space?)",
                where=f"a text of {len(text)} characters that begins with {text[:40]!r}",
                next_step="pass `--engine auto`",
            ) from error
