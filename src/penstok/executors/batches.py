"""Batches of units, and the steps that must happen in unit order.

It knows nothing about processes. `processes` takes batches from it, returns them encoded and then
written, and gets offsets from `output.offsets` through it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstok.types import FinishedUnit, Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstok.output.offsets import AssignsOffsets
    from penstok.types import EncodedUnit, Unit, UnitOffsets, WrittenUnit

__all__ = ["Batch", "BatchQueue", "iter_batches"]

# Small inputs are sent together, so that a folder of them does not cost one message per file.
_MAX_BATCH_UNITS = 256


class Batch(Struct, eq=False):
    """Consecutive units that are sent to one worker together."""

    number: int
    units: list[Unit]
    encoded: list[EncodedUnit] = field(default_factory=list)
    offsets: list[UnitOffsets] = field(default_factory=list)
    written: list[WrittenUnit] = field(default_factory=list)
    num_failures: int = 0


class BatchQueue:
    """Keeps unit order: hands out batches, assigns offsets, returns finished units."""

    def __init__(self, batches: Iterator[Batch | None], offsets: AssignsOffsets) -> None:
        self.is_exhausted: bool = False
        self._batches = batches
        self._offsets = offsets
        self._retries: deque[Batch] = deque()
        self._next_assigned = 0
        self._next_done = 0
        self._done: dict[int, Batch] = {}

    def next_batch(self) -> Batch | None:
        """Return the next batch to encode; batches that must be repeated come first.

        None means that there is none yet, or no more: then `is_exhausted` is set.
        """
        if self._retries:
            return self._retries.popleft()
        try:
            return next(self._batches)
        except StopIteration:
            self.is_exhausted = True
            return None

    def take_back(self, batches: list[Batch]) -> None:
        """Take back the batches of a dead worker, to be repeated."""
        self._retries.extendleft(sorted(batches, key=lambda batch: -batch.number))

    def can_write(self, batch: Batch) -> bool:
        """Return whether a batch has its offsets; assign them if it is next in order."""
        if not batch.offsets and batch.number == self._next_assigned:
            pairs = zip(batch.units, batch.encoded, strict=True)
            batch.offsets = [self._offsets.grant(unit, encoded) for unit, encoded in pairs]
            self._next_assigned += 1
        return bool(batch.offsets)

    def add_done(self, batch: Batch) -> None:
        """Record that a batch is written."""
        self._done[batch.number] = batch

    def take_done(self) -> Iterator[FinishedUnit]:
        """Yield the units that are written, up to the first batch that is not."""
        while (batch := self._done.pop(self._next_done, None)) is not None:
            self._next_done += 1
            yield from map(FinishedUnit, batch.units, batch.encoded, batch.offsets, batch.written)


def iter_batches(units: Iterable[Unit | None], batch_bytes: int) -> Iterator[Batch | None]:
    """Group small units; a unit of `batch_bytes` or more is a batch of its own.

    So is a unit of rows: its text may be a thousand times as large as stored. None is passed on:
    there will be more units, but none is ready.
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
