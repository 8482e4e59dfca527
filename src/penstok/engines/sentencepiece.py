"""The sentencepiece engine: the reference for SentencePiece models, and for most the only engine.

It does not turn them into ranks: `tokenizers.sentencepiece` does, where that is proved. The library
is loaded by `tokenizers.libraries`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstok.engines.base import cannot_encode
from penstok.engines.boundary_ids import BoundaryIds, decode_texts
from penstok.engines.continuing import ContinuingModel
from penstok.tokenizers import ByteLevel
from penstok.tokenizers.libraries import load_library_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.errors import UsageError
    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPosition

__all__ = ["SentencePieceEngine"]


class SentencePieceEngine:
    """Encodes with the library `sentencepiece`."""

    name: ClassVar[str] = "sentencepiece"

    def __init__(self, tokenizer: Tokenizer, eot: EotPosition) -> None:
        model = tokenizer.model
        self._boundary_ids = BoundaryIds(tokenizer, eot)
        if isinstance(model, ByteLevel):
            raise TypeError(f"`{tokenizer.name}` is not a SentencePiece model")
        self._library = load_library_model("sentencepiece", model.content)
        self._continuing = ContinuingModel(model)

    @staticmethod
    def find_obstacle(tokenizer: Tokenizer) -> UsageError | None:
        """Return an error unless the tokenizer is a SentencePiece model."""
        model = tokenizer.model
        if isinstance(model, ByteLevel):
            return cannot_encode("sentencepiece", tokenizer, "it is not a SentencePiece model")
        if model.library != "sentencepiece":
            return cannot_encode("sentencepiece", tokenizer, model.why)
        return None

    @staticmethod
    def is_reference(tokenizer: Tokenizer) -> bool:
        """Tell whether the tokenizer is a SentencePiece model."""
        model = tokenizer.model
        return not isinstance(model, ByteLevel) and model.library == "sentencepiece"

    def encode(self, block: Block, out: object = None) -> NDArray[np.uint32]:
        """Return the ids of all documents, with those at boundaries in place."""
        ids = []
        for text, begins in zip(decode_texts(block), block.begins, strict=True):
            library = self._library if begins else self._continuing.get(self._library)
            ids.append(np.array(library.EncodeAsIds(text), np.uint32))
        return self._boundary_ids.join(ids, block)
