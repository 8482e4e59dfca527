"""The commit of a job: journals become the ledger, and everything is ready to be published.

It reads no tokens and gives no file its name: `intent` does that. `jobs.formats` makes the files of
other formats. `jobs.run` calls it when all tasks are done.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstok.errors import DamageError
from penstok.jobs.conflicts import JobFile, foreign_file
from penstok.jobs.formats import find_requests, refuse_taken, stage_formats
from penstok.jobs.intent import commit_files, locate_files
from penstok.jobs.plan import nothing_found
from penstok.jobs.reopening import find_reopened_formats
from penstok.output.formats.base import TokenSource
from penstok.output.layout import MANIFEST, SEGMENTS, SKIPPED, is_final_name
from penstok.output.ledger.journal import NodeTotals
from penstok.output.ledger.lines import (
    INPUT_START,
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
from penstok.types import SPLITS, Struct, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstok.jobs.progress import Progress
    from penstok.output.documents import IndexRecord
    from penstok.output.ledger.journal import FinishedJournal, TaskRecord
    from penstok.output.manifest import KnowsDigests
    from penstok.output.store.base import OutputStore
    from penstok.types import Source, Split

__all__ = ["JobTotals", "commit_job"]

# Matches the key only: inside a string, the quotes would be escaped.
_HAS_SKIPPED = b'"skipped":['


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
        source = TokenSource.from_manifest(manifest, locate_files(store, job, manifest))
        formats, files = stage_formats(store, manifest, source, requests, progress=progress)
        manifest = replace(manifest, formats=formats)
        staged += files
    if manifest.has_skipped():
        skipped = _iter_skipped(open_journals(), job, totals.sources)
        staged.append(store.stage_lines(SKIPPED, skipped))
    older = _find_older(store, manifest, overwrite=overwrite)
    refuse_taken(store, manifest.formats, {*older})
    commit_files(store, job, manifest, staged, older)
    return manifest


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
        raise foreign_file(store, foreign[0])
    return foreign


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
