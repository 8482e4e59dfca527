"""An engine for tokenizers that have tokens for runs of spaces or tabs.

GPT-NeoX finds runs of up to 24 spaces in text before it is divided into pieces. Here text is
divided at these runs, and another engine encodes them and what is between them as texts of their
own; `docs/concepts/cuts.md` has the proof. `registry` adds this engine where it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstok.engines.base import most_tokens
from penstok.types import Block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from penstok.engines.base import Engine

__all__ = ["WhiteSpaceRunsEngine"]


class WhiteSpaceRunsEngine:
    """Divides text at runs of white space, and passes all parts to an engine.

    The engine must have the tokens of the runs as ordinary ones: a text that is nothing but white
    space without newlines is one piece in every pattern, and gets the token of that piece.
    """

    def __init__(self, engine: Engine, runs: Iterable[str]) -> None:
        self.name: str = engine.name
        self._engine = engine
        self._longest: dict[int, int] = {}  # by the byte
        for text in runs:
            byte = ord(text[0])
            self._longest[byte] = max(len(text), self._longest.get(byte, 0))

    def encode(
        self, block: Block, out: NDArray[np.unsignedinteger[Any]] | None = None
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of all documents, with those at boundaries in place."""
        text = np.frombuffer(block.text, np.uint8)
        cuts = [_find_cuts(block, text, byte, most) for byte, most in self._longest.items()]
        divided = _divide(block, np.sort(np.concatenate(cuts)))
        if out is not None and len(out) < most_tokens(divided):
            out = None
        return self._engine.encode(divided, out)


def _find_cuts(block: Block, text: NDArray[np.uint8], byte: int, longest: int) -> NDArray[np.int64]:
    """Return where the tokens of one kind of white space begin and end.

    From the start of a run on, the longest token is taken as often as it fits, then that of the
    rest. A single character that is left over belongs to the text behind it.
    """
    is_byte = text == byte
    goes_on = is_byte[:-1] & is_byte[1:]
    # A run ends with its document.
    for edges in (block.starts, block.ends):
        goes_on[edges[(edges > 0) & (edges < len(text))] - 1] = False
    edges = np.flatnonzero(np.diff(goes_on, prepend=False, append=False))
    starts, lengths = edges[::2], edges[1::2] - edges[::2] + 1
    rests = lengths % longest
    ends = starts + lengths - (rests == 1)
    # Most runs are one token. Inside the others, tokens meet after every `longest` characters.
    inside = -(-(ends - starts) // longest) - 1
    numbers = np.arange(1, inside.sum() + 1) - np.repeat(np.cumsum(inside) - inside, inside)
    return np.concatenate((starts, ends, np.repeat(starts, inside) + longest * numbers))


def _divide(block: Block, cuts: NDArray[np.int64]) -> Block:
    """Return the texts of a block, divided at those of the cuts that are inside them."""
    idx = np.searchsorted(block.starts, cuts, "right") - 1
    is_inside = (idx >= 0) & (cuts > block.starts[idx]) & (cuts < block.ends[idx])
    idx, cuts = idx[is_inside], cuts[is_inside]
    if not len(cuts):
        return block
    ends = np.insert(block.ends, idx, cuts)
    return Block(
        block.text,
        np.insert(block.starts, idx + 1, cuts),
        ends,
        np.insert(block.begins, idx + 1, False),
        np.insert(block.closes, idx, False),
        heads=ends,
    )
