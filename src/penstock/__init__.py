"""Penstock: text of any size in, `train.bin` and `val.bin` out, in a fixed amount of memory."""

from __future__ import annotations

from penstock.api import (
    finish,
    open,  # noqa: A004 reads as `penstock.open`
    tokenize,
    tokenize_part,
    verify,
)
from penstock.errors import PenstockError

__all__ = ["PenstockError", "finish", "open", "tokenize", "tokenize_part", "verify"]
