"""Tokenizers: loaded by name, file or hub id, read as data, and proved equal to ranks if they are.

Nothing here encodes text, and no code from a file is run. Engines encode with a `Tokenizer`, and
`cuts` derives from it where text may be divided.
"""

from __future__ import annotations

from penstok.tokenizers.load import load_recorded_tokenizer, load_tokenizer
from penstok.tokenizers.models import ByteLevel, LibraryModel, Tokenizer

__all__ = [
    "ByteLevel",
    "LibraryModel",
    "Tokenizer",
    "load_recorded_tokenizer",
    "load_tokenizer",
]
