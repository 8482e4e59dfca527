"""Train or val, decided by a hash of the text and the seed, never by its position.

It does not divide text and writes nothing. `worker` passes it blocks from a reader, and encodes the
pieces of each split separately.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import xxhash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.types import Block

__all__ = ["CARRIED", "TRAIN", "VAL", "Splitter"]

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


class Splitter:
    """Assigns each piece of a unit to a split; one object serves one unit after another.

    The hash of a document's head (its first `HEAD_BYTES`) decides, so exact duplicates always go to
    the same split. A piece that continues a document of an earlier unit is `CARRIED`: the head of
    that document is not in this unit.
    """

    def __init__(
        self, val_fraction: float, seed: int, choose_splits: ChooseSplits | None = None
    ) -> None:
        """Take the kernel's hash function too, if the kernel is installed.

        It computes the same hash without a Python call per document: 13 to 20 GB/s, whereas the
        loop takes about 2 microseconds per document.
        """
        self._choose_splits = choose_splits
        self._threshold = round(val_fraction * 2**64)
        self._seed = seed
        self._open = CARRIED

    def start_unit(self) -> None:
        """Forget the document that was open."""
        self._open = CARRIED

    def assign(self, block: Block) -> tuple[Block, NDArray[np.uint8]]:
        """Return the block and the split of each of its pieces.

        Consecutive spans of a giant document that go to the same split become one document: the
        returned block has `begins` and `closes` set where the split changes.
        """
        if block.spans:
            return self._assign_spans(block)
        splits = self._hash_documents(block)
        if len(splits) and not block.begins[0]:
            splits[0] = self._open
        if len(splits):
            self._open = int(splits[-1])
        return block, splits

    def choose(self, text: memoryview) -> int:
        """Return the split of one text."""
        return int(xxhash.xxh3_64_intdigest(text, self._seed) < self._threshold)

    def _hash_documents(self, block: Block) -> NDArray[np.uint8]:
        count = len(block.starts)
        if self._threshold in (0, 2**64):
            return np.full(count, self._threshold > 0, np.uint8)
        if self._choose_splits is not None:
            splits = np.empty(count, np.uint8)
            text = np.frombuffer(block.text, np.uint8)
            self._choose_splits(
                text, block.starts, block.heads, self._seed, self._threshold, splits
            )
            return splits
        heads = zip(block.starts.tolist(), block.heads.tolist(), strict=True)
        chosen = (self.choose(block.text[start:end]) for start, end in heads)
        return np.fromiter(chosen, np.uint8, count)

    def _assign_spans(self, block: Block) -> tuple[Block, NDArray[np.uint8]]:
        splits = self._hash_documents(block)
        # CARRIED differs from both splits, so the document's own start and end count as changes.
        before = CARRIED if block.before is None else self.choose(block.before)
        after = CARRIED if block.after is None else self.choose(block.after)
        around = np.concatenate(([before], splits, [after]))
        changes = around[1:] != around[:-1]
        return replace(block, begins=changes[:-1], closes=changes[1:]), splits
