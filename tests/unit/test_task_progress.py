"""How far a job of tasks is, in one line, whoever does them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from types import TracebackType

from penstok.jobs.progress import Showable
from penstok.jobs.receipts import TaskReceipt
from penstok.jobs.task_progress import TaskStatus, TaskWatch
from penstok.jobs.tasks import Task
from penstok.output.offsets import TaskTotals
from penstok.types import Counts

STATUS = TaskStatus(
    elapsed_seconds=10.0,
    done_bytes=60_000_000,
    kept_bytes=20_000_000,
    total_bytes=100_000_000,
    text_bytes=80_000_000,
    num_tokens=20_000_000,
    num_documents=1000,
    num_tasks_done=6,
    num_tasks=10,
    num_running=2,
    num_retried=0,
    memory_bytes=300_000_000,
    nodes_alive=2,
    nodes=(),
    slow=None,
)


class Shown:
    """Keeps what was shown."""

    def __init__(self) -> None:
        self.statuses: list[TaskStatus] = []

    def __enter__(self) -> Shown:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do nothing."""

    def update(self, status: Showable) -> None:
        assert isinstance(status, TaskStatus)
        self.statuses.append(status)


def receipt(task: int, node: str, seconds: float) -> TaskReceipt:
    totals = TaskTotals(
        tokens={"train": 200, "val": 50},
        documents={"train": 2, "val": 1},
        sources={0: Counts(input_bytes=1000), 1: Counts(input_bytes=200)},
        reasons={},
        carried_special=False,
        open_split=None,
        open_special=False,
    )
    return TaskReceipt(1, "job", task, "a", totals, 1, {}, {}, node=node, seconds=seconds)


def tasks(number: int) -> list[Task]:
    return [Task(idx, 0, 0, 0, 0, 0, 1000) for idx in range(number)]


def test_a_line_has_nodes_tasks_rates_and_the_time_that_is_left() -> None:
    line = " 60%  2 nodes  6/10 tasks  8 MB/s  2M tok/s  ETA 10.0 s"
    assert STATUS.line() == line
    slow = replace(STATUS, slow="b (1 MB/s a core)", num_retried=3, nodes_alive=1)
    assert slow.line() == (
        " 60%  1 node  6/10 tasks  8 MB/s  2M tok/s  3 retried  slow: b (1 MB/s a core)  ETA 10.0 s"
    )
    here = replace(STATUS, nodes_alive=None, done_bytes=20_000_000)
    assert here.line() == " 20%  memory 300 MB  6/10 tasks  8 MB/s  2M tok/s  ETA ?"
    assert replace(STATUS, total_bytes=0).fraction == 1.0


def test_the_slow_one_of_two_nodes_is_named() -> None:
    shown = Shown()
    watch = TaskWatch(shown, tasks(8), kept=[0, 1])
    watch.nodes_alive, watch.num_running = 2, 2
    watch.start()
    for number, (node, seconds) in enumerate(
        [("fast", 0.1), ("slow", 0.5), ("fast", 0.1), ("fast", 0.12), ("slow", 0.4)], start=2
    ):
        assert watch.find_slow() is None
        watch.add(receipt(number, node, seconds))
    watch.tick(now=True)
    (status,) = shown.statuses
    assert status.slow == "slow (2.67 kB/s a core)"
    assert [asdict(node) for node in status.nodes] == [
        {"name": "fast", "tasks": 3, "text_bytes": 3600, "tokens": 750, "seconds": 0.32},
        {"name": "slow", "tasks": 2, "text_bytes": 2400, "tokens": 500, "seconds": 0.9},
    ]
    assert (status.num_tasks_done, status.num_tasks) == (7, 8)
    assert (status.done_bytes, status.kept_bytes, status.total_bytes) == (7000, 2000, 8000)
    assert (status.text_bytes, status.num_tokens, status.num_documents) == (6000, 1250, 15)
    assert json.loads(json.dumps(asdict(status)))["nodes"][1]["name"] == "slow"


def test_nodes_that_are_about_as_fast_are_not_named() -> None:
    watch = TaskWatch(Shown(), tasks(6), kept=[])
    for number in range(6):
        watch.add(receipt(number, "ab"[number % 2], 0.1 + 0.05 * (number % 2)))
    assert watch.find_slow() is None
