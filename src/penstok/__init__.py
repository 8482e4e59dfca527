"""Penstok: text of any size in, `train.bin` and `val.bin` out, in a fixed amount of memory."""

from __future__ import annotations

from penstok.api import (
    finish,
    open,  # noqa: A004 reads as `penstok.open`
    tokenize,
    tokenize_part,
    verify,
)
from penstok.errors import PenstokError

__all__ = ["PenstokError", "finish", "open", "tokenize", "tokenize_part", "verify"]
