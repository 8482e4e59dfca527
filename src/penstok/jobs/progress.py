"""The progress of a job: finished units and tasks in, a status line out.

It prints nothing; `cli` shows the status. `jobs.run` and `verification` update it several times a
second.
"""

from __future__ import annotations

import time
from itertools import accumulate
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from penstok.output.ledger.journal import NodeTotals
from penstok.output.manifest import RunSeries
from penstok.quantities import format_bytes, format_count, format_seconds, plural
from penstok.types import Counts, Struct, field
from penstok.worker.memory import tree_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from penstok.executors.base import TaskExecutor
    from penstok.jobs.plan import Plan
    from penstok.jobs.resume import ResumeState
    from penstok.jobs.tasks import Task
    from penstok.output.ledger.journal import TaskRecord
    from penstok.types import FinishedUnit, Unit

__all__ = ["Meter", "Progress", "SeriesRecorder", "SilentProgress", "Status", "Watch"]

_TICK_SECONDS = 0.2
# A node is slow if its rate per core is less than this fraction of the others' median.
_SLOW_SHARE = 0.6
_MIN_TASKS = 2
# A few kB in the manifest.
_MAX_MOMENTS = 120


class Status(Struct, frozen=True, kw_only=True):
    """A running job at one moment; `kept_*` fields count what earlier runs finished.

    `done_bytes`, `kept_bytes` and `total_bytes` are bytes of the input as stored, `text_bytes` are
    bytes of its text. `num_units` is None if it is known only after reading the inputs,
    `nodes_alive` if only this machine is used.
    """

    elapsed_seconds: float
    done_bytes: int
    total_bytes: int
    text_bytes: int
    num_units_done: int
    num_units: int | None
    num_tokens: int
    num_documents: int
    memory_bytes: int
    kept_bytes: int = 0
    kept_text_bytes: int = 0
    kept_tokens: int = 0
    num_tasks_done: int = 0
    num_tasks: int = 1
    num_running: int = 0
    num_retried: int = 0
    nodes_alive: int | None = None
    nodes: Sequence[NodeTotals] = ()
    slow: str | None = None

    @property
    def fraction(self) -> float:
        """How much of the input is done, from 0 to 1."""
        return min(self.done_bytes / self.total_bytes, 1.0) if self.total_bytes else 1.0

    def line(self) -> str:
        """Format the status as one line."""
        return "  ".join(self.fields().values())

    def fields(self) -> dict[str, str]:
        """Format each part of the line, by what it is."""
        seconds = max(self.elapsed_seconds, 1e-6)
        rate = (self.done_bytes - self.kept_bytes) / seconds
        left = max(self.total_bytes - self.done_bytes, 0) / rate if rate else None
        is_known = self.total_bytes > 0
        units = f"{self.num_units_done}/{self.num_units} units"
        if self.num_units == 0:
            # What copies tokens has none.
            units = ""
        elif self.num_units is None:
            units = plural(self.num_units_done, "unit")
        is_here = self.nodes_alive is None
        is_one_task = self.num_tasks == 1 and is_here
        fields = {
            "done": f"{self.fraction:4.0%}" if is_known else format_bytes(self.text_bytes),
            "nodes": "" if self.nodes_alive is None else plural(self.nodes_alive, "node"),
            "tasks": "" if is_one_task else f"{self.num_tasks_done}/{self.num_tasks} tasks",
            "rate": f"{format_bytes((self.text_bytes - self.kept_text_bytes) / seconds)}/s",
            "tokens": f"{format_count((self.num_tokens - self.kept_tokens) / seconds)} tok/s",
            "units": units if is_one_task else "",
            "memory": f"memory {format_bytes(self.memory_bytes)}" if is_here else "",
            "retried": f"{self.num_retried} retried" if self.num_retried else "",
            "slow": f"slow: {self.slow}" if self.slow else "",
            "eta": f"ETA {format_seconds(left) if is_known and left is not None else '?'}",
        }
        return {name: text for name, text in fields.items() if text}


class Progress(Protocol):
    """Shows a running job; used in a `with` around the run."""

    def __enter__(self) -> Progress: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def update(self, status: Status) -> None:
        """Show the latest status."""
        ...


class SilentProgress:
    """Shows nothing."""

    def __enter__(self) -> SilentProgress:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def update(self, status: Status) -> None:
        """Do nothing."""


class Meter:
    """Counts the progress of `verify` and `convert`: what they read, re-encode and write."""

    def __init__(self, progress: Progress, total_bytes: int, num_units: int) -> None:
        self.done_bytes = 0
        self.num_units_done = 0
        self.num_tokens = 0
        self.num_documents = 0
        self._progress = progress
        self._total_bytes = total_bytes
        self._num_units = num_units
        self._started = time.monotonic()
        self._next = 0.0

    def tick(self, pids: Iterable[int] = ()) -> None:
        """Show the status, unless it was shown less than a tick ago."""
        elapsed = time.monotonic() - self._started
        if elapsed < self._next:
            return
        self._next = elapsed + _TICK_SECONDS
        self._progress.update(
            Status(
                elapsed_seconds=elapsed,
                done_bytes=self.done_bytes,
                total_bytes=self._total_bytes,
                text_bytes=self.done_bytes,
                num_units_done=self.num_units_done,
                num_units=self._num_units,
                num_tokens=self.num_tokens,
                num_documents=self.num_documents,
                memory_bytes=tree_bytes(pids),
            )
        )


class _Done(Struct):
    """What is finished: by earlier runs, by this one, or of a running task.

    Attributes:
        start: The position in all inputs at which a running task began.
        stored_bytes: How many bytes of the inputs as stored.
    """

    start: int = 0
    stored_bytes: int = 0
    num_units: int = 0
    counts: Counts = field(default_factory=Counts)

    def add(self, counts: Counts, num_units: int) -> None:
        self.counts += counts
        self.num_units += num_units


class SeriesRecorder:
    """Keeps a run's speed and memory at some 100 moments, however long it runs.

    When there are too many, every second one is dropped, and half as many are added from then on.
    """

    def __init__(self) -> None:
        self._points: list[tuple[float, int, int]] = []
        self._every = 0.0

    def add(self, seconds: float, text_bytes: int, memory_bytes: int) -> None:
        """Add a moment, unless it is soon after the last."""
        if self._points and seconds < self._points[-1][0] + self._every:
            return
        self._points.append((round(seconds, 2), text_bytes, memory_bytes))
        if len(self._points) > _MAX_MOMENTS:
            self._points = self._points[::2]
            self._every = 2 * seconds / _MAX_MOMENTS

    def series(self) -> RunSeries:
        """Return what was kept."""
        return (
            RunSeries(*map(list, zip(*self._points, strict=True))) if self._points else RunSeries()
        )


class Watch:
    """Follows a running job: its units and tasks, its nodes and its memory.

    Attributes:
        peak_bytes: The peak memory use.
        work_seconds: How long tasks have run.
        done: What this run has finished.
        recorder: Its speed and memory over time.
    """

    def __init__(
        self,
        progress: Progress,
        plan: Plan,
        tasks: Sequence[Task],
        done_tasks: Iterable[int],
        resume: ResumeState | None,
    ) -> None:
        """Start with what earlier runs finished: tasks, or units of the only task."""
        self.peak_bytes: int = 0
        self.work_seconds: float = 0.0
        self.done: _Done = _Done()
        self.recorder: SeriesRecorder = SeriesRecorder()
        self._progress = progress
        self._num_units = plan.num_units if resume is not None else None
        self._sizes = [0, *accumulate(source.num_bytes for source in plan.sources)]
        self._bytes_of = {task.number: task.num_bytes for task in tasks}
        self._total_bytes = sum(self._bytes_of.values())
        self._num_tasks_done = 0
        self._resumed = _Done()
        for number in done_tasks:
            self._num_tasks_done += 1
            self._resumed.stored_bytes += self._bytes_of[number]
        if resume is not None:
            self._resumed.add(resume.offsets.counts, resume.num_units)
            if resume.last is not None:
                self._resumed.stored_bytes = self._position(resume.last, resume.last.stored_end)
        self._nodes: dict[str, NodeTotals] = {}
        self._running: dict[int, _Done] = {}
        self._lock = Lock()
        self._started = time.monotonic()
        self._next = 0.0

    def start(self) -> None:
        """Start the clock: the workers are ready."""
        self._started = time.monotonic()

    def add_unit(self, task: int, finished: FinishedUnit) -> None:
        """Add a finished unit of a task that runs on this machine; may be called by any thread."""
        unit = finished.unit
        with self._lock:
            if task not in self._running:
                self._running[task] = _Done(self._position(unit, unit.stored_start))
            running = self._running[task]
            running.add(finished.encoded.counts, 1)
            running.stored_bytes = self._position(unit, unit.stored_end) - running.start

    def add_task(self, record: TaskRecord) -> None:
        """Add a finished task."""
        with self._lock:
            running = self._running.pop(record.task, None)
        if running is not None:
            self.done.add(running.counts, running.num_units)
        elif record.node:
            self.done.add(record.totals.counts, record.num_units)
        self._num_tasks_done += 1
        self.done.stored_bytes += self._bytes_of[record.task]
        self.peak_bytes = max(self.peak_bytes, record.peak_bytes)
        if record.node:
            self._nodes.setdefault(record.node, NodeTotals(record.node)).add(record)

    def find_slow(self) -> NodeTotals | None:
        """Return the node that is much slower per core than the others; None if there is none."""
        seen = [node for node in self._nodes.values() if node.tasks >= _MIN_TASKS and node.rate]
        slowest = min(seen, key=lambda node: node.rate, default=None)
        others = [node.rate for node in seen if node is not slowest]
        if slowest is None or not others:
            return None
        from statistics import median

        return slowest if slowest.rate < _SLOW_SHARE * median(others) else None

    def tick(self, executor: TaskExecutor, *, now: bool = False) -> None:
        """Show the status, unless it was shown less than a tick ago."""
        self.work_seconds = elapsed = time.monotonic() - self._started
        if elapsed < self._next and not now:
            return
        self._next = elapsed + _TICK_SECONDS
        memory_bytes = tree_bytes(executor.pids())
        self.peak_bytes = max(self.peak_bytes, memory_bytes)
        with self._lock:
            parts = [self._resumed, self.done, *self._running.values()]
            counts = sum((part.counts for part in parts), Counts())
            stored_bytes = sum(part.stored_bytes for part in parts)
            num_units = sum(part.num_units for part in parts)
        done_bytes = sum(part.counts.text_bytes for part in parts[1:])
        self.recorder.add(elapsed, done_bytes, memory_bytes)
        node = self.find_slow()
        slow = None if node is None else f"{node.name} ({format_bytes(node.rate)}/s per core)"
        self._progress.update(
            Status(
                elapsed_seconds=elapsed,
                done_bytes=min(stored_bytes, self._total_bytes or stored_bytes),
                kept_bytes=self._resumed.stored_bytes,
                total_bytes=self._total_bytes,
                # Not `counts.text_bytes`: that is unknown if an older version began the job.
                text_bytes=sum(part.counts.text_bytes for part in parts),
                kept_text_bytes=self._resumed.counts.text_bytes,
                num_units_done=num_units,
                num_units=self._num_units,
                num_tokens=counts.tokens,
                kept_tokens=self._resumed.counts.tokens,
                num_documents=counts.documents,
                memory_bytes=memory_bytes,
                num_tasks_done=self._num_tasks_done,
                num_tasks=len(self._bytes_of),
                num_running=executor.num_running,
                num_retried=executor.num_retried,
                nodes_alive=executor.nodes_alive,
                nodes=sorted(self._nodes.values(), key=attrgetter("name")),
                slow=slow,
            )
        )

    def _position(self, unit: Unit, stored: int) -> int:
        """Return a position in the concatenation of all inputs as stored."""
        return self._sizes[unit.source_idx] + stored
