"""Runs tasks on this machine, one after the other or several at a time.

It neither chooses tasks nor commits anything. With several at a time, one thread per task waits for
its worker processes (`processes`); `jobs.run` takes the records of finished tasks.
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from penstok.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor

    from penstok.executors.base import Runner, RunnerSpec, Work
    from penstok.output.ledger.journal import TaskRecord
    from penstok.types import FinishedUnit, SampleTotals, Source

__all__ = ["LocalExecutor"]

_TICK_SECONDS = 0.2


class _StoppedError(Exception):
    """The job is stopping: running tasks are dropped."""


class LocalExecutor(Resource):
    """Runs tasks on this machine; use it in a `with`."""

    def __init__(
        self,
        spec: RunnerSpec,
        num_threads: int,
        num_workers: int,
        on_unit: Callable[[int, FinishedUnit], None],
    ) -> None:
        """Create a runner per thread; no worker process is started yet.

        Args:
            spec: Creates runners.
            num_threads: How many tasks run at a time.
            num_workers: How many worker processes they have in total.
            on_unit: Called from any thread with a task's number and a finished unit of it.
        """
        self.num_workers = num_workers
        self.num_running: int = 0
        self.num_retried = 0
        self.nodes_alive: int | None = None
        self._on_unit = on_unit
        self._is_stopping = False
        self._runners = [spec.make_runner("") for _ in range(num_threads)]
        self._free: SimpleQueue[Runner] = SimpleQueue()
        for runner in self._runners:
            self._free.put(runner)
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Stop all workers."""
        self._is_stopping = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for runner in self._runners:
            runner.close()

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [pid for runner in self._runners for pid in runner.pids()]

    def check(self, check: Any, sources: list[Source]) -> SampleTotals:
        """Let one worker compare the engine with the reference."""
        del sources  # this machine has just probed them
        return self._runners[0].check(check)

    def run(self, works: Iterable[Work], on_tick: Callable[[], None]) -> Iterator[TaskRecord]:
        """Run all tasks; yield their records as they are done."""
        waiting = iter(works)
        if len(self._runners) == 1:
            # Run in this thread, so that a Ctrl-C interrupts the task itself.
            self.num_running = 1
            for only in waiting:
                yield self._run_one(only, on_tick)
            return
        from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

        self._pool = ThreadPoolExecutor(len(self._runners), "task")
        running: set[Future[TaskRecord]] = set()
        while True:
            while len(running) < len(self._runners) and (work := next(waiting, None)) is not None:
                running.add(self._pool.submit(self._run_one, work, self._stop_if_closing))
            if not running:
                return
            self.num_running = len(running)
            done, running = wait(running, _TICK_SECONDS, FIRST_COMPLETED)
            on_tick()
            for each in done:
                yield each.result()

    def _run_one(self, work: Work, on_tick: Callable[[], None]) -> TaskRecord:
        runner = self._free.get()
        try:
            return runner.run(work, lambda unit: self._on_unit(work.number, unit), on_tick)
        finally:
            self._free.put(runner)

    def _stop_if_closing(self) -> None:
        if self._is_stopping:
            raise _StoppedError
