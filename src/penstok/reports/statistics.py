"""Statistics of a finished output, in one pass over its tokens and its document index.

Memory does not grow with the output: a count per id, and a histogram of lengths. It checks that ids
belong to the vocabulary, and no checksum: that is `verify`. `report` asks for them, and keeps them
in the user's cache by the digest of the output.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from penstok.errors import DamageError
from penstok.kernel import find_kernel_function
from penstok.output.formats.base import SplitTokens, TokenFile, TokenSource
from penstok.output.layout import MANIFEST
from penstok.output.report_files import load_cached, store_cached
from penstok.storage.object_paths import ObjectPath, repair_step
from penstok.types import SPLITS, Split, Struct
from penstok.worker.memory import num_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstok.data.dataset import Dataset
    from penstok.storage.object_paths import OutputPath

__all__ = ["BINS_PER_OCTAVE", "SplitStatistics", "Statistics", "collect_statistics", "has_index"]

# Histogram of lengths: so many bins from one power of two to the next.
BINS_PER_OCTAVE = 8
_NUM_BINS = 48 * BINS_PER_OCTAVE
_NUM_LONGEST = 5
_NUM_FREQUENT = 40
_NUM_RANKS = 80
# Tokens that one thread counts at a time; the counts of the kernel have 32 bits.
_RANGE_TOKENS = 1 << 26
# Changes with what is collected.
_VERSION = 1


class SplitStatistics(Struct, frozen=True):
    """The documents of one split.

    Attributes:
        lengths: How many documents have so many tokens, in bins of an eighth of an octave.
        longest: The number, start and tokens of the longest documents, the longest first.
    """

    lengths: list[int]
    longest: list[tuple[int, int, int]]


class Statistics(Struct, frozen=True):
    """What one pass over an output finds.

    Attributes:
        splits: By split; empty if there is no document index.
        frequent: The most frequent ids, and how often they occur.
        ranks: Some ranks, and how often the id of that rank occurs.
        num_used: How many ids occur at all.
    """

    splits: dict[Split, SplitStatistics]
    frequent: list[tuple[int, int]]
    ranks: list[tuple[int, int]]
    num_used: int


def has_index(dataset: Dataset) -> bool:
    """Return whether an output knows where its documents start."""
    records = dataset.manifest.splits.values()
    return all(len(each.indexes_of("documents")) == len(each.files) for each in records)


def collect_statistics(dataset: Dataset) -> Statistics:
    """Read an output once, or take what an earlier report of the same output found.

    Raises:
        DamageError: If a file is missing or too short, an index does not fit, or an id is not in
            the vocabulary.
    """
    name = f"statistics-{_digest(dataset)}.json"
    cached = load_cached(name)
    if cached is not None:
        try:
            return msgspec.json.decode(cached, type=Statistics)
        except msgspec.DecodeError:
            pass  # damaged, or of another version: it is replaced
    statistics = _collect(dataset)
    store_cached(name, msgspec.json.encode(statistics))
    return statistics


def _digest(dataset: Dataset) -> str:
    """Return a digest of everything that the statistics depend on.

    The times of files are part of it, so that a file that was changed since is read again.
    """
    manifest = dataset.manifest
    first = f"{_VERSION} {manifest.dtype} {manifest.tokenizer.vocab_size}"
    running = xxhash.xxh3_128(first.encode())
    for split in SPLITS:
        record = manifest.splits[split]
        digests = [file.digest for file in record.files]
        digests += [index.digest for index in record.indexes_of("documents")]
        running.update(f"{split} {' '.join(digests)}".encode())
        for name, num_bytes in record.iter_sizes():
            running.update(f"{name} {num_bytes} {_time_of(dataset.folder / name)}\n".encode())
    return running.hexdigest()


def _time_of(path: OutputPath) -> int:
    """Return when a file was changed; 0 of an object, whose content its digest tells."""
    if isinstance(path, ObjectPath):
        return 0
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0  # reading it will say what is wrong


def _collect(dataset: Dataset) -> Statistics:
    splits = _open_splits(dataset)
    counts = _count_ids(dataset, list(splits.values()))
    order = np.argsort(counts, kind="stable")[::-1]
    num_used = int(np.count_nonzero(counts))
    ranks = np.unique(np.geomspace(1, max(num_used, 1), _NUM_RANKS).astype(int))
    return Statistics(
        splits={split: _measure(tokens) for split, tokens in splits.items()}
        if has_index(dataset)
        else {},
        frequent=[(int(one), int(counts[one])) for one in order[:_NUM_FREQUENT] if counts[one]],
        ranks=[(int(rank), int(counts[order[rank - 1]])) for rank in ranks if rank <= num_used],
        num_used=num_used,
    )


def _open_splits(dataset: Dataset) -> dict[Split, SplitTokens]:
    """Return the token files of each split; without an index, as if they had no documents."""
    manifest = dataset.manifest
    if has_index(dataset):
        return TokenSource.from_manifest(manifest, lambda name: dataset.folder / name).splits
    return {
        split: SplitTokens(
            manifest.dtype,
            [
                TokenFile(
                    file.path, dataset.folder / file.path, file.tokens, dataset.folder / MANIFEST, 0
                )
                for file in record.files
            ],
        )
        for split, record in manifest.splits.items()
    }


def _count_ids(dataset: Dataset, splits: list[SplitTokens]) -> NDArray[np.int64]:
    """Count how often each id occurs, with one thread per core."""
    vocab_size = dataset.manifest.tokenizer.vocab_size
    total, num_outside = np.zeros(vocab_size, np.int64), 0
    with ThreadPoolExecutor(num_cores()) as threads:
        work = deque(
            threads.submit(_count_range, tokens, start, vocab_size)
            for tokens in splits
            for start in range(0, tokens.num_tokens, _RANGE_TOKENS)
        )
        while work:
            # What was added up is not kept: a large output has thousands of ranges.
            counts, outside = work.popleft().result()
            total += counts
            num_outside += outside
    if num_outside:
        raise DamageError(
            f"{num_outside:,} ids are not among the {vocab_size:,} of "
            f"`{dataset.manifest.tokenizer.name}`",
            where=str(dataset.folder),
            next_step=repair_step(dataset.folder),
        )
    return total


def _count_range(tokens: SplitTokens, start: int, vocab_size: int) -> tuple[NDArray[np.int64], int]:
    stop = min(start + _RANGE_TOKENS, tokens.num_tokens)
    count, finish = _make_counter(vocab_size)
    outside = sum(count(piece) for piece in tokens.iter_tokens(start, stop))
    return finish(), outside


def _make_counter(
    vocab_size: int,
) -> tuple[Callable[[NDArray[Any]], int], Callable[[], NDArray[np.int64]]]:
    """Return what counts a piece, and returns how many ids are outside; and what returns all."""
    count_ids = find_kernel_function("count_ids")
    if count_ids is not None:
        tables = np.zeros(3 * vocab_size, np.uint32)
        return (
            lambda piece: int(count_ids(piece, tables)),
            lambda: tables.reshape(3, vocab_size).sum(axis=0, dtype=np.int64),
        )
    total = np.zeros(vocab_size, np.int64)

    def count(piece: NDArray[Any]) -> int:
        found = np.bincount(piece, minlength=vocab_size)
        np.add(total, found[:vocab_size], out=total)
        return int(found[vocab_size:].sum())

    return count, lambda: total


def _measure(tokens: SplitTokens) -> SplitStatistics:
    lengths, longest, number = np.zeros(_NUM_BINS, np.int64), list[tuple[int, int, int]](), 0
    for starts, sizes in _iter_lengths(tokens):
        bins = (np.log2(np.maximum(sizes, 1)) * BINS_PER_OCTAVE).astype(int)
        lengths += np.bincount(bins, minlength=_NUM_BINS)
        top = np.argsort(sizes, kind="stable")[: -_NUM_LONGEST - 1 : -1]
        longest += [(number + int(at), int(starts[at]), int(sizes[at])) for at in top]
        longest = sorted(longest, key=lambda each: -each[2])[:_NUM_LONGEST]
        number += len(sizes)
    last = int(np.flatnonzero(lengths)[-1]) + 1 if lengths.any() else 0
    return SplitStatistics(lengths[:last].tolist(), longest)


def _iter_lengths(
    tokens: SplitTokens,
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    for starts, ends in tokens.iter_documents():
        yield starts, (ends - starts).astype(np.int64)
