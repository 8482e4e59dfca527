"""Counts the tokens of units with one tokenizer or several, and keeps none of them.

It adds nothing up and chooses no unit, except that a sample leaves units out. Each tokenizer has a
`Worker` of its own, since it decides where text is cut; they read a unit one after the other, from
an input that is opened once. `executors.worker_process` creates a `CountingWorker` for `counting`.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from penstok.errors import EngineError, PenstokError
from penstok.inputs.files import SharedInput
from penstok.types import (
    SPLITS,
    Counts,
    EncodedUnit,
    FailedTokenizer,
    Struct,
    UnitOffsets,
    WrittenUnit,
    replace,
)
from penstok.worker.worker import Worker

if TYPE_CHECKING:
    from penstok.types import Unit
    from penstok.worker.comparison import Comparison
    from penstok.worker.worker import Sample, WorkerSpec

__all__ = ["CountingWorker", "UnitSample"]

_ZEROS = dict.fromkeys(SPLITS, 0)


class UnitSample(Struct, frozen=True):
    """A stratified random sample of units: two of every stratum of consecutive units.

    Attributes:
        stratum_units: How many units a stratum has.
    """

    stratum_units: int

    def stratum_of(self, unit_idx: int) -> int:
        """Return the number of the stratum that a unit is in."""
        return unit_idx // self.stratum_units

    def has(self, unit_idx: int) -> bool:
        """Return whether a unit is in the sample."""
        number, place = divmod(unit_idx, self.stratum_units)
        return place in _choose_two(number, self.stratum_units)


@lru_cache(maxsize=64)
def _choose_two(seed: int, stratum_units: int) -> tuple[int, int]:
    first, second = Random(seed).sample(range(stratum_units), 2)
    return first, second


class CountingWorker:
    """Counts units on one core.

    A tokenizer that fails is left out from then on; what fails with all of them is raised.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        specs = (replace(spec, others=()), *spec.others)
        self._names = [each.tokenizer.name for each in specs]
        self._sample = spec.sample
        self._failed: dict[int, FailedTokenizer] = {}
        self._shared = SharedInput(spec.ring)
        open_input = self._shared.open_unit if spec.others else None
        self._workers = [Worker(replace(each, ring=spec.ring), open_input) for each in specs]

    def encode(self, unit: Unit) -> EncodedUnit:
        """Count a unit with every tokenizer; a unit outside the sample gives nothing."""
        is_wanted = self._sample is None or self._sample.has(unit.index)
        results = tuple(
            self._failed.get(number) or self._count(number, unit)
            for number in range(len(self._workers) if is_wanted else 0)
        )
        self._shared.close()
        counted = (each.counts for each in results if isinstance(each, EncodedUnit))
        return EncodedUnit(
            unit_idx=unit.index,
            counts=next(counted, Counts()),
            tokens=_ZEROS,
            documents=_ZEROS,
            carried_tokens=0,
            carried_special=False,
            open_split=None,
            open_special=False,
            by_tokenizer=results,
        )

    def write(self, assigned: UnitOffsets) -> WrittenUnit:
        """Do nothing: the tokens are gone."""
        return WrittenUnit(assigned.unit_idx, ())

    def sample(self, units: list[Unit]) -> list[Sample]:
        """Encode a few small units with the first tokenizer, and keep some text for `compare`."""
        return self._workers[0].sample(units)

    def compare(self, comparison: Comparison) -> tuple[FailedTokenizer, ...]:
        """Compare all engines with their references; return those that differ."""
        for number in range(len(self._workers)):
            self._compare(number, comparison)
        return tuple(self._failed.values())

    def _compare(self, number: int, comparison: Comparison) -> None:
        try:
            self._workers[number].compare(comparison, number)
        except EngineError as error:
            self._fail(number, error)

    def _count(self, number: int, unit: Unit) -> EncodedUnit | FailedTokenizer:
        worker = self._workers[number]
        try:
            encoded = worker.encode(unit)
        except PenstokError as error:
            return self._fail(number, error)
        worker.write(UnitOffsets(unit.index, "train", _ZEROS, _ZEROS))
        return encoded

    def _fail(self, number: int, error: PenstokError) -> FailedTokenizer:
        name = self._names[number]
        failed = FailedTokenizer(name, error.what, error.where, error.next_step)
        self._failed[number] = failed
        if len(self._failed) == len(self._workers):
            raise error
        return failed
