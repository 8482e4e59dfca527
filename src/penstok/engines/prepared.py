"""What stands before an engine that must be given text in a normal form, or is wrong about some.

Nearly all text goes to the engine as it is. What is not in normal form is normalized by the
tokenizer's own library, and a piece that holds what the engine would get wrong is encoded by the
reference.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.kernel import find_kernel_function
from penstok.tokenizers.libraries import import_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstok.engines.base import Engine
    from penstok.types import Block

__all__ = ["GuardedEngine", "NormalizedEngine"]

_PART_BYTES = 1 << 16
_ASCII = re.compile(rb"[\x00-\x7f]")


class GuardedEngine:
    """An engine, and the reference for pieces that hold what it would get wrong."""

    def __init__(self, engine: Engine, load_reference: Callable[[], Engine], wrong: str) -> None:
        """Make it; the reference is made when there is text for it, which is rare."""
        self.name = engine.name
        self._engine = engine
        self._load_reference = load_reference
        self._reference: Engine | None = None
        self._wrong = wrong.encode()

    def encode(
        self, block: Block, room: NDArray[np.unsignedinteger[Any]] | None = None
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of all pieces, with those between documents in place."""
        used = slice(int(block.starts[0]), int(block.ends[-1])) if len(block.starts) else slice(0)
        if self._wrong not in bytes(block.text[used]):
            return self._engine.encode(block, room)
        pieces = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
        is_wrong = [self._wrong in bytes(block.text[start:end]) for start, end in pieces]
        runs = []
        for wrong, places in groupby(enumerate(is_wrong), itemgetter(1)):
            chosen = np.zeros(len(is_wrong), np.bool_)
            chosen[[place for place, _ in places]] = True
            engine = self._get_reference() if wrong else self._engine
            runs.append(np.array(engine.encode(block.select(chosen)), np.uint32))
        return np.concatenate(runs)

    def _get_reference(self) -> Engine:
        if self._reference is None:
            self._reference = self._load_reference()
        return self._reference


class NormalizedEngine:
    """An engine that is given text in the normal form C, as `tokenizers` makes it."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self._engine = engine
        self._normalize: Callable[[str], str] = (
            import_library("tokenizers").normalizers.NFC().normalize_str
        )
        self._surely_nfc = find_kernel_function("surely_nfc")

    def encode(
        self, block: Block, room: NDArray[np.unsignedinteger[Any]] | None = None
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of all pieces, with those between documents in place."""
        changed = self._find_changed(block)
        if not changed:
            return self._engine.encode(block, room)
        # What was normalized may be longer than what the room was made for.
        return self._engine.encode(_with_texts(block, changed))

    def _find_changed(self, block: Block) -> dict[int, bytes]:
        """Normalize what may not be in normal form; return the pieces that were not."""
        doubtful = np.flatnonzero(~self._is_surely_normal(block))
        changed: dict[int, bytes] = {}
        for piece in doubtful.tolist():
            text = bytes(block.text[int(block.starts[piece]) : int(block.ends[piece])])
            normal = b"".join(map(self._normalize_part, _iter_parts(text)))
            if normal != text:
                changed[piece] = normal
        return changed

    def _normalize_part(self, text: bytes) -> bytes:
        return self._normalize(text.decode()).encode()

    def _is_surely_normal(self, block: Block) -> NDArray[np.bool_]:
        if self._surely_nfc is not None:
            sure = np.zeros(len(block.starts), np.uint8)
            text = np.frombuffer(block.text, np.uint8)
            self._surely_nfc(text, block.starts, block.ends, sure)
            return sure.astype(np.bool_)
        pieces = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
        return np.array([bytes(block.text[a:b]).isascii() for a, b in pieces], np.bool_)


def _iter_parts(text: bytes) -> Iterator[bytes]:
    """Divide text before ASCII characters, which compose with nothing that precedes them.

    The library takes a hundred bytes for each byte it normalizes.
    """
    start = 0
    while len(text) - start > _PART_BYTES:
        found = _ASCII.search(text, start + _PART_BYTES)
        if found is None:
            break
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def _with_texts(block: Block, changed: dict[int, bytes]) -> Block:
    """Return the block with other texts for some pieces."""
    pieces = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
    texts = [
        changed.get(number) or bytes(block.text[start:end])
        for number, (start, end) in enumerate(pieces)
    ]
    ends = np.cumsum([len(text) for text in texts])
    starts = np.concatenate(([0], ends[:-1]))
    joined = memoryview(b"".join(texts))
    return replace(block, text=joined, starts=starts, ends=ends, heads=ends)
