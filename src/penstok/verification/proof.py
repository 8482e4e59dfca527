"""Compares tokens with the inputs: re-encodes text with the reference engine, id by id.

It writes nothing. Units keep their recorded offsets, so a document in the wrong split, an extra
token and a missing token all show. `verify` calls it; the workers do the comparing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.inputs.changes import refuse_changed
from penstok.jobs.progress import Meter
from penstok.output.layout import SEGMENTS
from penstok.output.offsets import RecordedOffsets
from penstok.quantities import plural
from penstok.types import replace
from penstok.verification.findings import Finding, at_segment
from penstok.verification.reencode import make_executor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from penstok.jobs.progress import Progress
    from penstok.types import FinishedUnit, Unit
    from penstok.verification.findings import Report
    from penstok.verification.records import Records
    from penstok.verification.settings import VerifySettings

__all__ = ["prove"]

# The reference does some 6 MB/s per core: a sample takes seconds; small inputs are compared whole.
_ALL_BYTES = 64 << 20
_WHOLE_UNITS = 2
_CUT_UNITS = 64
_CUT_BYTES = 256 << 10
_ROW_BYTES = 4 << 10
_MANY_SOURCES = 10_000


def prove(
    settings: VerifySettings, records: Records, report: Report, rng: Random, progress: Progress
) -> None:
    """Re-encode documents and compare them with the tokens of the output.

    Raises:
        InputError: If an input cannot be read.
        ConflictError: If an input has changed since the job read it.
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
    for source in dict.fromkeys(source.stored for source in sources):
        refuse_changed(source)
    executor = make_executor(records.job, records.layout, sources, "compare", settings)
    # What a unit gives may differ: that is what this is to find out.
    recorded = RecordedOffsets(refuse_changed=False)
    cut_units = (_cut(recorded.add(unit), num_bytes) for unit, num_bytes in units)
    meter = Meter(progress, total, report.num_units)
    with executor:
        for finished in executor.run(cut_units, recorded, lambda: meter.tick(executor.pids())):
            _compare(finished, recorded.pop(finished.unit.index), records, report)
            meter.num_units_done, meter.done_bytes = report.units_proved, report.text_proved
            meter.num_tokens += finished.encoded.counts.tokens


def _cut(unit: Unit, num_bytes: int) -> Unit:
    """Cut a unit down to so many bytes, or some rows."""
    length = num_bytes // _ROW_BYTES if unit.source.is_rows else num_bytes
    end = unit.end if num_bytes == unit.end else min(unit.end, unit.start + length)
    return unit if end == unit.end else replace(unit, end=end, passed=None)


def _choose(sample: list[FinishedUnit], rng: Random) -> list[tuple[FinishedUnit, int]]:
    """Choose some units to re-encode whole, and more of which only the first documents are."""
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
                "re-encoding the input gives other tokens, or puts them in another split",
                unit,
                segment,
                file=records.layout.file_name(segment.split, segment.shard),
                token_bytes=records.layout.token_bytes,
            )
        )
    is_whole = finished.unit.end == unit.end
    if is_whole and not finished.encoded.equals_recorded(recorded.encoded):
        report.add(
            Finding(
                "source",
                "the recorded counts are wrong: re-encoding the input gives "
                f"{plural(finished.encoded.counts.tokens, 'token')} in "
                f"{plural(finished.encoded.counts.documents, 'document')}, recorded are "
                f"{recorded.encoded.counts.tokens} in {recorded.encoded.counts.documents}; "
                "other counts may differ",
                SEGMENTS,
                unit=unit.index,
                input=unit.source.path,
                input_start=unit.start,
                input_end=unit.end,
                is_repairable=False,
                input_in_rows=unit.source.is_rows,
            )
        )
