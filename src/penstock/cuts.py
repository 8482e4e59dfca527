"""Where text may be divided without changing a token.

It looks at bytes only: no files, no documents. Readers ask it for borders inside long documents;
`docs/concepts/cuts.md` has the proof of each rule, and a property test tries every candidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.tokenizer import Tokenizer

__all__ = ["ByteLevelCuts"]

_SPACE, _NEWLINE = 0x20, 0x0A


class ByteLevelCuts:
    """The two rules for byte-level BPE with the GPT-2 pattern.

    1. Before an ASCII white space that follows a character that is no white space. A match of
       the pattern ends there, nothing looks behind, and no lookahead crosses.
    2. Between two non-ASCII characters, the first no white space, whose touching bytes stand next
       to each other in no token (a free junction). Either a match ends there, or no merge can
       ever cross.

    Both ask for whole, valid characters, so that text that is repaired later has the same cuts.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._free = _free_junctions(tokenizer.ranks)

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark every position before which `text` may be divided; the first is never marked."""
        ascii_end, wide_end, wide_start = _characters(text)
        marked: NDArray[np.bool_] = (ascii_end | wide_end) & _is_ascii_space(text)
        if wide_start.any():
            pairs = text[:-1].astype(np.uint16) << 8 | text[1:]
            marked[1:] |= wide_end[1:] & wide_start[1:] & self._free[pairs]
        return marked

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark those of them that stand at the end of a line."""
        ascii_end, wide_end, _ = _characters(text)
        marked: NDArray[np.bool_] = (ascii_end | wide_end) & (text == _NEWLINE)
        return marked


def _free_junctions(ranks: dict[bytes, int]) -> NDArray[np.bool_]:
    """For each pair of bytes (first << 8 | second): does no token hold them side by side?

    The kernel has the same table; a test compares them. Made here in 7 ms, cuts need no kernel.
    """
    tokens = list(ranks)
    joined = np.frombuffer(b"".join(tokens), np.uint8)
    pairs = joined[:-1].astype(np.uint16) << 8 | joined[1:]
    inside = np.ones(len(joined), np.bool_)
    inside[np.cumsum([len(token) for token in tokens]) - 1] = False
    free = np.ones(1 << 16, np.bool_)
    free[pairs[inside[:-1]]] = False
    return free


def _is_ascii_space(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Space, tab, newline, vertical tab, form feed, carriage return."""
    found: NDArray[np.bool_] = (text == _SPACE) | ((text >= 0x09) & (text <= 0x0D))
    return found


def _characters(
    text: NDArray[np.uint8],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Classify the borders between characters.

    Returns three masks over positions: an ASCII character that is no white space ends before it;
    a valid non-ASCII one that is no white space does; a valid non-ASCII one starts at it.
    """
    size = len(text)
    ascii_end = np.zeros(size, np.bool_)
    ascii_end[1:] = (text[:-1] > _SPACE) & (text[:-1] < 0x7F)
    wide_end = np.zeros(size, np.bool_)
    wide_start = np.zeros(size, np.bool_)
    is_continuation = (text & 0xC0) == 0x80
    if not is_continuation.any():
        return ascii_end, wide_end, wide_start
    for length, lead, second, visible in (
        (2, _LEAD2, _ANY_SECOND, _VISIBLE2),
        (3, _LEAD3, _SECOND3, _VISIBLE3),
        (4, _LEAD4, _SECOND4, _SECOND4),
    ):
        last = size - length + 1
        if last <= 0:
            continue
        starts = lead[text[:last]] & is_continuation[1 : last + 1]
        for step in range(2, length):
            starts &= is_continuation[step : last + step]
        pairs = text[:last].astype(np.uint16) << 8 | text[1 : last + 1]
        wide_start[:last] |= starts & second[pairs]
        wide_end[length:] |= (starts & visible[pairs])[: size - length]
    return ascii_end, wide_end, wide_start


def _bytes_between(first: int, last: int) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[first : last + 1] = True
    return table


def _pairs_except(*banned: tuple[int, int, int]) -> NDArray[np.bool_]:
    """All pairs of a lead byte and its second byte but (lead, first second, last second)."""
    table = np.ones(1 << 16, np.bool_)
    for lead, first, last in banned:
        table[(lead << 8 | first) : (lead << 8 | last) + 1] = False
    return table


_LEAD2 = _bytes_between(0xC2, 0xDF)
_LEAD3 = _bytes_between(0xE0, 0xEF)
_LEAD4 = _bytes_between(0xF0, 0xF4)
_ANY_SECOND = _pairs_except()
# Overlong forms (E0, F0), surrogates (ED) and what lies above U+10FFFF (F4) are not valid.
_SECOND3 = _pairs_except((0xE0, 0x80, 0x9F), (0xED, 0xA0, 0xBF))
_SECOND4 = _pairs_except((0xF0, 0x80, 0x8F), (0xF4, 0x90, 0xBF))
# Leave out, generously, the neighbourhoods of the white space that is not ASCII: U+0085 and
# U+00A0 (lead C2), U+1680 (E1 9A), U+2000 to U+205F (E2 80, E2 81), U+3000 (E3 80).
_VISIBLE2 = _pairs_except((0xC2, 0x80, 0xBF))
_VISIBLE3 = _SECOND3 & _pairs_except((0xE1, 0x9A, 0x9A), (0xE2, 0x80, 0x81), (0xE3, 0x80, 0x80))
