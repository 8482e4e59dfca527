"""The protocols of task executors, and of the work and runners they use.

A task executor knows nothing about plans or journals: it passes work to a runner and returns the
record of the finished task. `jobs.task` has the runner, `local` and `ray` have the executors.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstok.output.ledger.journal import TaskRecord
    from penstok.types import FinishedUnit, SampleTotals, Source

__all__ = ["Runner", "RunnerSpec", "TaskExecutor", "Work"]


class Work(Protocol):
    """One task, with what a runner needs to run it."""

    @property
    def number(self) -> int:
        """The number of the task."""
        ...

    @property
    def where(self) -> str:
        """Which inputs it reads, for messages."""
        ...


class Runner(Protocol):
    """Runs tasks one after the other, in its own worker processes."""

    def check(self, check: Any) -> SampleTotals:
        """Compare the engine with the reference, or begin to; return what the samples have."""
        ...

    def run(
        self,
        work: Any,
        on_unit: Callable[[FinishedUnit], None] | None = None,
        on_tick: Callable[[], None] | None = None,
    ) -> TaskRecord:
        """Run a task; `on_tick` is called several times a second and may raise to stop it."""
        ...

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...


class RunnerSpec(Protocol):
    """Everything needed to create runners; Ray sends it to every node."""

    @property
    def output(self) -> str:
        """The output that runners write to."""
        ...

    def make_runner(self, node: str) -> Runner:
        """Create a runner; `node` is the name of the machine in journals."""
        ...


class TaskExecutor(AbstractContextManager[Any], Protocol):
    """Runs tasks somewhere; used in a `with`.

    Attributes:
        nodes_alive: How many machines there are; None if only this one is used.
        num_running: How many tasks are running.
        num_retried: How many tasks were retried.
        num_workers: How many worker processes it can keep busy.
    """

    nodes_alive: int | None
    num_running: int
    num_retried: int
    num_workers: int

    def pids(self) -> list[int]:
        """Return the process ids of its workers on this machine."""
        ...

    def check(self, check: Any, sources: list[Source]) -> SampleTotals:
        """Check that every machine can run tasks and that the engine is exact.

        The comparison of engines may go on while the first units are encoded.

        Args:
            check: Samples for `Runner.check`.
            sources: All inputs of the job.

        Returns what the samples have together.
        """
        ...

    def run(self, works: Iterable[Work], on_tick: Callable[[], None]) -> Iterator[TaskRecord]:
        """Run all tasks; yield their records as they are done."""
        ...
