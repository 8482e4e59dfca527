"""Makes a damaged ledger whole: from the lines that are left, the manifest and the inputs.

Units whose lines are lost are encoded again, for their counts and checksums alone; no token is
written. What comes out must add up to the manifest, to the last byte, or nothing is changed.
`restore` calls it before it looks at the tokens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, DamageError
from penstok.inputs.changes import refuse_changed
from penstok.inputs.streams import measure_content
from penstok.jobs.plan import Plan
from penstok.jobs.progress import Meter
from penstok.jobs.tasks import divide_tasks
from penstok.output.layout import MANIFEST, SEGMENTS, Layout
from penstok.output.ledger.lines import (
    Ending,
    InputLines,
    format_ending,
    format_job,
    format_task,
    format_unit,
)
from penstok.output.ledger.reader import LedgerReader
from penstok.output.manifest import Manifest, digest_inputs
from penstok.output.offsets import Offsets
from penstok.readers.formats import FORMATS
from penstok.readers.probe import probe_recorded_source
from penstok.types import FinishedUnit, UnitOffsets
from penstok.verification.manifests import format_of, job_of_manifest, manifest_of_ledger
from penstok.verification.rerun import default_unit_bytes, make_executor, rules_of_job
from penstok.verification.salvage import find_unit_bytes, salvage_sources, salvage_units

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstok.jobs.progress import Progress
    from penstok.jobs.tasks import Task
    from penstok.output.ledger.lines import UnitLine
    from penstok.output.store.base import HeldLock
    from penstok.output.store.folder import FolderStore
    from penstok.types import EncodedUnit, JobRecord, Source, Unit
    from penstok.verification.look import VerifySettings

__all__ = ["rebuild_ledger"]


class _Replay:
    """Gives lost units their places: those whose lines are left are counted before them."""

    def __init__(self, salvaged: Iterator[tuple[Unit, UnitLine | None]]) -> None:
        self._salvaged = salvaged
        self._offsets = Offsets()

    def grant(self, unit: Unit, encoded: EncodedUnit) -> UnitOffsets:
        """Place a unit behind all units before it."""
        for other, line in self._salvaged:
            if other.index == unit.index:
                break
            if line is not None:
                self._offsets.grant(other, line.encoded())
        return self._offsets.grant(unit, encoded)


def rebuild_ledger(
    store: FolderStore, lock: HeldLock, settings: VerifySettings, progress: Progress
) -> int:
    """Write the ledger anew; return how many units were encoded for it.

    Raises:
        DamageError: If the manifest is damaged too, or does not fit.
        InputError: If an input cannot be read.
        ConflictError: If an input is no longer what it was.
    """
    folder = store.folder
    manifest = Manifest.load(folder)
    job = _find_job(folder, manifest)
    sources = _find_sources(folder / SEGMENTS, manifest)
    # Not by their number of skipped records: an input that is used may have some.
    skipped = {each.path: each.reason for each in manifest.inputs if each.reason is not None}
    plan = Plan(
        sources,
        skipped,
        rules_of_job(job).document_rule,
        found_separator=False,
        unit_bytes=job.unit_bytes,
        limit_bytes=job.settings.get("limit_bytes"),
        text_key=job.settings.get("text_key", ""),
    )

    for source in sources:
        if source.is_stream or source.is_rows:
            refuse_changed(source, by_time=False)  # it is looked into, to tell its units
    lengths = _measure_streams(sources)

    def salvaged() -> Iterator[tuple[Unit, UnitLine | None]]:
        return salvage_units(folder / SEGMENTS, plan.iter_units(lengths=lengths))

    for source in {unit.source for unit, line in salvaged() if line is None}:
        refuse_changed(source, by_time=False)
    num_lost = sum(1 for _, line in salvaged() if line is None)
    executor = make_executor(
        job,
        Layout.of_job(folder, job, manifest.shard_starts()),
        sources,
        "digest",
        engine="auto",
        workers=settings.workers,
        memory_bytes=settings.memory_bytes,
        lock_file=lock.file,
    )
    meter = Meter(progress, num_lost * job.unit_bytes, num_lost)
    with progress, executor:
        lost = (unit for unit, line in salvaged() if line is None)
        done = executor.run(lost, _Replay(salvaged()), lambda: meter.tick(executor.pids()))
        units = (_finished(unit, line, done, meter) for unit, line in salvaged())
        lines = _iter_lines(job, plan, units, Ending(manifest.run, skipped))
        store.write_lines(SEGMENTS, lines, lambda path: _refuse_misfit(path, folder))
    return num_lost


def _finished(
    unit: Unit, line: UnitLine | None, done: Iterator[FinishedUnit], meter: Meter
) -> FinishedUnit:
    """Return a unit as its line has it, or as it was done again; grants are not recorded."""
    if line is None:
        meter.num_units_done += 1
        meter.done_bytes += unit.end - unit.start
        return next(done)
    unit = replace(unit, passed=line.passed)
    return FinishedUnit(
        unit, line.encoded(), UnitOffsets(unit.index, line.carried[0], {}), line.written()
    )


def _iter_lines(
    job: JobRecord, plan: Plan, units: Iterator[FinishedUnit], ending: Ending
) -> Iterator[bytes]:
    """Write what a run writes."""
    yield format_job(job)
    inputs, tasks = InputLines(plan.sources), _find_tasks(job, plan)
    for finished in units:
        unit = finished.unit
        while tasks and (tasks[0].first_source, tasks[0].start) <= (unit.source_idx, unit.start):
            yield format_task(tasks.popleft().number)
        yield from inputs.before(unit)
        yield format_unit(finished)
    for task in tasks:
        yield format_task(task.number)
    yield from inputs.rest()
    yield format_ending(ending)


def _find_tasks(job: JobRecord, plan: Plan) -> deque[Task]:
    """Divide the job into tasks again, if it was; none if not."""
    task_bytes = job.settings.get("task_bytes")
    return deque(() if task_bytes is None else divide_tasks(plan, task_bytes))


def _measure_streams(sources: list[Source]) -> dict[int, int]:
    """Read streams to their ends: only that tells how many units they have."""
    streams = [(idx, source) for idx, source in enumerate(sources) if source.is_stream]
    return {idx: measure_content(source) for idx, source in streams}


def _find_job(folder: Path, manifest: Manifest) -> JobRecord:
    """Read the first line; where it is lost, the manifest knows all but the size of a unit."""
    try:
        return LedgerReader(folder / SEGMENTS).job
    except DamageError:
        pass
    try:
        used = [record for record in manifest.inputs if record.reason is None]
        rows = {idx for idx, record in enumerate(used) if FORMATS[format_of(record)].is_rows}
        unit_bytes = find_unit_bytes(folder / SEGMENTS, default_unit_bytes(), rows)
        return job_of_manifest(manifest, unit_bytes)
    except ValueError as error:
        raise _hopeless(folder, str(error)) from error


def _find_sources(path: Path, manifest: Manifest) -> list[Source]:
    """Describe the inputs: as recorded, or by looking at them where their lines are lost."""
    recorded = salvage_sources(path)
    used = [record for record in manifest.inputs if record.reason is None]
    paths = [record.path for record in used]
    text_key = manifest.settings.get("text_key", "")
    sources = [
        recorded[idx]
        if idx in recorded
        else probe_recorded_source(record.path, format_of(record), text_key)
        for idx, record in enumerate(used)
    ]
    if digest_inputs(sources) != manifest.inputs_digest:
        lost = [name for idx, name in enumerate(paths) if idx not in recorded]
        raise ConflictError(
            "an input whose line in the ledger is lost was written to since it was used",
            where=", ".join(lost[:5]) or str(path),
            next_step="bring back its text and its time, or make the output anew with "
            "`penstok tokenize INPUT... --overwrite`",
        )
    return sources


def _refuse_misfit(path: Path, folder: Path) -> None:
    manifest, _ = manifest_of_ledger(path)
    if (folder / MANIFEST).read_bytes() != manifest.to_json().encode():
        raise _hopeless(folder, "it does not fit the manifest, which is damaged too")


def _hopeless(folder: Path, why: str) -> DamageError:
    return DamageError(
        f"the ledger cannot be made whole: {why}",
        where=str(folder / SEGMENTS),
        next_step=f"make the output anew: `penstok tokenize INPUT... -o {folder} --overwrite`",
    )
