"""Proves tokens from the inputs: encodes text again with the reference, compares id by id.

It writes nothing. Units keep the places they had, so a document in the wrong split, a token too
many and a token too few all show. `look` calls it; the workers compare for themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstok.errors import EngineError
from penstok.inputs.changes import refuse_changed
from penstok.jobs.progress import Meter
from penstok.output.layout import SEGMENTS
from penstok.verification.findings import Finding, at_segment
from penstok.verification.rerun import make_executor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

    from penstok.jobs.progress import Progress
    from penstok.types import EncodedUnit, FinishedUnit, Unit, UnitOffsets
    from penstok.verification.findings import Report
    from penstok.verification.look import VerifySettings
    from penstok.verification.records import Records

__all__ = ["prove"]

# The reference does some 6 MB/s on a core: a sample takes seconds, and a small corpus is its own.
_ALL_BYTES = 64 << 20
_WHOLE_UNITS = 2
_CUT_UNITS = 64
_CUT_BYTES = 256 << 10
_ROW_BYTES = 4 << 10
_MANY_SOURCES = 10_000


class _RecordedPlaces:
    """Gives units the places they had, whole or cut short; holds only those in work."""

    def __init__(self) -> None:
        self._recorded: dict[int, FinishedUnit] = {}

    def iter_units(self, units: Iterable[tuple[FinishedUnit, int]]) -> Iterator[Unit]:
        """Yield units, each cut down to so many bytes, or some rows."""
        for recorded, num_bytes in units:
            unit = recorded.unit
            self._recorded[unit.index] = recorded
            length = num_bytes // _ROW_BYTES if unit.source.is_rows else num_bytes
            end = unit.end if num_bytes == unit.end else min(unit.end, unit.start + length)
            yield unit if end == unit.end else replace(unit, end=end, passed=None)

    def grant(self, unit: Unit, encoded: EncodedUnit) -> UnitOffsets:
        """Return the unit's place; what it gives may differ, which is to be found out."""
        return self._recorded[unit.index].offsets

    def take(self, unit_idx: int) -> FinishedUnit:
        """Return what was recorded of a unit, and forget it."""
        return self._recorded.pop(unit_idx)


def prove(
    settings: VerifySettings, records: Records, report: Report, rng: Random, progress: Progress
) -> None:
    """Encode documents again and compare them with what stands in the output.

    Raises:
        InputError: If an input cannot be read.
        ConflictError: If an input is no longer what it was.
    """
    total = records.manifest.counts["input_bytes"]
    report.is_all_proved = settings.full or total <= _ALL_BYTES
    units: Iterable[tuple[FinishedUnit, int]]
    if report.is_all_proved:
        units = ((unit, unit.unit.end) for unit in records.iter_units())
        sources = records.sources
    else:
        chosen = _choose(records.sample, rng)
        units, total = chosen, sum(min(size, _length(unit)) for unit, size in chosen)
        sources = [unit.unit.source for unit, _ in chosen]
        if len(records.sources) <= _MANY_SOURCES:
            sources = records.sources
    for source in sources:
        refuse_changed(source)
    executor = make_executor(
        records.job,
        records.layout,
        sources,
        "compare",
        engine="reference",
        workers=settings.workers,
        memory_bytes=settings.memory_bytes,
    )
    places, meter = _RecordedPlaces(), Meter(progress, total, report.num_units)
    with executor:

        def on_tick() -> None:
            meter.tick(executor.pids())

        try:
            for finished in executor.run(places.iter_units(units), places, on_tick):
                _compare(finished, places.take(finished.unit.index), records, report)
                meter.num_units_done, meter.done_bytes = report.units_proved, report.text_proved
                meter.num_tokens += finished.encoded.counts.tokens
        except EngineError as error:
            if "--engine" not in error.next_step:
                raise
            step = "leave out `--source`; `--full` alone reads the checksums of all tokens"
            raise EngineError(error.what, where=error.where, next_step=step) from error


def _choose(sample: list[FinishedUnit], rng: Random) -> list[tuple[FinishedUnit, int]]:
    """Choose some units to take whole, and more of which only the first documents are taken."""
    chosen = rng.sample(sample, min(len(sample), _WHOLE_UNITS + _CUT_UNITS))
    whole = [(unit, unit.unit.end) for unit in chosen[:_WHOLE_UNITS]]
    cut = [(unit, _CUT_BYTES) for unit in chosen[_WHOLE_UNITS:]]
    return sorted(whole + cut, key=lambda pair: pair[0].unit.index)


def _length(unit: FinishedUnit) -> int:
    return unit.unit.end - unit.unit.start


def _compare(
    finished: FinishedUnit, recorded: FinishedUnit, records: Records, report: Report
) -> None:
    unit = recorded.unit
    report.units_proved += 1
    report.documents_proved += finished.encoded.counts.documents
    report.text_proved += finished.encoded.counts.input_bytes
    for segment in finished.written.segments:
        report.add(
            at_segment(
                "source",
                "the input gives other tokens, or in another split",
                unit,
                segment,
                file=records.layout.file_name(segment.split, segment.shard),
                token_bytes=records.layout.token_bytes,
            )
        )
    if finished.unit == unit and finished.encoded != recorded.encoded:
        report.add(
            Finding(
                "source",
                f"the input gives {finished.encoded.counts.tokens} tokens in "
                f"{finished.encoded.counts.documents} documents where "
                f"{recorded.encoded.counts.tokens} in {recorded.encoded.counts.documents} "
                "are recorded, or counts them otherwise",
                SEGMENTS,
                unit=unit.index,
                input=unit.source.path,
                input_start=unit.start,
                input_end=unit.end,
                is_repairable=False,
                input_in_rows=unit.source.is_rows,
            )
        )
