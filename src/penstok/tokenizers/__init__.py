"""Tokenizers: found by name, file or hub id, read as data, and proved where they can be.

It encodes nothing: engines and cuts are made from a `Tokenizer`.
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
