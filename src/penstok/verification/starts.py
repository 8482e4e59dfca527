"""Compares document indexes with the tokens, though each is read only once, and for other reasons.

Tokens are read in units, for their checksums, and an index is read as a whole, for its own. Both
add up a hash of every start per token file. The sums are equal if both have the same starts; two
different sets have the same sum with a chance of 2^-64. It reads nothing itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.output.documents import ENTRY_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstok.output.documents import IndexRecord
    from penstok.types import EotPosition, Split
    from penstok.verification.tokens import Checked

__all__ = ["IndexStarts", "TokenStarts", "sum_hashes"]

_MASK = (1 << 64) - 1


def sum_hashes(starts: NDArray[np.uint64]) -> int:
    """Return the sum of the hashes of some starts, modulo 2^64."""
    # The finalizer of splitmix64, which is a bijection.
    mixed = starts + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return int(mixed.sum(dtype=np.uint64))


def _hash(start: int) -> int:
    return sum_hashes(np.array([start], np.uint64))


class IndexStarts:
    """The starts of one index, from its bytes in pieces of whole entries."""

    def __init__(self) -> None:
        self._sum = 0
        self._last = 0
        self._skipped = HEADER_BYTES // ENTRY_BYTES
        self.is_in_order: bool = True

    def add(self, piece: bytes) -> None:
        """Take the next bytes."""
        entries = np.frombuffer(piece, "<u8", len(piece) // ENTRY_BYTES)
        skipped = min(self._skipped, len(entries))
        self._skipped -= skipped
        entries = entries[skipped:]
        if len(entries):
            in_order = entries[0] >= self._last and np.all(entries[1:] >= entries[:-1])
            self.is_in_order = self.is_in_order and bool(in_order)
            self._sum += sum_hashes(entries)
            self._last = int(entries[-1])

    @property
    def sum(self) -> int:
        """The sum over all entries but the last, which is the number of tokens."""
        return (self._sum - _hash(self._last)) & _MASK


class TokenStarts:
    """The starts in the tokens of all files, from units in any order.

    Attributes:
        sums: Per split and shard, the sum over the places of end-of-text ids, or those after them.
        firsts: The first id of each file.
        lasts: Its last id.
    """

    def __init__(self, eot: EotPosition, eot_id: int) -> None:
        self._is_append = eot == "append"
        self._eot_id = eot_id
        self.sums: dict[tuple[Split, int], int] = {}
        self.firsts: dict[tuple[Split, int], int] = {}
        self.lasts: dict[tuple[Split, int], int] = {}

    def add(self, checked: Checked) -> None:
        """Add what a unit showed."""
        for file, found in checked.sums.items():
            self.sums[file] = (self.sums.get(file, 0) + found) & _MASK
        self.firsts |= checked.firsts
        self.lasts |= checked.lasts

    def fits(
        self, split: Split, sizes: list[int], shard: int, record: IndexRecord, index: int
    ) -> bool:
        """Tell whether an index has the starts of the tokens.

        Args:
            split: The split.
            sizes: The number of tokens of each of its files.
            shard: The number of the file.
            record: The record of its index.
            index: The sum over the entries of the index.
        """
        file, size = (split, shard), sizes[shard]
        expected = self.sums.get(file, 0)
        if self._is_append and size:
            # What follows the last token is in the next file, or does not exist.
            ends = self.lasts.get(file) == self._eot_id
            expected += _hash(0) - (_hash(size) if ends else 0)
        elif size and self.firsts.get(file) != self._eot_id:
            expected += _hash(0)
        continues = self._continues(split, sizes, shard)
        return expected & _MASK == index and continues == record.continues

    def _continues(self, split: Split, sizes: list[int], shard: int) -> bool:
        if not sizes[shard]:
            return False
        if not self._is_append:
            return self.firsts.get((split, shard)) != self._eot_id
        before = [each for each in range(shard) if sizes[each]]
        return bool(before) and self.lasts.get((split, before[-1])) != self._eot_id
