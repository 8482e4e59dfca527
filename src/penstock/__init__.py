"""Penstock: text of any size in, `train.bin` and `val.bin` out, in a fixed amount of memory."""

from __future__ import annotations

from penstock.api import open, tokenize, verify  # noqa: A004 reads as `penstock.open`
from penstock.errors import PenstockError

__all__ = ["PenstockError", "open", "tokenize", "verify"]
