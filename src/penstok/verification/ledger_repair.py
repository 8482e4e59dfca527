"""Repairs a damaged ledger: keeps its lines up to the first damaged one, re-encodes what follows.

Units are re-encoded for their counts and checksums alone, as a resumed job would; no token is
written. The result must add up to the manifest, byte by byte, or nothing is changed. `repair` calls
it before it checks any tokens.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, DamageError, quoted
from penstok.inputs.changes import refuse_changed
from penstok.jobs.plan import Plan
from penstok.jobs.progress import Meter
from penstok.jobs.settings import DEFAULT_UNIT_BYTES
from penstok.jobs.tasks import Task, divide_tasks
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
from penstok.output.manifest import (
    ForeignManifestError,
    Manifest,
    NewerManifestError,
    digest_inputs,
)
from penstok.readers.probe import CsvOptions, probe_recorded_source
from penstok.types import replace
from penstok.verification.manifests import (
    add_up,
    format_of,
    job_of_manifest,
    read_ledger,
    with_derived,
)
from penstok.verification.reencode import make_executor, rules_of_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from penstok.jobs.progress import Progress
    from penstok.output.store.base import HeldLock
    from penstok.output.store.folder import FolderStore
    from penstok.types import FinishedUnit, Source
    from penstok.verification.settings import VerifySettings

__all__ = ["repair_ledger"]


def repair_ledger(
    store: FolderStore, lock: HeldLock, settings: VerifySettings, progress: Progress
) -> int:
    """Write the ledger again; return how many units were re-encoded for it.

    Raises:
        DamageError: If the manifest is damaged too, or disagrees.
        InputError: If an input cannot be read.
        ConflictError: If an input has changed since it was used.
    """
    folder, manifest = store.folder, _load_manifest(store.folder)
    reader = _read_valid_lines(folder, manifest)
    job, start, sources = reader.job, reader.start(), _find_sources(reader, manifest, folder)
    # Not by their number of skipped records: an input that is used may have some.
    unused = {each.path: each for each in manifest.inputs if each.reason is not None}
    skipped = {path: each.reason or "" for path, each in unused.items() if each.skipped}
    ignored = {path: each.reason or "" for path, each in unused.items() if not each.skipped}
    plan = Plan(
        sources,
        skipped,
        rules_of_job(job).document_rule,
        found_separator=False,
        unit_bytes=job.unit_bytes,
        limit_bytes=job.settings.get("limit_bytes"),
        text_key=job.settings.get("text_key", ""),
    )
    for source in dict.fromkeys(source.stored for source in sources[start.source_idx :]):
        refuse_changed(source, by_time=False)
    layout = Layout.of_job(folder, job, manifest.shard_starts())
    executor = make_executor(job, layout, sources, "digest", settings, lock_file=lock.file)
    left = sum(source.num_bytes for source in sources[start.source_idx :])
    meter = Meter(progress, left, max((plan.num_units or 0) - start.unit_idx, 0))
    with progress, executor:
        executor.expect(reader.last)
        units = executor.run(
            plan.iter_units(start, executor.lengths),
            reader.offsets,
            lambda: meter.tick(executor.pids()),
        )
        lines = chain(
            [format_job(job)],
            _take_bytes(store.iter_lines(SEGMENTS), reader.valid_bytes),
            _iter_lines(reader, plan, units, meter, has_text_bytes="text_bytes" in manifest.counts),
            [format_ending(Ending(manifest.run, skipped, ignored))],
        )
        store.write_lines(SEGMENTS, lines, lambda path: _compare_with_manifest(path, folder))
    return meter.num_units_done


def _load_manifest(folder: Path) -> Manifest:
    try:
        return Manifest.load(folder)
    except (NewerManifestError, ForeignManifestError):
        raise
    except DamageError as error:
        raise _unrepairable(folder, "the manifest is damaged or missing, too") from error


def _read_valid_lines(folder: Path, manifest: Manifest) -> LedgerReader:
    """Read the ledger up to the first damaged line."""
    path = folder / SEGMENTS
    try:
        reader = LedgerReader(path)
    except DamageError:
        # The manifest has everything of the first line but the size of a unit.
        try:
            reader = LedgerReader(path, job_of_manifest(manifest, DEFAULT_UNIT_BYTES))
        except ValueError as error:
            raise _unrepairable(folder, str(error)) from error
    for _ in reader.iter_units() if path.is_file() else ():
        pass
    return reader


def _find_sources(reader: LedgerReader, manifest: Manifest, folder: Path) -> list[Source]:
    """Return the inputs: as recorded, or probed again where their lines are lost."""
    used = [record for record in manifest.inputs if record.reason is None]
    lost = used[len(reader.sources) :]
    settings = manifest.settings
    text_key = settings.get("text_key", "")
    csv = CsvOptions(settings.get("csv_delimiter", ""), settings.get("no_header", False))
    sources = reader.sources + [
        probe_recorded_source(
            record.path, format_of(record), text_key, csv, record.encoding, record.archive
        )
        for record in lost
    ]
    if digest_inputs(sources) != manifest.inputs_digest:
        raise ConflictError(
            "an input whose line in the ledger is lost has changed since it was used",
            where=", ".join(record.path for record in lost[:5]) or str(folder / SEGMENTS),
            next_step="restore its text and its modification time, or re-encode everything: "
            f"`penstok tokenize INPUT... -o {quoted(folder)} --overwrite`",
        )
    return sources


def _take_bytes(lines: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    """Yield the lines after the first that end within so many bytes."""
    num_bytes -= len(next(lines, b""))
    for line in lines:
        num_bytes -= len(line)
        if num_bytes < 0:
            return
        yield line


def _iter_lines(
    reader: LedgerReader,
    plan: Plan,
    units: Iterable[FinishedUnit],
    meter: Meter,
    *,
    has_text_bytes: bool,
) -> Iterator[bytes]:
    """Yield the lines that a run would write after the valid ones, up to the end."""
    inputs, tasks = InputLines(plan.sources, len(reader.sources)), deque[Task]()
    if reader.starts is not None:
        num_tasks = len(reader.starts["train"])
        tasks += divide_tasks(plan, reader.job.settings["task_bytes"])[num_tasks:]
    for finished in units:
        unit = finished.unit
        meter.num_units_done += 1
        meter.done_bytes += finished.encoded.counts.input_bytes
        while tasks and (tasks[0].first_source, tasks[0].start) <= (unit.source_idx, unit.start):
            yield format_task(tasks.popleft().number)
        yield from inputs.before(unit)
        yield format_unit(finished if has_text_bytes else _without_text_bytes(finished))
    for task in tasks:
        yield format_task(task.number)
    yield from inputs.rest()


def _without_text_bytes(finished: FinishedUnit) -> FinishedUnit:
    """Return a unit as older versions recorded it."""
    counts = replace(finished.encoded.counts, text_bytes=0)
    return replace(finished, encoded=replace(finished.encoded, counts=counts))


def _compare_with_manifest(path: Path, folder: Path) -> None:
    expected = with_derived(add_up(read_ledger(path)), Manifest.load(folder))
    if (folder / MANIFEST).read_bytes() != expected.to_json().encode():
        raise _unrepairable(folder, "what the inputs give does not fit the manifest")


def _unrepairable(folder: Path, why: str) -> DamageError:
    return DamageError(
        f"the ledger cannot be repaired: {why}",
        where=str(folder / SEGMENTS),
        next_step="re-encode everything: "
        f"`penstok tokenize INPUT... -o {quoted(folder)} --overwrite`",
    )
