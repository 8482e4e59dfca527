"""The fastokens engine: a Rust BPE, for what it was proved to give the reference's ids.

It keeps a word cache that is bounded but not given back when the object goes, so a worker that
reaches its memory share is replaced as a whole; see `executors.local`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstok.engines.respelled import huggingface_json, without_special
from penstok.engines.separators import Separators, decode_pieces
from penstok.errors import EngineError
from penstok.tokenizers import ByteLevel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.tokenizers import Tokenizer
    from penstok.types import Block, EotPlace

__all__ = ["FastokensEngine"]


class FastokensEngine:
    """Encodes with fastokens on one core."""

    name: ClassVar[str] = "fastokens"

    def __init__(self, tokenizer: Tokenizer, eot: EotPlace) -> None:
        import fastokens

        model = tokenizer.model
        self._separators = Separators(tokenizer, eot)
        if isinstance(model, ByteLevel):
            ranks = replace(model, pattern=_respell(model.pattern), normalizer=None, added={})
            content = huggingface_json(ranks)
        else:
            content = without_special(model.content)
        with _OneCore():
            try:
                self._fast = fastokens.Tokenizer.from_json_str(content)
            except ValueError as error:
                raise EngineError(
                    f"fastokens cannot read this tokenizer: {error}",
                    where="--engine",
                    next_step="pass `--engine tokenizers`",
                ) from error
            self._fast.encode_batch_flat(["the first call", "makes the thread pool"])

    def encode(self, block: Block, room: object = None) -> NDArray[np.uint32]:
        """Return the ids of all pieces, with those between documents in place."""
        ids, offsets = self._fast.encode_batch_flat(decode_pieces(block))
        bounds = np.frombuffer(offsets, np.uint64).astype(np.int64)
        return self._separators.place(np.frombuffer(ids, np.uint32), bounds[1:], block)


class _OneCore:
    """Stay on one core while the thread pool of fastokens is made.

    It makes one thread for each core it may run on and cannot be told otherwise. Afterwards the
    system may move the worker where it likes.
    """

    def __enter__(self) -> None:
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        if self._cores:
            os.sched_setaffinity(0, {min(self._cores)})

    def __exit__(self, *error: object) -> None:
        if self._cores:
            os.sched_setaffinity(0, self._cores)


def _respell(pattern: str) -> str:
    """Keep fastokens from its shortcut for the families of cl100k and o200k.

    It misses that a long s (U+017F) is an s after an apostrophe too. The general way is exact, at a
    third of the speed (0.3.5).
    """
    return pattern.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?:'(?i:[sdmt]|ll|ve|re))")
