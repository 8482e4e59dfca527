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


class HashDocuments(Protocol):
    """The kernel's function: sets `out` to the hashes of texts."""

    def __call__(
        self,
        text: NDArray[np.uint8],
        starts: NDArray[np.int64],
        heads: NDArray[np.int64],
        seed: int,
        out: NDArray[np.uint64],
    ) -> None: ...


class Hasher:
    """The hash of a document's head (its first `HEAD_BYTES`), from which its split follows."""

    def __init__(self, seed: int, hash_documents: HashDocuments | None = None) -> None:
        """Take the kernel's function too, if the kernel is installed.

        It computes the same hash without a Python call per document: 13 to 20 GB/s, whereas the
        loop takes about 2 microseconds per document.
        """
        self._seed = seed
        self._hash_documents = hash_documents

    def hash(self, text: memoryview) -> int:
        """Hash one text."""
        return xxhash.xxh3_64_intdigest(text, self._seed)

    def hash_all(self, block: Block) -> NDArray[np.uint64]:
        """Hash each piece of a block."""
        count = len(block.starts)
        if self._hash_documents is not None:
            hashes = np.empty(count, np.uint64)
            text = np.frombuffer(block.text, np.uint8)
            self._hash_documents(text, block.starts, block.heads, self._seed, hashes)
            return hashes
        heads = zip(block.starts.tolist(), block.heads.tolist(), strict=True)
        return np.fromiter(
            (self.hash(block.text[start:end]) for start, end in heads), np.uint64, count
        )

    def find_between(self, block: Block, low: int, high: int) -> NDArray[np.uint8]:
        """Set 1 for each piece whose hash is `low` or more, and below `high`."""
        if low >= high or (low, high) == (0, 2**64):
            return np.full(len(block.starts), high > low, np.uint8)
        # Numbers below `low` wrap round to large ones.
        return (self.hash_all(block) - np.uint64(low) <= np.uint64(high - low - 1)).view(np.uint8)


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
        hashes = self._hasher.hash_all(block)
        # Equal hashes are counted together, and only the two smallest can matter.
        for _ in range(2):
            if not len(hashes):
                return
            value = hashes.min()
            is_same = hashes == value
            self._insert(int(value), int(is_same.sum()))
            hashes = hashes[~is_same]

    def _insert(self, value: int, count: int) -> None:
        if self.value is None or value < self.value:
            self.value, self._count, self._second = value, count, self.value
        elif value == self.value:
            self._count += count
        elif self._second is None or value < self._second:
            self._second = value
