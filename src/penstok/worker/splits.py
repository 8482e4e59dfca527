"""Train or val, decided by a hash of the text and the seed, never by its position.

It does not divide text and writes nothing. `worker` passes it blocks from a reader, and encodes the
pieces of each split separately; `jobs.few_documents` finds the smallest hash of a small corpus.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import xxhash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.types import Block

__all__ = ["CARRIED", "TRAIN", "VAL", "Hasher", "SmallestHash", "Splitter"]

TRAIN, VAL, CARRIED = 0, 1, 2


class ChooseSplits(Protocol):
    """The kernel's function: sets `out` to 1 where the hash of a text is below the threshold."""

    def __call__(
        self,
        text: NDArray[np.uint8],
        starts: NDArray[np.int64],
        heads: NDArray[np.int64],
        seed: int,
        threshold: int,
        out: NDArray[np.uint8],
    ) -> None: ...


class Hasher:
    """The hash of a document's head (its first `HEAD_BYTES`), from which its split follows."""

    def __init__(self, seed: int, choose_splits: ChooseSplits | None = None) -> None:
        """Take the kernel's function too, if the kernel is installed.

        It computes the same hash without a Python call per document: 13 to 20 GB/s, whereas the
        loop takes about 2 microseconds per document.
        """
        self._seed = seed
        self._choose_splits = choose_splits

    def hash(self, text: memoryview) -> int:
        """Hash one text."""
        return xxhash.xxh3_64_intdigest(text, self._seed)

    def find_below(self, block: Block, threshold: int) -> NDArray[np.uint8]:
        """Set 1 for each piece whose hash is below a threshold."""
        count = len(block.starts)
        if threshold in (0, 2**64):
            return np.full(count, threshold > 0, np.uint8)
        if self._choose_splits is not None:
            below = np.empty(count, np.uint8)
            text = np.frombuffer(block.text, np.uint8)
            self._choose_splits(text, block.starts, block.heads, self._seed, threshold, below)
            return below
        heads = zip(block.starts.tolist(), block.heads.tolist(), strict=True)
        found = (self.hash(block.text[start:end]) < threshold for start, end in heads)
        return np.fromiter(found, np.uint8, count)


class Splitter:
    """Assigns each piece of a unit to a split; one object serves one unit after another.

    The hash of a document's head decides, so exact duplicates always go to the same split. A piece
    that continues a document of an earlier unit is `CARRIED`: the head of that document is not in
    this unit.
    """

    def __init__(self, threshold: int, hasher: Hasher) -> None:
        """Put documents with a hash below the threshold into val."""
        self._threshold = threshold
        self._hasher = hasher
        self._open = CARRIED

    def start_unit(self) -> None:
        """Forget the document that was open."""
        self._open = CARRIED

    def assign(self, block: Block) -> tuple[Block, NDArray[np.uint8]]:
        """Return the block and the split of each of its pieces.

        Consecutive spans of a giant document that go to the same split become one document: the
        returned block has `begins` and `closes` set where the split changes.
        """
        splits = self._hasher.find_below(block, self._threshold)
        if block.spans:
            return self._join_spans(block, splits), splits
        if len(splits) and not block.begins[0]:
            splits[0] = self._open
        if len(splits):
            self._open = int(splits[-1])
        return block, splits

    def _join_spans(self, block: Block, splits: NDArray[np.uint8]) -> Block:
        # CARRIED differs from both splits, so the document's own start and end count as changes.
        before, after = (
            CARRIED if text is None else int(self._hasher.hash(text) < self._threshold)
            for text in (block.before, block.after)
        )
        around = np.concatenate(([before], splits, [after]))
        changes = around[1:] != around[:-1]
        return replace(block, begins=changes[:-1], closes=changes[1:])


class SmallestHash:
    """The smallest hash of all documents, or spans of giant ones, that it is given.

    Attributes:
        value: The smallest hash; None before the first document.
        is_shared: Whether all documents have it: then none could be left for train.
    """

    def __init__(self, hasher: Hasher) -> None:
        self.value: int | None = None
        self.is_shared: bool = True
        self._hasher = hasher

    def add(self, block: Block) -> None:
        """Add the documents that begin in a block."""
        if not block.spans:
            block = block.select(block.begins)
        if not len(block.starts):
            return
        if self.value is None:
            self.value = self._hash_first(block)
        below = self._hasher.find_below(block, self.value)
        if self.is_shared:
            others = self._hasher.find_below(block, self.value + 1) == 0
            self.is_shared = not (below.any() or others.any())
        # Each turn halves the documents that are left, on average.
        while below.any():
            block = block.select(below > 0)
            self.value = self._hash_first(block)
            below = self._hasher.find_below(block, self.value)

    def _hash_first(self, block: Block) -> int:
        return self._hasher.hash(block.text[int(block.starts[0]) : int(block.heads[0])])
