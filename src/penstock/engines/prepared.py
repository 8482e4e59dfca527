"""Text made ready for an engine that knows ranks alone, or is wrong about a few strings.

Nearly all text is in normal form and holds none of the strings, and goes to the engine as it is.
What is not in normal form is normalized by the tokenizer's own library, and a piece with one of
the strings is encoded by the reference.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engines.native import find_native
from penstock.tokenizer.libraries import import_library

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.engines.base import Engine
    from penstock.types import Block

__all__ = ["PreparedEngine"]


class PreparedEngine:
    """An engine, and the reference for what it would not do right."""

    def __init__(
        self,
        engine: Engine,
        load_reference: Callable[[], Engine],
        strings: Sequence[str],
        *,
        normalizes: bool,
    ) -> None:
        """Make it.

        Args:
            engine: Encodes nearly all text.
            load_reference: Makes what encodes pieces that hold one of the strings, when there is
                one: it takes a second and 100 MB.
            strings: What the engine would not do right.
            normalizes: Whether the engine must be given text in the normal form C.
        """
        self.name = engine.name
        self._engine = engine
        self._load_reference = load_reference
        self._reference: Engine | None = None
        self._strings = _Strings(strings)
        self._normalizer = _Normalizer() if normalizes else None

    def encode(
        self, block: Block, room: NDArray[np.unsignedinteger[Any]] | None = None
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of all pieces, with those between documents in place."""
        is_odd = self._strings.mark(block)
        if not is_odd.any():
            return self._encode_plain(block, room)
        runs = []
        for odd, places in groupby(enumerate(is_odd.tolist()), itemgetter(1)):
            chosen = np.zeros(len(is_odd), np.bool_)
            chosen[[place for place, _ in places]] = True
            run = block.select(chosen)
            ids = self._encode_odd(run) if odd else self._encode_plain(run, None)
            runs.append(np.array(ids, np.uint32))
        return np.concatenate(runs)

    def _encode_odd(self, block: Block) -> NDArray[np.unsignedinteger[Any]]:
        if self._reference is None:
            self._reference = self._load_reference()
        return self._reference.encode(block)

    def _encode_plain(
        self, block: Block, room: NDArray[np.unsignedinteger[Any]] | None
    ) -> NDArray[np.unsignedinteger[Any]]:
        ready = block if self._normalizer is None else self._normalizer.normalize(block)
        # What was normalized may be longer than what the room was made for.
        return self._engine.encode(ready, room if ready is block else None)


class _Strings:
    """Finds the pieces that hold one of a few strings."""

    def __init__(self, texts: Sequence[str]) -> None:
        # One expression for all: 2 GB/s on code, where one search for each string has 0.25.
        spelled = sorted((re.escape(text.encode()) for text in texts), reverse=True)
        self._expression = re.compile(b"|".join(spelled)) if spelled else None

    def mark(self, block: Block) -> NDArray[np.bool_]:
        found = np.zeros(len(block.starts), np.bool_)
        if self._expression is None or not len(block.starts):
            return found
        first, last = int(block.starts[0]), int(block.ends[-1])
        at = 0
        while match := self._expression.search(block.text[first:last], at):
            # What begins between two pieces, or goes on behind one, is in none.
            place = first + match.start()
            piece = int(np.searchsorted(block.starts, place, "right")) - 1
            is_inside = first + match.end() <= block.ends[piece]
            found[piece] |= is_inside
            at = int(block.ends[piece]) - first if is_inside else match.start() + 1
        return found


class _Normalizer:
    """Brings text into the normal form C, as `tokenizers` does it."""

    def __init__(self) -> None:
        self._normalize: Callable[[str], str] = (
            import_library("tokenizers").normalizers.NFC().normalize_str
        )
        self._surely_nfc = find_native("surely_nfc")

    def normalize(self, block: Block) -> Block:
        """Return the block itself if it is in normal form."""
        doubtful = np.flatnonzero(~self._is_surely_normal(block))
        changed: dict[int, bytes] = {}
        for piece in doubtful.tolist():
            text = bytes(block.text[int(block.starts[piece]) : int(block.ends[piece])])
            normal = self._normalize(text.decode()).encode()
            if normal != text:
                changed[piece] = normal
        return _with_texts(block, changed) if changed else block

    def _is_surely_normal(self, block: Block) -> NDArray[np.bool_]:
        if self._surely_nfc is not None:
            sure = np.zeros(len(block.starts), np.uint8)
            text = np.frombuffer(block.text, np.uint8)
            self._surely_nfc(text, block.starts, block.ends, sure)
            return sure.astype(np.bool_)
        pieces = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
        return np.array([bytes(block.text[a:b]).isascii() for a, b in pieces], np.bool_)


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
