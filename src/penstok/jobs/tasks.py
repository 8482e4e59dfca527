"""Division of a plan into tasks: runs of consecutive units.

It opens no input, so the division is immediate for any corpus. It depends on inputs and settings
alone, never on the machines that run the tasks; `jobs.run` passes them to an executor.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from penstok.errors import UsageError
from penstok.output.layout import MAX_SHARDS
from penstok.quantities import format_size
from penstok.types import UNKNOWN_END, Struct, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.jobs.plan import Plan
    from penstok.types import Source

__all__ = [
    "MIN_TASK_BYTES",
    "Task",
    "choose_task_bytes",
    "divide_tasks",
    "fit_task_bytes",
    "part_of_task",
    "plan_of_task",
    "tasks_of_part",
]

# Small enough that no node waits long for the last task, large enough that startup does not matter.
MIN_TASK_BYTES = 64 << 20
# For any corpus: so that scheduling and committing tasks takes minutes, not hours.
_MAX_TASKS = 1 << 14
# Inputs per task: each adds a line or two to the task's journal, which may be held in memory.
_MAX_INPUTS = 1 << 12


class Task(Struct, frozen=True):
    """A run of consecutive units that is scheduled, journaled and retried as a whole.

    Tasks are known before the inputs are read, so a task does not list its units.

    Attributes:
        number: Its number among the tasks, which is also the number of its shards.
        first_source: The input in which it begins.
        start: The position in that input.
        last_source: The input in which it ends.
        stop: The position in that input; no unit of the task begins at or after it.
        left_bytes: How much of the job's limit is left at the start of its first input.
        num_bytes: About how many stored bytes of the inputs it covers.
    """

    number: int
    first_source: int
    start: int
    last_source: int
    stop: int
    left_bytes: int
    num_bytes: int


def choose_task_bytes(plan: Plan) -> int:
    """Return the default size of a task: a multiple of the unit size."""
    wanted = max(MIN_TASK_BYTES, -(-plan.input_bytes // _MAX_TASKS), plan.unit_bytes)
    return -(-wanted // plan.unit_bytes) * plan.unit_bytes


def fit_task_bytes(plan: Plan, num_tasks: int) -> int:
    """Return a task size that gives at least that many tasks, unless a single stream is larger.

    It is in bytes, and a whole number of MiB; 0 if the inputs are too small.
    """
    size = plan.input_bytes // num_tasks
    if not all(source.is_stream for source in plan.sources):
        size -= size % plan.unit_bytes
    return size >> 20 << 20


def divide_tasks(plan: Plan, task_bytes: int | None) -> list[Task]:
    """Divide a plan into tasks of about `task_bytes` stored bytes; None for a single task.

    A larger input is divided evenly, at unit boundaries; smaller ones are combined. A stream is
    never divided.

    Raises:
        UsageError: If there would be too many tasks, or the limit cannot be applied to streams.
    """
    if task_bytes is None:
        return [Task(0, 0, 0, len(plan.sources) - 1, UNKNOWN_END, UNKNOWN_END, plan.input_bytes)]
    _refuse_limited_streams(plan)
    tasks: list[Task] = []
    for piece in _iter_pieces(plan, task_bytes):
        last = tasks[-1] if tasks else None
        if last is not None and piece.fits(last, task_bytes):
            tasks[-1] = replace(
                last,
                last_source=piece.idx,
                stop=piece.stop,
                num_bytes=last.num_bytes + piece.num_bytes,
            )
        else:
            tasks.append(piece.as_task(len(tasks)))
    if len(tasks) > MAX_SHARDS:
        needed = -(-plan.input_bytes // (MAX_SHARDS // 2) >> 20)
        raise UsageError(
            f"{len(tasks)} tasks are too many: each writes a shard, and the limit is {MAX_SHARDS}",
            where=f"--task-size {format_size(task_bytes)}",
            next_step=f"pass `--task-size {needed}MiB` or more",
        )
    return tasks


def plan_of_task(plan: Plan, task: Task) -> Plan:
    """Return the part of a plan that one task needs: its inputs, and its share of the limit."""
    is_whole_job = task.number == 0 and task.last_source == len(plan.sources) - 1
    if task.stop == UNKNOWN_END and is_whole_job:
        return plan
    return replace(
        plan,
        sources=plan.sources[task.first_source : task.last_source + 1],
        first_source=task.first_source,
        skipped={},
        ignored={},
        limit_bytes=None if task.left_bytes == UNKNOWN_END else max(task.left_bytes, 0),
    )


def tasks_of_part(num_tasks: int, part: int, num_parts: int) -> range:
    """Return the numbers of the tasks of one part of a job; parts are counted from 1."""
    return range(num_tasks * (part - 1) // num_parts, num_tasks * part // num_parts)


def part_of_task(num_tasks: int, task: int, num_parts: int) -> int:
    """Return the part that a task belongs to: the inverse of `tasks_of_part`."""
    return ((task + 1) * num_parts - 1) // num_tasks + 1


class _Piece(Struct, frozen=True):
    """A range of one input that is not divided further."""

    idx: int
    start: int
    stop: int
    left_bytes: int
    num_bytes: int

    def fits(self, task: Task, task_bytes: int) -> bool:
        """Return whether a task can continue into it: never where an input is divided."""
        has_room = task.num_bytes + self.num_bytes <= task_bytes
        return self.start == 0 and has_room and self.idx - task.first_source < _MAX_INPUTS

    def as_task(self, number: int) -> Task:
        return Task(
            number, self.idx, self.start, self.idx, self.stop, self.left_bytes, self.num_bytes
        )


def _iter_pieces(plan: Plan, task_bytes: int) -> Iterator[_Piece]:
    for idx, (source, left, end) in enumerate(plan.iter_ends()):
        used_bytes = source.num_bytes
        if not source.is_stream and source.size:
            used_bytes = source.num_bytes * end // source.size
        boundaries = [0, end]
        if used_bytes > task_bytes and not source.is_stream:
            num_pieces = -(-used_bytes // task_bytes)
            boundaries = _boundaries(source, end, num_pieces, plan.unit_bytes)
        for start, stop in pairwise(boundaries):
            share = used_bytes if len(boundaries) == 2 else used_bytes * (stop - start) // end
            yield _Piece(idx, start, stop, left, share)


def _boundaries(source: Source, end: int, num_pieces: int, unit_bytes: int) -> list[int]:
    """Divide an input evenly: bytes at unit boundaries, rows anywhere.

    A unit of rows belongs to the task in which it begins.
    """
    step = 1 if source.is_rows else unit_bytes
    num_steps = -(-end // step)
    num_pieces = max(min(num_pieces, num_steps), 1)
    return [min(num_steps * idx // num_pieces * step, end) for idx in range(num_pieces + 1)]


def _refuse_limited_streams(plan: Plan) -> None:
    streams = [source.path for source in plan.sources if source.is_stream]
    if plan.limit_bytes is not None and streams:
        raise UsageError(
            "jobs of many tasks cannot apply `--limit` to compressed inputs: how much text they "
            "hold is not known before they are read",
            where=f"--limit, {streams[0]}",
            next_step="leave out `--limit` and pass fewer inputs; or, on one machine, leave out "
            "`--task-size`",
        )
