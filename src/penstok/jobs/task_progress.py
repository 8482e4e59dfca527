"""How far a job of tasks is, on all its nodes: receipts in, one line out.

It decides nothing. `distributed` tells it of units and receipts; `progress` shows what it says.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from threading import Lock
from typing import TYPE_CHECKING

from penstok.jobs.progress import seconds_left
from penstok.quantities import format_bytes, format_count, format_seconds
from penstok.worker.memory import tree_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstok.jobs.progress import Progress
    from penstok.jobs.receipts import TaskReceipt
    from penstok.jobs.tasks import Task
    from penstok.types import Finished

__all__ = ["NodeStatus", "TaskStatus", "TaskWatch"]

_TICK_SECONDS = 0.2
# A node is called slow that does less than this share of what the others do on a core.
_SLOW_SHARE = 0.6
_MIN_TASKS = 2


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What one node has done; `seconds` are those of its tasks, added up."""

    name: str
    tasks: int
    text_bytes: int
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes of text for each second of a core."""
        return self.text_bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A running job of tasks at one moment; what is `kept` was done by an earlier run.

    Bytes that are done, kept and in all are those of the input as it is stored, `text_bytes` those
    of its text in this run. `nodes_alive` is None where there is only this machine.
    """

    elapsed_seconds: float
    done_bytes: int
    kept_bytes: int
    total_bytes: int
    text_bytes: int
    num_tokens: int
    num_documents: int
    num_tasks_done: int
    num_tasks: int
    num_running: int
    num_retried: int
    memory_bytes: int
    nodes_alive: int | None
    nodes: Sequence[NodeStatus]
    slow: str | None

    @property
    def fraction(self) -> float:
        """How much of the input is done, from 0 to 1."""
        return min(self.done_bytes / self.total_bytes, 1.0) if self.total_bytes else 1.0

    def line(self) -> str:
        """Say it in one line."""
        seconds = max(self.elapsed_seconds, 1e-6)
        left = seconds_left(self.done_bytes, self.kept_bytes, self.total_bytes, seconds)
        where = f"memory {format_bytes(self.memory_bytes)}"
        if self.nodes_alive is not None:
            where = f"{self.nodes_alive} node{'' if self.nodes_alive == 1 else 's'}"
        return "  ".join(
            (
                f"{self.fraction:4.0%}",
                where,
                f"{self.num_tasks_done}/{self.num_tasks} tasks",
                f"{format_bytes(self.text_bytes / seconds)}/s",
                f"{format_count(self.num_tokens / seconds)} tok/s",
                *([f"{self.num_retried} retried"] if self.num_retried else []),
                *([f"slow: {self.slow}"] if self.slow else []),
                f"ETA {format_seconds(left) if left is not None else '?'}",
            )
        )


class TaskWatch:
    """Looks at a running job of tasks a few times a second."""

    def __init__(self, progress: Progress, tasks: Sequence[Task], kept: Iterable[int]) -> None:
        self.peak_bytes = 0
        self.work_seconds = 0.0
        self.num_retried = 0
        self.num_running = 0
        self.text_bytes = 0
        self.num_tokens = 0
        self.num_skipped = 0
        self.nodes_alive: int | None = None
        self._progress = progress
        self._bytes_of = {task.number: task.num_bytes for task in tasks}
        self._total_bytes = sum(self._bytes_of.values())
        kept_tasks = set(kept)
        self._num_done = len(kept_tasks)
        self._kept_bytes = self._done_bytes = sum(map(self._bytes_of.__getitem__, kept_tasks))
        self._num_documents = 0
        self._nodes: dict[str, NodeStatus] = {}
        self._in_work: dict[int, tuple[int, int, int, int]] = {}
        self._lock = Lock()
        self._started = time.monotonic()
        self._next = 0.0

    def start(self) -> None:
        """Start the clock: the work begins."""
        self._started = time.monotonic()

    def add_unit(self, task: int, finished: Finished) -> None:
        """Note a unit that is done, of a task that is not; from any thread."""
        unit, counts = finished.unit, finished.encoded.counts
        stored = max(unit.stored_end - unit.stored_start, 0)
        more = (stored, counts.input_bytes, counts.tokens, counts.documents)
        with self._lock:
            before = self._in_work.get(task, (0, 0, 0, 0))
            sums = tuple(one + other for one, other in zip(before, more, strict=True))
            self._in_work[task] = (sums[0], sums[1], sums[2], sums[3])

    def add(self, receipt: TaskReceipt) -> None:
        """Note a task that is done."""
        totals = receipt.totals
        text_bytes = sum(counts.input_bytes for counts in totals.sources.values())
        num_tokens = sum(totals.tokens.values())
        with self._lock:
            self._in_work.pop(receipt.task, None)
        self._num_done += 1
        self._done_bytes += self._bytes_of[receipt.task]
        self.text_bytes += text_bytes
        self.num_tokens += num_tokens
        self.num_skipped += sum(counts.skipped_records for counts in totals.sources.values())
        self._num_documents += sum(totals.documents.values())
        self.peak_bytes = max(self.peak_bytes, receipt.peak_bytes)
        before = self._nodes.get(receipt.node, NodeStatus(receipt.node, 0, 0, 0, 0.0))
        self._nodes[receipt.node] = NodeStatus(
            receipt.node,
            before.tasks + 1,
            before.text_bytes + text_bytes,
            before.tokens + num_tokens,
            round(before.seconds + receipt.seconds, 3),
        )

    def find_slow(self) -> NodeStatus | None:
        """Return the node that does far less on a core than the others; None if there is none."""
        seen = [node for node in self._nodes.values() if node.tasks >= _MIN_TASKS and node.rate]
        slowest = min(seen, key=lambda node: node.rate, default=None)
        others = [node.rate for node in seen if node is not slowest]
        if slowest is None or not others or slowest.rate >= _SLOW_SHARE * median(others):
            return None
        return slowest

    def tick(self, pids: Sequence[int] = (), *, now: bool = False) -> None:
        """Show where the job is, unless it was shown just now."""
        self.work_seconds = elapsed = time.monotonic() - self._started
        if elapsed < self._next and not now:
            return
        self._next = elapsed + _TICK_SECONDS
        memory_bytes = tree_bytes(pids)
        self.peak_bytes = max(self.peak_bytes, memory_bytes)
        with self._lock:
            in_work = [sum(each) for each in zip(*self._in_work.values(), strict=True)] or [0] * 4
        slow = self.find_slow()
        self._progress.update(
            TaskStatus(
                elapsed_seconds=elapsed,
                done_bytes=self._done_bytes + in_work[0],
                kept_bytes=self._kept_bytes,
                total_bytes=self._total_bytes,
                text_bytes=self.text_bytes + in_work[1],
                num_tokens=self.num_tokens + in_work[2],
                num_documents=self._num_documents + in_work[3],
                num_tasks_done=self._num_done,
                num_tasks=len(self._bytes_of),
                num_running=self.num_running,
                num_retried=self.num_retried,
                memory_bytes=memory_bytes,
                nodes_alive=self.nodes_alive,
                nodes=sorted(self._nodes.values(), key=lambda node: node.name),
                slow=None if slow is None else f"{slow.name} ({format_bytes(slow.rate)}/s a core)",
            )
        )
