"""Repairs a damaged output: exactly the damaged units are re-encoded, at their recorded offsets.

The ledger says what belongs where; checksums prove that it is there again. Files are repaired under
their partial names, so that a file under its final name is complete, and a repair that was killed
can be run again. `verify` finds the damage, before and after.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, DamageError, UsageError, quoted
from penstok.faults import fault_point
from penstok.inputs.changes import refuse_changed
from penstok.jobs.conflicts import refuse_progress
from penstok.jobs.intent import roll_forward
from penstok.jobs.progress import Meter
from penstok.output.documents import index_name
from penstok.output.layout import MANIFEST, SEGMENTS, SKIPPED, Layout
from penstok.output.ledger.reader import LedgerReader, iter_skipped
from penstok.output.store.folder import FolderStore
from penstok.storage.object_paths import ObjectPath, repair_step
from penstok.types import SPLITS
from penstok.types import replace as replace_record
from penstok.verification.converted import find_converted
from penstok.verification.fields import rebuild_fields
from penstok.verification.findings import Report
from penstok.verification.formats import rewrite_formats
from penstok.verification.indexes import find_field_problems, rebuild_indexes
from penstok.verification.ledger_repair import repair_ledger
from penstok.verification.manifests import add_up, compare_manifest, read_ledger
from penstok.verification.records import check_records, refuse_unfinished
from penstok.verification.reencode import make_executor, reencode_units
from penstok.verification.verify import pick_units, verify_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from penstok.jobs.progress import Progress
    from penstok.output.store.base import HeldLock
    from penstok.types import Source, Split
    from penstok.verification.settings import VerifySettings

__all__ = ["repair_output"]


def repair_output(settings: VerifySettings, progress: Progress) -> Report:
    """Read everything, repair what is damaged, and verify the result.

    Raises:
        DamageError: If there is no finished job, or too little is left to repair it from.
        InputError: If an input that is needed cannot be read.
        ConflictError: If it has changed, or the folder holds something else.
        LockedError: If a run is writing here.
        UsageError: If the output is not in a folder.
    """
    folder = settings.output
    if isinstance(folder, ObjectPath):
        raise UsageError(
            "an output in an object store cannot be repaired in place",
            where=f"--repair, {folder}",
            next_step=repair_step(folder),
        )
    refuse_unfinished(folder)
    if find_converted(folder) is not None:
        raise UsageError(
            "this output was made from other token files, so it cannot be repaired from text",
            where=str(folder),
            next_step="delete it, then run the `penstok convert` that made it again",
        )
    store = FolderStore(str(folder))
    with store.lock() as lock:
        roll_forward(store)
        refuse_progress(store)
        before, num_units = Report(folder), 0
        if not _is_intact(folder / SEGMENTS):
            check_records(folder, before, Random(0), sample_size=0, is_quick=False)
            num_units = repair_ledger(store, lock, settings, progress)
        everything = replace(settings, full=True, source=False)
        found = verify_output(everything, progress, during_repair=True)
        with progress:
            _repair_files(store, lock, settings, found, progress)
        report = verify_output(settings, progress, also=found.damaged)
    ledger = [finding for finding in before.findings if finding.kind == "ledger"]
    repaired = [finding for finding in found.findings if finding.is_repairable]
    report.repaired_findings = ledger + repaired
    report.repaired = sorted({finding.file for finding in report.repaired_findings})
    report.units_repaired = len(found.damaged) + num_units
    return report


def _is_intact(ledger: Path) -> bool:
    try:
        read_ledger(ledger)
    except DamageError:
        return False
    return True


def _repair_files(
    store: FolderStore,
    lock: HeldLock,
    settings: VerifySettings,
    found: Report,
    progress: Progress,
) -> None:
    """Write what is damaged: files are moved to the work folder first, and back last."""
    ledger = store.folder / SEGMENTS
    reader = read_ledger(ledger)
    layout = Layout.of_job(store.folder, reader.job, reader.starts)
    manifest = compare_manifest(store.folder, add_up(reader), Report(store.folder))
    _refuse_irregular(layout, found.damaged_files)
    files = {layout.file_name(*file): file for file in sorted(found.damaged_files)}
    sources = _check_inputs(ledger, found.damaged) if found.damaged else []
    if files:
        store.take_aside(files)
    if "skipped" in found.kinds:
        store.write_lines(SKIPPED, (line.encode() for line in iter_skipped(ledger)))
    if "manifest" in found.kinds:
        # Before the tokens: if this is killed, the next check knows which files are missing.
        store.write(MANIFEST, manifest.to_json().encode())
    if found.damaged:
        _reencode(store, lock, layout, settings, found.damaged, sources, progress)
        fault_point("damaged units written")
    if files or store.is_repairing:
        sizes = {file.path: file.bytes for split in SPLITS for file in manifest.splits[split].files}
        store.put_back({name: sizes[name] for name in files})
    damaged_indexes = [
        each.file for each in found.findings if each.kind == "index" and each.is_repairable
    ]
    fields = [name for name in damaged_indexes if name.endswith(index_name("", "fields"))]
    if len(fields) < len(damaged_indexes):
        manifest = rebuild_indexes(store, layout, manifest)
        store.write(MANIFEST, manifest.to_json().encode())
    if fields and find_field_problems(store.folder, manifest):
        manifest = rebuild_fields(store, lock, layout, manifest, settings, progress)
        store.write(MANIFEST, manifest.to_json().encode())
    if found.kinds & {"index", "format"} or (found.damaged and manifest.formats):
        rewrite_formats(store, manifest)


def _reencode(
    store: FolderStore,
    lock: HeldLock,
    layout: Layout,
    settings: VerifySettings,
    damaged: Sequence[int],
    sources: Sequence[Source],
    progress: Progress,
) -> None:
    reader = LedgerReader(store.folder / SEGMENTS)
    # The indexes are made from the tokens when these are whole.
    layout = replace_record(layout, has_index=False)
    executor = make_executor(reader.job, layout, sources, "write", settings, lock_file=lock.file)
    meter = Meter(progress, len(damaged) * reader.job.unit_bytes, len(damaged))
    reencode_units(executor, pick_units(reader.iter_units(), damaged), meter)


def _check_inputs(ledger: Path, damaged: Iterable[int]) -> list[Source]:
    """Check the inputs of damaged units before anything is written; in the end checksums decide."""
    sources: list[Source] = []
    for unit in pick_units(LedgerReader(ledger).iter_units(), damaged):
        if not sources or unit.unit.source != sources[-1]:
            sources.append(unit.unit.source)
            refuse_changed(sources[-1], by_time=False)
    return sources


def _refuse_irregular(layout: Layout, files: Iterable[tuple[Split, int]]) -> None:
    for split, shard in files:
        path = layout.final_path(split, shard)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise ConflictError(
                "a link, a folder or a pipe has the name of an output file",
                where=str(path),
                next_step=f"move it away: `mv {quoted(path)} {quoted(f'{path}.old')}`, then repair "
                "again",
            )
