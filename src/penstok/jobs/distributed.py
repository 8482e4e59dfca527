"""The main line of a job that is divided into tasks: plan, divide, give out, finish.

It does no work itself and prints nothing. Tasks run in slots of this machine or on a Ray cluster;
what they leave in the output are shards and receipts, and a task that has a receipt is done. So
any run of the same job goes on from what others have done, at any time, from anywhere.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstok.errors import (
    DamageError,
    LockedError,
    PenstokError,
    UsageError,
    WriteError,
)
from penstok.executors import RayExecutor, TaskSpec, ThreadExecutor, load_ray
from penstok.inputs.changes import changed_meanwhile, find_changed
from penstok.inputs.streams import STANDARD_INPUT
from penstok.jobs.claims import find_manifest, find_whole, make_room, note_part, refuse_missing
from penstok.jobs.finishing import drop_lost, finish_job, tidy_finished
from penstok.jobs.job_files import JOB, JobFile, claim_job, read_job_file
from penstok.jobs.outcome import Outcome, PartOutcome
from penstok.jobs.receipts import TASKS, choose_receipts, list_receipts
from penstok.jobs.task_progress import TaskWatch
from penstok.jobs.tasks import divide_tasks, tasks_of_part
from penstok.output.manifest import Manifest, digest_inputs, host_facts
from penstok.output.store import open_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstok.jobs.finishing import Sums
    from penstok.jobs.job import Job
    from penstok.jobs.plan import Plan
    from penstok.jobs.progress import Progress
    from penstok.jobs.receipts import TaskReceipt
    from penstok.jobs.tasks import Task
    from penstok.output.store.base import HeldLock, Place
    from penstok.types import Unit

__all__ = ["finish_output", "run_by_task", "run_part"]


class TaskExecutor(AbstractContextManager[Any], Protocol):
    """Does tasks somewhere; used in a `with`."""

    nodes_alive: int | None
    num_running: int
    num_retried: int
    num_slots: int

    def pids(self) -> list[int]:
        """Return the process ids of its workers on this machine."""
        ...

    def check(self, samples: list[Unit], plan: Plan) -> tuple[int, int]:
        """See that all can work, and that the engine is right; return bytes and tokens seen."""
        ...

    def run(
        self, tasks: Iterable[Task], plan: Plan, on_tick: Callable[[], None]
    ) -> Iterator[TaskReceipt]:
        """Do all tasks; yield their receipts as they come."""
        ...


def run_by_task(job: Job, progress: Progress) -> Outcome:
    """Do a job: keep what is done, give out the rest, finish."""
    started = time.monotonic()
    if job.settings.part is not None:
        raise UsageError(
            "a part is not a whole job",
            where="part",
            next_step="use `penstok.tokenize_part`, then `penstok.finish`",
        )
    settings, plan = job.settings, job.plan
    place, tasks = _begin(job)
    if (finished := _find_whole(place, job)) is not None:
        return finished

    with place.lock() as lock:
        # Whoever had the lock may have finished just now.
        if (finished := _find_whole(place, job)) is not None:
            return finished
        described = _describe(job, len(tasks))
        make_room(place, described, overwrite=settings.overwrite, is_alone=True)
        job_file = claim_job(place, described)
        kept = choose_receipts(place.iter_names(TASKS))
        drop_lost(place, job.layout, kept, job_file.digest)
        work = _do_tasks(job, place, job_file, tasks, kept, progress)
        _refuse_changed_inputs(place, plan, tasks)
        chosen = choose_receipts(place.iter_names(TASKS))
        refuse_missing(place, job_file, chosen)
        _refuse_lost(lock, place)
        run = {
            "seconds": round(time.monotonic() - started, 3),
            "work_seconds": round(work.watch.work_seconds, 3),
            "work_bytes": work.watch.text_bytes,
            "workers": work.executor.num_slots,
            "executor": settings.executor,
            "tasks": len(tasks),
            "tasks_kept": len(kept),
            "tasks_retried": work.executor.num_retried,
            "peak_memory_bytes": work.watch.peak_bytes,
            "resumed": len(kept) > 0,
            "host": host_facts(),
        }
        manifest = finish_job(place, job_file, chosen, lambda sums: run | _facts(sums))
    return Outcome(
        manifest,
        is_new=True,
        eot_text=job.tokenizer.eot_text,
        hints=[*job.hints, *_hints(job, work, len(tasks))],
        skipped=plan.skipped,
        found_separator=plan.found_separator,
    )


def run_part(job: Job, progress: Progress) -> PartOutcome:
    """Do the tasks of one part of a job; others may do theirs at the same time."""
    try:
        return _run_part(job, progress)
    except PenstokError as error:
        if "--overwrite" in error.next_step:
            error.next_step = "choose another `-o`, or delete what is there, and do all parts again"
        raise


def _run_part(job: Job, progress: Progress) -> PartOutcome:
    started = time.monotonic()
    part = job.settings.part or (1, 1)
    place, tasks = _begin(job)
    mine = [tasks[number] for number in tasks_of_part(len(tasks), *part)]
    numbers = {task.number for task in mine}
    if _find_whole(place, job) is not None:
        return PartOutcome(part, len(mine), len(mine), 0, 0, 0.0, job.hints)
    described = _describe(job, len(tasks))
    make_room(place, described, overwrite=False, is_alone=False)
    job_file = claim_job(place, described)
    note_part(place, part)
    done = choose_receipts(place.iter_names(TASKS))
    kept = {number: name for number, name in done.items() if number in numbers}
    try:
        work = _do_tasks(job, place, job_file, mine, kept, progress)
    except WriteError:
        if not _was_finished(place, job):
            raise
        return PartOutcome(part, len(mine), len(mine), 0, 0, 0.0, job.hints)
    _refuse_changed_inputs(place, job.plan, mine)
    _was_finished(place, job)
    return PartOutcome(
        part,
        len(mine),
        len(kept),
        work.watch.text_bytes,
        work.watch.num_tokens,
        round(time.monotonic() - started, 3),
        job.hints,
        work.watch.num_skipped,
    )


def _was_finished(place: Place, job: Job) -> bool:
    """Tell whether others did the same and have finished the job; leave nothing of ours then."""
    if place.read(JOB) is not None or _find_whole(place, job) is None:
        return False
    place.tidy()
    return True


@dataclass(frozen=True, slots=True)
class _Work:
    """A run of tasks that is over."""

    watch: TaskWatch
    executor: TaskExecutor


def _do_tasks(
    job: Job,
    place: Place,
    job_file: JobFile,
    tasks: list[Task],
    kept: dict[int, str],
    progress: Progress,
) -> _Work:
    """Do the tasks that no receipt is kept of."""
    todo = [task for task in tasks if task.number not in kept]
    watch = TaskWatch(progress, tasks, kept)
    executor = _make_executor(job, job_file.digest, watch)
    if todo:
        with progress, executor:
            _check_before_start(place, job, executor)
            watch.start()
            for receipt in executor.run(todo, job.plan, lambda: _tick(watch, executor)):
                watch.add(receipt)
            _tick(watch, executor, now=True)
    return _Work(watch, executor)


def _begin(job: Job) -> tuple[Place, list[Task]]:
    """Refuse what cannot be divided or given out; then divide it."""
    if job.settings.executor == "ray":
        load_ray()
    _refuse_standard_input(job)
    place = open_place(str(job.settings.output))
    return place, divide_tasks(job.plan, job.record.settings["task_bytes"])


def finish_output(output: str) -> tuple[Manifest, bool]:
    """Finish a job whose parts are all done; tell whether it was not finished before.

    Raises:
        DamageError: If a part is missing, or there is no job.
    """
    place = open_place(output)
    finished = find_manifest(place)
    if place.read(JOB) is None:
        if finished is not None:
            tidy_finished(place, finished)
            return finished, False
        raise DamageError(
            "there is no job here to finish",
            where=place.name,
            next_step=f"do its parts first: `penstok tokenize INPUT... -o {place.name} "
            "--part 1/16`",
        )
    with place.lock():
        job_file, finished = read_job_file(place), find_manifest(place)
        if finished is not None and (job_file is None or job_file.has_made(finished)):
            # It was killed at its very end, or another has finished it just now.
            place.tidy()
            return finished, False
        if job_file is None:
            raise DamageError(
                "the job was dropped while it was looked at",
                where=place.name,
                next_step="do its parts again",
            )
        chosen = choose_receipts(place.iter_names(TASKS))
        refuse_missing(place, job_file, chosen)

        def make_run(sums: Sums) -> dict[str, Any]:
            work_bytes = sums.offsets.counts.input_bytes
            return {
                # Those of all tasks, whenever they ran.
                "seconds": round(sums.seconds, 3),
                "work_seconds": round(sums.seconds, 3),
                "work_bytes": work_bytes,
                "workers": 1,
                "executor": "parts",
                "tasks": sums.num_tasks,
                "tasks_kept": 0,
                "tasks_retried": 0,
                "peak_memory_bytes": sums.peak_bytes,
                "resumed": False,
                "host": host_facts(),
                **_facts(sums),
            }

        return finish_job(place, job_file, chosen, make_run), True


def _refuse_lost(lock: HeldLock, place: Place) -> None:
    """Refuse to finish what another run may be finishing: this one was out of reach for long."""
    if lock.is_lost:
        raise LockedError(
            "the lock could not be renewed, and another run may have taken it",
            where=place.name,
            next_step="run the same command again: it continues",
        )


def _find_whole(place: Place, job: Job) -> Outcome | None:
    """Return what there is if this very job is finished; None if there is something to do."""
    if job.settings.overwrite:
        return None
    finished = find_whole(place, job.record, job.plan)
    if finished is None:
        return None
    return Outcome(
        finished, is_new=False, eot_text=job.tokenizer.eot_text, skipped=job.plan.skipped
    )


def _facts(sums: Sums) -> dict[str, Any]:
    """Say what the receipts know of the run."""
    nodes = [{"name": name, **asdict(node)} for name, node in sorted(sums.nodes.items()) if name]
    return {
        "workers_replaced": sums.num_replaced,
        "units_kept": 0,
        "engine": ", ".join(sorted(sums.engines)),
        **({"nodes": nodes} if nodes else {}),
    }


def _describe(job: Job, num_tasks: int) -> JobFile:
    plan = job.plan
    return JobFile(
        job.record, digest_inputs(plan.sources), len(plan.sources), num_tasks, plan.skipped
    )


def _make_executor(job: Job, digest: str, watch: TaskWatch) -> TaskExecutor:
    settings = job.settings
    spec = TaskSpec(job.worker_spec(), str(settings.output), digest, settings.priority)
    if settings.executor == "ray":
        return RayExecutor(
            spec,
            address=settings.ray_address,
            memory_bytes=settings.memory_bytes,
            max_running=settings.workers,
        )
    return ThreadExecutor(spec, job.num_workers, watch.add_unit)


def _tick(watch: TaskWatch, executor: TaskExecutor, *, now: bool = False) -> None:
    watch.nodes_alive = executor.nodes_alive
    watch.num_running = executor.num_running
    watch.num_retried = executor.num_retried
    watch.tick(executor.pids(), now=now)


def _check_before_start(place: Place, job: Job, executor: TaskExecutor) -> None:
    """See that everyone can do the work, and that the output fits."""
    num_bytes, num_tokens = executor.check(job.plan.samples(), job.plan)
    place.check_room(job.plan.estimate_tokens(num_bytes, num_tokens) * job.layout.token_bytes)


def _refuse_standard_input(job: Job) -> None:
    if STANDARD_INPUT in [source.path for source in job.plan.sources]:
        raise UsageError(
            "standard input can be read once, which is too little for a job of tasks",
            where=f"INPUT `{STANDARD_INPUT}`",
            next_step="write it to a file first, or choose a folder of this machine as `-o`",
        )


def _refuse_changed_inputs(place: Place, plan: Plan, tasks: Sequence[Task]) -> None:
    """Refuse inputs that changed while their tasks ran, and forget those tasks."""
    inputs = range(tasks[0].first_source, tasks[-1].last_source + 1) if tasks else range(0)
    changed = [idx for idx in inputs if find_changed([plan.sources[idx]]) is not None]
    if not changed:
        return
    spoilt = {
        task.number
        for task in tasks
        if any(task.first_source <= idx <= task.last_source for idx in changed)
    }
    receipts = list_receipts(place.iter_names(TASKS))
    place.delete([name for task, name in receipts if task in spoilt])
    raise changed_meanwhile(plan.sources[changed[0]])


def _hints(job: Job, work: _Work, num_tasks: int) -> list[str]:
    slow = work.watch.find_slow()
    hints = [f"node {slow.name} was slow: look at its disk and network"] if slow else []
    slots = work.executor.num_slots
    if num_tasks < slots:
        size = job.plan.input_bytes // slots // job.plan.unit_bytes * job.plan.unit_bytes >> 20
        if size:
            hints.append(
                f"{num_tasks} tasks for {slots} cores: `--task-size {size}MiB` uses them all"
            )
    return hints
