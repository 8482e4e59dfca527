"""The libraries `tokenizers` and `sentencepiece`, both in the extra `hf`.

They are imported when they are needed; if one is not installed, the error says what to install.
Nothing is downloaded. Engines encode with the objects that are made here.
"""

from __future__ import annotations

import json
import os
import re
from importlib import import_module
from typing import Any, Literal

from penstok.errors import UsageError
from penstok.tokenizers.vocabulary import UnsupportedError, read_spelling

__all__ = [
    "Library",
    "drop_added_space",
    "drop_library_model",
    "encode_text",
    "find_id",
    "has_library_model",
    "import_library",
    "load_continuing_model",
    "load_library_model",
    "make_library_model",
    "spell_ids",
    "try_library",
]

Library = Literal["tokenizers", "sentencepiece"]

_BLANK = "\u2581"  # how SentencePiece spells a space
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
# A field that comes again replaces the earlier one: the normalizer (3) without a space (3: 0).
_NO_ADDED_SPACE = b"\x1a\x02\x18\x00"


def import_library(name: str) -> Any:
    """Import a library of the extra `hf`."""
    # A worker is one process on one core.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"this tokenizer needs the package `{name}`",
            where="--tokenizer",
            next_step="pip install 'penstok[hf]'",
        ) from error


# The last object, and what it was made from.
_kept: list[tuple[Library, bytes, Any]] = []


def load_library_model(library: Library, content: bytes) -> Any:
    """Return the library's object for a model; the last one is kept."""
    # Another thread may keep another object meanwhile.
    for *made_from, kept in tuple(_kept):
        if made_from == [library, content]:
            return kept
    made = make_library_model(library, content)
    _kept[:] = [(library, content, made)]
    return made


def has_library_model(library: Library, content: bytes) -> bool:
    """Tell whether the library's object for a model is kept."""
    return any(kept[:2] == (library, content) for kept in tuple(_kept))


def drop_library_model() -> None:
    """Drop the object that is kept: a large one is needed only to read a file and to compare."""
    _kept.clear()


def make_library_model(library: Library, content: bytes) -> Any:
    """Make the library's object for a model; it is not kept."""
    module = import_library(library)
    if library == "sentencepiece":
        return module.SentencePieceProcessor(model_proto=content)
    tokenizer = module.Tokenizer.from_buffer(content)
    # Text that looks like a special token is still text.
    tokenizer.encode_special_tokens = True
    return tokenizer


def load_continuing_model(library: Library, content: bytes) -> Any:
    """Make the library's object for parts that continue a document.

    It puts no space before a text.
    """
    return make_library_model(library, drop_added_space(library, content))


def drop_added_space(library: Library, content: bytes) -> bytes:
    """Return a model that does not put a space before a text."""
    if library == "sentencepiece":
        return content + _NO_ADDED_SPACE
    settings = json.loads(content)
    steps = settings["normalizer"]["normalizers"]
    settings["normalizer"]["normalizers"] = [step for step in steps if step["type"] != "Prepend"]
    return json.dumps(settings).encode()


def try_library(library: Library, content: bytes) -> Any:
    """Let a library read a file, to find out early whether it can.

    Raises:
        UnsupportedError: If it cannot.
    """
    try:
        return load_library_model(library, content)
    except UsageError:
        raise
    except Exception as error:
        raise UnsupportedError(f"`{library}` cannot read it: {error}") from error


def encode_text(library: Library, content: bytes, text: str) -> list[int]:
    """Return the ids of a short text, to find out what a model does; engines encode corpora."""
    model = load_library_model(library, content)
    if library == "sentencepiece":
        return list(model.EncodeAsIds(text))
    try:
        return list(model.encode(text, add_special_tokens=False).ids)
    except Exception as error:
        raise UsageError(
            f"`{library}` cannot encode {text!r} with this tokenizer: {error}",
            where="--tokenizer",
            next_step="add a token for unknown characters to it",
        ) from error


def find_id(library: Library, content: bytes, text: str) -> int | None:
    """Return the id of a token, with or without the mark of a space; None if it is not one."""
    model = load_library_model(library, content)
    for piece in (text, _BLANK + text):
        if library == "sentencepiece":
            found = int(model.PieceToId(piece))
            if model.IdToPiece(found) == piece:
                return found
        elif (found := model.token_to_id(piece)) is not None:
            return int(found)
    return None


def spell_ids(library: Library, content: bytes, ids: set[int]) -> dict[int, bytes]:
    """Return the bytes of each id, spaces as spaces; unknown ids are left out."""
    if not ids:
        return {}
    model = load_library_model(library, content)
    find = model.IdToPiece if library == "sentencepiece" else model.id_to_token
    found = {token_id: find(token_id) for token_id in ids}
    is_byte_level = b'"ByteLevel"' in content and library == "tokenizers"
    return {
        token_id: _bytes_of(str(piece), is_byte_level=is_byte_level)
        for token_id, piece in found.items()
        if piece is not None
    }


def _bytes_of(piece: str, *, is_byte_level: bool) -> bytes:
    if is_byte_level and (found := read_spelling(piece)) is not None:
        return found
    if byte := _BYTE.fullmatch(piece):
        return bytes([int(byte[1], 16)])
    return piece.replace(_BLANK, " ").encode()
