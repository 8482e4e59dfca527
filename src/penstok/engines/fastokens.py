"""The fastokens engine: a Rust BPE, for tokenizers with which it is proved to be exact.

Its word cache is bounded but not released with the object, so a worker that reaches its memory
share is replaced as a whole; see `executors.local`. Text that it would get wrong is encoded by
tiktoken.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstok.engines.base import cannot_encode
from penstok.engines.boundary_ids import BoundaryIds, decode_texts
from penstok.engines.continuing import ContinuingModel
from penstok.engines.tiktoken import TiktokenEngine
from penstok.engines.tokenizer_json import drop_special_tokens, format_tokenizer_json
from penstok.errors import EngineError
from penstok.tokenizers import ByteLevel, LibraryModel
from penstok.tokenizers.libraries import drop_added_space
from penstok.tokenizers.vocabulary import GPT2_PATTERN
from penstok.types import replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.errors import UsageError
    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPosition

__all__ = ["PROVED_SHAPES", "FastokensEngine"]

# The shapes of `tokenizer.json` files with which fastokens gives the ids of `tokenizers`. A parity
# test proves each, and prints the shape of a file that is not listed.
PROVED_SHAPES = frozenset(
    {
        "9c0158798c49857c",  # Llama 2, Mistral 7B
        "0ec49a22318a5593",  # Gemma
        "1009c5d158225623",  # DeepSeek V3
    }
)

# fastokens 0.3.5 treats it as white space in all patterns but GPT-2's.
_MISCLASSIFIED = "\u180e"


class FastokensEngine:
    """Encodes with fastokens on one core."""

    name: ClassVar[str] = "fastokens"

    def __init__(self, tokenizer: Tokenizer, eot: EotPosition) -> None:
        model = tokenizer.model
        self._tokenizer, self._eot = tokenizer, eot
        self._boundary_ids = BoundaryIds(tokenizer, eot)
        self._misclassifies = isinstance(model, ByteLevel) and model.pattern != GPT2_PATTERN
        self._tiktoken: TiktokenEngine | None = None
        self._adds_space = isinstance(model, LibraryModel) and ContinuingModel(model).differs
        if isinstance(model, ByteLevel):
            pattern = _avoid_shortcut(model.pattern)
            content = format_tokenizer_json(
                replace(model, pattern=pattern, normalizer=None, added={})
            )
        else:
            content = drop_special_tokens(model.content)
        self._fastokens = _make_fastokens(content)
        self._continuing: Any = None

    @staticmethod
    def find_obstacle(tokenizer: Tokenizer) -> UsageError | None:
        """Return an error for `tokenizer.json` files of a shape that is not proved."""
        model = tokenizer.model
        if isinstance(model, ByteLevel) or model.shape in PROVED_SHAPES:
            return None
        return cannot_encode("fastokens", tokenizer, "it is not proved to give the same ids")

    @staticmethod
    def is_reference(tokenizer: Tokenizer) -> bool:
        """Return False: fastokens is compared with other engines."""
        return False

    def encode(self, block: Block, out: object = None) -> NDArray[np.uint32]:
        """Return the ids of all documents, with those at boundaries in place."""
        texts = decode_texts(block)
        if self._adds_space and not block.begins.all():
            return self._encode_parts(texts, block)
        ids, bounds = _encode_texts(self._fastokens, texts)
        if self._misclassifies and any(_MISCLASSIFIED in text for text in texts):
            parts = np.split(ids, bounds[1:-1])
            parts = [
                self._encode_with_tiktoken(text) if _MISCLASSIFIED in text else part
                for text, part in zip(texts, parts, strict=True)
            ]
            return self._boundary_ids.join(parts, block)
        return self._boundary_ids.insert(ids, bounds[1:], block)

    def _encode_parts(self, texts: list[str], block: Block) -> NDArray[np.uint32]:
        """Encode texts of which some continue a document and get no space before them."""
        model = self._tokenizer.model
        if self._continuing is None and not isinstance(model, ByteLevel):
            content = drop_added_space(model.library, model.content)
            self._continuing = _make_fastokens(drop_special_tokens(content))
        parts = [
            _encode_texts(self._fastokens if begins else self._continuing, [text])[0]
            for text, begins in zip(texts, block.begins, strict=True)
        ]
        return self._boundary_ids.join(parts, block)

    def _encode_with_tiktoken(self, text: str) -> NDArray[np.uint32]:
        if self._tiktoken is None:
            self._tiktoken = TiktokenEngine(self._tokenizer, self._eot)
        return self._tiktoken.encode_text(text)


def _make_fastokens(content: str) -> Any:
    """Make the library's object and start its threads."""
    import fastokens

    with _OneCore():
        try:
            made = fastokens.Tokenizer.from_json_str(content)
        except ValueError as error:
            raise EngineError(
                f"fastokens cannot read this tokenizer: {error}",
                where="--engine",
                next_step="pass `--engine tokenizers`",
            ) from error
        made.encode_batch_flat(["the first call", "starts the thread pool"])
    return made


def _encode_texts(library: Any, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the ids of all texts, and where those of each begin, and the end."""
    flat, offsets = library.encode_batch_flat(texts)
    return np.frombuffer(flat, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64)


class _OneCore:
    """Stay on one core while the thread pool of fastokens is started.

    It starts one thread per core that it may run on, and has no setting for that. Afterwards the
    system may move the worker to any core.
    """

    def __enter__(self) -> None:
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        if self._cores:
            os.sched_setaffinity(0, {min(self._cores)})

    def __exit__(self, *error: object) -> None:
        if self._cores:
            os.sched_setaffinity(0, self._cores)


def _avoid_shortcut(pattern: str) -> str:
    """Rewrite a pattern so that fastokens does not use its shortcut for cl100k and o200k.

    The shortcut misses that a long s (U+017F) is an s after an apostrophe too. The general path is
    exact, at a third of the speed (0.3.5).
    """
    return pattern.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?:'(?i:[sdmt]|ll|ve|re))")
