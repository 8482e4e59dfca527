"""The engines of tokenizer files' own libraries: the references for what ranks do not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstok.engines.respelled import huggingface_json
from penstok.engines.separators import Separators, decode_pieces
from penstok.errors import EngineError
from penstok.tokenizers import ByteLevel
from penstok.tokenizers.libraries import load_library_model, make_library_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPlace

__all__ = ["SentencePieceEngine", "TokenizersEngine"]


class TokenizersEngine:
    """Encodes with `tokenizers`."""

    name: ClassVar[str] = "tokenizers"

    def __init__(self, tokenizer: Tokenizer, eot: EotPlace) -> None:
        model = tokenizer.model
        self._separators = Separators(tokenizer, eot)
        if isinstance(model, ByteLevel):
            # Only compared with, and dropped then.
            content = huggingface_json(model).encode()
            self._library = make_library_model("tokenizers", content)
        else:
            self._library = load_library_model("tokenizers", model.content)

    def encode(self, block: Block, room: object = None) -> NDArray[np.uint32]:
        """Return the ids of all pieces, with those between documents in place."""
        # One at a time: what it returns takes a hundred times the text.
        pieces = [self._encode_text(text) for text in decode_pieces(block)]
        return _join(pieces, block, self._separators)

    def _encode_text(self, text: str) -> NDArray[np.uint32]:
        try:
            return np.array(self._library.encode(text, add_special_tokens=False).ids, np.uint32)
        except Exception as error:
            raise EngineError(
                f"`tokenizers` cannot encode this text: {error}",
                where=f"a piece of {len(text)} characters that begins with {text[:40]!r}",
                next_step="give the tokenizer a token for what it does not know",
            ) from error


class SentencePieceEngine:
    """Encodes with `sentencepiece`."""

    name: ClassVar[str] = "sentencepiece"

    def __init__(self, tokenizer: Tokenizer, eot: EotPlace) -> None:
        model = tokenizer.model
        self._separators = Separators(tokenizer, eot)
        if isinstance(model, ByteLevel):
            raise TypeError("ranks are no SentencePiece model")
        self._library = load_library_model("sentencepiece", model.content)

    def encode(self, block: Block, room: object = None) -> NDArray[np.uint32]:
        """Return the ids of all pieces, with those between documents in place."""
        encode = self._library.EncodeAsIds
        pieces = [np.array(encode(text), np.uint32) for text in decode_pieces(block)]
        return _join(pieces, block, self._separators)


def _join(
    pieces: list[NDArray[np.uint32]], block: Block, separators: Separators
) -> NDArray[np.uint32]:
    ends = np.cumsum([len(piece) for piece in pieces])
    return separators.place(np.concatenate(pieces), ends, block)
