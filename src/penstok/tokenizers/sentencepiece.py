"""Reads a SentencePiece model: its pieces, scores and rules, as data.

A BPE is written as ranks if that is proved to give the library's ids (`character_bpe`); any other
model, such as a unigram, is left to the library, with the reason. It opens no files: `load` does.
"""

from __future__ import annotations

import math
import struct
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from penstok.tokenizers.character_bpe import (
    SPACE_MARK,
    NotConvertibleError,
    convert_pieces,
)
from penstok.tokenizers.huggingface import read_config
from penstok.tokenizers.libraries import try_library
from penstok.tokenizers.models import LibraryModel, ParsedTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.tokenizers.character_bpe import CharacterBpe

__all__ = ["read_sentencepiece"]

# The kinds of pieces and of models, and the numbers of fields, in `sentencepiece_model.proto`.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_MODELS = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
_BPE = 2
_MODEL_TYPE, _TREAT_WHITESPACE_AS_SUFFIX, _BYTE_FALLBACK = 3, 24, 35
_CHARSMAP, _ADD_DUMMY_PREFIX, _REMOVE_EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = 2, 3, 4, 5


class _Piece(NamedTuple):
    text: str
    score: float
    kind: int
    id: int


def read_sentencepiece(content: bytes, config: bytes | None) -> ParsedTokenizer:
    """Read a SentencePiece model; only the configuration can say that a token begins a text.

    Raises:
        UnsupportedError: If the library cannot read it.
    """
    library = try_library("sentencepiece", content)
    num_ids = int(library.GetPieceSize())
    special = {str(library.IdToPiece(one)): one for one in range(num_ids) if library.IsControl(one)}
    begins = read_config(config).get("add_bos_token") and library.bos_id() >= 0
    bpe, why = None, "its ids follow from merges of characters"
    try:
        bpe = _read_bpe(content)
    except NotConvertibleError as error:
        why = str(error)
    return ParsedTokenizer(
        LibraryModel("sentencepiece", content, num_ids, why, bpe=bpe),
        special,
        ends=(str(library.IdToPiece(library.eos_id())),) if library.eos_id() >= 0 else (),
        begins=(str(library.IdToPiece(library.bos_id())),) if begins else (),
    )


def _read_bpe(content: bytes) -> CharacterBpe:
    """Write a model that the library has read as ranks."""
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    pieces: list[_Piece] = []
    for number, value in _iter_fields(content):
        if number == 1 and isinstance(value, bytes):
            pieces.append(_read_piece(value, len(pieces)))
        elif number in (2, 3) and isinstance(value, bytes):
            (trainer if number == 2 else normalizer).update(_iter_fields(value))
    _check_rules(trainer, normalizer)
    by_kind: dict[int, list[_Piece]] = {}
    for piece in pieces:
        by_kind.setdefault(piece.kind, []).append(piece)
    _check_reserved(by_kind)
    normal = by_kind.get(_NORMAL, [])
    return convert_pieces(
        {piece.text: piece.id for piece in normal if len(piece.text) == 1},
        [(piece.text, piece.id) for piece in _order([one for one in normal if len(one.text) > 1])],
        {piece.text: piece.id for piece in by_kind.get(_BYTE, [])},
        adds_space=bool(normalizer.get(_ADD_DUMMY_PREFIX, 1)),
        symbols=_find_symbols(by_kind.get(_USER_DEFINED, [])),
    )


def _check_rules(trainer: dict[int, int | bytes], normalizer: dict[int, int | bytes]) -> None:
    """Refuse everything but a BPE of unchanged text with bytes for unknown characters."""
    kind = trainer.get(_MODEL_TYPE, 1)
    if kind != _BPE:
        name = _MODELS.get(kind, "unknown") if isinstance(kind, int) else "unknown"
        raise NotConvertibleError(f"its SentencePiece model is `{name}`")
    if not trainer.get(_BYTE_FALLBACK):
        raise NotConvertibleError("it has no byte fallback for unknown characters")
    if trainer.get(_TREAT_WHITESPACE_AS_SUFFIX):
        raise NotConvertibleError("it has spaces after words, not before them")
    if normalizer.get(_CHARSMAP):
        raise NotConvertibleError("it normalizes text")
    if normalizer.get(_REMOVE_EXTRA_WHITESPACES, 1):
        raise NotConvertibleError("it removes extra spaces")
    if not normalizer.get(_ESCAPE_WHITESPACES, 1):
        raise NotConvertibleError("it does not mark spaces")


def _check_reserved(by_kind: dict[int, list[_Piece]]) -> None:
    if by_kind.get(_UNUSED):
        raise NotConvertibleError("it has unused pieces")
    for piece in (*by_kind.get(_CONTROL, []), *by_kind.get(_UNKNOWN, [])):
        # The library looks up these names too when it looks up a character.
        if len(piece.text) == 1:
            raise NotConvertibleError(f"its special piece {piece.text!r} is also text")


def _find_symbols(defined: list[_Piece]) -> list[str]:
    """Return the symbols that are found in text; a cut before a space must never divide one."""
    for piece in defined:
        text = piece.text
        if not (text.isascii() and text.isprintable() and " " not in text):
            raise NotConvertibleError(f"it finds {text!r} in text before it is divided")
    return [piece.text for piece in defined]


def _order(longer: list[_Piece]) -> list[_Piece]:
    """Sort pieces in the order in which they are merged: by score.

    Of two merges of equal score the library takes the leftmost, whatever they are. Ranks cannot say
    that, with one exception: runs of spaces that are merged last. There the leftmost merge is
    always the longest, because all spaces to the right of it are still single.
    """
    ordered = sorted(longer, key=lambda piece: (-piece.score, -len(piece.text)))
    groups = [list(group) for _, group in groupby(ordered, key=lambda piece: piece.score)]
    for group in groups[:-1]:
        if len(group) > 1:
            raise NotConvertibleError(
                f"its pieces {group[0].text!r} and {group[1].text!r} have the same score"
            )
    if groups and len(groups[-1]) > 1:
        runs = [piece for piece in longer if SPACE_MARK * 2 in piece.text]
        tied = groups[-1]
        if len(runs) != len(tied) or any(piece.text.strip(SPACE_MARK) for piece in tied):
            raise NotConvertibleError(
                f"its pieces {tied[0].text!r} and {tied[1].text!r} have the same score"
            )
    return ordered


def _read_piece(message: bytes, number: int) -> _Piece:
    fields = dict(_iter_fields(message))
    text, score, kind = fields.get(1, b""), fields.get(2, bytes(4)), fields.get(3, _NORMAL)
    if not (isinstance(text, bytes) and isinstance(score, bytes) and isinstance(kind, int)):
        raise NotConvertibleError(f"its piece {number} is not one")
    try:
        piece = _Piece(text.decode(), struct.unpack("<f", score)[0], kind, number)
    except (UnicodeDecodeError, struct.error) as error:
        raise NotConvertibleError(f"its piece {number} is not one") from error
    if not math.isfinite(piece.score):
        raise NotConvertibleError(f"the score of its piece {number} is not a number")
    return piece


def _iter_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: numbers, or the bytes of anything else."""
    at, end = 0, len(message)
    try:
        while at < end:
            key, at = _read_varint(message, at)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, at = _read_varint(message, at)
                yield number, value
                continue
            length = {1: 8, 5: 4}.get(wire)
            if length is None:
                if wire != 2:
                    raise NotConvertibleError("it is not written as its format requires")
                length, at = _read_varint(message, at)
            yield number, message[at : at + length]
            at += length
    except IndexError as error:
        raise NotConvertibleError("it is not written as its format requires") from error


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = message[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    shift = 7
    while True:
        at += 1
        byte = message[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
