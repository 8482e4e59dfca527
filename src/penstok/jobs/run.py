"""The main line: plan, resume, run tasks, commit.

It does no work itself and prints nothing; each step is a separate module of `jobs`. `cli` and `api`
call `run_job`, `run_part` and `finish_job`.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstok.engines.alternatives import advise, has_short_tokens
from penstok.errors import DamageError, PenstokError, UsageError, WriteError, quoted
from penstok.executors.local import LocalExecutor
from penstok.inputs.changes import changed_meanwhile, find_changed
from penstok.inputs.streams import STANDARD_INPUT
from penstok.jobs.commit import JobTotals, commit_job
from penstok.jobs.conflicts import (
    JOB,
    JobFile,
    claim_output,
    find_finished,
    find_manifest,
    is_recorded,
    note_part,
    read_job_file,
    refuse_lost_lock,
    refuse_missing_tasks,
)
from penstok.jobs.formats import count_copied_bytes, find_requests, refuse_foreign
from penstok.jobs.intent import roll_forward, tidy_finished
from penstok.jobs.job import prepare
from penstok.jobs.progress import Watch
from penstok.jobs.reopening import find_reopened_formats, reopen_job, restore_finished
from penstok.jobs.resume import (
    ResumeState,
    drop_lost_tasks,
    iter_journals,
    read_finished_units,
)
from penstok.jobs.task import Check, TaskSpec, TaskWork
from penstok.jobs.task_hints import suggest_more_tasks
from penstok.jobs.tasks import divide_tasks, plan_of_task, tasks_of_part
from penstok.output.layout import SEGMENTS
from penstok.output.ledger.journal import FinishedJournal, choose_journals, list_journals
from penstok.output.ledger.reader import LedgerReader
from penstok.output.manifest import RunRecord, TaskFacts
from penstok.output.store import open_store
from penstok.output.store.base import REPAIRING, TASKS, LostShardError, journal_name
from penstok.types import Struct, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstok.executors.base import TaskExecutor
    from penstok.jobs.formats import FormatRequest
    from penstok.jobs.job import Job
    from penstok.jobs.plan import Plan
    from penstok.jobs.progress import Progress
    from penstok.jobs.settings import JobSettings
    from penstok.jobs.tasks import Task
    from penstok.output.ledger.journal import TaskRecord
    from penstok.output.manifest import Manifest
    from penstok.output.store.base import HeldLock, OutputStore

__all__ = ["Outcome", "PartOutcome", "finish_job", "run_job", "run_part"]

_LEFTOVERS = "the files of an interrupted run with `--overwrite` were deleted"
# A job that takes longer than this can spend half a second and 100 MB on advice.
_SECONDS_FOR_ADVICE = 5.0
_BYTES_FOR_ADVICE = 256 << 20
_ADVICE_TOKENS = 32 << 10
# Of many shards, each may have another language.
_MAX_ADVICE_FILES = 16
# So many of them, spread evenly, are enough to count their bytes.
_COUNTED_TOKENS = 4 << 10


class Outcome(Struct, frozen=True):
    """A finished job, and what the user should know about it."""

    manifest: Manifest
    is_new: bool
    eot_text: str
    hints: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    found_separator: bool = True


class PartOutcome(Struct, frozen=True):
    """A finished part of a job; the job itself is not committed yet.

    Attributes:
        part: The number of the part, and the number of parts.
        num_tasks: How many tasks it has.
        num_kept: How many of them earlier runs had finished.
        text_bytes: How much text this run encoded.
        num_tokens: How many tokens this run wrote.
        seconds: How long this run took.
        hints: What would make it faster.
        num_skipped: How many records this run skipped.
    """

    part: tuple[int, int]
    num_tasks: int
    num_kept: int
    text_bytes: int
    num_tokens: int
    seconds: float
    hints: list[str]
    num_skipped: int = 0


class _Run(Struct, frozen=True):
    """The tasks of a run, and how they ran.

    Attributes:
        job: The job as recorded in the output.
        tasks: All tasks of this run.
        done: The tasks that earlier runs had finished, with the names of their journals.
        resume: Where the only task was resumed; None if each task writes its own shards.
        last: The record of the last task that was run; of a job of one task, all the commit needs.
    """

    job: JobFile
    tasks: list[Task]
    done: dict[int, str]
    resume: ResumeState | None
    watch: Watch
    executor: TaskExecutor
    last: TaskRecord | None


def run_job(settings: JobSettings, progress: Progress) -> Outcome:
    """Tokenize: find the inputs, skip what is done, run the rest, commit the output."""
    started = time.monotonic()
    if settings.part is not None:
        raise UsageError(
            f"`part={settings.part}` does not run a whole job",
            where="part",
            next_step="use `penstok.tokenize_part`, then `penstok.finish`",
        )
    with contextlib.closing(prepare(settings)) as prepared:
        job, store = _open(prepared)
        finished = None if settings.overwrite else find_finished(store, job.record, job.plan)
        if finished is not None:
            had_leftovers = tidy_finished(store, finished)
            finished = find_manifest(store) or finished
            return _outcome(
                job, finished, is_new=False, hints=[_LEFTOVERS] if had_leftovers else []
            )

        with store.lock() as lock:
            # Another run may have been killed in the middle of a commit, or have finished just now.
            completed = roll_forward(store)
            if completed is not None and _is_of(job, completed):
                return _outcome(job, completed, is_new=False)
            if not settings.overwrite:
                finished = find_finished(store, job.record, job.plan)
                if finished is not None:
                    return _outcome(job, finished, is_new=False)
            try:
                run = _run_tasks(job, store, lock, progress)
                _refuse_changed_inputs(store, job, run)
            except PenstokError:
                with contextlib.suppress(PenstokError):
                    restore_finished(store)
                raise
            chosen = choose_journals(store.iter_names(TASKS))
            if run.job.is_by_task:
                refuse_missing_tasks(store, run.job, chosen)
            refuse_lost_lock(lock, store)
            manifest = commit_job(
                store,
                run.job,
                _journals(store, run, chosen),
                lambda _: _describe_run(job, run, started),
                overwrite=settings.overwrite,
                sources=job.plan.sources,
                digests=None if run.resume is None else run.resume.digests,
                progress=progress,
            )
        hints = [*_hints(job, run), *_advise(job, store, manifest)]
        return _outcome(job, manifest, is_new=True, hints=hints)


def run_part(settings: JobSettings, progress: Progress) -> PartOutcome:
    """Run the tasks of one part of a job; other parts may run at the same time."""
    started = time.monotonic()
    with contextlib.closing(prepare(settings)) as prepared:
        # Workers make their own feeds.
        job, store = _open(prepared)
    part = settings.part or (1, 1)
    tasks = divide_tasks(job.plan, job.rules.task_bytes)
    own = [tasks[number] for number in tasks_of_part(len(tasks), *part)]
    nothing_done = PartOutcome(part, len(own), len(own), 0, 0, 0.0, job.hints)
    if find_finished(store, job.record, job.plan, is_part=True) is not None:
        return nothing_done
    try:
        run = _run_tasks(job, store, None, progress, part=part)
    except WriteError:
        if not _was_finished_by_others(store, job):
            raise
        return nothing_done
    _refuse_changed_inputs(store, job, run)
    _was_finished_by_others(store, job)
    done = run.watch.done.counts
    return PartOutcome(
        part,
        len(run.tasks),
        len(run.done),
        done.text_bytes,
        done.tokens,
        round(time.monotonic() - started, 3),
        job.hints,
        done.skipped_records,
    )


def finish_job(output: str) -> tuple[Manifest, bool]:
    """Commit a job whose parts are all done; return whether this call committed it.

    Raises:
        DamageError: If a part is missing, or there is no job.
    """
    store = open_store(output)
    finished = find_manifest(store)
    if store.read(JOB) is None:
        if finished is not None:
            tidy_finished(store, finished)
            return finished, False
        raise DamageError(
            "there is no job to finish here",
            where=store.name,
            next_step=f"run its parts first: `penstok tokenize INPUT... -o {quoted(store.name)} "
            "--part 1/16`",
        )
    with store.lock() as lock:
        if (completed := roll_forward(store)) is not None:
            return completed, True
        job, finished = read_job_file(store), find_manifest(store)
        if finished is not None and (job is None or job.has_made(finished)):
            # Another run has just finished it.
            if store.read(REPAIRING) is None:
                store.tidy()
            return finished, False
        if job is None:
            raise DamageError(
                "another run has deleted the job",
                where=store.name,
                next_step="run its parts again: "
                f"`penstok tokenize INPUT... -o {quoted(store.name)} --part 1/16`",
            )
        if not job.is_by_task:
            raise DamageError(
                "the job here was not run in parts, and is not finished",
                where=store.name,
                next_step="run the command that was started here again: it continues",
            )
        chosen = choose_journals(store.iter_names(TASKS))
        refuse_missing_tasks(store, job, chosen)
        refuse_lost_lock(lock, store)
        try:
            manifest = commit_job(
                store,
                job,
                lambda: iter_journals(store, chosen, job.digest),
                JobTotals.describe_parts,
                overwrite=False,
            )
        except LostShardError:
            # Only the part that wrote the lost tokens can repeat its task.
            refuse_missing_tasks(store, job, choose_journals(store.iter_names(TASKS)))
            raise
        return manifest, True


def _open(job: Job) -> tuple[Job, OutputStore]:
    """Refuse jobs that cannot be divided into tasks; then open the output.

    Returns the job too: an output that an older version began has no document chosen for val, and
    stays as it is.
    """
    if job.settings.executor == "ray":
        from penstok.executors.ray_nodes import load_ray

        load_ray()
    if job.plan.is_piped and job.settings.is_by_task:
        raise UsageError(
            "jobs of many tasks cannot read standard input",
            where=f"INPUT `{STANDARD_INPUT}`",
            next_step="write it to a file first; or, on one machine, leave out `--task-size`",
        )
    store, older = open_store(str(job.settings.output)), job.with_val(None)
    if older is job or job.settings.overwrite:
        return job, store
    is_older = is_recorded(store, JobFile.of_plan(older.record, older.plan, 0))
    return older if is_older else job, store


def _run_tasks(
    job: Job,
    store: OutputStore,
    lock: HeldLock | None,
    progress: Progress,
    part: tuple[int, int] | None = None,
) -> _Run:
    """Claim the output, find what is done, and run the remaining tasks."""
    plan, extended = job.plan, _find_extended(store, job)
    record = job.record if extended is None else LedgerReader(store.path / SEGMENTS).job
    job_file = JobFile.of_plan(record, plan, len(divide_tasks(plan, job.rules.task_bytes)))
    formats = _find_formats(store, job)
    job_file = claim_output(
        store, job_file, plan, overwrite=job.settings.overwrite, is_alone=lock is not None
    )
    plan = plan.divided_by(job_file.job.unit_bytes)
    tasks, done, resume = divide_tasks(plan, job.rules.task_bytes), dict[int, str](), None
    if part is not None:
        note_part(store, part)
        tasks = [tasks[number] for number in tasks_of_part(len(tasks), *part)]
    if job_file.is_by_task:
        done = choose_journals(store.iter_names(TASKS))
        if part is None:
            drop_lost_tasks(store, job.layout, done, job_file.digest)
        numbers = {task.number for task in tasks}
        done = {number: name for number, name in done.items() if number in numbers}
    else:
        resume = _find_resume_state(store, job, is_extended=extended is not None)
    watch = Watch(progress, plan, tasks, done, resume)
    todo = [task for task in tasks if task.number not in done]
    executor = _make_executor(job, job_file, lock, watch, len(todo))
    last: TaskRecord | None = None
    if todo:
        works = (TaskWork(task, plan_of_task(plan, task), resume) for task in todo)
        with progress, executor:
            # Before a finished output is reopened, and where there are many tasks, it must pass.
            is_beside = resume is not None and extended is None
            check = _make_check(plan, is_one=resume is not None, is_beside=is_beside)
            checked = executor.check(check, plan.sources)
            tokens = plan.estimate_most(checked.stored_bytes, checked.num_tokens)
            spooled = plan.estimate_most(checked.stored_bytes, checked.spool_bytes)
            reused = [] if extended is None else extended.files()
            copied = count_copied_bytes(formats, job.rules.dtype, tokens)
            # The spools are deleted when the indexes that are made from them are published.
            store.check_room(
                tokens * job.layout.token_bytes + copied + 2 * spooled,
                reused,
                scratch_bytes=spooled * min(executor.num_workers, len(tasks)) // len(tasks),
            )
            job.layout.check_shards(tokens)
            if extended is not None:
                reopen_job(store, extended)
            watch.start()
            for last in executor.run(works, lambda: watch.tick(executor)):
                watch.add_task(last)
            watch.tick(executor, now=True)
    return _Run(job_file, tasks, done, resume, watch, executor, last)


def _find_formats(store: OutputStore, job: Job) -> list[FormatRequest]:
    """Return the formats that the commit will write; refuse files that are in their place."""
    older = find_reopened_formats(store)
    with contextlib.suppress(DamageError):
        finished = find_manifest(store)
        older = older if finished is None else finished.formats
    own = {file.path for record in older for file in record.files}
    requests = find_requests(
        job.record.settings, [] if job.settings.overwrite else older, store.name
    )
    refuse_foreign(store, requests, own, is_finished=False)
    return requests


def _make_check(plan: Plan, *, is_one: bool, is_beside: bool) -> Check:
    """Choose samples; with many tasks, send only the inputs of the samples to other machines."""
    samples = plan.samples()
    if is_one:
        return Check(samples, plan, is_beside)
    return Check(
        samples, replace(plan, sources=[unit.source for unit in samples], skipped={}, ignored={})
    )


def _find_extended(store: OutputStore, job: Job) -> Manifest | None:
    """Return the finished job that inputs are added to; None if there is none."""
    if job.settings.overwrite or job.settings.is_by_task:
        return None
    return find_manifest(store)


def _find_resume_state(store: OutputStore, job: Job, *, is_extended: bool) -> ResumeState:
    """Find the finished units of a job that is one task."""
    layout, num_threads = job.layout, job.num_workers
    if is_extended:
        path = store.path / SEGMENTS
        return read_finished_units(path, layout, num_threads, is_finished=True)
    path = store.path / journal_name(0, None)
    if not path.exists():
        return ResumeState()
    layout = replace(layout, work=journal_name(0, None).removesuffix(".jsonl"))
    try:
        return read_finished_units(path, layout, num_threads)
    except DamageError:
        # Its first line is damaged: nothing after it can be trusted.
        return ResumeState(problem="its first line is damaged")


def _make_executor(
    job: Job, job_file: JobFile, lock: HeldLock | None, watch: Watch, num_tasks: int
) -> TaskExecutor:
    settings, is_by_task = job.settings, job_file.is_by_task
    is_fed = not is_by_task and job_file.job.unit_bytes == job.plan.unit_bytes
    if not is_fed:
        job.close()
    spec = TaskSpec(
        job.workers.spec,
        str(settings.output),
        job_file.job,
        job_file.digest,
        settings.priority,
        num_workers=1 if is_by_task else job.num_workers,
        lock_file=None if is_by_task or lock is None else lock.file,
        feed=job.feed if is_fed else None,
    )
    if settings.executor == "ray":
        from penstok.executors.ray import RayExecutor

        return RayExecutor(
            spec,
            address=settings.ray_address,
            memory_bytes=settings.memory_bytes,
            max_running=settings.workers,
        )
    num_threads = min(job.num_workers, max(num_tasks, 1)) if is_by_task else 1
    num_workers = num_threads if is_by_task else job.num_workers
    return LocalExecutor(spec, num_threads, num_workers, watch.add_unit)


def _journals(
    store: OutputStore, run: _Run, chosen: dict[int, str]
) -> Callable[[], Iterable[FinishedJournal]]:
    """Return a function that opens the journals of all tasks, in order."""
    if run.job.is_by_task or run.last is None:
        return lambda: iter_journals(store, chosen, run.job.digest)
    name = journal_name(0, None)
    journal = FinishedJournal(run.last, f"{store.name}/{name}", lambda: store.iter_lines(name))
    return lambda: [journal]


def _refuse_changed_inputs(store: OutputStore, job: Job, run: _Run) -> None:
    """Refuse inputs that changed while their tasks ran, and delete the journals of those tasks."""
    sources, tasks = job.plan.sources, run.tasks
    inputs = range(tasks[0].first_source, tasks[-1].last_source + 1) if tasks else range(0)
    changed = [idx for idx in inputs if find_changed([sources[idx]]) is not None]
    if not changed:
        return
    affected = {
        task.number
        for task in tasks
        if any(task.first_source <= idx <= task.last_source for idx in changed)
    }
    journals = list_journals(store.iter_names(TASKS))
    store.delete([name for task, name in journals if task in affected])
    raise changed_meanwhile(sources[changed[0]])


def _was_finished_by_others(store: OutputStore, job: Job) -> bool:
    """Return whether other runs have committed the job; if so, delete the files of this run."""
    if store.read(JOB) is not None:
        return False
    finished = find_finished(store, job.record, job.plan, is_part=True)
    if finished is None:
        return False
    tidy_finished(store, finished)
    return True


def _is_of(job: Job, manifest: Manifest) -> bool:
    """Return whether a job that was just committed is this one; piped text cannot be compared."""
    return not job.plan.is_piped and JobFile.of_plan(job.record, job.plan, 0).has_made(manifest)


def _outcome(job: Job, manifest: Manifest, *, is_new: bool, hints: Sequence[str] = ()) -> Outcome:
    return Outcome(
        manifest,
        is_new=is_new,
        eot_text=job.tokenizer.eot_text,
        hints=list(hints),
        skipped=job.plan.skipped | job.plan.ignored,
        found_separator=job.plan.found_separator if is_new else True,
    )


def _describe_run(job: Job, run: _Run, started: float) -> RunRecord:
    """Return how a job ran, for the manifest."""
    watch, resume = run.watch, run.resume or ResumeState()
    return RunRecord(
        seconds=time.monotonic() - started,
        work_seconds=watch.work_seconds,
        work=watch.done.counts,
        workers=run.executor.num_workers,
        peak_bytes=watch.peak_bytes,
        units_kept=resume.num_units - len(resume.damaged),
        is_resumed=bool(run.done) or resume.num_units > 0,
        tasks=TaskFacts(
            job.settings.executor, len(run.tasks), len(run.done), run.executor.num_retried
        )
        if run.job.is_by_task
        else None,
        series=watch.recorder.series(),
    )


def _advise(job: Job, store: OutputStore, manifest: Manifest) -> list[str]:
    """Name a tokenizer that needs far fewer tokens, from the text of some tokens of the output.

    The workers have ended, and their memory is free. Another tokenizer is tried only after a job
    that took much longer.
    """
    tokenizer, counts, folder = job.tokenizer, manifest.counts, store.path
    files = [file for file in manifest.splits["train"].files if file.tokens]
    is_short = has_short_tokens(tokenizer, counts["tokens"], counts.get("text_bytes", 0))
    if not (is_short and files and isinstance(folder, Path)):
        return []
    measures = (
        manifest.run["seconds"] >= _SECONDS_FOR_ADVICE
        and job.settings.memory_bytes >= _BYTES_FOR_ADVICE
    )
    try:
        chosen = files[:: -(-len(files) // _MAX_ADVICE_FILES)]
        dtype, total = f"<u{job.layout.token_bytes}", sum(file.tokens for file in chosen)
        counts_of = [(file.path, _ADVICE_TOKENS * file.tokens // total) for file in chosen]
        tokens = np.concatenate(
            [np.fromfile(folder / path, dtype, count) for path, count in counts_of]
        )
        if not measures:
            tokens = tokens[:: max(len(tokens) // _COUNTED_TOKENS, 1)]
        ends = {tokenizer.eot_id, tokenizer.bos_id}
        ids = [one for one in tokens.tolist() if one not in ends]
        text = tokenizer.decode_bytes(ids)
    except (OSError, ValueError, PenstokError):
        return []
    advice = advise(tokenizer, text, len(ids), job.layout.token_bytes, measures=measures)
    return [advice] if advice else []


def _hints(job: Job, run: _Run) -> list[str]:
    """Return what would make the next run faster, and what had to be repeated."""
    hints = [*job.hints, *(run.resume.hints() if run.resume is not None else [])]
    slow = run.watch.find_slow()
    if slow is not None:
        hints.append(f"node {slow.name} was slow: check its disk and network")
    if job.settings.executor == "ray":
        hints.append(suggest_more_tasks(job.plan, len(run.tasks), run.executor.num_workers))
    return [hint for hint in hints if hint]
