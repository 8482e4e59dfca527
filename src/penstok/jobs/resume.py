"""Finds the units or tasks that an earlier run of the same job has finished.

It encodes nothing, and deletes only journals whose tokens are missing. `jobs.run` calls it after
`jobs.conflicts` has made sure that the output belongs to this job.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from penstok.errors import ConflictError
from penstok.output.documents import DocumentFinder
from penstok.output.fields import FieldSpool
from penstok.output.ledger.journal import FinishedJournal, choose_journals
from penstok.output.ledger.reader import Digests, LedgerReader, Start
from penstok.output.offsets import Offsets
from penstok.output.segments import SegmentReader, SegmentWriter
from penstok.output.spools import has_origins, has_starts
from penstok.output.store.base import TASKS
from penstok.quantities import plural
from penstok.types import SPLITS, Segment, Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    import numpy as np
    from numpy.typing import NDArray

    from penstok.output.layout import Layout
    from penstok.output.store.base import OutputStore, StagedFile
    from penstok.storage.object_paths import OutputPath
    from penstok.types import EotPosition, FinishedUnit, JobRecord, Split, Unit

__all__ = [
    "ResumeState",
    "drop_lost_tasks",
    "iter_journals",
    "iter_task_files",
    "read_finished_units",
]

# Units are checked this many at a time.
_BATCH_UNITS = 256
# With more damaged units than this, everything after the first one is repeated.
_MAX_DAMAGED = 4096
# Journals to prefetch: from an object store, each takes some hundredths of a second.
_AHEAD = 16


class ResumeState(Struct, frozen=True):
    """Where a task starts: at its beginning, or after what an earlier run recorded.

    Attributes:
        start: The first unit to encode.
        num_units: How many units are recorded.
        last: The last recorded unit.
        num_inputs: The number of the first input that is not recorded.
        journal_bytes: Where the valid lines of the journal end.
        offsets: The totals of the recorded units.
        digests: The digests of the files, from the recorded units.
        damaged: Recorded units with a checksum mismatch.
        problem: What is wrong with the journal after its valid lines; empty if nothing is.
    """

    start: Start = field(default_factory=Start)
    num_units: int = 0
    last: Unit | None = None
    num_inputs: int = 0
    journal_bytes: int = 0
    offsets: Offsets = field(default_factory=Offsets)
    digests: Digests = field(default_factory=Digests)
    damaged: list[FinishedUnit] = field(default_factory=list)
    problem: str = ""

    def hints(self) -> list[str]:
        """Return what had to be repeated, and why, for the user."""
        if self.damaged:
            return [f"re-encoded {plural(len(self.damaged), 'damaged unit')} of an earlier run"]
        if self.problem:
            return [f"the journal of an earlier run was valid up to unit {self.num_units} only"]
        return []


def read_finished_units(
    journal: OutputPath, layout: Layout, num_threads: int, *, is_finished: bool = False
) -> ResumeState:
    """Read a journal or ledger, and verify the checksums of its units.

    The workers' list of documents has no checksum. It is written again from the tokens if they say
    where documents start; otherwise units whose list is missing are repeated.

    Args:
        journal: The file to read.
        layout: Where the tokens are.
        num_threads: How many units to read at a time.
        is_finished: The files have their final names; then there is no list of documents.
    """
    reader = LedgerReader(journal)
    spool = None if is_finished or not layout.has_index else _Spool(layout, reader.job)
    path_of = layout.finished_path if is_finished else layout.partial_path
    damaged = _find_damaged(reader.iter_units(), path_of, layout.token_bytes, num_threads, spool)
    if len(damaged) > _MAX_DAMAGED:
        reader = LedgerReader(journal)
        for _ in islice(reader.iter_units(), damaged[0].unit.index):
            pass
        damaged = []
    return ResumeState(
        start=reader.start(),
        num_units=reader.num_units,
        last=reader.last,
        num_inputs=len(reader.sources),
        journal_bytes=reader.valid_bytes,
        offsets=reader.offsets,
        digests=reader.digests,
        damaged=damaged,
        problem=reader.problem,
    )


def _find_damaged(
    units: Iterable[FinishedUnit],
    path_of: Callable[[Split, int], OutputPath],
    token_bytes: int,
    num_threads: int,
    spool: _Spool | None,
) -> list[FinishedUnit]:
    """Read the tokens of units back; return the units with a checksum mismatch."""
    readers: SimpleQueue[SegmentReader] = SimpleQueue()
    for _ in range(num_threads):
        readers.put(SegmentReader(path_of, token_bytes))

    def is_intact(finished: FinishedUnit) -> bool:
        reader = readers.get()
        try:
            return all(map(reader.is_intact, finished.written.segments)) and (
                spool is None or spool.is_restored(finished, reader)
            )
        finally:
            readers.put(reader)

    damaged: list[FinishedUnit] = []
    waiting = iter(units)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(num_threads) as pool:
        # With more, all units after the first damaged one are repeated: no need to find them.
        while len(damaged) <= _MAX_DAMAGED and (batch := list(islice(waiting, _BATCH_UNITS))):
            answers = zip(batch, pool.map(is_intact, batch), strict=True)
            damaged += [finished for finished, intact in answers if not intact]
    while not readers.empty():
        readers.get().close()
    return damaged


class _Spool:
    """The list of documents that the workers of an earlier run wrote; threads can share it."""

    def __init__(self, layout: Layout, job: JobRecord) -> None:
        self._layout = layout
        names = layout.kept_fields
        self._fields = {
            split: FieldSpool(layout.spool_path(split, "fields"), len(names)) for split in SPLITS
        }
        self._eot: EotPosition = job.settings["eot"]
        self._eot_id = job.tokenizer.eot_id
        # The passages of a giant document go on from unit to unit. Of one that does, each id that
        # ends a document is followed by one that begins; otherwise there is one more beginning.
        self._has_spans = job.settings["docs_by"] == "file" and self._eot == "append"

    def is_restored(self, finished: FinishedUnit, reader: SegmentReader) -> bool:
        """Write the documents of an intact unit again; without end-of-text ids, check them."""
        encoded, assigned = finished.encoded, finished.offsets
        for split in SPLITS:
            offset, count = assigned.offsets[split], encoded.tokens[split]
            if split == assigned.carried_split:
                offset += encoded.carried_tokens
            before, num_documents = assigned.documents[split], encoded.documents[split]
            if self._layout.has_origins and not has_origins(
                self._layout.spool_path(split, "origins"),
                before,
                num_documents,
                finished.unit.source_idx,
                finished.unit.start,
            ):
                return False
            has_fields = not self._layout.kept_fields or self._fields[split].has(
                before, num_documents
            )
            if not has_fields:
                return False
            if self._eot == "none":
                path = self._layout.spool_path(split, "documents")
                if not has_starts(path, before, num_documents, offset, offset + count):
                    return False
                continue
            finder, writer = DocumentFinder(self._eot_id, self._eot), SegmentWriter(self._layout)
            continues = self._has_spans and num_documents == sum(
                len(found)
                for piece in self._iter_tokens(split, offset, count - 1, reader)
                for found in finder.iter_ids(piece)
            )
            pieces = self._iter_tokens(split, offset, count, reader)
            starts = finder.iter_first_starts(pieces, offset, num_documents, continues=continues)
            writer.write_entries(split, "documents", before, starts)
            writer.close()
        return True

    def _iter_tokens(
        self, split: Split, offset: int, count: int, reader: SegmentReader
    ) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
        for shard, inside, num_tokens in self._layout.iter_shard_ranges(split, offset, count):
            yield from reader.iter_tokens(Segment(split, shard, inside, num_tokens, ""))


def iter_journals(
    store: OutputStore, chosen: Mapping[int, str], job: str
) -> Iterator[FinishedJournal]:
    """Read the journals of tasks in order, prefetching some.

    Args:
        store: The output.
        chosen: The name of each task's journal, by task.
        job: The digest of the job that they must belong to.

    Raises:
        ConflictError: If one belongs to another job.
        DamageError: If one is damaged.
    """

    def fetch(name: str) -> FinishedJournal:
        where = f"{store.name}/{name}"
        journal = FinishedJournal.from_bytes(store.read(name) or b"", where)
        if journal.record.job != job:
            raise ConflictError(
                "this journal belongs to another job",
                where=where,
                next_step="delete this file, then run the job or its part again: it repeats "
                "the task",
            )
        return journal

    names = deque(name for _, name in sorted(chosen.items()))
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[FinishedJournal]] = deque()
    with ThreadPoolExecutor(_AHEAD) as pool:
        while names or waiting:
            while names and len(waiting) < _AHEAD:
                waiting.append(pool.submit(fetch, names.popleft()))
            yield waiting.popleft().result()


def iter_task_files(layout: Layout, journals: Iterable[FinishedJournal]) -> Iterator[StagedFile]:
    """Yield the shards of tasks and their indexes as (final name, location, size in bytes)."""
    for journal in journals:
        record = journal.record
        for split in SPLITS:
            num_bytes = record.totals.tokens[split] * layout.token_bytes
            yield layout.file_name(split, record.task), record.shards[split], num_bytes
            for index in record.indexes.get(split, []):
                yield index.record.path, index.location, index.record.bytes


def drop_lost_tasks(store: OutputStore, layout: Layout, chosen: dict[int, str], job: str) -> None:
    """Delete journals whose tokens are missing, also from `chosen`: their tasks are repeated."""
    task_of: dict[str, int] = {}

    def files(names: Mapping[int, str]) -> Iterator[StagedFile]:
        # One journal at a time: a petabyte of objects has tens of millions of parts to list.
        for journal in iter_journals(store, names, job):
            for name, location, num_bytes in iter_task_files(layout, [journal]):
                task_of[name] = journal.record.task
                yield name, location, num_bytes

    unchecked = dict(chosen)
    while unchecked:
        lost = {task_of[name] for name in store.find_lost(files(unchecked))}
        store.delete([chosen.pop(task) for task in sorted(lost)])
        # Another attempt at the same task may be complete.
        others = choose_journals(store.iter_names(TASKS)) if lost else {}
        unchecked = {task: others[task] for task in lost if task in others}
        chosen |= unchecked
