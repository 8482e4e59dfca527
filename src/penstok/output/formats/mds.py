"""MDS: shards of samples and their list, as Mosaic's streaming and llm-foundry read them.

A sample is a fixed number of tokens, and nothing else: the shape is written once per shard. The
tokens at the end of a split that fill no sample have no place here and are counted as dropped. It
writes no file; `base` has the protocol, `docs/reference/formats/mds.md` the bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstok.output.formats.base import CopiedFormat, FormatFile, RowNames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.output.formats.base import FormatOptions, SplitTokens, TokenSource
    from penstok.types import Split

__all__ = ["MdsFormat"]

# The `max_seq_len` of most configurations of llm-foundry.
DEFAULT_SAMPLE_TOKENS: Final = 2048
# What `MDSWriter` takes if it is not told otherwise.
DEFAULT_SHARD_BYTES: Final = 1 << 26
# Offsets are uint32, and one is written after the last sample.
_MAX_BYTES: Final = 2**32 - 1
_OFFSET_BYTES: Final = 4
# So many offsets are made at a time.
_OFFSETS: Final = 1 << 16


_NAMES: Final = RowNames(
    "mds", "sample", "shard", "pass `--sequence-length 2048`, or what `max_seq_len` will be"
)


class MdsFormat(CopiedFormat):
    """Shards with one column, `tokens`, of a fixed shape, and `index.json`."""

    name = "mds"

    def refuse(self, source: TokenSource, options: FormatOptions) -> None:
        """Refuse a shard that is smaller than a sample, or a sample too large for a shard.

        Raises:
            UsageError: If the two sizes cannot go together.
        """
        length = _sample_tokens(options)
        fits = _Layout.fitting(source, length, _MAX_BYTES) >= 1
        _NAMES.refuse_sizes(length, options.shard_tokens, fits=fits)

    def iter_files(self, source: TokenSource, options: FormatOptions) -> Iterator[FormatFile]:
        """Yield the shards of each split, and its index after them."""
        layout = _Layout(source, options)
        for name, split in source.iter_splits():
            yield from layout.iter_split(name, split)


class _Layout:
    """The bytes that are the same in all shards, and how many samples are in one."""

    def __init__(self, source: TokenSource, options: FormatOptions) -> None:
        self._length = _sample_tokens(options)
        self._sample_bytes = self._length * np.dtype(source.dtype).itemsize
        limit = DEFAULT_SHARD_BYTES if options.shard_tokens is None else None
        self._config = _config(source, self._length, limit)
        self._config_bytes = json.dumps(self._config, sort_keys=True).encode()
        most = self.fitting(source, self._length, _MAX_BYTES)
        if options.shard_tokens is None:
            wanted = max(self.fitting(source, self._length, DEFAULT_SHARD_BYTES), 1)
        else:
            wanted = options.shard_tokens // self._length
        self._shard_samples = min(wanted, most)

    @staticmethod
    def fitting(source: TokenSource, length: int, limit: int) -> int:
        """Return how many samples `MDSWriter` puts into a shard of `limit` bytes."""
        config = json.dumps(_config(source, length, DEFAULT_SHARD_BYTES), sort_keys=True)
        sample_bytes = length * np.dtype(source.dtype).itemsize
        return (limit - 2 * _OFFSET_BYTES - len(config)) // (sample_bytes + _OFFSET_BYTES)

    def iter_split(self, name: Split, split: SplitTokens) -> Iterator[FormatFile]:
        total = split.num_tokens // self._length
        shards = []
        for idx, first in enumerate(range(0, total, self._shard_samples)):
            num_samples = min(self._shard_samples, total - first)
            raw = {
                "basename": f"shard.{idx:05d}.mds",
                "bytes": self._offset(num_samples, num_samples),
                "hashes": {},
            }
            shards.append(
                self._config | {"raw_data": raw, "samples": num_samples, "zip_data": None}
            )
            yield FormatFile(
                f"{name}/{raw['basename']}",
                num_samples * self._length,
                self._iter_shard(split, first, num_samples),
            )
        index = {"shards": shards, "version": 2}
        yield FormatFile(
            f"{name}/index.json",
            0,
            [json.dumps(index, sort_keys=True).encode()],
            dropped_tokens=split.num_tokens - total * self._length,
        )

    def _iter_shard(
        self, split: SplitTokens, first: int, num_samples: int
    ) -> Iterator[bytes | memoryview]:
        yield np.uint32(num_samples).tobytes()
        for at in range(0, num_samples + 1, _OFFSETS):
            numbers = np.arange(at, min(at + _OFFSETS, num_samples + 1), dtype=np.uint64)
            offsets = self._offset(num_samples, 0) + numbers * np.uint64(self._sample_bytes)
            yield offsets.astype("<u4").tobytes()
        yield self._config_bytes
        start = first * self._length
        yield from split.iter_bytes(start, start + num_samples * self._length)

    def _offset(self, num_samples: int, number: int) -> int:
        """Return where a sample starts in its shard; the number after the last: its size."""
        head = _OFFSET_BYTES * (2 + num_samples) + len(self._config_bytes)
        return head + number * self._sample_bytes


def _config(source: TokenSource, length: int, limit: int | None) -> dict[str, Any]:
    return {
        "column_encodings": [f"ndarray:{source.dtype}:{length}"],
        "column_names": ["tokens"],
        "column_sizes": [length * np.dtype(source.dtype).itemsize],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": limit,
        "version": 2,
    }


def _sample_tokens(options: FormatOptions) -> int:
    return DEFAULT_SAMPLE_TOKENS if options.sequence_length is None else options.sequence_length
