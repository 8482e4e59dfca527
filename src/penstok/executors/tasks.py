"""One task, from text to shards and a receipt: the same whoever runs it, and wherever.

A worker process of its own does the units, so a task survives a worker that dies or fills up as
any job does. It gives out nothing and finishes no job: slots of this machine and nodes of a cluster
each have a runner, and `distributed` tells them what to do.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstok.executors.processes import ProcessExecutor
from penstok.inputs.feed import make_feed
from penstok.jobs.plan import Start
from penstok.jobs.receipts import TaskReceipt, new_attempt, receipt_name
from penstok.output.ledger.lines import InputLines, format_task, format_unit
from penstok.output.ledger.reader import Digests
from penstok.output.offsets import Offsets
from penstok.output.store import open_place
from penstok.readers.formats import FORMATS, open_scanner
from penstok.resources import Resource
from penstok.types import SPLITS
from penstok.worker.memory import tree_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstok.jobs.plan import Plan
    from penstok.jobs.settings import Priority
    from penstok.jobs.tasks import Task
    from penstok.output.offsets import TaskTotals
    from penstok.output.store.base import TaskFiles
    from penstok.types import Finished, Split, Unit
    from penstok.worker.worker import WorkerSpec

__all__ = ["TaskRunner", "TaskSpec"]


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What every task of a job is made from.

    Attributes:
        worker: What its worker is made from.
        output: Where it writes.
        job: The digest of the job, for receipts.
        priority: Of its processes.
    """

    worker: WorkerSpec
    output: str
    job: str
    priority: Priority


class TaskRunner(Resource):
    """Does tasks one after the other, with one worker; use it in a `with`."""

    def __init__(self, spec: TaskSpec, node: str = "") -> None:
        self._spec = spec
        self._node = node
        self._place = open_place(spec.output)
        self._executor: ProcessExecutor | None = None
        self._has_feed = False
        self._peak_bytes = 0

    def close(self) -> None:
        """End the worker."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.__exit__(None, None, None)

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [] if self._executor is None else self._executor.pids()

    def check(self, samples: list[Unit], plan: Plan) -> tuple[int, int]:
        """Compare the engine with the reference; return the bytes and tokens that were seen."""
        return self._prepare(plan).check(samples)

    def run(
        self,
        task: Task,
        plan: Plan,
        on_unit: Callable[[Finished], None] | None = None,
        on_tick: Callable[[], None] | None = None,
    ) -> TaskReceipt:
        """Do a task.

        Args:
            task: Which.
            plan: The part of the plan that it needs (`tasks.plan_of_task`).
            on_unit: Called with every unit that is done.
            on_tick: Called several times a second; it may raise to end the task.
        """
        started, attempt = time.monotonic(), new_attempt()
        files = self._place.begin_task(self._spec.worker.layout, task.number, attempt)
        try:
            executor = self._prepare(plan)
            num_replaced = executor.num_replaced
            executor.use(files.layout)
            record = self._do_units(executor, files, task, plan, on_unit, on_tick)
            receipt = TaskReceipt(
                receipt=1,
                job=self._spec.job,
                task=task.number,
                attempt=attempt,
                totals=record.totals(),
                num_units=record.num_units,
                digests={split: record.digests.of(split, task.number) for split in SPLITS},
                shards=files.seal(record.offsets.tokens),
                engine=self._spec.worker.engine,
                node=self._node,
                seconds=round(time.monotonic() - started, 3),
                peak_bytes=self._peak_bytes,
                num_replaced=executor.num_replaced - num_replaced,
                ledger=record.ledger(),
            )
            self._place.write(receipt_name(task.number, attempt), receipt.to_bytes())
        except BaseException:
            self.close()
            files.discard()
            raise
        return receipt

    def _do_units(
        self,
        executor: ProcessExecutor,
        files: TaskFiles,
        task: Task,
        plan: Plan,
        on_unit: Callable[[Finished], None] | None,
        on_tick: Callable[[], None] | None,
    ) -> _Record:
        def tick() -> None:
            self._peak_bytes = max(self._peak_bytes, tree_bytes(executor.pids()))
            if on_tick is not None:
                on_tick()

        tick()
        record = _Record(task, plan, Offsets.of_task(_find_open_split(executor, task, plan)))
        units = plan.iter_units(Start(position=task.start), executor.lengths, task.stop)
        for finished in executor.run(units, record.offsets, tick):
            record.add(finished)
            files.advance(record.written)
            if on_unit is not None:
                on_unit(finished)
        tick()
        return record

    def _prepare(self, plan: Plan) -> ProcessExecutor:
        """Return the worker of the last task; one that is fed streams serves one task only."""
        spec = self._spec.worker
        feed = make_feed(
            plan.sources,
            1,
            plan.unit_bytes,
            open_scanner=open_scanner,
            on_error=spec.on_error,
            give_back=spec.give_back,
        )
        if feed is not None or self._has_feed:
            self.close()
        if self._executor is None:
            self._has_feed = feed is not None
            self._executor = ProcessExecutor(
                spec,
                num_workers=1,
                batch_bytes=plan.unit_bytes,
                priority=self._spec.priority,
                lock_file=None,
                feed=feed,
            )
            self._executor.__enter__()
        return self._executor


class _Record:
    """What is known of a task's units, as they are done in order."""

    def __init__(self, task: Task, plan: Plan, offsets: Offsets) -> None:
        self.offsets = offsets
        self.digests = Digests()
        self.num_units = 0
        self.written: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        self._first_source = task.first_source
        # The line of an input stands where its first unit is: before this task, perhaps.
        self._inputs = InputLines(plan.sources, int(task.start > 0), task.first_source)
        self._lines = [format_task(task.number)]
        self._carried_special = False
        self._has_begun = False

    def add(self, finished: Finished) -> None:
        """Take the next unit."""
        encoded = finished.encoded
        self._lines += self._inputs.before(finished.unit)
        source_idx = self._first_source + finished.unit.source_idx
        unit = replace(finished.unit, source_idx=source_idx)
        self._lines.append(format_unit(replace(finished, unit=unit)))
        self.digests.add(finished.receipt)
        self.num_units += 1
        for segment in finished.receipt.segments:
            self.written[segment.split] += segment.num_tokens
        self._carried_special |= encoded.carried_special and not self._has_begun
        self._has_begun |= encoded.open_split is not None

    def totals(self) -> TaskTotals:
        """Return what it came to; inputs have the numbers they have in the job."""
        totals = self.offsets.totals(carried_special=self._carried_special)
        first = self._first_source
        return replace(
            totals,
            sources={first + idx: counts for idx, counts in totals.sources.items()},
            reasons={first + idx: reasons for idx, reasons in totals.reasons.items()},
        )

    def ledger(self) -> bytes:
        """Return the lines for the ledger."""
        return b"".join([*self._lines, *self._inputs.rest()])


def _find_open_split(executor: ProcessExecutor, task: Task, plan: Plan) -> Split:
    """Tell in which split a document goes on that began before the task."""
    source = plan.sources[0]
    if task.start == 0 or FORMATS[source.format].has_records:
        return "train"
    first = next(plan.iter_units(Start(position=task.start)))
    return executor.find_open_split(first, plan.unit_bytes)
