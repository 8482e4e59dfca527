"""Batches of units, and what must happen in their order whoever does them.

It knows no processes: an executor takes batches from it, and gives back what became of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstok.types import FinishedUnit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstok.output.offsets import AssignsOffsets
    from penstok.types import EncodedUnit, Unit, UnitOffsets, WrittenUnit

__all__ = ["Batch", "Order", "iter_batches"]

# Small inputs are sent together, so that a folder of them costs no message each.
_MAX_BATCH_UNITS = 256


@dataclass(slots=True, eq=False)
class Batch:
    """Consecutive units that one worker does together."""

    number: int
    units: list[Unit]
    encoded: list[EncodedUnit] = field(default_factory=list)
    offsets: list[UnitOffsets] = field(default_factory=list)
    written: list[WrittenUnit] = field(default_factory=list)
    num_failures: int = 0


class Order:
    """What must happen in unit order: giving out batches, offsets and receipts."""

    def __init__(self, batches: Iterator[Batch | None], offsets: AssignsOffsets) -> None:
        self.is_given_out = False
        self._batches = batches
        self._offsets = offsets
        self._again: deque[Batch] = deque()
        self._next_grant = 0
        self._next_done = 0
        self._done: dict[int, Batch] = {}

    def next_batch(self) -> Batch | None:
        """Return the next batch to encode; those that must be done again come first.

        None means that there is none yet, or no more: then all are given out.
        """
        if self._again:
            return self._again.popleft()
        try:
            return next(self._batches)
        except StopIteration:
            self.is_given_out = True
            return None

    def take_back(self, batches: list[Batch]) -> None:
        """Take batches back from a worker that is gone."""
        self._again.extendleft(sorted(batches, key=lambda batch: -batch.number))

    def can_write(self, batch: Batch) -> bool:
        """Tell whether a batch has its place, and give it one if it is next in order."""
        if not batch.offsets and batch.number == self._next_grant:
            pairs = zip(batch.units, batch.encoded, strict=True)
            batch.offsets = [self._offsets.grant(unit, encoded) for unit, encoded in pairs]
            self._next_grant += 1
        return bool(batch.offsets)

    def add_done(self, batch: Batch) -> None:
        """Note that a batch is written."""
        self._done[batch.number] = batch

    def take_done(self) -> Iterator[FinishedUnit]:
        """Yield what is written and has nothing unwritten before it."""
        while (batch := self._done.pop(self._next_done, None)) is not None:
            self._next_done += 1
            yield from map(FinishedUnit, batch.units, batch.encoded, batch.offsets, batch.written)


def iter_batches(units: Iterable[Unit | None], batch_bytes: int) -> Iterator[Batch | None]:
    """Group small units; a unit of `batch_bytes` or more stands alone.

    One of rows does, too: they may be stored in a thousandth of their text.
    None is passed on: there will be more, but not yet.
    """
    group: list[Unit] = []
    number = size = 0
    for unit in units:
        length = 0 if unit is None else _text_bytes(unit, batch_bytes)
        is_full = size + length > batch_bytes or len(group) >= _MAX_BATCH_UNITS
        if group and (unit is None or is_full):
            yield Batch(number, group)
            number, group, size = number + 1, [], 0
        if unit is None:
            yield None
        else:
            group.append(unit)
            size += length
    if group:
        yield Batch(number, group)


def _text_bytes(unit: Unit, batch_bytes: int) -> int:
    return batch_bytes if unit.source.is_rows else unit.end - unit.start
