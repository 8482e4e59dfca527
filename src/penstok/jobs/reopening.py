"""Reopens a finished job to add inputs to it, and closes it again if none could be added.

A reopened job is an unfinished one whose units are all done: its ledger is the journal again, its
indexes are the lists that workers continue. It publishes nothing itself: `intent` does. `jobs.run`
calls it.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstok.errors import DamageError
from penstok.faults import fault_point
from penstok.jobs.conflicts import foreign_file, read_job_file
from penstok.jobs.formats import FormatRequest, stage_formats
from penstok.jobs.intent import FINISHED_LOCATION, commit_files, locate_files, start_reopening
from penstok.output.documents import DocumentFinder, check_index, iter_entries
from penstok.output.fields import FieldSpool, iter_finished_rows
from penstok.output.formats.base import TokenSource
from penstok.output.layout import MANIFEST, SEGMENTS, SKIPPED, Layout, is_final_name
from penstok.output.ledger.lines import UNIT_START
from penstok.output.ledger.reader import LedgerReader
from penstok.output.manifest import Manifest
from penstok.output.segments import SegmentReader
from penstok.output.store.base import INTENT, StagedFile, journal_name
from penstok.types import SPLITS, replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstok.output.fields import FieldRows
    from penstok.output.manifest import FormatRecord
    from penstok.output.store.base import OutputStore
    from penstok.types import Split

__all__ = ["find_reopened_formats", "reopen_job", "restore_finished"]

_COPIED_LINES = 4096


def find_reopened_formats(store: OutputStore) -> list[FormatRecord]:
    """Return the formats of the finished job to which inputs were added."""
    text = store.read(_finished_name(MANIFEST))
    if text is None:
        return []
    return Manifest.from_json(text.decode(), store.path / MANIFEST).formats


def reopen_job(store: OutputStore, manifest: Manifest) -> None:
    """Turn a finished job into an unfinished one whose units are all done, to add inputs.

    The ledger without its last line becomes the journal.

    Raises:
        ConflictError: If a file under the name of an output is not from that job.
    """
    own = {*manifest.files(), *manifest.format_files(), SEGMENTS, SKIPPED, MANIFEST}
    for name in store.iter_names(""):
        if is_final_name(name) and name not in own:
            raise foreign_file(store, name)
    # Tokens that an unfinished run left are not those of the finished job.
    store.drop_tasks()
    _restore_spools(store, manifest)
    journal, lines = store.open_journal(0, None), _without_last(store.iter_lines(SEGMENTS))
    while batch := list(islice(lines, _COPIED_LINES)):
        journal.append(b"".join(batch))
    journal.close()
    store.write(_finished_name(MANIFEST), store.read(MANIFEST) or b"")
    fault_point("ledger copied")
    start_reopening(store, manifest)


def _restore_spools(store: OutputStore, manifest: Manifest) -> None:
    """Give the workers of a reopened job the lists of documents to continue.

    That of their starts is made from the tokens if an index is damaged, or was not written by an
    older version.

    Raises:
        DamageError: If that is not possible, because there are no end-of-text ids, or if the
            origins are damaged.
    """
    layout = Layout.of_manifest(store.name, manifest)
    files = store.begin_task(layout, 0, None)
    if not layout.has_index:
        return
    for split in SPLITS if layout.has_origins else ():
        files.restore_spool(split, "origins", _iter_origins(store, manifest, split))
    if layout.kept_fields:
        _restore_fields(store, manifest, files.layout)
    try:
        source = TokenSource.from_manifest(manifest, lambda name: Path(store.name, name))
        for split in SPLITS:
            for index in manifest.splits[split].indexes_of("documents"):
                check_index(Path(store.name, index.path), index)
            files.restore_spool(split, "documents", source.splits[split].iter_starts())
    except DamageError:
        if manifest.settings["eot"] == "none":
            raise
        finder = DocumentFinder(manifest.tokenizer.eot_id, manifest.settings["eot"])
        reader = SegmentReader(layout.finished_path, layout.token_bytes)
        for split in SPLITS:
            pieces = reader.iter_files(layout, split, manifest.splits[split].tokens)
            files.restore_spool(split, "documents", finder.iter_starts(pieces))
        reader.close()


def _restore_fields(store: OutputStore, manifest: Manifest, layout: Layout) -> None:
    """Write the kept fields of a finished job as its workers did, unit by unit."""
    for split in SPLITS:
        spool = FieldSpool(layout.spool_path(split, "fields"), len(layout.kept_fields))
        units = LedgerReader(store.path / SEGMENTS).iter_units()
        counts = ((unit.offsets.documents[split], unit.encoded.documents[split]) for unit in units)
        spool.restore(_iter_fields(store, manifest, split), counts)


def _iter_fields(store: OutputStore, manifest: Manifest, split: Split) -> Iterator[FieldRows]:
    for index in manifest.splits[split].indexes_of("fields"):
        check_index(store.path / index.path, index)
        yield from iter_finished_rows(store.path / index.path)


def _iter_origins(store: OutputStore, manifest: Manifest, split: Split) -> Iterator[NDArray[Any]]:
    for index in manifest.splits[split].indexes_of("origins"):
        check_index(store.path / index.path, index)
        yield from iter_entries(store.path / index.path, "origins")


def restore_finished(store: OutputStore) -> None:
    """Finish a reopened job as it was before, if no unit was added to it.

    A bad input that is added must not cost the user the output that exists. With units that were
    added, the job stays unfinished, and the next run continues.
    """
    text, job = store.read(_finished_name(MANIFEST)), read_job_file(store)
    if text is None or job is None or store.read(INTENT) is not None:
        return
    ledger = _finished_name(SEGMENTS)
    if _count_units(store, journal_name(0, None)) > _count_units(store, ledger):
        return
    manifest = Manifest.from_json(text.decode(), store.path / MANIFEST)
    if job.job.settings != manifest.settings:
        return
    files = store.begin_task(Layout.of_job(store.name, job.job), 0, None)
    files.seal({split: manifest.splits[split].tokens for split in SPLITS})
    sizes = {
        name: sum(map(len, store.iter_lines(_finished_name(name)))) for name in (SEGMENTS, SKIPPED)
    }
    staged: list[StagedFile] = [
        (name, FINISHED_LOCATION, size) for name, size in sizes.items() if size
    ]
    if manifest.formats:
        # They were deleted when the job was reopened.
        requests = [FormatRequest.from_record(each, store.name) for each in manifest.formats]
        source = TokenSource.from_manifest(manifest, locate_files(store, job, manifest))
        formats, more = stage_formats(store, manifest, source, requests)
        manifest, staged = replace(manifest, formats=formats), staged + more
    commit_files(store, job, manifest, staged)


def _finished_name(name: str) -> str:
    return f"{FINISHED_LOCATION['folder']}/{name}.partial"


def _count_units(store: OutputStore, name: str) -> int:
    return sum(line.startswith(UNIT_START) for line in store.iter_lines(name))


def _without_last(lines: Iterable[bytes]) -> Iterator[bytes]:
    waiting: bytes | None = None
    for line in lines:
        if waiting is not None:
            yield waiting
        waiting = line
