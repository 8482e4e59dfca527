"""The tokenizers engine: the reference for Hugging Face `tokenizer.json` files.

It encodes one text at a time, because the library's results take a hundred times the text. Whether
a faster engine gives the same ids is decided in `tokenizers.huggingface`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstok.engines.base import cannot_encode
from penstok.engines.boundary_ids import BoundaryIds, decode_texts
from penstok.engines.continuing import ContinuingModel
from penstok.engines.tokenizer_json import format_tokenizer_json
from penstok.errors import EngineError
from penstok.tokenizers import ByteLevel
from penstok.tokenizers.libraries import (
    has_library_model,
    load_library_model,
    make_library_model,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.errors import UsageError
    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPosition

__all__ = ["TokenizersEngine"]


class TokenizersEngine:
    """Encodes with the library `tokenizers`."""

    name: ClassVar[str] = "tokenizers"

    def __init__(self, tokenizer: Tokenizer, eot: EotPosition) -> None:
        model = tokenizer.model
        self._boundary_ids = BoundaryIds(tokenizer, eot)
        self._continuing: ContinuingModel | None = None
        if isinstance(model, ByteLevel):
            # Used once, for a comparison, so it is not cached.
            content = format_tokenizer_json(model).encode()
            self._library = make_library_model("tokenizers", content)
        else:
            # The same where the kernel encodes, unless there is one: Gemma's takes 140 MB.
            is_kept = model.bpe is None or has_library_model("tokenizers", model.content)
            make = load_library_model if is_kept else make_library_model
            self._library = make("tokenizers", model.content)
            self._continuing = ContinuingModel(model)

    @staticmethod
    def find_obstacle(tokenizer: Tokenizer) -> UsageError | None:
        """Return an error for models of another library."""
        model = tokenizer.model
        if isinstance(model, ByteLevel) or model.library == "tokenizers":
            return None
        return cannot_encode("tokenizers", tokenizer, model.why)

    @staticmethod
    def is_reference(tokenizer: Tokenizer) -> bool:
        """Tell whether the ids are defined by this library, not by ranks and a pattern alone."""
        model = tokenizer.model
        return not model.is_plain if isinstance(model, ByteLevel) else model.library == "tokenizers"

    def encode(self, block: Block, out: object = None) -> NDArray[np.uint32]:
        """Return the ids of all documents, with those at boundaries in place."""
        ids = [
            self._encode_text(text, begins=bool(begins))
            for text, begins in zip(decode_texts(block), block.begins, strict=True)
        ]
        return self._boundary_ids.join(ids, block)

    def _encode_text(self, text: str, *, begins: bool) -> NDArray[np.uint32]:
        library = self._library
        if self._continuing is not None and not begins:
            library = self._continuing.get(library)
        try:
            return np.array(library.encode(text, add_special_tokens=False).ids, np.uint32)
        except Exception as error:
            raise EngineError(
                f"`tokenizers` cannot encode this text: {error}",
                where=f"a text of {len(text)} characters that begins with {text[:40]!r}",
                next_step="add a token for unknown characters to the tokenizer",
            ) from error
