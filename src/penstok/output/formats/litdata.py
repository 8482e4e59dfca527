"""litdata: chunks of tokens and their list, as `TokensLoader` of litdata and litgpt reads them.

A chunk is one item: a header of 12 bytes, then tokens. Chunks are cut between blocks, not between
documents, because the loader drops what does not fill a block at the end of every chunk. It
writes no file; `base` has the protocol, `docs/reference/formats/litdata.md` the bytes.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from penstok.output.formats.base import CopiedFormat, FormatFile, RowNames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.output.formats.base import FormatOptions, SplitTokens, TokenSource
    from penstok.types import Split

__all__ = ["LitdataFormat"]

# The context of 2,048 that litgpt's pretraining uses, and the token that the last target needs.
DEFAULT_BLOCK_TOKENS: Final = 2049
DEFAULT_CHUNK_BYTES: Final = 64_000_000
# Offsets are uint32. The last chunk may have nearly a block more than the others.
_MAX_BYTES: Final = 2**32 - 1
_HEADER: Final = struct.Struct("<III")
# How litdata numbers the types of NumPy.
_DTYPE_CODES: Final = {"uint16": 5, "uint32": 6}
# A chunk is a list of one leaf.
_DATA_SPEC: Final = '[1, {"type": null, "context": null, "children_spec": []}]'


_NAMES: Final = RowNames(
    "litdata",
    "block",
    "chunk",
    "pass `--sequence-length 2049` (the context of the model, plus 1)",
    ": the loader of `litdata` would find none",
)


class LitdataFormat(CopiedFormat):
    """Chunks whose tokens are a multiple of the block size, and `index.json`."""

    name = "litdata"

    def refuse(self, source: TokenSource, options: FormatOptions) -> None:
        """Refuse a chunk that is smaller than a block, or a block too large for a chunk.

        Raises:
            UsageError: If the two sizes cannot go together.
        """
        block = _block_tokens(options)
        fits = block <= _most_tokens(source, block)
        _NAMES.refuse_sizes(block, options.shard_tokens, fits=fits)

    def iter_files(self, source: TokenSource, options: FormatOptions) -> Iterator[FormatFile]:
        """Yield the chunks of each split, and its index after them."""
        for name, split in source.iter_splits():
            yield from _iter_split(name, split, _chunk_tokens(source, options), options)


def _iter_split(
    name: Split, split: SplitTokens, chunk_tokens: int, options: FormatOptions
) -> Iterator[FormatFile]:
    chunks = []
    item_bytes = np.dtype(split.dtype).itemsize
    for idx, (start, stop) in enumerate(_iter_ranges(split, chunk_tokens, _block_tokens(options))):
        num_bytes = (stop - start) * item_bytes
        chunk = {
            "chunk_bytes": _HEADER.size + num_bytes,
            "chunk_size": 1,
            "dim": stop - start,
            "filename": f"chunk-0-{idx}.bin",
        }
        chunks.append(chunk)
        content = _iter_chunk(split, start, stop, num_bytes)
        yield FormatFile(f"{name}/{chunk['filename']}", stop - start, content)
    config = {
        "chunk_bytes": chunk_tokens * item_bytes,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_numpy:{_DTYPE_CODES[split.dtype]}"],
        "data_spec": _DATA_SPEC,
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    # The time of writing would make every output a different one.
    index = {"chunks": chunks, "config": config, "updated_at": "0"}
    yield FormatFile(f"{name}/index.json", 0, [json.dumps(index, sort_keys=True).encode()])


def _iter_ranges(split: SplitTokens, chunk_tokens: int, block: int) -> Iterator[tuple[int, int]]:
    """Yield where chunks begin and end; what is left at the end and no block is in the last."""
    start, total = 0, split.num_tokens
    while start < total:
        stop = start + chunk_tokens
        if total - stop < block:
            stop = total
        yield start, stop
        start = stop


def _iter_chunk(
    split: SplitTokens, start: int, stop: int, num_bytes: int
) -> Iterator[bytes | memoryview]:
    yield _HEADER.pack(1, _HEADER.size, _HEADER.size + num_bytes)
    yield from split.iter_bytes(start, stop)


def _block_tokens(options: FormatOptions) -> int:
    return DEFAULT_BLOCK_TOKENS if options.sequence_length is None else options.sequence_length


def _most_tokens(source: TokenSource, block: int) -> int:
    """Return how many tokens a chunk can have if nearly a block may follow."""
    return (_MAX_BYTES - _HEADER.size) // np.dtype(source.dtype).itemsize - block


def _chunk_tokens(source: TokenSource, options: FormatOptions) -> int:
    block = _block_tokens(options)
    wanted = options.shard_tokens
    if wanted is None:
        wanted = max(DEFAULT_CHUNK_BYTES // np.dtype(source.dtype).itemsize, block)
    return min(wanted, _most_tokens(source, block)) // block * block
