"""How far a job is, in one line, wherever its tasks run."""

from __future__ import annotations

import json
from types import SimpleNamespace, TracebackType
from typing import cast

from msgspec import to_builtins

from penstok.executors.base import TaskExecutor
from penstok.jobs.plan import Plan
from penstok.jobs.progress import Status, Watch
from penstok.jobs.tasks import Task
from penstok.output.ledger.journal import TaskRecord
from penstok.output.offsets import TaskTotals
from penstok.types import Counts, DocumentRule, Source, replace

STATUS = Status(
    elapsed_seconds=10.0,
    done_bytes=60_000_000,
    kept_bytes=20_000_000,
    total_bytes=100_000_000,
    text_bytes=80_000_000,
    num_units_done=9,
    num_units=None,
    num_tokens=20_000_000,
    num_documents=1000,
    num_tasks_done=6,
    num_tasks=10,
    num_running=2,
    num_retried=0,
    memory_bytes=300_000_000,
    nodes_alive=2,
)


class Shown:
    """Keeps what was shown."""

    def __init__(self) -> None:
        self.statuses: list[Status] = []

    def __enter__(self) -> Shown:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do nothing."""

    def update(self, status: Status) -> None:
        self.statuses.append(status)


def record(task: int, node: str, seconds: float) -> TaskRecord:
    totals = TaskTotals(
        tokens={"train": 200, "val": 50},
        documents={"train": 2, "val": 1},
        sources={
            0: Counts(input_bytes=1100, text_bytes=1000, tokens=200, documents=2),
            1: Counts(input_bytes=210, text_bytes=200, tokens=50, documents=1),
        },
        reasons={},
        carried_special=False,
        open_split=None,
        open_special=False,
    )
    return TaskRecord(1, "job", task, totals, 1, {}, {}, node=node, seconds=seconds)


def make_watch(progress: Shown, num_tasks: int, done: list[int]) -> Watch:
    plan = Plan([Source("a", 1000 * num_tasks, 0, "")], {}, DocumentRule("file"), False, 100, None)
    tasks = [Task(idx, 0, 0, 0, 0, 0, 1000) for idx in range(num_tasks)]
    return Watch(progress, plan, tasks, done, None)


def make_executor() -> TaskExecutor:
    counts = SimpleNamespace(pids=list, nodes_alive=2, num_running=2, num_retried=0)
    return cast("TaskExecutor", counts)


def test_a_line_has_nodes_tasks_rates_and_the_time_that_is_left() -> None:
    line = " 60%  2 nodes  6/10 tasks  8 MB/s  2M tok/s  ETA 10.0 s"
    assert STATUS.line() == line
    slow = replace(STATUS, slow="b (1 MB/s per core)", num_retried=3, nodes_alive=1)
    assert slow.line() == (
        " 60%  1 node  6/10 tasks  8 MB/s  2M tok/s  3 retried  slow: b (1 MB/s per core)"
        "  ETA 10.0 s"
    )
    here = replace(STATUS, nodes_alive=None, done_bytes=20_000_000)
    assert here.line() == " 20%  6/10 tasks  8 MB/s  2M tok/s  memory 300 MB  ETA ?"
    assert replace(STATUS, total_bytes=0).fraction == 1.0


def test_a_line_of_one_task_has_its_units() -> None:
    local = replace(STATUS, nodes_alive=None, num_tasks=1, num_units=20)
    assert local.line() == " 60%  8 MB/s  2M tok/s  9/20 units  memory 300 MB  ETA 10.0 s"
    piped = replace(local, num_units=None, total_bytes=0)
    assert piped.line() == "80 MB  8 MB/s  2M tok/s  9 units  memory 300 MB  ETA ?"


def test_the_slow_one_of_two_nodes_is_named() -> None:
    shown = Shown()
    watch = make_watch(shown, 8, [0, 1])
    watch.start()
    for number, (node, seconds) in enumerate(
        [("fast", 0.1), ("slow", 0.5), ("fast", 0.1), ("fast", 0.12), ("slow", 0.4)], start=2
    ):
        assert watch.find_slow() is None
        watch.add_task(record(number, node, seconds))
    watch.tick(make_executor(), now=True)
    (status,) = shown.statuses
    assert status.slow == "slow (2.67 kB/s per core)"
    assert [to_builtins(node) for node in status.nodes] == [
        {"name": "fast", "tasks": 3, "text_bytes": 3600, "tokens": 750, "seconds": 0.32},
        {"name": "slow", "tasks": 2, "text_bytes": 2400, "tokens": 500, "seconds": 0.9},
    ]
    assert (status.num_tasks_done, status.num_tasks) == (7, 8)
    assert (status.done_bytes, status.kept_bytes, status.total_bytes) == (7000, 2000, 8000)
    assert (status.text_bytes, status.num_tokens, status.num_documents) == (6000, 1250, 15)
    assert json.loads(json.dumps(to_builtins(status)))["nodes"][1]["name"] == "slow"


def test_nodes_that_are_about_as_fast_are_not_named() -> None:
    watch = make_watch(Shown(), 6, [])
    for number in range(6):
        watch.add_task(record(number, "ab"[number % 2], 0.1 + 0.05 * (number % 2)))
    assert watch.find_slow() is None
