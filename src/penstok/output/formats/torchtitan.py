"""The pair of files that torchtitan's memory-mapped token source reads, in a folder per split.

Tokens are always uint32, because that reader knows no other type. A split without tokens has no
folder, because an empty file cannot be mapped. `docs/reference/formats/torchtitan.md` has the
layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.output.documents import npy_header
from penstok.output.formats.base import FormatFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.output.formats.base import FormatOptions, SplitTokens, TokenSource

__all__ = ["TorchtitanFormat"]


class TorchtitanFormat:
    """`train/tokens.bin` and `train/document_offsets.npy`."""

    name = "torchtitan"
    is_beside = False

    def copied_bytes(self, dtype: str) -> int:
        """All that are not uint32 already."""
        return 4 if dtype == "uint16" else 0

    def refuse(self, source: TokenSource, options: FormatOptions) -> None:
        """Refuse nothing: any tokens fit."""

    def iter_files(self, source: TokenSource, options: FormatOptions) -> Iterator[FormatFile]:
        """Yield the tokens, linked where the bytes are the same, and then their offsets."""
        for name, split in source.splits.items():
            if not split.num_tokens:
                continue
            tokens = f"{name}/tokens.bin"
            if split.dtype == "uint32" and len(split.files) == 1:
                yield FormatFile(tokens, split.num_tokens, same_as=split.files[0])
            else:
                yield FormatFile(tokens, split.num_tokens, _iter_wide(split))
            yield FormatFile(f"{name}/document_offsets.npy", 0, _iter_offsets(split))


def _iter_wide(split: SplitTokens) -> Iterator[memoryview]:
    # One buffer: a new array for each piece would be new pages from the system each time.
    wide = np.empty(0, np.uint32)
    for piece in split.iter_tokens():
        if len(wide) < len(piece):
            wide = np.empty(len(piece), np.uint32)
        wide[: len(piece)] = piece
        yield wide[: len(piece)].view(np.uint8).data


def _iter_offsets(split: SplitTokens) -> Iterator[bytes]:
    # The reader takes any integers. Signed ones, because before NumPy 2 a difference of uint64 and
    # a Python integer was a float.
    yield npy_header(split.num_documents + 1, "<i8")
    for starts in split.iter_starts():
        yield starts.astype("<i8").tobytes()
    yield np.array([split.num_tokens], "<i8").tobytes()
