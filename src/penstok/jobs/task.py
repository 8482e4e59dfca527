"""One task, from text to shards and a journal: the same wherever it runs.

It is one loop over units. Worker processes do the units, so a task survives a worker that dies or
runs out of memory. It schedules nothing and commits nothing: `executors` run it for `jobs.run`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from penstok.jobs.job import make_processes
from penstok.jobs.resume import ResumeState
from penstok.output.documents import DocumentFinder
from penstok.output.fields import FieldSpool
from penstok.output.ledger.journal import Journal, TaskRecord, new_attempt
from penstok.output.ledger.lines import InputLines, format_job, format_task
from penstok.output.ledger.reader import Start
from penstok.output.offsets import Offsets, RecordedOffsets
from penstok.output.segments import SegmentReader
from penstok.output.spools import SpoolError
from penstok.output.store import open_store
from penstok.readers.formats import FORMATS
from penstok.resources import Resource
from penstok.types import SPLITS, Struct, replace
from penstok.worker.memory import tree_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstok.executors.processes import ProcessExecutor
    from penstok.inputs.feed import Feed
    from penstok.jobs.plan import Plan
    from penstok.jobs.tasks import Task
    from penstok.output.documents import StagedIndex
    from penstok.output.offsets import TaskTotals
    from penstok.output.store.base import TaskFiles
    from penstok.types import FinishedUnit, JobRecord, Priority, SampleTotals, Split, Unit
    from penstok.worker.worker import WorkerSpec

__all__ = ["Check", "TaskRunner", "TaskSpec", "TaskWork"]

_SAMPLE_SECONDS = 0.2


class TaskSpec(Struct, frozen=True):
    """What all tasks of a job have in common.

    Attributes:
        worker: What the worker processes are made from.
        output: Where they write.
        job: What shapes the bytes, for the journal.
        digest: Of the job, for the journal.
        priority: Of the worker processes.
        num_workers: How many worker processes one task has.
        lock_file: Worker processes inherit it, if the task is the only one.
        feed: What will feed it streams, if the task is the only one.
    """

    worker: WorkerSpec
    output: str
    job: JobRecord
    digest: str
    priority: Priority
    num_workers: int = 1
    lock_file: int | None = None
    feed: Feed | None = None

    def make_runner(self, node: str) -> TaskRunner:
        """Make what runs tasks in this process; `node` names the machine in journals."""
        return TaskRunner(self, node)


class TaskWork(Struct, frozen=True):
    """A task, and what is needed to run it.

    Attributes:
        task: Which.
        plan: The part of the plan that it needs (`tasks.plan_of_task`).
        resume: What is done of it, if it can be resumed: then it is the job's only task.
    """

    task: Task
    plan: Plan
    resume: ResumeState | None = None

    @property
    def number(self) -> int:
        """Its number in the job."""
        return self.task.number

    @property
    def where(self) -> str:
        """Which text it is, for messages."""
        first, last = self.plan.sources[0].path, self.plan.sources[-1].path
        text = f"task {self.task.number}: {first}, from {self.task.start}"
        return text if last == first else f"{text}, to {last}"


class Check(Struct, frozen=True):
    """Samples of the user's text on which an engine is compared with the reference.

    Attributes:
        samples: Small units.
        plan: The plan they are from.
        is_beside: Whether units may be encoded meanwhile; none is journaled before it has passed.
    """

    samples: list[Unit]
    plan: Plan
    is_beside: bool = False


class TaskRunner(Resource):
    """Runs tasks one after the other; use it in a `with`."""

    def __init__(self, spec: TaskSpec, node: str = "") -> None:
        self._spec = spec
        self._node = node
        self._store = open_store(spec.output)
        self._feed = spec.feed
        self._executor: ProcessExecutor | None = None
        self._plan: Plan | None = None
        self._has_feed = False
        self._peak_bytes = 0
        self._next_sample = 0.0
        self._num_replaced = 0

    def close(self) -> None:
        """Stop the workers."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.close()

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [] if self._executor is None else self._executor.pids()

    def check(self, check: Check) -> SampleTotals:
        """Compare the engine with the reference; return what the samples have together."""
        return self._prepare(check.plan).check(check.samples, is_beside=check.is_beside)

    def run(
        self,
        work: TaskWork,
        on_unit: Callable[[FinishedUnit], None] | None = None,
        on_tick: Callable[[], None] | None = None,
    ) -> TaskRecord:
        """Run a task.

        Args:
            work: Which.
            on_unit: Called with every unit that is done.
            on_tick: Called several times a second; it may raise to end the task.
        """
        started = time.monotonic()
        attempt = new_attempt() if work.resume is None else None
        files = self._store.begin_task(self._spec.worker.layout, work.number, attempt)
        journal: Journal | None = None
        try:
            executor = self._prepare(work.plan)
            executor.write_to(files.layout)
            state = work.resume or _start_of_task(executor, work)
            tick = partial(self._tick, on_tick)
            tick(samples=True)
            _drop_unrecorded_fields(files, state)
            _redo_damaged(state, files, executor, tick)
            counter = _CarriedSpecial()
            journal = self._open_journal(work, attempt, files, state)
            with journal:
                units = work.plan.iter_units(state.start, executor.lengths, work.task.stop)
                for finished in executor.run(units, state.offsets, tick):
                    journal.append(finished)
                    files.advance(journal.tokens)
                    counter.add(finished)
                    if on_unit is not None:
                        on_unit(finished)
                # A short task has no other sample with its workers in it.
                tick(samples=True)
                totals = state.offsets.totals(carried_special=counter.has_special)
                record = replace(
                    self._seal(work, files, journal, totals),
                    seconds=round(time.monotonic() - started, 3),
                    num_replaced=executor.num_replaced - self._num_replaced,
                )
                is_split = self._spec.worker.layout.is_by_task
                journal.finish(record.to_line() if is_split else b"")
                self._num_replaced = executor.num_replaced
        except BaseException:
            self.close()
            if attempt is not None and not (journal is not None and journal.is_complete):
                files.discard()
            raise
        return record

    def _tick(self, on_tick: Callable[[], None] | None, *, samples: bool = False) -> None:
        # Ticks come with every answer of a worker, and each sample asks about all workers.
        if samples or time.monotonic() >= self._next_sample:
            self._next_sample = time.monotonic() + _SAMPLE_SECONDS
            self._peak_bytes = max(self._peak_bytes, tree_bytes(self.pids()))
        if on_tick is not None:
            on_tick()

    def _seal(
        self, work: TaskWork, files: TaskFiles, journal: Journal, totals: TaskTotals
    ) -> TaskRecord:
        """Make everything that the task wrote durable; return its record."""
        indexes = self._seal_indexes(files, journal.tokens, totals.documents)
        shards = files.seal(journal.tokens)
        is_split = self._spec.worker.layout.is_by_task
        digests = {split: journal.digests.of(split, work.number) for split in SPLITS}
        return TaskRecord(
            done=1,
            job=self._spec.digest,
            task=work.number,
            totals=totals,
            num_units=journal.num_units,
            digests=digests if is_split else {},
            shards=shards,
            indexes=indexes,
            engine=self._spec.worker.engine,
            node=self._node,
            peak_bytes=self._peak_bytes,
        )

    def _seal_indexes(
        self, files: TaskFiles, tokens: dict[Split, int], documents: dict[Split, int]
    ) -> dict[Split, list[StagedIndex]]:
        """Write the indexes; find the starts of documents in the tokens if those were lost."""
        try:
            return files.seal_indexes(tokens, documents)
        except SpoolError:
            eot, eot_id = self._spec.worker.rules.eot, self._spec.job.tokenizer.eot_id
            if eot == "none":
                raise
        finder = DocumentFinder(eot_id, eot)
        reader = SegmentReader(files.layout.partial_path, files.layout.token_bytes)
        for split in SPLITS:
            pieces = reader.iter_files(files.layout, split, tokens[split])
            files.restore_spool(split, "documents", finder.iter_starts(pieces))
        reader.close()
        return files.seal_indexes(tokens, documents)

    def _open_journal(
        self, work: TaskWork, attempt: str | None, files: TaskFiles, state: ResumeState
    ) -> Journal:
        layout, first_lines = self._spec.worker.layout, b""
        if not state.journal_bytes:
            first_lines = format_job(self._spec.job)
            first_lines += format_task(work.number) if layout.is_by_task else b""
        return Journal(
            self._store.open_journal(work.number, attempt, state.journal_bytes),
            files,
            InputLines(work.plan.sources, state.num_inputs, work.plan.first_source),
            state.digests,
            first_lines=first_lines,
            num_units=state.num_units,
            tokens=state.offsets.tokens,
            token_bytes=layout.token_bytes,
            drop_cache=self._spec.worker.give_back,
        )

    def _prepare(self, plan: Plan) -> ProcessExecutor:
        """Return the workers of the last task, or new ones if those cannot read streams."""
        if self._executor is not None and (self._has_feed or not plan.has_streams):
            if plan is not self._plan:
                self._executor.change_inputs(plan.sources)
            self._plan = plan
            return self._executor
        if self._executor is not None:
            self._executor.finish_check()
        self.close()
        self._plan = plan
        self._num_replaced = 0
        self._has_feed = plan.has_streams
        feed, self._feed = self._feed, None
        self._executor = make_processes(
            self._spec.worker,
            self._spec.num_workers,
            plan.sources,
            plan.unit_bytes,
            priority=self._spec.priority,
            lock_file=self._spec.lock_file,
            num_at_start=max(plan.input_bytes // plan.unit_bytes, 1),
            feed=feed,
        )
        return self._executor


class _CarriedSpecial:
    """Notices end-of-text strings in a document that was open before the first unit."""

    def __init__(self) -> None:
        self.has_special = False
        self._has_started = False

    def add(self, finished: FinishedUnit) -> None:
        encoded = finished.encoded
        self.has_special |= encoded.carried_special and not self._has_started
        self._has_started |= encoded.open_split is not None


def _start_of_task(executor: ProcessExecutor, work: TaskWork) -> ResumeState:
    """Return the state of a task of which nothing is done."""
    task = work.task
    # The line of an input is in the journal of the task that reads its first unit.
    num_inputs = task.first_source + (task.start > 0)
    start = Start(source_idx=task.first_source, position=task.start)
    offsets = Offsets.of_task(_find_open_split(executor, work))
    return ResumeState(start=start, num_inputs=num_inputs, offsets=offsets)


def _find_open_split(executor: ProcessExecutor, work: TaskWork) -> Split:
    """Return the split of a document that continues into the task from before."""
    task, plan = work.task, work.plan
    if task.start == 0 or FORMATS[plan.sources[0].format].has_records:
        return "train"
    first = next(plan.iter_units(Start(source_idx=task.first_source, position=task.start)))
    return executor.find_open_split(first, plan.unit_bytes)


def _drop_unrecorded_fields(files: TaskFiles, state: ResumeState) -> None:
    names = files.layout.kept_fields
    for split in SPLITS if names else ():
        spool = FieldSpool(files.layout.spool_path(split, "fields"), len(names))
        spool.drop_after(state.offsets.documents[split])


def _redo_damaged(
    state: ResumeState, files: TaskFiles, executor: ProcessExecutor, tick: Callable[[], None]
) -> None:
    """Re-encode recorded units whose tokens no longer have their checksums."""
    executor.expect(state.last)
    if not state.damaged:
        return
    recorded = RecordedOffsets()
    for unit in executor.run(map(recorded.add, state.damaged), recorded, tick):
        recorded.check(unit)
    files.sync(recorded.files, drop_cache=False)
