"""Checks the records of an output: its manifest, its ledger, and the sizes of its files.

It reads records and sizes, never tokens, and changes nothing. Where the two disagree the ledger is
trusted, since the manifest is made from it. `verify` continues with the tokens.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from penstok.errors import DamageError
from penstok.output.layout import JOB, MANIFEST, SEGMENTS, SKIPPED, WORK, Layout, is_own_name
from penstok.output.ledger.reader import LedgerReader, lists_skipped
from penstok.output.ledger.scan import iter_damaged, iter_sampled_units
from penstok.output.manifest import Manifest, check_readable
from penstok.quantities import plural
from penstok.storage.object_paths import ObjectPath, output_path
from penstok.types import (
    SPLITS,
    FinishedUnit,
    JobRecord,
    Source,
    Struct,
    Unit,
    UnitOffsets,
    field,
    replace,
)
from penstok.verification.findings import Finding
from penstok.verification.manifests import (
    add_up,
    check_sums,
    compare_manifest,
    format_of,
    job_of_manifest,
    load_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from penstok.output.ledger.lines import UnitLine
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Split
    from penstok.verification.findings import Report

__all__ = ["Records", "check_records", "refuse_unfinished"]

# A ledger of this size takes some seconds to read, and belongs to terabytes of text.
_QUICK_LEDGER_BYTES = 32 << 20
_DAMAGED_LINE = "checksum mismatch in a line of the ledger"


class Records(Struct, frozen=True):
    """What is recorded, as far as it can be trusted.

    Attributes:
        manifest: Made from the ledger; the one on disk if the ledger is damaged.
        job: What shaped the bytes.
        layout: Which files there are.
        sources: The inputs; empty if they are not known.
        sample: Some units, chosen at random.
        is_ledger_intact: Whether `iter_units` gives all units.
        during_repair: Whether a repair has moved files to the work folder.
        unusable: Files that are missing or not regular.
    """

    manifest: Manifest
    job: JobRecord
    layout: Layout
    sources: list[Source]
    sample: list[FinishedUnit]
    is_ledger_intact: bool
    during_repair: bool = False
    unusable: set[tuple[Split, int]] = field(default_factory=set)

    def path_of(self, split: Split, shard: int) -> OutputPath:
        """Return where a file is: under its final name, or where a repair moved it."""
        path = self.layout.finished_path(split, shard)
        if not self.during_repair or path.exists():
            return path
        partial = self.layout.partial_path(split, shard)
        return partial if partial.exists() else path

    def iter_units(self) -> Iterator[FinishedUnit]:
        """Yield the recorded units in order, up to the first damaged line."""
        try:
            yield from LedgerReader(output_path(self.layout.folder) / SEGMENTS).iter_units()
        except DamageError:
            return


class _Sample:
    """The first unit, the last, and some between, chosen with equal probability."""

    def __init__(self, rng: Random, size: int) -> None:
        self._rng, self._size = rng, size
        self._num_seen = 0
        self._chosen: list[FinishedUnit] = []
        self._first: FinishedUnit | None = None
        self._last: FinishedUnit | None = None

    def add(self, unit: FinishedUnit) -> None:
        self._num_seen += 1
        self._first, self._last = self._first or unit, unit
        if len(self._chosen) < self._size:
            self._chosen.append(unit)
        elif (idx := self._rng.randrange(self._num_seen)) < self._size:
            self._chosen[idx] = unit

    def units(self) -> list[FinishedUnit]:
        """Return the chosen units in order."""
        ends = [unit for unit in (self._first, self._last) if unit is not None]
        chosen = {unit.unit.index: unit for unit in (*ends, *self._chosen)}
        return [chosen[idx] for idx in sorted(chosen)]


def refuse_unfinished(folder: OutputPath) -> None:
    """Refuse a folder without a finished job.

    Raises:
        DamageError: If it is empty, missing, not an output, or its job is unfinished.
        InputError: If its records cannot be read.
    """
    check_readable(folder)
    if (folder / MANIFEST).exists():
        return
    if not (folder / SEGMENTS).exists():
        Manifest.load(folder)
    if (folder / WORK / JOB).exists():
        raise DamageError(
            "the job here is not finished",
            where=str(folder),
            next_step="run the command that was started here again: it continues",
        )


def check_records(
    folder: OutputPath,
    report: Report,
    rng: Random,
    *,
    sample_size: int,
    is_quick: bool,
    during_repair: bool = False,
) -> Records | None:
    """Compare manifest, ledger and files; None if neither record can be trusted.

    Args:
        folder: The output folder.
        report: Findings are added to it.
        rng: Chooses the sample.
        sample_size: How many units to choose.
        is_quick: Read only a sample of a very large ledger.
        during_repair: A repair may have moved files to the work folder.
    """
    refuse_unfinished(folder)
    path = folder / SEGMENTS
    if is_quick and path.is_file() and path.stat().st_size > _QUICK_LEDGER_BYTES:
        records = _sample_records(folder, report, rng, sample_size)
    else:
        records = _read_records(folder, report, _Sample(rng, sample_size))
    if records is None:
        return None
    records = replace(records, during_repair=during_repair)
    report.tokens = {split: records.manifest.splits[split].tokens for split in SPLITS}
    report.documents = {split: records.manifest.splits[split].documents for split in SPLITS}
    _check_files(folder, records, report)
    return records


def _read_records(folder: OutputPath, report: Report, sample: _Sample) -> Records | None:
    path = folder / SEGMENTS
    reader: LedgerReader | None = None
    problem = "" if path.is_file() else "the ledger is missing"
    try:
        if not problem:
            reader = LedgerReader(path)
            for unit in reader.iter_units():
                sample.add(unit)
            problem = reader.problem or ("" if reader.ending else "the line of its end is missing")
            report.num_units = reader.num_units
    except DamageError as error:
        problem = error.what
    if reader is None or reader.ending is None or problem:
        _list_damaged_lines(path, problem, report)
        return _trust_manifest(folder, report, reader, sample.units())
    manifest = compare_manifest(folder, add_up(reader), report)
    _check_input_bytes(reader, report)
    _compare_skipped(folder, manifest, report)
    layout = Layout.of_job(folder, reader.job, reader.starts)
    sources, units = reader.sources, sample.units()
    return Records(manifest, reader.job, layout, sources, units, is_ledger_intact=True)


def _list_damaged_lines(path: OutputPath, problem: str, report: Report) -> None:
    """Report every line whose checksum is wrong; if there is none, report what else is wrong."""
    before = report.num_findings
    for start, end in iter_damaged(path):
        report.add(Finding("ledger", _DAMAGED_LINE, SEGMENTS, start, end))
    if report.num_findings == before:
        report.add(Finding("ledger", problem, SEGMENTS))


def _trust_manifest(
    folder: OutputPath, report: Report, reader: LedgerReader | None, sample: list[FinishedUnit]
) -> Records | None:
    """Use the manifest alone where the ledger is damaged."""
    manifest = load_manifest(folder, report)
    if manifest is None:
        report.is_repairable = False
        return None
    try:
        job = job_of_manifest(manifest, 1) if reader is None else reader.job
        layout = Layout.of_job(folder, job, manifest.shard_starts())
    except ValueError as error:
        what = f"the manifest is not valid: {error}"
        report.add(Finding("manifest", what, MANIFEST, is_repairable=False))
        return None
    check_sums(manifest, layout, report)
    report.notes.append("tokens after the first damaged line of the ledger were not checked")
    return Records(manifest, job, layout, [], sample, is_ledger_intact=False)


def _check_input_bytes(reader: LedgerReader, report: Report) -> None:
    """Check that every byte of an input is in a unit; rows are counted by their text."""
    if reader.job.settings.get("limit_bytes") is not None:
        return
    for idx, source in enumerate(reader.sources):
        found = reader.offsets.of_source(idx).input_bytes
        size = reader.end_of(idx) if source.is_stream else source.size
        if found != size and not source.is_rows:
            what = f"its units have {found} of the {plural(size, 'byte')} of `{source.path}`"
            report.add(Finding("ledger", what, SEGMENTS, input=source.path, is_repairable=False))


def _compare_skipped(folder: OutputPath, manifest: Manifest, report: Report) -> None:
    if manifest.has_skipped() and not lists_skipped(folder / SKIPPED, folder / SEGMENTS):
        what = "the list of skipped records is missing or was changed"
        report.add(Finding("skipped", what, SKIPPED))


def _check_files(folder: OutputPath, records: Records, report: Report) -> None:
    """Check the name, kind and size of every token file."""
    names = set()
    is_sharded = records.layout.shard_tokens is not None
    sizes = folder.list_sizes() if is_sharded and isinstance(folder, ObjectPath) else None
    for split in SPLITS:
        for shard, file in enumerate(records.manifest.splits[split].files):
            name = records.layout.file_name(split, shard)
            names.add(name)
            path = records.path_of(split, shard)
            size = _regular_size(path) if sizes is None else sizes.get(name)
            if size is None:
                records.unusable.add((split, shard))
                what = "the file is missing" if not path.exists() else "not a regular file"
                report.add(Finding("file", what, name, 0, file.bytes))
            elif size != file.bytes:
                what = f"the file has {plural(size, 'byte')} instead of {file.bytes:,}"
                start, end = sorted((size, file.bytes))
                report.add(Finding("file", what, name, start, end))
            if size != file.bytes or path.parent.name == WORK:
                report.damaged_files.add((split, shard))
    if not is_sharded:
        return
    for path in folder.iterdir():
        # A program that reads all shards would read this one, too.
        is_shard = "_shard_" in path.name and path.name.endswith(".bin")
        if is_shard and is_own_name(path, folder) and path.name not in names:
            what = "this shard does not belong to the job"
            report.add(Finding("file", what, path.name, is_repairable=False))


def _regular_size(path: OutputPath) -> int | None:
    try:
        if isinstance(path, ObjectPath):
            return path.stat().st_size
        status = path.stat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _sample_records(folder: OutputPath, report: Report, rng: Random, size: int) -> Records | None:
    """Check a sample of the lines of a very large ledger; use the totals of the manifest."""
    manifest = load_manifest(folder, report)
    if manifest is None:
        return None
    path = folder / SEGMENTS
    try:
        job = LedgerReader(path).job
    except DamageError as error:
        report.add(Finding("ledger", error.what, SEGMENTS))
        return None
    layout = Layout.of_job(folder, job, manifest.shard_starts())
    if job_of_manifest(manifest, job.unit_bytes) != job:
        what = "the manifest was changed: its settings differ from the ledger"
        report.add(Finding("manifest", what, MANIFEST))
    check_sums(manifest, layout, report)
    chosen: dict[int, FinishedUnit] = {}
    num_lines = 0
    for start, end, line in iter_sampled_units(path, rng, size):
        num_lines += 1
        finished = None if line is None else _lone_unit(line, manifest)
        if finished is None:
            report.add(Finding("ledger", _DAMAGED_LINE, SEGMENTS, start, end))
        else:
            chosen[finished.unit.index] = finished
    report.num_units = max(chosen, default=0) + 1
    report.notes.append(
        f"`{SEGMENTS}` is very large: {num_lines} of its lines were checked; `--full` checks all"
    )
    sample = [chosen[idx] for idx in sorted(chosen)]
    return Records(manifest, job, layout, [], sample, is_ledger_intact=True)


def _lone_unit(line: UnitLine, manifest: Manifest) -> FinishedUnit | None:
    """Make a unit from its line alone; the manifest knows its input."""
    if line.input >= len(manifest.inputs):
        return None
    record = manifest.inputs[line.input]
    source = Source(record.path, record.bytes, 0, "", format_of(record))
    unit = Unit(line.unit, line.input, source, line.start, line.end, record.bytes)
    grant = UnitOffsets(line.unit, line.carried[0], {}, {})
    return FinishedUnit(unit, line.encoded(), grant, line.written())
