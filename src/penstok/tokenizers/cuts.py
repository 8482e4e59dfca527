"""Finds cuts: positions where text can be divided without changing a token.

It works on bytes and knows neither files nor documents. Readers use it inside long documents;
`docs/concepts/cuts.md` proves each rule, and a property test tries every candidate.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstok.tokenizers import ByteLevel
from penstok.tokenizers.vocabulary import (
    BLOOM_PATTERN,
    CL100K_PATTERN,
    DEEPSEEK_PATTERN,
    GPT2_PATTERN,
    KIMI_PATTERN,
    NANOCHAT_PATTERN,
    O200K_PATTERN,
    QWEN2_PATTERN,
    QWEN35_PATTERN,
    STARCODER_PATTERN,
    TEKKEN_PATTERN,
    find_whole_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstok.tokenizers import Tokenizer
    from penstok.tokenizers.character_bpe import CharacterBpe

__all__ = ["ByteLevelCuts", "CharacterCuts", "DocumentCuts", "find_cuts", "keep_junctions"]

_SPACE, _NEWLINE, _RETURN, _SLASH = 0x20, 0x0A, 0x0D, 0x2F


def find_cuts(
    tokenizer: Tokenizer, max_document_bytes: int
) -> ByteLevelCuts | CharacterCuts | DocumentCuts:
    """Return the rules that are proved for a tokenizer; without any, documents are not divided."""
    model = tokenizer.model
    if isinstance(model, ByteLevel):
        return ByteLevelCuts(tokenizer)
    if model.bpe is not None:
        return CharacterCuts(model.bpe)
    return DocumentCuts(max_document_bytes)


class DocumentCuts:
    """For tokenizers without a proved rule: text is divided only between documents.

    Attributes:
        max_document_bytes: A longer document does not fit into the memory of a worker.
    """

    def __init__(self, max_document_bytes: int) -> None:
        self.max_document_bytes = max_document_bytes

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark nothing."""
        return np.zeros(len(text), np.bool_)

    line_mask = mask


class ByteLevelCuts:
    """The rules for byte-level BPE, by the tokenizer's pattern.

    All rules require whole, valid characters, so that text that is repaired later has the same
    cuts, and depend on one character on either side. They also hold for text that is normalized
    later: nothing is composed across a cut, and the characters beside it do not change.

    Attributes:
        max_document_bytes: None, because long documents are divided.
    """

    max_document_bytes: int | None = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        model = tokenizer.model
        if not isinstance(model, ByteLevel):
            raise TypeError(f"no rule is proved for `{tokenizer.name}`")
        self._model = model
        # A border between two kinds of characters can be inside an added token. (But no cut is
        # inside a run of white space: the character before a cut is visible, or a newline.)
        self._has_ascii_borders = model.added.keys() == model.white_space_runs.keys()

    @cached_property
    def _rule(self) -> _Rule:
        model = self._model
        free = _FreeJunctions(model.ranks)
        return _RULES[model.pattern](free, normalizes=model.normalizer is not None)

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark every position before which `text` may be divided; the first is never marked.

        The borders between kinds of ASCII characters are among them, if no added token has one.
        """
        marked = self._rule.mask(text)
        return marked | self._rule.ascii_borders(text) if self._has_ascii_borders else marked

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark those of them that are at the end of a line."""
        if not _is_newline(text).any():
            # Readers scan text without line ends from start to end.
            return np.zeros(len(text), np.bool_)
        return self._rule.line_mask(text)


class CharacterCuts:
    """The rule for a BPE of characters, which has no pattern: every free junction.

    A cut is between two whole characters whose adjacent bytes are adjacent in no token, so that no
    merge can cross. The first must be visible, or a newline before a visible one. U+2581 is the
    same as a space to these tokenizers: there is no cut beside it. If the tokenizer finds symbols
    in text, which are ASCII without white space, one side must be white space or both non-ASCII.

    Attributes:
        max_document_bytes: None, because long documents are divided.
    """

    max_document_bytes: int | None = None

    def __init__(self, bpe: CharacterBpe) -> None:
        self._free = _FreeJunctions(bpe.ranks)
        self._has_symbols = bool(bpe.symbols)

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark every position before which `text` may be divided; the first is never marked."""
        return self._mask(text, _characters(text))

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark those of them that are at the end of a line."""
        is_newline = _is_newline(text)
        if not is_newline.any():
            return np.zeros(len(text), np.bool_)
        found = _characters(text)
        marked: NDArray[np.bool_] = self._mask(text, found)
        marked &= (found.visible_end & (text == _NEWLINE)) | _after(is_newline)
        return marked

    def _mask(self, text: NDArray[np.uint8], found: _Characters) -> NDArray[np.bool_]:
        starts = (text < 0x80) | found.wide_start
        joints = found.visible_end & starts
        joints |= _after(_is_newline(text)) & found.visible_start
        if self._has_symbols:
            is_white = _is_ascii_space(text)
            joints &= is_white | _after(is_white) | (found.wide_end & found.wide_start)
        marked = self._free.among(joints, text)
        if found.wide_end.any():
            marks = _starts(text, _SPACE_MARK)
            after_marks = np.zeros_like(marks)
            after_marks[3:] = marks[:-3]
            marked &= ~(marks | after_marks)
        return marked


class _FreeJunctions:
    """The pairs of bytes between which text may be divided.

    The kernel has them in a table of its own, which is taken if it was made for the same ranks. For
    other engines one is made, which takes 20 ms: when the first text that is searched for cuts has
    a candidate. With patterns these are two non-ASCII characters side by side, which small jobs and
    much English text never have.
    """

    def __init__(self, ranks: dict[bytes, int]) -> None:
        self._ranks = ranks

    def among(self, joints: NDArray[np.bool_], text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return those of the marked positions that are free junctions."""
        return joints & _look_up_pairs(self._table, text) if joints.any() else joints

    @cached_property
    def _table(self) -> NDArray[np.bool_]:
        # Another thread may keep the table of another vocabulary meanwhile.
        for ranks, table in tuple(_last_table):
            if ranks is self._ranks:
                return table
        made = _free_junctions(self._ranks)
        _last_table[:] = [(self._ranks, made)]
        return made


def keep_junctions(
    ranks: dict[bytes, int], is_free: Callable[[int, int], bool], *, has_ascii: bool
) -> None:
    """Keep the free junctions that an engine knows; forks of this process have them too.

    Cuts ask only about the last byte of a character and the first byte of another; without
    `has_ascii` only if both are non-ASCII.
    """
    firsts = [*(range(0x80) if has_ascii else ()), *range(0xC2, 0xF5)]
    table = np.zeros((256, 256), np.bool_)
    for last in range(0 if has_ascii else 0x80, 0xC0):
        table[last, firsts] = [is_free(last, first) for first in firsts]
    _last_table[:] = [(ranks, table.reshape(-1))]


class _Rule:
    """What the rules of all patterns have in common."""

    def __init__(self, free: _FreeJunctions, *, normalizes: bool) -> None:
        self._free = free
        self._normalizes = normalizes

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        raise NotImplementedError

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        raise NotImplementedError

    def ascii_borders(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark digits after letters, letters after digits, and punctuation after either.

        In all patterns but BLOOM's a match ends after an ASCII letter or number before a character
        of another kind, and the next match does not depend on what precedes it. (But an apostrophe
        can belong to the word, and newlines have their own rules.)
        """
        is_letter = _ASCII_LETTERS[text]
        is_digit = _ASCII_DIGITS[text]
        after_letter, after_digit = _after(is_letter), _after(is_digit)
        marked: NDArray[np.bool_] = (after_letter & is_digit) | (after_digit & is_letter)
        marked |= (after_letter | after_digit) & _ASCII_PUNCTUATION[text]
        return marked


class _Gpt2Rule(_Rule):
    """GPT-2's pattern.

    1. Before an ASCII white space after a visible character (one that is not white space). A match
       of the pattern ends there; the pattern has no lookbehind, and no lookahead crosses.
    2. Between two non-ASCII characters, the first visible, whose adjacent bytes are adjacent in no
       token (a free junction). Either a match ends there, or no merge can ever cross. (If text is
       normalized later: only between two letters of scripts without spaces, which never compose
       with each other.)
    """

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        found = _characters(text)
        marked: NDArray[np.bool_] = found.visible_end & _is_ascii_space(text)
        if found.wide_start.any():
            joints = found.wide_end & found.wide_start
            if self._normalizes:
                joints &= _between_letters(text)
            marked |= self._free.among(joints, text)
        return marked

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        marked: NDArray[np.bool_] = _characters(text).visible_end & (text == _NEWLINE)
        return marked


class _Cl100kRule(_Rule):
    """The pattern of cl100k, Llama 3 and Qwen, where a newline can belong to the piece before it.

    1. Before a space, a tab, a vertical tab or a form feed after a visible character. A match ends
       there; the pattern has no lookbehind, and no lookahead crosses.
    2. Between a newline (or carriage return) and a visible character: whatever matched the newline
       ends with it.
    3. At a free junction between two non-ASCII characters, the first visible, one of them a letter.
       (Not between two numbers, which are counted from the first, and not between two others: the
       second can join the letters after it, but only if nothing precedes it.) If text is normalized
       later, both must be letters.
    """

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        found = _characters(text)
        is_inline_space = _is_ascii_space(text) & ~_is_newline(text)
        marked: NDArray[np.bool_] = found.visible_end & is_inline_space
        marked |= _after(_is_newline(text)) & found.visible_start
        if found.wide_start.any():
            joints = found.wide_end & found.wide_start & self._find_letters(text)
            marked |= self._free.among(joints, text)
        return marked

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        marked: NDArray[np.bool_] = _after(_is_newline(text)) & _characters(text).visible_start
        return marked

    def _find_letters(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark where a junction may be, by the letters beside it."""
        return _between_letters(text) if self._normalizes else _beside_letter(text)


class _O200kRule(_Rule):
    """The pattern of o200k and tekken, where words also end before a capital letter.

    1. The first rule of cl100k.
    2. The second, but not before a slash, which can belong to the newlines after punctuation.
    3. Before a full stop or comma of the scripts without spaces, after a letter of theirs: a word
       ends there, and the next match does not depend on what precedes it. (Between two letters it
       does: whether a word ends before a following capital depends on earlier small letters.)

    They hold for text that is normalized later: neither character composes with anything there.
    """

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        found = _characters(text)
        is_inline_space = _is_ascii_space(text) & ~_is_newline(text)
        marked: NDArray[np.bool_] = found.visible_end & is_inline_space
        marked |= _after(_is_newline(text)) & found.visible_start & (text != _SLASH)
        if found.wide_start.any():
            marked |= found.wide_end & _starts(text, _STOPS) & _after_letter(text)
        return marked

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        starts_line = _characters(text).visible_start & (text != _SLASH)
        marked: NDArray[np.bool_] = _after(_is_newline(text)) & starts_line
        return marked


class _KimiRule(_O200kRule):
    """Kimi's pattern, where a run of Han is a piece.

    The rules of o200k; and at a free junction between two ideographs, because the rest of a run of
    Han is matched the same way from any ideograph on.
    """

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        marked = super().mask(text)
        ideographs = _starts(text, _IDEOGRAPHS)
        joints = ideographs.copy()
        joints[:3] = False
        joints[3:] &= ideographs[:-3]
        return marked | self._free.among(joints, text)


class _DeepSeekRule(_Cl100kRule):
    """The pattern of DeepSeek V3, where characters without a class are pieces too.

    1. and 2. As in cl100k.
    3. At a free junction between two letters of scripts without spaces. (Not between any other
       character and a letter: one without a class can begin the word, and is part of what precedes
       it if the word is cut off.)
    4. Before a full stop or comma of those scripts, after a letter of theirs, as in o200k.
    """

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        marked = super().mask(text)
        found = _characters(text)
        if found.wide_start.any():
            marked |= found.wide_end & _starts(text, _STOPS) & _after_letter(text)
        return marked

    def _find_letters(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        return _between_letters(text)


class _BloomRule(_Rule):
    """BLOOM's pattern, where a word is all but white space and stops (some punctuation).

    1. Before an ASCII white space after a character of a word: the word ends there.
    2. Between a newline (or carriage return) and a character of a word: only a blank can belong to
       the word after it. (Not before a stop, which is one piece with the newline.)
    3. At a free junction between two non-ASCII characters, as in GPT-2's: what a piece consists of
       does not depend on what precedes it.
    4. Before a stop of the scripts without spaces, after a letter of theirs.
    """

    def mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        found = _characters(text)
        marked = self._beside_words(text, found, _is_ascii_space(text))
        if found.wide_start.any():
            joints = found.wide_end & found.wide_start
            if self._normalizes:
                joints &= _between_letters(text)
            marked |= self._free.among(joints, text)
            # A stop must be valid: what it is repaired to can belong to the word.
            is_stop = _starts(text, _BLOOM_STOPS3) & found.wide_start
            marked |= found.wide_end & is_stop & _after_letter(text)
        return marked

    def line_mask(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        return self._beside_words(text, _characters(text), text == _NEWLINE)

    def ascii_borders(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark stops after letters or digits, and letters or digits after stops."""
        is_letter = _ASCII_LETTERS[text] | _ASCII_DIGITS[text]
        is_stop = _BLOOM_ASCII_STOPS[text]
        marked: NDArray[np.bool_] = (_after(is_letter) & is_stop) | (_after(is_stop) & is_letter)
        return marked

    def _beside_words(
        self, text: NDArray[np.uint8], found: _Characters, white: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Mark white space after words, and words after newlines."""
        stop_starts, stop_ends = _bloom_stops(text)
        marked: NDArray[np.bool_] = found.visible_end & ~stop_ends & white
        marked |= _after(_is_newline(text)) & found.visible_start & ~stop_starts
        return marked


def _bloom_stops(text: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark where a stop of BLOOM's pattern starts, and where one has ended."""
    is_ascii = _BLOOM_ASCII_STOPS[text]
    two = np.zeros(len(text), np.bool_)
    two[:-1] = _BLOOM_STOPS2[text[:-1].astype(np.uint16) << 8 | text[1:]]
    three = _starts(text, _BLOOM_STOPS3)
    ends = _after(is_ascii)
    ends[2:] |= two[:-2]
    ends[3:] |= three[:-3]
    return is_ascii | two | three, ends


# Every pattern in `vocabulary.PATTERNS` has a proved rule.
_RULES: dict[str, type[_Rule]] = {
    GPT2_PATTERN: _Gpt2Rule,
    STARCODER_PATTERN: _Gpt2Rule,
    CL100K_PATTERN: _Cl100kRule,
    NANOCHAT_PATTERN: _Cl100kRule,
    QWEN2_PATTERN: _Cl100kRule,
    QWEN35_PATTERN: _Cl100kRule,
    O200K_PATTERN: _O200kRule,
    TEKKEN_PATTERN: _O200kRule,
    KIMI_PATTERN: _KimiRule,
    DEEPSEEK_PATTERN: _DeepSeekRule,
    BLOOM_PATTERN: _BloomRule,
}


# The last table that was made, and the ranks that it was made from.
_last_table: list[tuple[dict[bytes, int], NDArray[np.bool_]]] = []


def _free_junctions(ranks: dict[bytes, int]) -> NDArray[np.bool_]:
    """For each pair of bytes (first << 8 | second), tell whether no token contains them.

    Nor may the first end, or the second begin, a token that no merges produce: half of a piece
    would be looked up as a whole piece. The kernel has the same table; a test compares them.
    """
    tokens = list(ranks)
    joined = np.frombuffer(b"".join(tokens), np.uint8)
    pairs = joined[:-1].astype(np.uint16) << 8 | joined[1:]
    inside = np.ones(len(joined), np.bool_)
    inside[np.cumsum([len(token) for token in tokens]) - 1] = False
    free = np.ones(1 << 16, np.bool_)
    free[pairs[inside[:-1]]] = False
    by_first = free.reshape(256, 256)
    for token in find_whole_tokens(ranks):
        if token[0] >= 0x80 or token[-1] >= 0x80:
            by_first[token[-1]] = False
            by_first[:, token[0]] = False
    return free


def _is_ascii_space(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Space, tab, newline, vertical tab, form feed, carriage return."""
    found: NDArray[np.bool_] = (text == _SPACE) | ((text >= 0x09) & (text <= 0x0D))
    return found


def _is_newline(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (text == _NEWLINE) | (text == _RETURN)
    return found


def _after(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the positions after the marked ones."""
    moved = np.zeros_like(mask)
    moved[1:] = mask[:-1]
    return moved


def _look_up_pairs(table: NDArray[np.bool_], text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Look up, for each position, the byte before it and the byte at it; the first is False."""
    found = np.zeros(len(text), np.bool_)
    found[1:] = table[text[:-1].astype(np.uint16) << 8 | text[1:]]
    return found


def _starts(text: NDArray[np.uint8], table: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark where a character of three bytes begins that is in a table."""
    found = np.zeros(len(text), np.bool_)
    if len(text) >= 3:
        first, second, third = (text[at : len(text) - 2 + at].astype(np.uint16) for at in range(3))
        code_points = (first & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F
        found[:-2] = (first & 0xF0 == 0xE0) & table[code_points]
    return found


def _after_letter(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    found = np.zeros(len(text), np.bool_)
    found[3:] = _starts(text, _LETTERS)[:-3]
    return found


def _beside_letter(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return _starts(text, _LETTERS) | _after_letter(text)


def _between_letters(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return _starts(text, _LETTERS) & _after_letter(text)


class _Characters(NamedTuple):
    """Borders between valid characters, as masks over positions."""

    visible_end: NDArray[np.bool_]  # a visible character (not white space) ends before it
    visible_start: NDArray[np.bool_]  # a visible character starts at it
    wide_end: NDArray[np.bool_]  # a visible non-ASCII character ends before it
    wide_start: NDArray[np.bool_]  # a non-ASCII character starts at it, white space or not


def _characters(text: NDArray[np.uint8]) -> _Characters:
    size = len(text)
    is_visible_ascii = (text > _SPACE) & (text < 0x7F)
    wide_end, wide_start, wide_visible = (np.zeros(size, np.bool_) for _ in range(3))
    is_continuation = (text & 0xC0) == 0x80
    if is_continuation.any():
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
            wide_visible[:last] |= starts & visible[pairs]
            wide_end[length:] |= (starts & visible[pairs])[: size - length]
    return _Characters(
        visible_end=_after(is_visible_ascii) | wide_end,
        visible_start=is_visible_ascii | wide_visible,
        wide_end=wide_end,
        wide_start=wide_start,
    )


def _bytes_between(first: int, last: int) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[first : last + 1] = True
    return table


_ASCII_DIGITS = _bytes_between(0x30, 0x39)
_ASCII_LETTERS = _bytes_between(0x41, 0x5A) | _bytes_between(0x61, 0x7A)
_ASCII_PUNCTUATION = _bytes_between(0x21, 0x7E) & ~_ASCII_LETTERS & ~_ASCII_DIGITS
_ASCII_PUNCTUATION[0x27] = False  # the apostrophe


def _pairs_except(*banned: tuple[int, int, int]) -> NDArray[np.bool_]:
    """All pairs of a lead byte and its second byte except (lead, first second, last second)."""
    table = np.ones(1 << 16, np.bool_)
    for lead, first, last in banned:
        table[(lead << 8 | first) : (lead << 8 | last) + 1] = False
    return table


_LEAD2 = _bytes_between(0xC2, 0xDF)
_LEAD3 = _bytes_between(0xE0, 0xEF)
_LEAD4 = _bytes_between(0xF0, 0xF4)
_ANY_SECOND = _pairs_except()
# Overlong forms (E0, F0), surrogates (ED) and code points above U+10FFFF (F4) are not valid.
_SECOND3 = _pairs_except((0xE0, 0x80, 0x9F), (0xED, 0xA0, 0xBF))
_SECOND4 = _pairs_except((0xF0, 0x80, 0x8F), (0xF4, 0x90, 0xBF))
# Excludes all characters near non-ASCII white space: U+0085 and U+00A0 (lead C2), U+1680 (E1 9A),
# U+2000 to U+205F (E2 80, E2 81), U+3000 (E3 80).
_VISIBLE2 = _pairs_except((0xC2, 0x80, 0xBF))
_VISIBLE3 = _SECOND3 & _pairs_except((0xE1, 0x9A, 0x9A), (0xE2, 0x80, 0x81), (0xE3, 0x80, 0x80))


def _code_points(*ranges: tuple[int, int]) -> NDArray[np.bool_]:
    table = np.zeros(1 << 16, np.bool_)
    for first, last in ranges:
        table[first : last + 1] = True
    return table


_HAN = ((0x3400, 0x4DB5), (0x4E00, 0x9FCB))
_IDEOGRAPHS = _code_points(*_HAN)
# Letters of scripts that are written without spaces: ranges that have been letters since Unicode 6,
# so that cuts do not depend on the Unicode version.
_LETTERS = _code_points(
    (0x0E01, 0x0E30),  # Thai
    (0x0E81, 0x0E82),  # Lao
    (0x1000, 0x102A),  # Myanmar
    (0x1780, 0x17B3),  # Khmer
    (0x3041, 0x3096),  # Hiragana
    (0x30A1, 0x30FA),  # Katakana
    *_HAN,
    (0xAC00, 0xD7A3),  # Hangul
)
# Punctuation of those scripts: ideographic and full-width comma, full stop, exclamation mark and
# question mark.
_SPACE_MARK = _code_points((0x2581, 0x2581))
_STOPS = _code_points((0x3001, 0x3002), (0xFF01, 0xFF01), (0xFF0C, 0xFF0C), (0xFF1F, 0xFF1F))
# The stops of BLOOM's pattern, by length; those of two bytes as such.
_BLOOM_ASCII_STOPS = np.isin(np.arange(256), list(b"()|.,!?"))
_BLOOM_STOPS2 = _code_points((0xD88C, 0xD88C), (0xDB94, 0xDB94))
_BLOOM_STOPS3 = _code_points(
    *((0x0964, 0x0964), (0x2026, 0x2026), (0x3001, 0x3002), (0xFF0C, 0xFF0C))
)
