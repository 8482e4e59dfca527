"""The commit of a job: journals become the ledger, files get their names, the manifest comes last.

It only rolls forward: the ledger is staged, then an intent record lists what to publish, and from
then on any run that finds this record completes the commit. It reads no tokens. `jobs.run` calls it
when all tasks are done, and `roll_forward` at the start of every run.
"""

from __future__ import annotations

import contextlib
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstok.errors import ConflictError, DamageError, LockedError
from penstok.faults import fault_point
from penstok.jobs.conflicts import JOB, JobFile, read_job_file
from penstok.jobs.formats import FormatRequest, find_requests, refuse_taken, stage_formats
from penstok.jobs.plan import nothing_found
from penstok.jobs.resume import drop_lost_tasks, iter_journals, iter_task_files
from penstok.output.documents import DocumentFinder, check_index, iter_entries
from penstok.output.formats.base import TokenSource
from penstok.output.layout import MANIFEST, SEGMENTS, SKIPPED, Layout, is_final_name
from penstok.output.ledger.journal import NodeTotals, choose_journals
from penstok.output.ledger.lines import (
    INPUT_START,
    UNIT_START,
    Ending,
    format_ending,
    format_job,
    line_body,
    read_input,
    read_unit,
)
from penstok.output.ledger.reader import list_skipped, list_skipped_inputs
from penstok.output.manifest import Manifest, RunRecord, TaskFacts, make_manifest
from penstok.output.offsets import Offsets
from penstok.output.segments import SegmentReader
from penstok.output.store.base import (
    FINISHED,
    INTENT,
    PARTS,
    REPAIRING,
    TASKS,
    LostShardError,
    StagedFile,
    journal_name,
)
from penstok.types import SPLITS, Struct, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from penstok.jobs.progress import Progress
    from penstok.output.documents import IndexRecord
    from penstok.output.ledger.journal import FinishedJournal, TaskRecord
    from penstok.output.manifest import FormatRecord, KnowsDigests
    from penstok.output.store.base import OutputStore
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Source, Split

__all__ = [
    "JobTotals",
    "commit_formats",
    "commit_job",
    "find_reopened_formats",
    "reopen_job",
    "restore_finished",
    "roll_forward",
    "tidy_finished",
]

# Matches the key only: inside a string, the quotes would be escaped.
_HAS_SKIPPED = b'"skipped":['
_COPIED_LINES = 4096
# The location of a resumable task's files until they are published.
_RESUMABLE = {"folder": journal_name(0, None).removesuffix(".jsonl")}
_FINISHED = {"folder": FINISHED}


class _Intent(Struct, frozen=True):
    """The intent record: what to publish, or which job to reopen.

    Attributes:
        manifest: The text of the manifest to publish; empty when reopening a job.
        staged: The complete files, other than shards, that wait for their final names.
        older: The files of an older output, to delete before anything is published; empty once
            they are deleted. From then on a file under a final name is one that was published. If
            only formats are published, these are files that no format has any more, and are
            deleted after the manifest is written.
        reopen: The shards to unpublish, so that inputs can be added to them.
    """

    manifest: str = ""
    staged: list[StagedFile] = field(default_factory=list)
    older: list[str] = field(default_factory=list)
    reopen: list[str] = field(default_factory=list)


class JobTotals(Struct):
    """The totals of a job, added up from its journals in order."""

    offsets: Offsets = field(default_factory=Offsets)
    num_units: int = 0
    num_tasks: int = 0
    num_replaced: int = 0
    peak_bytes: int = 0
    seconds: float = 0.0
    engines: set[str] = field(default_factory=set)
    nodes: dict[str, NodeTotals] = field(default_factory=dict)
    starts: dict[Split, list[int]] = field(default_factory=lambda: {each: [] for each in SPLITS})
    digests: dict[tuple[Split, int], str] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    indexes: dict[Split, list[IndexRecord]] = field(
        default_factory=lambda: {each: [] for each in SPLITS}
    )

    def add(self, record: TaskRecord) -> None:
        """Add the next task."""
        for split in SPLITS:
            self.starts[split].append(self.offsets.tokens[split])
            self.digests[split, record.task] = record.digests.get(split, "")
            self.indexes[split] += [index.record for index in record.indexes.get(split, [])]
        self.offsets.add_task(record.totals)
        self.num_tasks += 1
        self.num_units += record.num_units
        self.num_replaced += record.num_replaced
        self.peak_bytes = max(self.peak_bytes, record.peak_bytes)
        self.seconds += record.seconds
        self.engines.add(record.engine)
        if record.node:
            self.nodes.setdefault(record.node, NodeTotals(record.node)).add(record)

    def of(self, split: Split, shard: int) -> str:
        """Return the digest of a shard."""
        return self.digests[split, shard]

    def describe_parts(self) -> RunRecord:
        """Return how a job ran that was run in parts."""
        return RunRecord(
            seconds=self.seconds,
            work_seconds=self.seconds,
            work=self.offsets.counts,
            workers=1,
            peak_bytes=self.peak_bytes,
            units_kept=0,
            is_resumed=False,
            tasks=TaskFacts("parts", self.num_tasks, 0, 0),
        )


def commit_job(
    store: OutputStore,
    job: JobFile,
    open_journals: Callable[[], Iterable[FinishedJournal]],
    make_run: Callable[[JobTotals], RunRecord],
    *,
    overwrite: bool,
    sources: list[Source] | None = None,
    digests: KnowsDigests | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Publish a job: its ledger, its shards under their final names, then the manifest.

    An older output is replaced; its manifest is deleted first.

    Args:
        store: The output.
        job: The job.
        open_journals: Returns the journals of all tasks, in order.
        make_run: Returns how the job ran.
        overwrite: Whether files that no job wrote may be deleted.
        sources: The inputs, if they are in memory already; else they are read from the journals.
        digests: The digests of the files, if one task wrote all of them.
        progress: Shows how far other formats are written.

    Raises:
        LostShardError: If tokens are missing; the next run repeats what was lost.
        InputError: If there is no document in any input.
        ConflictError: If there are files that no job wrote.
    """
    totals, endings = JobTotals(sources=sources or []), list[Ending]()

    def lines() -> Iterator[bytes]:
        yield format_job(job.job)
        for journal in open_journals():
            for line in journal.iter_lines(totals.num_units):
                if sources is None:
                    _note_input(line, totals)
                yield line
            totals.add(journal.record)
        run = make_run(totals).to_dict(totals.num_replaced, totals.engines, totals.nodes)
        endings.append(Ending(run, job.skipped, job.ignored))
        yield format_ending(endings[0])

    staged = [store.stage_lines(SEGMENTS, lines())]
    if totals.offsets.counts.documents == 0:
        store.tidy()
        raise nothing_found(totals.sources, totals.offsets.counts.empty_documents)
    manifest = make_manifest(
        job=job.job,
        sources=totals.sources,
        offsets=totals.offsets,
        digests=digests or totals,
        ending=endings[0],
        starts=totals.starts if job.is_by_task else None,
        indexes=totals.indexes,
    )
    if requests := find_requests(job.job.settings, find_reopened_formats(store), store.name):
        source = TokenSource.from_manifest(manifest, _locate(store, job, manifest))
        formats, files = stage_formats(store, manifest, source, requests, progress=progress)
        manifest = replace(manifest, formats=formats)
        staged += files
    if manifest.has_skipped():
        skipped = _iter_skipped(open_journals(), job, totals.sources)
        staged.append(store.stage_lines(SKIPPED, skipped))
    older = _find_older(store, manifest, overwrite=overwrite)
    refuse_taken(store, manifest.formats, {*older})
    intent = _Intent(manifest.to_json(), staged, older)
    store.write(INTENT, msgspec.json.encode(intent))
    fault_point("intent written")
    _publish(store, job, intent, manifest)
    return manifest


def _locate(store: OutputStore, job: JobFile, manifest: Manifest) -> Callable[[str], OutputPath]:
    """Return where the tokens and indexes of a job are that is not published yet."""
    locations = {name: location for name, location, _ in _iter_shards(store, job, manifest)}
    return lambda name: store.locate(name, locations.get(name))


def find_reopened_formats(store: OutputStore) -> list[FormatRecord]:
    """Return the formats of the finished job to which inputs were added."""
    text = store.read(_finished_name(MANIFEST))
    if text is None:
        return []
    return Manifest.from_json(text.decode(), store.path / MANIFEST).formats


def commit_formats(
    store: OutputStore, manifest: Manifest, staged: list[StagedFile], older: Iterable[str] = ()
) -> None:
    """Publish files that were made from the tokens of a finished job, then its new manifest.

    Args:
        store: The output.
        manifest: The new manifest.
        staged: The files.
        older: The files of formats that are replaced; those that are not overwritten are deleted.
    """
    names = {name for name, _, _ in staged}
    intent = _Intent(manifest.to_json(), staged, [name for name in older if name not in names])
    # Of a job that was only begun: with it, the intent would be taken for that of its commit.
    store.delete([JOB])
    store.write(INTENT, msgspec.json.encode(intent))
    fault_point("intent of formats written")
    _publish_formats(store, intent)


def _publish_formats(store: OutputStore, intent: _Intent) -> None:
    # Even if the manifest is the same: a file may have been repaired.
    store.publish(intent.staged)
    store.write(MANIFEST, intent.manifest.encode())
    fault_point("manifest written")
    store.delete(intent.older)
    store.tidy()


def _withdraw_formats(store: OutputStore, intent: _Intent) -> None:
    """Cancel a commit of formats whose staged files were lost: they are written again."""
    text, names = store.read(MANIFEST), {name for name, _, _ in intent.staged}
    if text is not None:
        before = Manifest.from_json(text.decode(), store.path / MANIFEST)
        # Some of their files may be replaced by new ones already.
        lost = [each for each in before.formats if names & {file.path for file in each.files}]
        if lost:
            kept = [record for record in before.formats if record not in lost]
            store.write(MANIFEST, replace(before, formats=kept).to_json().encode())
        names |= {file.path for record in lost for file in record.files}
        names -= {*before.files(), SEGMENTS, SKIPPED}
    store.delete([*sorted(names), INTENT])


def roll_forward(store: OutputStore) -> Manifest | None:
    """Complete an interrupted commit or reopening; return the manifest if it was a commit.

    If tokens were lost meanwhile, the job is unfinished again, and None is returned.
    """
    data = store.read(INTENT)
    if data is None:
        return None
    intent, job = msgspec.json.decode(data, type=_Intent), read_job_file(store)
    if not intent.manifest:
        _reopen(store, intent)
        return None
    manifest = Manifest.from_json(intent.manifest, store.path / INTENT)
    if job is None:
        # Formats were being added to a finished job, or work files were being deleted.
        try:
            _publish_formats(store, intent)
        except LostShardError:
            _withdraw_formats(store, intent)
            return None
        return manifest
    try:
        _publish(store, job, intent, manifest)
    except LostShardError:
        return None
    return manifest


def reopen_job(store: OutputStore, manifest: Manifest) -> None:
    """Turn a finished job into an unfinished one whose units are all done, to add inputs.

    The ledger without its last line becomes the journal.

    Raises:
        ConflictError: If a file under the name of an output is not from that job.
    """
    own = {*manifest.files(), *manifest.format_files(), SEGMENTS, SKIPPED, MANIFEST}
    for name in store.iter_names(""):
        if is_final_name(name) and name not in own:
            raise _foreign_file(store, name)
    # Tokens that an unfinished run left are not those of the finished job.
    store.drop_tasks()
    _restore_spools(store, manifest)
    journal, lines = store.open_journal(0, None), _without_last(store.iter_lines(SEGMENTS))
    while batch := list(islice(lines, _COPIED_LINES)):
        journal.append(b"".join(batch))
    journal.close()
    store.write(_finished_name(MANIFEST), store.read(MANIFEST) or b"")
    fault_point("ledger copied")
    # Files of other formats are made again at the end; links would grow with the tokens.
    intent = _Intent(reopen=manifest.files(), older=manifest.format_files())
    store.write(INTENT, msgspec.json.encode(intent))
    fault_point("reopening begins")
    _reopen(store, intent)


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
    staged: list[StagedFile] = [(name, _FINISHED, size) for name, size in sizes.items() if size]
    if manifest.formats:
        # They were deleted when the job was reopened.
        requests = [FormatRequest.from_record(each, store.name) for each in manifest.formats]
        source = TokenSource.from_manifest(manifest, _locate(store, job, manifest))
        formats, more = stage_formats(store, manifest, source, requests)
        manifest, staged = replace(manifest, formats=formats), staged + more
    intent = _Intent(manifest.to_json(), staged)
    store.write(INTENT, msgspec.json.encode(intent))
    _publish(store, job, intent, manifest)


def _finished_name(name: str) -> str:
    return f"{_FINISHED['folder']}/{name}.partial"


def _count_units(store: OutputStore, name: str) -> int:
    return sum(line.startswith(UNIT_START) for line in store.iter_lines(name))


def tidy_finished(store: OutputStore, manifest: Manifest) -> bool:
    """Delete the work files that a killed run left; return whether they were of another job.

    That other job was started to overwrite this one and was interrupted. Whoever runs the finished
    job again has no use for its tokens, which nothing else would ever delete.
    """
    if not store.has_work():
        return False
    # If another run holds the lock, it deletes them itself; parts of a job run without it.
    with contextlib.suppress(LockedError), store.lock():
        if store.read(INTENT) is not None:
            # Files were being published: of formats that a conversion adds, for example.
            roll_forward(store)
            return False
        job = read_job_file(store)
        is_other = job is not None and not job.has_made(manifest)
        has_parts = any(True for _ in store.iter_names(PARTS))
        if store.read(REPAIRING) is None and not (is_other and has_parts):
            store.tidy()
            return is_other
    return False


def _publish(store: OutputStore, job: JobFile, intent: _Intent, manifest: Manifest) -> None:
    """Publish everything that is not published yet, then the manifest; then delete work files."""
    text = intent.manifest.encode()
    if store.read(MANIFEST) != text:
        if intent.older:
            store.delete(intent.older)
            intent = replace(intent, older=[])
            store.write(INTENT, msgspec.json.encode(intent))
        try:
            store.publish(_iter_shards(store, job, manifest))
            store.publish(intent.staged)
        except LostShardError:
            _withdraw(store, job, manifest)
            # What was staged is staged again.
            store.delete([*(name for name, _, _ in intent.staged), INTENT])
            raise
        store.write(MANIFEST, text)
        fault_point("manifest written")
    store.tidy()


def _iter_shards(store: OutputStore, job: JobFile, manifest: Manifest) -> Iterator[StagedFile]:
    if not job.is_by_task:
        for split in SPLITS:
            for name, num_bytes in manifest.splits[split].iter_sizes():
                yield name, _RESUMABLE, num_bytes
        return
    layout = Layout.of_job(store.name, job.job)
    chosen = choose_journals(store.iter_names(TASKS))
    yield from iter_task_files(layout, iter_journals(store, chosen, job.digest))


def _withdraw(store: OutputStore, job: JobFile, manifest: Manifest) -> None:
    """Cancel a commit whose tokens are missing: the next run repeats what was lost."""
    if job.is_by_task:
        layout = Layout.of_job(store.name, job.job)
        drop_lost_tasks(store, layout, choose_journals(store.iter_names(TASKS)), job.digest)
    else:
        store.unpublish(manifest.files(), _RESUMABLE)


def _reopen(store: OutputStore, intent: _Intent) -> None:
    store.delete([MANIFEST])
    fault_point("manifest withdrawn")
    store.delete(intent.older)
    store.unpublish(intent.reopen, _RESUMABLE)
    store.unpublish([SEGMENTS, SKIPPED], _FINISHED)
    store.delete([INTENT])


def _without_last(lines: Iterable[bytes]) -> Iterator[bytes]:
    waiting: bytes | None = None
    for line in lines:
        if waiting is not None:
            yield waiting
        waiting = line


def _find_older(store: OutputStore, manifest: Manifest, *, overwrite: bool) -> list[str]:
    """List the files of an older output, its manifest first.

    Raises:
        ConflictError: If files that no job made are in the way, and may not be deleted.
    """
    names = [name for name in store.iter_names("") if is_final_name(name)]
    if MANIFEST in names:
        with contextlib.suppress(DamageError):
            text = store.read(MANIFEST) or b""
            names += Manifest.from_json(text.decode(errors="replace"), store.path).format_files()
        return sorted(dict.fromkeys(names), key=lambda name: name != MANIFEST)
    # Without a manifest, own names are those of shards that were published before a retry.
    own = {*manifest.files(), SEGMENTS, SKIPPED}
    foreign = [name for name in names if name not in own]
    if foreign and not overwrite:
        raise _foreign_file(store, foreign[0])
    return foreign


def _foreign_file(store: OutputStore, name: str) -> ConflictError:
    return ConflictError(
        f"`{name}` is not from this job",
        where=store.name,
        next_step="move it away, then run the same command again",
    )


def _note_input(line: bytes, totals: JobTotals) -> None:
    if line.startswith(INPUT_START):
        body = line_body(line)
        if body is not None:
            totals.sources.append(read_input(body)[1])


def _iter_skipped(
    journals: Iterable[FinishedJournal], job: JobFile, sources: list[Source]
) -> Iterator[bytes]:
    """List what was skipped; only the lines of units with skipped records are parsed."""
    for journal in journals:
        for line in journal.open_lines():
            if _HAS_SKIPPED in line:
                unit = read_unit(line_body(line) or b"")
                listed = list_skipped(sources[unit.input].path, unit.end, unit.encoded())
                yield "".join(listed).encode()
    yield "".join(list_skipped_inputs(job.skipped | job.ignored)).encode()
