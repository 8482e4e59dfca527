"""Jobs whose workers encode nothing, which shows what everything else costs.

`run_job` is real from start to end, and so is every task: plan, order of batches, offsets, journal,
commit. Only the inputs are made up, and the worker processes: they are replaced by an object that
answers immediately, in random order, and writes no tokens. The files are sparse and read as zeros,
so a run that is resumed can read them back and compare their checksums.

A job on one machine is one task. A job of many tasks runs on a simulated cluster: a single process
that runs one task after the other. Tasks finish in random order; some are lost with their node, and
of some only the answer is lost, so that they are run twice.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import xxhash
from made_up import Phases, make_plan, peak_bytes

from penstok.executors.batches import Batch, BatchQueue, iter_batches
from penstok.jobs.progress import SilentProgress
from penstok.jobs.run import run_job
from penstok.jobs.settings import JobSettings
from penstok.jobs.tasks import choose_task_bytes, divide_tasks
from penstok.output.layout import SEGMENTS
from penstok.resources import Resource
from penstok.types import (
    SPLITS,
    Counts,
    EncodedUnit,
    SampleTotals,
    Segment,
    WrittenUnit,
    replace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from made_up import MadeUpJob

    from penstok.executors.base import Work
    from penstok.jobs.task import TaskRunner, TaskSpec, TaskWork
    from penstok.output.layout import Layout
    from penstok.output.ledger.journal import TaskRecord
    from penstok.output.offsets import AssignsOffsets
    from penstok.types import FinishedUnit, Source, Split, Unit, UnitOffsets
    from penstok.worker.worker import WorkerSpec


@dataclass(frozen=True, slots=True)
class UnitText:
    """What a worker would have found in every unit, per split."""

    tokens: dict[Split, int]
    documents: dict[Split, int]


# What 16 MiB of English are with GPT-2, roughly.
TASK_TEXT = UnitText({"train": 3_650_000, "val": 1_825}, {"train": 3_400, "val": 2})
# Few, so that all of them fit in one file: no file system takes one of 70 TB.
MACHINE_TEXT = UnitText({"train": 1_000, "val": 1}, {"train": 10, "val": 1})
# As many batches as a machine with 64 cores has in progress.
_NUM_BATCHES = 128
# A cluster of 4,096 cores; two tasks per core are assigned, as to Ray.
_NUM_CORES, _AHEAD, _NUM_NODES = 4096, 2, 64
# Of every fifty tasks, one is lost before it leaves anything, and of one the answer is lost.
_FIFTY, _LOST, _UNHEARD = 50, 7, 23
# How many are queued for the process that simulates the cluster.
_NUM_QUEUED = 8
_SYNC_SECONDS = 2.0
_WORKERS = "penstok.jobs.job.ProcessExecutor"
# The parts of the driver that are measured. Running tasks is measured where it is simulated.
_PHASES = {
    "penstok.jobs.job.choose_task_bytes": "divide",
    "penstok.jobs.run.divide_tasks": "divide",
    "penstok.jobs.run.claim_output": "find",
    "penstok.jobs.run.choose_journals": "find",
    "penstok.jobs.run.drop_lost_tasks": "find",
    "penstok.jobs.run.read_finished_units": "find",
    "penstok.jobs.run.commit_job": "commit",
}


def simulate_tasks(folder: Path, made_up: MadeUpJob, kill_after: float | None) -> dict[str, Any]:
    """Run a job of many tasks, or kill it after a share of them; return what it took."""
    plan = make_plan(made_up)
    num_tasks = len(divide_tasks(plan, made_up.task_bytes or choose_task_bytes(plan)))
    kill_at = None if kill_after is None else round(num_tasks * kill_after)
    # An output given as a string is divided into tasks; one that is not a URL is a folder.
    settings = JobSettings(
        inputs=("s3://made-up/crawl/",),
        output=str(folder),
        task_bytes=made_up.task_bytes,
        # Workers write it, and these are made up.
        document_index="none",
    )
    phases, clusters = Phases(), list[SimulatedCluster]()

    def make_cluster(spec: TaskSpec, *_: object) -> SimulatedCluster:
        clusters.append(SimulatedCluster(spec, phases, kill_at))
        return clusters[0]

    with mock.patch("penstok.jobs.run.LocalExecutor", make_cluster):
        report = _simulate(settings, made_up, phases)
    return {**report, "ready_seconds": clusters[0].created - report.pop("started")}


def simulate_machine(folder: Path, made_up: MadeUpJob, kill_after: float | None) -> dict[str, Any]:
    """Run a job on one machine, or kill it after a share of its units; return what it took."""
    kill_at = None if kill_after is None else round(made_up.num_units * kill_after)
    settings = JobSettings(inputs=("s3://made-up/crawl/",), output=folder, document_index="none")
    made: list[SimulatedWorkers] = []

    def make_workers(spec: WorkerSpec, **options: Any) -> SimulatedWorkers:
        made.append(SimulatedWorkers(spec, text=MACHINE_TEXT, kill_at=kill_at, **options))
        return made[0]

    with mock.patch(_WORKERS, make_workers):
        report = _simulate(settings, made_up, Phases())
    workers, find_seconds = made[0], report["phases"]["find"]["cpu_seconds"]
    return {
        **report,
        "simulation_seconds": workers.own_seconds,
        "run_seconds": report["cpu_seconds"] - find_seconds - workers.own_seconds,
        "ready_seconds": workers.created - report.pop("started"),
    }


def _simulate(settings: JobSettings, made_up: MadeUpJob, phases: Phases) -> dict[str, Any]:
    plan = make_plan(made_up)
    started, cpu = time.monotonic(), time.process_time()
    with (
        mock.patch("penstok.jobs.job.make_plan", return_value=plan),
        phases.watch(_PHASES),
    ):
        manifest = run_job(settings, SilentProgress()).manifest
    return {
        "units": made_up.num_units,
        "units_kept": manifest.run["units_kept"],
        "input_bytes": plan.input_bytes,
        "inputs": made_up.num_sources,
        "tasks": manifest.run.get("tasks", 1),
        "tasks_kept": manifest.run.get("tasks_kept", 0),
        "tasks_retried": manifest.run.get("tasks_retried", 0),
        "documents": manifest.counts["documents"],
        "tokens": manifest.counts["tokens"],
        "text_bytes": manifest.counts["input_bytes"],
        "segments_bytes": (settings.folder / SEGMENTS).stat().st_size,
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.monotonic() - started,
        "peak_bytes": peak_bytes(),
        "phases": phases.report(),
        "started": started,
    }


class SimulatedWorkers(Resource):
    """Takes the place of all worker processes of a task.

    Attributes:
        created: When the driver knew what was left to do.
        own_seconds: CPU time of what would have happened in other processes.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        text: UnitText,
        batch_bytes: int,
        kill_at: int | None = None,
        **others: object,
    ) -> None:
        """Answer for workers.

        Args:
            spec: What they would be made from.
            text: What they find in every unit.
            batch_bytes: Units smaller than this are sent together.
            kill_at: The driver is killed after this many units.
            others: What only processes need.
        """
        del others
        self.num_replaced = 0
        self.lengths: Mapping[int, int] = {}
        self.created = time.monotonic()
        self.own_seconds = 0.0
        self._text = text
        self._layout = spec.layout
        self._batch_bytes = batch_bytes
        self._kill_at = kill_at
        self._rng = Random(0)
        self._digests = _digest_zeros(text, spec.layout.token_bytes)

    def close(self) -> None:
        """Do nothing: there are no processes."""

    def pids(self) -> list[int]:
        """Return nothing: there are no processes."""
        return []

    def change_inputs(self, sources: Sequence[Source]) -> None:
        """Do nothing: no input is a stream."""

    def expect(self, last: Unit | None) -> None:
        """Do nothing: no input is a stream."""

    def check(self, samples: list[Unit], *, is_beside: bool) -> SampleTotals:
        """Estimate one token: sparse files take no room."""
        del is_beside
        return SampleTotals(sum(unit.source.num_bytes for unit in samples), 1, 0)

    def find_open_split(self, unit: Unit, unit_bytes: int) -> Split:
        """Choose one: no document continues into another unit."""
        del unit, unit_bytes
        return "train"

    def write_to(self, layout: Layout) -> None:
        """Create the files of a task; a hole of any size reads as zeros."""
        self._layout = layout
        for split in SPLITS:
            path = layout.partial_path(split, layout.first_shard)
            path.touch()
            os.truncate(path, 1 << 40)

    def run(
        self, units: Iterable[Unit], offsets: AssignsOffsets, on_tick: Callable[[], None]
    ) -> Iterator[FinishedUnit]:
        """Do all units; yield them in order."""
        order = BatchQueue(iter_batches(units, self._batch_bytes), offsets)
        waiting: dict[int, Batch] = {}
        encoding: list[Batch] = []
        num_done = next_number = 0
        while True:
            while len(encoding) < _NUM_BATCHES and (batch := order.next_batch()) is not None:
                encoding.append(batch)
            if not encoding:
                return
            batch = _take_any(encoding, self._rng)
            batch.encoded = self._encode(batch)
            waiting[batch.number] = batch
            while (ready := waiting.pop(next_number, None)) is not None and order.can_write(ready):
                ready.written = self._write(ready)
                order.add_done(ready)
                next_number += 1
            on_tick()
            for finished in order.take_done():
                if num_done == self._kill_at:
                    # The journal is synced every second.
                    time.sleep(_SYNC_SECONDS)
                    _kill_driver()
                num_done += 1
                yield finished

    def _encode(self, batch: Batch) -> list[EncodedUnit]:
        started = time.thread_time()
        tokens, documents = self._text.tokens, self._text.documents
        encoded = [
            EncodedUnit(
                unit.index,
                Counts(sum(documents.values()), sum(tokens.values()), unit.end - unit.start),
                dict(tokens),
                dict(documents),
                0,
                carried_special=False,
                open_split=None,
                open_special=False,
            )
            for unit in batch.units
        ]
        self.own_seconds += time.thread_time() - started
        return encoded

    def _write(self, batch: Batch) -> list[WrittenUnit]:
        started = time.thread_time()
        written = [
            WrittenUnit(assigned.unit_idx, self._segments(assigned)) for assigned in batch.offsets
        ]
        self.own_seconds += time.thread_time() - started
        return written

    def _segments(self, assigned: UnitOffsets) -> tuple[Segment, ...]:
        shard, tokens = self._layout.first_shard, self._text.tokens
        return tuple(
            Segment(split, shard, assigned.offsets[split], tokens[split], self._digests[split])
            for split in SPLITS
        )


class SimulatedCluster(Resource):
    """A task executor with thousands of cores, all of them in one process.

    Attributes:
        created: When the driver knew what was left to do.
    """

    def __init__(self, spec: TaskSpec, phases: Phases, kill_at: int | None) -> None:
        """Start the process.

        Args:
            spec: What its task runners are made from.
            phases: Measures how long the driver takes to assign tasks.
            kill_at: The driver is killed after this many tasks.
        """
        self.nodes_alive: int | None = _NUM_NODES
        self.num_running = 0
        self.num_retried = 0
        self.num_workers = _NUM_CORES
        self.created = time.monotonic()
        self._phases = phases
        self._kill_at = kill_at
        self._rng = Random(0)
        self._failed: set[int] = set()
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _start_cluster, (spec,))

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown(cancel_futures=True)

    def pids(self) -> list[int]:
        """Return nothing: the workers would be on other machines."""
        return []

    def check(self, check: Any, sources: list[Source]) -> SampleTotals:
        """Estimate one token: sparse files take no room."""
        del check
        return SampleTotals(sum(source.num_bytes for source in sources), 1, 0)

    def run(self, works: Iterable[Work], on_tick: Callable[[], None]) -> Iterator[TaskRecord]:
        """Assign as many tasks as a cluster would take; yield records as they come."""
        with self._phases.run("assign"):
            yield from self._run(iter(works), on_tick)

    def _run(self, waiting: Iterator[Work], on_tick: Callable[[], None]) -> Iterator[TaskRecord]:
        assigned: list[Work] = []
        queued: deque[tuple[Work, Future[TaskRecord]]] = deque()
        num_done = 0
        while True:
            while len(assigned) < _AHEAD * _NUM_CORES and (work := next(waiting, None)) is not None:
                assigned.append(work)
            while assigned and len(queued) < _NUM_QUEUED:
                work = _take_any(assigned, self._rng)
                if self._fails(work, _LOST):
                    assigned.append(work)
                    continue
                node = f"node-{work.number % _NUM_NODES:02}"
                queued.append((work, self._pool.submit(_run_task, node, work)))
            if not queued:
                return
            self.num_running = min(len(assigned), _NUM_CORES)
            work, future = queued.popleft()
            record = future.result()
            on_tick()
            if self._fails(work, _UNHEARD):
                assigned.append(work)
                continue
            if num_done == self._kill_at:
                # Nobody else would end the other process.
                self.close()
                _kill_driver()
            num_done += 1
            yield record

    def _fails(self, work: Work, which: int) -> bool:
        """Tell whether a task fails this way now, and must be repeated; none does so twice."""
        is_chosen = work.number % _FIFTY == which and work.number not in self._failed
        if is_chosen:
            self._failed.add(work.number)
            self.num_retried += 1
        return is_chosen


# In the process that simulates the cluster, the one that its runners are made from.
_specs: list[TaskSpec] = []


def _start_cluster(spec: TaskSpec) -> None:
    """Prepare the process; tasks do not wait for the one disk that they share."""
    mock.patch("os.fsync", id).start()
    mock.patch(_WORKERS, partial(SimulatedWorkers, text=TASK_TEXT)).start()
    _specs.append(spec)


@cache
def _get_runner(node: str) -> TaskRunner:
    return _specs[0].make_runner(node)


def _run_task(node: str, work: TaskWork) -> TaskRecord:
    """Run a task; return what a node sends to the driver."""
    return replace(_get_runner(node).run(work), shards={}, digests={})


@cache
def _digest(num_bytes: int) -> str:
    return xxhash.xxh3_128_hexdigest(bytes(num_bytes))


def _digest_zeros(text: UnitText, token_bytes: int) -> dict[Split, str]:
    return {split: _digest(count * token_bytes) for split, count in text.tokens.items()}


def _take_any(items: list[Any], rng: Random) -> Any:
    chosen = rng.randrange(len(items))
    items[chosen], items[-1] = items[-1], items[chosen]
    return items.pop()


def _kill_driver() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(1)
