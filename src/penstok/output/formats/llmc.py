"""Shards with the header of llm.c and modded-nanogpt; the end-of-text id comes first.

It writes the two layouts that these programs read, for uint16 (GPT-2) and uint32 (Llama 3), and
imports them. Files of its evaluation sets are refused. `docs/reference/formats/llmc.md` has the
layout.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from penstok.errors import UsageError
from penstok.output.formats.base import CopiedFormat, FormatFile, ImportedFile
from penstok.output.formats.importing import (
    bad_file,
    find_files,
    get_size,
    one_document,
    open_scanned,
    other_format,
    read_head,
    refuse_other_dtype,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstok.output.formats.base import (
        FormatOptions,
        ImportOptions,
        SplitTokens,
        TokenSource,
    )

__all__ = ["LlmcFormat"]

_HEADER_BYTES = 1024
_HEADER = struct.Struct("<iii")
# Magic number and version.
_KINDS: dict[Literal["uint16", "uint32"], tuple[int, int]] = {
    "uint16": (20240520, 1),
    "uint32": (20240801, 7),
}
_EVALUATION_MAGIC = 20240522
_SHARD_TOKENS = 100_000_000
# The C reader seeks by an `int`.
_MAX_BYTES = (1 << 31) - 1
# With more, the names would no longer sort in order.
_MAX_SHARDS = 1_000_000


class LlmcFormat(CopiedFormat):
    """`tokens_train_000000.bin` and so on: read by llm.c and modded-nanogpt."""

    name = "llmc"

    def refuse(self, source: TokenSource, options: FormatOptions) -> None:
        """Refuse documents without end-of-text, and shards that are too large or too many."""
        if source.eot == "none":
            raise UsageError(
                "readers of this format find documents by their end-of-text tokens, and these "
                "tokens have none",
                where="--format llmc",
                next_step="tokenize again without `--eot none`, or choose another format",
            )
        largest = _max_tokens(source.dtype)
        tokens = _shard_tokens(options)
        if not 1 <= tokens <= largest:
            raise UsageError(
                f"a shard of {tokens} tokens is not possible: its reader takes files below 2 GiB",
                where="--shard-tokens",
                next_step=f"pass `--shard-tokens` from 1 to {largest}",
            )
        most = max(split.num_tokens for split in source.splits.values()) + 1
        if most > tokens * _MAX_SHARDS:
            raise UsageError(
                f"{most} tokens in shards of {tokens} are more than {_MAX_SHARDS} files",
                where="--shard-tokens",
                next_step=f"pass `--shard-tokens {min(largest, most // _MAX_SHARDS + 1)}`",
            )

    def iter_files(self, source: TokenSource, options: FormatOptions) -> Iterator[FormatFile]:
        """Yield the shards of each split, numbered from 0; an empty split has none."""
        shard_tokens = _shard_tokens(options)
        for name, split in source.splits.items():
            before, num_tokens = _shift(source, split)
            for idx, start in enumerate(range(0, num_tokens, shard_tokens)):
                stop = min(start + shard_tokens, num_tokens)
                content = _iter_shard(split, before, start, stop)
                yield FormatFile(f"tokens_{name}_{idx:06d}.bin", stop - start, content)

    def open_files(self, paths: Sequence[Path], options: ImportOptions) -> list[ImportedFile]:
        """Check shards; unless told otherwise, the end-of-text id begins a document."""
        files = [_open_file(path, options) for path in find_files(paths, ".bin")]
        return open_scanned(files, options, "prepend")


def _shard_tokens(options: FormatOptions) -> int:
    return _SHARD_TOKENS if options.shard_tokens is None else options.shard_tokens


def _max_tokens(dtype: str) -> int:
    return (_MAX_BYTES - _HEADER_BYTES) // np.dtype(dtype).itemsize


def _shift(source: TokenSource, split: SplitTokens) -> tuple[list[int], int]:
    """Return what comes before the tokens of a split, and how many tokens its shards have.

    With the end-of-text id moved from the end of the split to its beginning, each document has one
    before it instead of behind it.
    """
    num_tokens = split.num_tokens
    if source.eot != "append" or not num_tokens:
        return [], num_tokens
    (last,) = split.iter_tokens(num_tokens - 1, num_tokens)
    ends_with_eot = int(last[0]) == source.tokenizer.eot_id
    return [source.tokenizer.eot_id], num_tokens + 1 - ends_with_eot


def _iter_shard(
    split: SplitTokens, before: list[int], start: int, stop: int
) -> Iterator[bytes | memoryview]:
    header = _HEADER.pack(*_KINDS[split.dtype], stop - start)
    yield header.ljust(_HEADER_BYTES, b"\0")
    shift = len(before)
    if start < shift:
        yield np.array(before, split.dtype).tobytes()
    yield from split.iter_bytes(max(start - shift, 0), stop - shift)


def _open_file(path: Path, options: ImportOptions) -> ImportedFile:
    head = read_head(path, _HEADER_BYTES)
    size = get_size(path)
    if len(head) < _HEADER_BYTES:
        raise bad_file(path, f"the file ends within its header of {_HEADER_BYTES} bytes")
    magic, version, num_tokens = _HEADER.unpack_from(head)
    if magic == _EVALUATION_MAGIC:
        raise other_format(path, "this is an evaluation set of llm.c, not a file of tokens")
    kinds = {kind[0]: (dtype, kind[1]) for dtype, kind in _KINDS.items()}
    if magic not in kinds:
        known = ", ".join(map(str, kinds))
        raise other_format(
            path, f"this is not a file of llm.c: it begins with {magic}; known: {known}"
        )
    dtype, known_version = kinds[magic]
    if version != known_version:
        raise bad_file(path, f"the file has version {version}; known: {known_version}")
    expected = _HEADER_BYTES + num_tokens * np.dtype(dtype).itemsize
    if num_tokens < 0 or size != expected:
        raise bad_file(
            path, f"the file has {size} bytes, but its header lists {num_tokens} tokens of {dtype}"
        )
    refuse_other_dtype(dtype, options, path)
    return ImportedFile(
        path=path,
        offset=_HEADER_BYTES,
        num_tokens=num_tokens,
        dtype=dtype,
        iter_starts=partial(one_document, num_tokens),
    )
