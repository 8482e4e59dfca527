"""SentencePiece's BPE, written as byte-level ranks that give the same ids.

A SentencePiece BPE merges characters, not bytes, and has no pattern. `convert_pieces` turns it into
ranks or says why that is not proved; `docs/concepts/kernel.md` has the proof. It reads no files:
`huggingface` and `sentencepiece` do.
"""

from __future__ import annotations

import re
from itertools import repeat
from typing import TYPE_CHECKING

from penstok.tokenizers.vocabulary import NOT_MADE, find_merges, find_whole_tokens
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "PART_OF_CHARACTER",
    "SPACE_MARK",
    "CharacterBpe",
    "NotConvertibleError",
    "convert_pieces",
    "find_pairs",
    "spell_all",
]

# How SentencePiece writes a space.
SPACE_MARK = "\u2581"
# The output id of a token that is only a part of a character: the ids of its bytes are written.
PART_OF_CHARACTER = 0xFFFF_FFFF

# Tokens are joined with 0xFF, which is in none of them.
_SPACE_AFTER_TEXT = re.compile(rb"[^ \xff] ")
_SHOWN_CHARACTERS = 40
_SPACE, _FIRST_WIDE, _NUM_BYTES = 0x20, 0x80, 256


class NotConvertibleError(Exception):
    """Why a model is left to its library."""


class CharacterBpe(Struct, frozen=True):
    """A BPE that merges characters and spells unknown ones as bytes, as byte-level ranks.

    A space is a byte like any other; the mark of a space in text is the same as a space. The ranks
    first form the characters of the vocabulary from their bytes, then merge them as the file says.

    Attributes:
        ranks: The rank of each token, from 0 on: single bytes, parts of characters, characters,
            longer tokens.
        output_ids: The id of each rank in the file, or `PART_OF_CHARACTER`.
        adds_space: Whether a space is put before every document that is not empty.
        symbols: Texts that the library finds before it encodes the rest. All are printable ASCII
            without spaces. Text that contains one is left to the library.
    """

    ranks: dict[bytes, int]
    output_ids: list[int]
    adds_space: bool
    symbols: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"CharacterBpe({len(self.ranks)} ranks)"


def convert_pieces(
    characters: Mapping[str, int],
    longer: Sequence[tuple[str, int]],
    byte_ids: Mapping[str, int],
    *,
    adds_space: bool,
    symbols: Iterable[str] = (),
) -> CharacterBpe:
    """Write a vocabulary as ranks.

    Args:
        characters: The ids of single characters.
        longer: Tokens of several characters and their ids, in the order in which they are merged.
        byte_ids: The ids of bytes by their names, for characters that are not in the vocabulary.
        adds_space: See `CharacterBpe`.
        symbols: See `CharacterBpe`.

    Raises:
        NotConvertibleError: If the ranks would not give the same ids, or text could not be divided
            before spaces.
    """
    _check_characters(characters, longer)
    wide = {text.encode(): one for text, one in characters.items() if not text.isascii()}
    wide.pop(SPACE_MARK.encode())
    parts = sorted({char[:end] for char in wide for end in range(2, len(char))})
    spelled = spell_all([text for text, _ in longer])
    tokens = dict(zip(spelled, (one for _, one in longer), strict=True))
    if len(tokens) < len(longer):
        raise NotConvertibleError("it has a token twice")
    if _SPACE_AFTER_TEXT.search(b"\xff".join(tokens)):
        token = next(token for token in tokens if _SPACE_AFTER_TEXT.search(token))
        raise NotConvertibleError(f"its token {_shown(token)} has a space after other text")
    ordered = [*(bytes([byte]) for byte in range(256)), *parts, *wide, *tokens]
    output_ids = [_find_byte(byte, characters, byte_ids) for byte in range(256)]
    output_ids += [*repeat(PART_OF_CHARACTER, len(parts)), *wide.values(), *tokens.values()]
    ranks = {token: rank for rank, token in enumerate(ordered)}
    # No merges produce these: unlike byte-level BPE, SentencePiece never finds them in text.
    if unused := set(find_whole_tokens(ranks)):
        output_ids = [output_ids[rank] for token, rank in ranks.items() if token not in unused]
        kept = (token for token in ordered if token not in unused)
        ranks = {token: rank for rank, token in enumerate(kept)}
    return CharacterBpe(ranks, output_ids, adds_space, tuple(symbols))


def find_pairs(bpe: CharacterBpe) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the tokens that two texts are merged to, in order of rank.

    Each has one such pair. The second array is the number of characters of its first part. (Bytes
    and parts of characters are not text; no character is made of anything else.)
    """
    import numpy as np

    made, lefts, rights = find_merges(bpe.ranks)
    is_text = np.array(bpe.output_ids, np.uint32) != PART_OF_CHARACTER
    is_text[_FIRST_WIDE:_NUM_BYTES] = False
    is_made = np.flatnonzero(lefts != NOT_MADE)
    is_made = is_made[is_text[lefts[is_made]] & is_text[rights[is_made]]]
    starts = np.cumsum([0, *map(len, bpe.ranks)])[:-1]
    is_character = np.frombuffer(b"".join(bpe.ranks), np.uint8) & 0xC0 != 0x80
    lengths = np.add.reduceat(is_character, starts, dtype=np.int64)
    return made[is_made], lengths[lefts[is_made]]


def _check_characters(characters: Mapping[str, int], longer: Sequence[tuple[str, int]]) -> None:
    """Refuse vocabularies in which a token has a character that is not a token itself."""
    if SPACE_MARK not in characters:
        raise NotConvertibleError("it has no token for a space")
    if " " in characters:
        raise NotConvertibleError("it has a token for a space that is not marked")
    known = characters.keys()
    if not known >= set("".join(text for text, _ in longer)):
        text = next(text for text, _ in longer if not known >= set(text))
        token = _shown(spell_all([text])[0])
        raise NotConvertibleError(f"a character of its token {token} is not a token")


def _find_byte(byte: int, characters: Mapping[str, int], byte_ids: Mapping[str, int]) -> int:
    """Return what a byte becomes that is not merged: an ASCII character, or a part of another."""
    character = SPACE_MARK if byte == _SPACE else chr(byte)
    if byte < _FIRST_WIDE and character in characters:
        return characters[character]
    found = byte_ids.get(f"<0x{byte:02X}>")
    if found is None:
        raise NotConvertibleError(f"it has no token for the byte {byte}")
    return found


def spell_all(texts: Sequence[str]) -> list[bytes]:
    """Return the bytes of texts, all at once, with spaces that are not marked."""
    whole = "".join(texts)
    divider = next(char for char in map(chr, range(0xE000, 0x110000)) if char not in whole)
    joined = divider.join(texts).replace(SPACE_MARK, " ").encode()
    return joined.split(divider.encode()) if texts else []


def _shown(token: bytes) -> str:
    return repr(token.decode(errors="replace")[:_SHOWN_CHARACTERS])
