"""Tasks on this machine: so many at a time, each with a worker of its own.

It decides nothing about tasks and finishes no job. Threads wait for the workers, which are
processes and do the work; `distributed` takes the receipts as they come.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstok.executors.tasks import TaskRunner
from penstok.jobs.tasks import plan_of_task
from penstok.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstok.executors.tasks import TaskSpec
    from penstok.jobs.plan import Plan
    from penstok.jobs.receipts import TaskReceipt
    from penstok.jobs.tasks import Task
    from penstok.types import Finished, Unit

__all__ = ["ThreadExecutor"]

_TICK_SECONDS = 0.2


class _StoppedError(Exception):
    """The job ends: what is in work is dropped."""


class ThreadExecutor(Resource):
    """Runs tasks in slots of this machine; use it in a `with`."""

    def __init__(
        self,
        spec: TaskSpec,
        num_slots: int,
        on_unit: Callable[[int, Finished], None],
    ) -> None:
        """Prepare to run tasks.

        Args:
            spec: What each is made from.
            num_slots: How many at a time.
            on_unit: Called from any thread with a task's number and a unit of it that is done.
        """
        self.num_slots = num_slots
        self.num_running = 0
        self.num_retried = 0
        self.nodes_alive: int | None = None
        self._on_unit = on_unit
        self._is_stopping = False
        self._runners: SimpleQueue[TaskRunner] = SimpleQueue()
        self._all = [TaskRunner(spec) for _ in range(num_slots)]
        for runner in self._all:
            self._runners.put(runner)
        self._pool = ThreadPoolExecutor(num_slots, "slot")

    def close(self) -> None:
        """End all workers."""
        self._is_stopping = True
        self._pool.shutdown(cancel_futures=True)
        for runner in self._all:
            runner.close()

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [pid for runner in self._all for pid in runner.pids()]

    def check(self, samples: list[Unit], plan: Plan) -> tuple[int, int]:
        """Let one worker compare the engine with the reference; return bytes and tokens seen."""
        return self._all[0].check(samples, plan)

    def run(
        self, tasks: Iterable[Task], plan: Plan, on_tick: Callable[[], None]
    ) -> Iterator[TaskReceipt]:
        """Do all tasks; yield their receipts as they come."""
        waiting = iter(tasks)
        running: set[Future[TaskReceipt]] = set()
        while True:
            while len(running) < self.num_slots and (task := next(waiting, None)) is not None:
                running.add(self._pool.submit(self._run_one, task, plan_of_task(plan, task)))
            if not running:
                return
            self.num_running = len(running)
            done, running = wait(running, _TICK_SECONDS, FIRST_COMPLETED)
            on_tick()
            for each in done:
                yield each.result()

    def _run_one(self, task: Task, plan: Plan) -> TaskReceipt:
        def tick() -> None:
            if self._is_stopping:
                raise _StoppedError

        runner = self._runners.get()
        try:
            return runner.run(task, plan, lambda unit: self._on_unit(task.number, unit), tick)
        finally:
            self._runners.put(runner)
