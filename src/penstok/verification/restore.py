"""Makes a damaged output whole: exactly the damaged units are encoded again, in their places.

The ledger says what belongs where; checksums prove that it is there again. Files are mended under
their partial names, so that one under its final name is whole. Killed anywhere, it can be run
again. `look` finds the damage, before and after.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, DamageError, UsageError
from penstok.faults import fault_point
from penstok.inputs.changes import refuse_changed
from penstok.jobs.commit import roll_forward
from penstok.jobs.progress import Meter
from penstok.output.layout import MANIFEST, SEGMENTS, SKIPPED, Layout
from penstok.output.ledger.reader import LedgerReader, iter_skipped
from penstok.output.manifest import Manifest
from penstok.output.offsets import RecordedOffsets
from penstok.output.store.base import TASKS, has_progress
from penstok.output.store.folder import FolderStore
from penstok.storage.object_paths import ObjectPath, repair_step
from penstok.types import SPLITS
from penstok.verification.findings import Report
from penstok.verification.look import pick_units, verify_output
from penstok.verification.manifests import job_of_manifest, manifest_of_ledger
from penstok.verification.rebuild import rebuild_ledger
from penstok.verification.records import check_records, refuse_unfinished
from penstok.verification.rerun import make_executor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from penstok.jobs.progress import Progress
    from penstok.output.store.base import HeldLock
    from penstok.types import Source, Split
    from penstok.verification.look import VerifySettings

__all__ = ["repair_output"]


def repair_output(settings: VerifySettings, progress: Progress) -> Report:
    """Read everything, make anew what is damaged, and look again.

    Raises:
        DamageError: If there is no finished job, or too little is left to repair it from.
        InputError: If an input that is needed cannot be read.
        ConflictError: If it is no longer what it was, or the folder holds something else.
        LockedError: If a run is writing here.
        UsageError: If the output is not in a folder.
    """
    folder = settings.output
    if isinstance(folder, ObjectPath):
        raise UsageError(
            "objects cannot be repaired in their places",
            where=f"--repair, {folder}",
            next_step=repair_step(folder),
        )
    refuse_unfinished(folder)
    store = FolderStore(str(folder))
    with store.lock() as lock:
        roll_forward(store)
        layout = _find_layout(folder)
        if has_progress(store):
            raise ConflictError(
                "another job is unfinished here",
                where=str(folder / TASKS),
                next_step="run the command that was started here again, then this one",
            )
        before, num_lost = Report(folder), 0
        if not _is_whole(folder / SEGMENTS):
            check_records(folder, before, Random(0), sample_size=0, is_quick=False)
            num_lost = rebuild_ledger(store, lock, settings, progress)
        everything = replace(settings, full=True, source=False)
        found = verify_output(everything, progress, taken_aside=True)
        _refuse_irregular(layout, found.damaged_files)
        with progress:
            _mend(store, lock, layout, settings, found, progress)
        report = verify_output(settings, progress, also=found.damaged)
    ledger = [finding for finding in before.findings if finding.kind == "ledger"]
    report.mended = ledger + [finding for finding in found.findings if finding.is_repairable]
    report.repaired = sorted({finding.file for finding in report.mended})
    report.units_repaired = len(found.damaged) + num_lost
    return report


def _find_layout(folder: Path) -> Layout:
    """Read from either record where the files are."""
    try:
        manifest, _ = manifest_of_ledger(folder / SEGMENTS)
    except DamageError as error:
        try:
            manifest = Manifest.load(folder)
        except DamageError:
            return _layout_of_first_line(folder, error)
    try:
        return Layout.of_job(folder, job_of_manifest(manifest, 1), manifest.shard_starts())
    except ValueError as error:
        raise _hopeless(folder) from error


def _layout_of_first_line(folder: Path, error: DamageError) -> Layout:
    """Take what a damaged ledger says of itself: enough to lock the folder, and to tell more."""
    try:
        return Layout.of_job(folder, LedgerReader(folder / SEGMENTS).job)
    except DamageError:
        raise _hopeless(folder) from error


def _hopeless(folder: Path) -> DamageError:
    return DamageError(
        "neither the manifest nor the ledger can be read",
        where=str(folder),
        next_step=f"make the output anew: `penstok tokenize INPUT... -o {folder} --overwrite`",
    )


def _is_whole(path: Path) -> bool:
    try:
        manifest_of_ledger(path)
    except DamageError:
        return False
    return True


def _mend(
    store: FolderStore,
    lock: HeldLock,
    layout: Layout,
    settings: VerifySettings,
    found: Report,
    progress: Progress,
) -> None:
    """Write what is damaged: files are taken aside first and get their names back last."""
    ledger = store.folder / SEGMENTS
    manifest, _ = manifest_of_ledger(ledger)
    files = {layout.file_name(*file): file for file in sorted(found.damaged_files)}
    sources = _check_inputs(ledger, found.damaged) if found.damaged else []
    if files:
        store.take_aside(files)
    if "skipped" in found.kinds:
        store.write_lines(SKIPPED, (line.encode() for line in iter_skipped(ledger)))
    if "manifest" in found.kinds:
        # Before the tokens: what is found here after a kill is a job that says what it lacks.
        store.write(MANIFEST, manifest.to_json().encode())
    if found.damaged:
        _encode_again(store, lock, layout, settings, found.damaged, sources, progress)
        fault_point("damaged units written")
    if files or store.is_repairing:
        sizes = {file.path: file.bytes for split in SPLITS for file in manifest.splits[split].files}
        store.put_back({name: sizes[name] for name in files})


def _encode_again(
    store: FolderStore,
    lock: HeldLock,
    layout: Layout,
    settings: VerifySettings,
    damaged: Sequence[int],
    sources: Sequence[Source],
    progress: Progress,
) -> None:
    reader = LedgerReader(store.folder / SEGMENTS)
    executor = make_executor(
        reader.job,
        layout,
        sources,
        "write",
        engine="auto",
        workers=settings.workers,
        memory_bytes=settings.memory_bytes,
        lock_file=lock.file,
    )
    places = RecordedOffsets()
    units = places.iter_units(pick_units(reader.iter_units(), damaged))
    meter = Meter(progress, len(damaged) * reader.job.unit_bytes, len(damaged))
    with executor:
        for unit in executor.run(units, places, lambda: meter.tick(executor.pids())):
            places.check(unit)
            meter.num_units_done += 1
            meter.done_bytes += unit.encoded.counts.input_bytes
            meter.num_tokens += unit.encoded.counts.tokens


def _check_inputs(ledger: Path, damaged: Iterable[int]) -> list[Source]:
    """Look at the inputs before anything is touched; in the end the checksums decide."""
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
                "a link or a folder stands where a file belongs",
                where=str(path),
                next_step=f"move it away: `mv {path} {path}.old`, then repair again",
            )
