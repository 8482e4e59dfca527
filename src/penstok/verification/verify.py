"""Checks an output: its records first, then its tokens, then the inputs if asked to.

It writes and prints nothing and returns a report; `penstok.verify` calls it. Each check is a module
of its own: `records`, `tokens`, `proof`; `repair` repairs what they find.
"""

from __future__ import annotations

from random import Random, SystemRandom
from typing import TYPE_CHECKING

from penstok.jobs.progress import Meter
from penstok.output.store.folder import describe_leftovers
from penstok.quantities import plural
from penstok.storage.object_paths import ObjectPath
from penstok.types import SPLITS
from penstok.verification.converted import check_converted, find_converted
from penstok.verification.findings import Finding, Report
from penstok.verification.formats import check_formats
from penstok.verification.indexes import check_indexes
from penstok.verification.proof import prove
from penstok.verification.records import check_records
from penstok.verification.starts import TokenStarts
from penstok.verification.tokens import TokenChecker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from penstok.jobs.progress import Progress
    from penstok.types import FinishedUnit, Split
    from penstok.verification.records import Records
    from penstok.verification.settings import VerifySettings
    from penstok.verification.tokens import Checked

__all__ = ["pick_units", "verify_output"]

_SAMPLE_UNITS = 2000
# Each takes some requests, one after the other.
_REMOTE_SAMPLE_UNITS = 100
_SAMPLE_BYTES = 256 << 20


def verify_output(
    settings: VerifySettings,
    progress: Progress,
    *,
    also: Collection[int] = (),
    during_repair: bool = False,
) -> Report:
    """Check an output: a sample, everything, or its inputs, too.

    Args:
        settings: What to check.
        progress: Shows how far the check is.
        also: Numbers of units whose tokens are read in any case, in order.
        during_repair: A repair may have moved files to the work folder.

    Raises:
        DamageError: If there is no finished job.
        InputError: If an input, or the object store, cannot be read.
        ConflictError: If an input has changed since the job read it.
    """
    seed = SystemRandom().randrange(1 << 32) if settings.seed is None else settings.seed
    report, rng = Report(settings.output, seed), Random(seed)
    if (converted := find_converted(settings.output)) is not None:
        with progress:
            check_converted(settings.output, converted, report, is_full=settings.full)
        return report
    is_remote = isinstance(settings.output, ObjectPath)
    records = check_records(
        settings.output,
        report,
        rng,
        sample_size=_REMOTE_SAMPLE_UNITS if is_remote else _SAMPLE_UNITS,
        is_quick=not (settings.full or settings.source or also),
        during_repair=during_repair,
    )
    report.notes += describe_leftovers(settings.output)
    if records is not None:
        with progress:
            starts = _check_tokens(settings, records, report, rng, progress, also)
            manifest = records.manifest
            check_indexes(settings.output, manifest, report, starts)
            check_formats(settings.output, manifest, report, is_full=settings.full)
            # Inputs can only be compared with tokens whose offsets are known.
            if settings.source and records.is_ledger_intact:
                prove(settings, records, report, rng, progress)
    return report


def _check_tokens(
    settings: VerifySettings,
    records: Records,
    report: Report,
    rng: Random,
    progress: Progress,
    also: Collection[int],
) -> TokenStarts | None:
    """Check tokens; return where documents start in them, if all were read."""
    starts: TokenStarts | None = None
    checker = TokenChecker(records, settings.num_threads)
    total = sum(report.tokens.values()) * records.layout.token_bytes
    meter = Meter(progress, total, report.num_units)
    if settings.full:
        num_eot: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        job = records.job
        starts = TokenStarts(job.settings.get("eot", "append"), job.tokenizer.eot_id)
        for checked in checker.check(records.iter_units()):
            _add(checked, report, meter)
            for split in SPLITS:
                num_eot[split] += checked.num_eot[split]
            starts.add(checked)
        _compare_documents(records, report, num_eot)
    else:
        chosen = _choose(records, rng)
        for checked in checker.check(chosen):
            _add(checked, report, meter)
        read = {unit.unit.index for unit in chosen}
        others = (unit for unit in records.sample if unit.unit.index not in read)
        for checked in checker.check_edges(others):
            _add(checked, report, meter, is_whole=False)
        if also:
            more = (idx for idx in also if idx not in read)
            for checked in checker.check(pick_units(records.iter_units(), more)):
                _add(checked, report, meter)
    if not report.damaged:
        for finding in checker.check_split_ends(starts):
            report.add(finding)
    return starts


def _choose(records: Records, rng: Random) -> list[FinishedUnit]:
    """Choose units whose tokens are all read: at least one, up to a limit in bytes."""
    chosen: list[FinishedUnit] = []
    left = _SAMPLE_BYTES // records.layout.token_bytes
    for unit in rng.sample(records.sample, len(records.sample)):
        if unit.encoded.counts.tokens <= left or not chosen:
            chosen.append(unit)
            left -= unit.encoded.counts.tokens
    return sorted(chosen, key=lambda unit: unit.unit.index)


def pick_units(units: Iterable[FinishedUnit], wanted: Iterable[int]) -> Iterator[FinishedUnit]:
    """Yield the units with these numbers; both are in order."""
    numbers = iter(wanted)
    number = next(numbers, None)
    for unit in units:
        if unit.unit.index == number:
            yield unit
            number = next(numbers, None)


def _compare_documents(records: Records, report: Report, num_eot: dict[Split, int]) -> None:
    """Check that every document has one end-of-text id, unless the job was to write none."""
    if report.damaged or not records.is_ledger_intact:
        return
    has_eot = records.job.settings.get("eot") != "none"
    for split in SPLITS:
        expected = records.manifest.splits[split].documents if has_eot else 0
        if num_eot[split] != expected:
            found = plural(num_eot[split], "end-of-text id")
            what = f"{split} has {found} for {plural(expected, 'document')}"
            name = records.layout.file_name(split, 0)
            report.add(Finding("ids", what, name, is_repairable=False))


def _add(checked: Checked, report: Report, meter: Meter, *, is_whole: bool = True) -> None:
    """Add the result for a unit to the report."""
    for finding in checked.findings:
        report.add(finding)
    report.units_read += is_whole
    report.bytes_read += checked.num_bytes
    if checked.is_damaged:
        report.damaged.append(checked.unit.unit.index)
        files = {(each.split, each.shard) for each in checked.unit.written.segments}
        report.damaged_files |= files
    meter.done_bytes, meter.num_units_done = report.bytes_read, report.units_read
    meter.num_tokens += checked.unit.encoded.counts.tokens if is_whole else 0
    meter.tick()
