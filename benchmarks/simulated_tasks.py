"""A job of tasks whose workers make receipts and no tokens.

Everything the driver does is real: `run_job` from its first line to its last, the planner, the
division into tasks, the job file, the receipts, their joining, the renames and the manifest. Only
the inputs are made up, and the executor: its workers are one process that writes, for each task,
the receipt a worker would have written, and shards that are empty files of the right size (sparse).
Tasks end in random order; some are lost with their node, some are done and their answer is lost, so
that they are done twice.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import xxhash
from made_up import Phases, make_plan, peak_bytes
from penstok.jobs.receipts import TaskReceipt, new_attempt, receipt_name

from penstok.jobs.plan import Start
from penstok.jobs.progress import SilentProgress
from penstok.jobs.run import run_job
from penstok.jobs.settings import JobSettings
from penstok.jobs.tasks import plan_of_task
from penstok.output.layout import SEGMENTS
from penstok.output.ledger.lines import (
    InputLines,
    format_task,
    format_unit,
    line_body,
    renumber_unit,
)
from penstok.output.offsets import TaskTotals
from penstok.output.store import open_place
from penstok.resources import Resource
from penstok.types import (
    Counts,
    EncodedUnit,
    FinishedUnit,
    Segment,
    Source,
    Unit,
    UnitOffsets,
    WrittenUnit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from made_up import MadeUpJob
    from penstok.jobs.task_progress import TaskWatch

    from penstok.jobs.job import Job
    from penstok.jobs.plan import Plan
    from penstok.jobs.tasks import Task
    from penstok.output.layout import Layout
    from penstok.types import Split

# What 16 MiB of English come to with GPT-2, about.
TOKENS: dict[Split, int] = {"train": 3_650_000, "val": 1_825}
DOCUMENTS: dict[Split, int] = {"train": 3_400, "val": 2}
# A cluster of 4,096 cores; two tasks are given out for each, as to Ray.
_NUM_SLOTS, _AHEAD, _NUM_NODES = 4096, 2, 64
# Of every fifty tasks, the one that is lost once before it left anything, and the one that is done
# with its answer lost.
_FIFTY, _LOST, _UNHEARD = 50, 7, 23
# So many may be under way in the process that plays all workers.
_IN_WORK = 8
_MARK = 10**17
_PHASES = {
    "penstok.jobs.job.choose_task_bytes": "divide",
    "penstok.jobs.distributed.divide_tasks": "divide",
    "penstok.jobs.distributed.claim_job": "look",
    "penstok.jobs.distributed.choose_receipts": "look",
    "penstok.jobs.distributed.drop_lost": "look",
    "penstok.jobs.distributed._do_tasks": "give out",
    "penstok.jobs.distributed.finish_job": "finish",
}
_NO_SOURCE = Source("", 0, 0, "")


def simulate_tasks(folder: Path, made_up: MadeUpJob, kill_after: float | None) -> dict[str, Any]:
    """Run the job, or begin it and be killed after a share of its tasks; return what it took."""
    phases = Phases()
    plan = make_plan(made_up)
    executors: list[FakeExecutor] = []

    def make_executor(job: Job, digest: str, watch: TaskWatch) -> FakeExecutor:
        del watch
        executors.append(FakeExecutor(job.layout, digest, kill_after))
        return executors[0]

    # A string is an output that tasks make; one that is no URL is a folder.
    settings = JobSettings(
        inputs=("s3://made-up/crawl/",), output=str(folder), task_bytes=made_up.task_bytes
    )
    started, cpu = time.monotonic(), time.process_time()
    with (
        mock.patch("penstok.jobs.job.make_plan", return_value=plan),
        mock.patch("penstok.jobs.distributed._make_executor", make_executor),
        phases.watch(_PHASES),
    ):
        outcome = run_job(settings, SilentProgress())
    manifest = outcome.manifest
    return {
        "units": made_up.num_units,
        "input_bytes": plan.input_bytes,
        "inputs": made_up.num_sources,
        "tasks": manifest.run["tasks"],
        "tasks_kept": manifest.run["tasks_kept"],
        "tasks_retried": manifest.run["tasks_retried"],
        "documents": manifest.counts["documents"],
        "tokens": manifest.counts["tokens"],
        "text_bytes": manifest.counts["input_bytes"],
        "segments_bytes": (folder / SEGMENTS).stat().st_size,
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.monotonic() - started,
        "ready_seconds": executors[0].entered - started,
        "peak_bytes": peak_bytes(),
        "phases": phases.report(),
    }


class FakeExecutor(Resource):
    """Gives tasks to a process that only writes receipts; they end in random order."""

    def __init__(self, layout: Layout, digest: str, kill_after: float | None) -> None:
        self.nodes_alive: int | None = _NUM_NODES
        self.num_running = 0
        self.num_retried = 0
        self.num_slots = _NUM_SLOTS
        self.entered = time.monotonic()
        self._layout = layout
        self._digest = digest
        self._kill_after = kill_after
        self._rng = Random(digest)
        self._failed: set[int] = set()
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _sync_nothing)

    def __enter__(self) -> FakeExecutor:
        """Note when the driver knew what is to do."""
        self.entered = time.monotonic()
        return self

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown(cancel_futures=True)

    def pids(self) -> list[int]:
        """Return nothing: the workers would be elsewhere."""
        return []

    def check(self, samples: list[Unit], plan: Plan) -> tuple[int, int]:
        """Foresee one token: the files have holes, and take no room."""
        del samples
        return plan.input_bytes, 1

    def run(
        self, tasks: Iterable[Task], plan: Plan, on_tick: Callable[[], None]
    ) -> Iterator[TaskReceipt]:
        """Give out as many as a cluster would take; yield receipts as they come."""
        waiting = list(tasks)
        last = None if self._kill_after is None else round(len(waiting) * self._kill_after)
        waiting.reverse()
        given: list[Task] = []
        in_work: deque[tuple[Task, Future[TaskReceipt]]] = deque()
        num_done = 0
        while waiting or given or in_work:
            while waiting and len(given) < _AHEAD * _NUM_SLOTS:
                given.append(waiting.pop())
            while given and len(in_work) < _IN_WORK:
                task = self._take(given)
                if self._fails(task, _LOST):
                    self._give_again(given, task)
                    continue
                place = (self._layout, self._digest, f"node-{task.number % _NUM_NODES:02}")
                future = self._pool.submit(do_task, *place, task, plan_of_task(plan, task))
                in_work.append((task, future))
            self.num_running = min(len(given), _NUM_SLOTS)
            task, future = in_work.popleft()
            receipt = future.result()
            on_tick()
            if self._fails(task, _UNHEARD):
                self._give_again(given, task)
                continue
            if num_done == last:
                self._die()
            num_done += 1
            yield receipt

    def _take(self, given: list[Task]) -> Task:
        chosen = self._rng.randrange(len(given))
        given[chosen], given[-1] = given[-1], given[chosen]
        return given.pop()

    def _fails(self, task: Task, which: int) -> bool:
        """Tell whether a task fails this way now; none does so twice."""
        is_chosen = task.number % _FIFTY == which and task.number not in self._failed
        if is_chosen:
            self._failed.add(task.number)
        return is_chosen

    def _give_again(self, given: list[Task], task: Task) -> None:
        self.num_retried += 1
        given.append(task)

    def _die(self) -> NoReturn:
        """Be killed; not before the other process has ended, for nobody else would end it."""
        self.close()
        os.kill(os.getpid(), signal.SIGKILL)
        raise SystemExit(1)


def _sync_nothing() -> None:
    """Let the process that plays all workers not wait for one disk; the driver does."""
    mock.patch("os.fsync", id).start()


def do_task(layout: Layout, digest: str, node: str, task: Task, plan: Plan) -> TaskReceipt:
    """Leave what a task leaves: two shards, here without a byte on disk, and a receipt."""
    place, attempt = open_place(layout.folder), new_attempt()
    units, lines, totals = _write_lines(task, plan)
    receipt = TaskReceipt(
        receipt=1,
        job=digest,
        task=task.number,
        attempt=attempt,
        totals=totals,
        num_units=units,
        digests={
            split: xxhash.xxh3_128_hexdigest(bytes.fromhex(_digest(split)) * units)
            for split in TOKENS
        },
        shards=place.begin_task(layout, task.number, attempt).seal(totals.tokens),
        engine="none",
        node=node,
        seconds=round(units * 0.06, 3),
        peak_bytes=100 << 20,
        ledger=lines,
    )
    place.write(receipt_name(task.number, attempt), receipt.to_bytes())
    # What a node of a cluster sends back.
    return replace(receipt, ledger=b"", shards={}, digests={})


def _write_lines(task: Task, plan: Plan) -> tuple[int, bytes, TaskTotals]:
    """Write the lines of all units of a task; return how many, the lines, and what they come to."""
    inputs = InputLines(plan.sources, int(task.start > 0), task.first_source)
    template = _unit_template()
    lines = [format_task(task.number)]
    units, tokens, documents = 0, sum(TOKENS.values()), sum(DOCUMENTS.values())
    of_source: dict[int, tuple[int, int]] = {}
    for unit in plan.iter_units(Start(position=task.start), stop=task.stop):
        lines += inputs.before(unit)
        number, length = task.first_source + unit.source_idx, unit.end - unit.start
        values = (number, unit.start, unit.end, length)
        places = (task.number, units * TOKENS["train"], task.number, units * TOKENS["val"])
        lines.append(renumber_unit(template % (*values, *places), units))
        before = of_source.get(number, (0, 0))
        of_source[number] = before[0] + 1, before[1] + length
        units += 1
    sources = {
        number: Counts(count * documents, count * tokens, num_bytes)
        for number, (count, num_bytes) in of_source.items()
    }
    totals = TaskTotals(
        tokens={split: units * count for split, count in TOKENS.items()},
        documents={split: units * count for split, count in DOCUMENTS.items()},
        sources=sources,
        reasons={},
        carried_special=False,
        open_split=None,
        open_special=False,
    )
    return units, b"".join([*lines, *inputs.rest()]), totals


@cache
def _unit_template() -> bytes:
    """Write the line of one unit as a worker would, and leave out what differs between units."""
    marks = range(_MARK, _MARK + 8)
    source_idx, start, end, length, shard, train, val_shard, val = marks
    unit = Unit(0, source_idx, _NO_SOURCE, start, end, end)
    counts = Counts(sum(DOCUMENTS.values()), sum(TOKENS.values()), length)
    segments = (
        Segment("train", shard, train, TOKENS["train"], _digest("train")),
        Segment("val", val_shard, val, TOKENS["val"], _digest("val")),
    )
    encoded = EncodedUnit(0, counts, TOKENS, DOCUMENTS, 0, *(False, None, False))
    grant = UnitOffsets(0, "train", {"train": train, "val": val})
    body = (
        line_body(format_unit(FinishedUnit(unit, encoded, grant, WrittenUnit(0, segments)))) or b""
    )
    for mark in marks:
        body = body.replace(b"%d" % mark, b"%d")
    return body


@cache
def _digest(split: Split) -> str:
    return xxhash.xxh3_128_hexdigest(split.encode())
