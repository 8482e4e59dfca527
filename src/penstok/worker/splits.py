"""Train or val, decided by a hash of the text and the seed, never by its position.

It does not divide text and writes nothing. `worker` passes it blocks from a reader, and encodes the
pieces of each split separately; `jobs.few_documents` finds the smallest hash of a small corpus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import xxhash

from penstok.types import replace

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

    def find_between(self, block: Block, low: int, high: int) -> NDArray[np.uint8]:
        """Set 1 for each piece whose hash is `low` or more, and below `high`."""
        below = self.find_below(block, high)
        return below - self.find_below(block, low) if low else below


class Splitter:
    """Assigns each piece of a unit to a split; one object serves one unit after another.

    The hash of a document's head decides, so exact duplicates always go to the same split. A piece
    that continues a document of an earlier unit is `CARRIED`: the head of that document is not in
    this unit.
    """

    def __init__(self, hashes: tuple[int, int], hasher: Hasher) -> None:
        """Put documents with a hash from the first to before the second into val."""
        self._low, self._high = hashes
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
        splits = self._hasher.find_between(block, self._low, self._high)
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
            CARRIED if text is None else int(self._low <= self._hasher.hash(text) < self._high)
            for text in (block.before, block.after)
        )
        around = np.concatenate(([before], splits, [after]))
        changes = around[1:] != around[:-1]
        return replace(block, begins=changes[:-1], closes=changes[1:])


class SmallestHash:
    """The smallest hash of all documents, or spans of giant ones, that it is given.

    Attributes:
        value: The smallest hash; None before the first document.
    """

    def __init__(self, hasher: Hasher) -> None:
        self.value: int | None = None
        self._hasher = hasher
        self._count = 0
        self._second: int | None = None
        self._num_documents = 0

    def choose(self) -> int | None:
        """Return the smallest hash that at most half of the documents have; None if there is none.

        Only one hash can be that of more than half, so the two smallest are enough.
        """
        return self.value if 2 * self._count <= self._num_documents else self._second

    def add(self, block: Block) -> None:
        """Add the documents that begin in a block."""
        if not block.spans:
            block = block.select(block.begins)
        self._num_documents += len(block.starts)
        # Each turn takes all documents with one hash, and on average halves those that are left.
        while len(block.starts):
            limit = 2**64 if self._second is None else self._second
            block = block.select(self._hasher.find_below(block, limit) > 0)
            if not len(block.starts):
                return
            value = self._hasher.hash(block.text[int(block.starts[0]) : int(block.heads[0])])
            same = self._hasher.find_between(block, value, value + 1) > 0
            self._insert(value, int(same.sum()))
            block = block.select(~same)

    def _insert(self, value: int, count: int) -> None:
        if self.value is None or value < self.value:
            self.value, self._count, self._second = value, count, self.value
        elif value == self.value:
            self._count += count
        else:
            self._second = value
