"""Laws of tasks: they cover every unit of a plan once, in order; parts cover every task once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rounds

from penstok.errors import UsageError
from penstok.jobs.plan import Plan
from penstok.jobs.tasks import Task, choose_task_bytes, divide_tasks, plan_of_task, tasks_of_part
from penstok.output.ledger.reader import Start
from penstok.readers.probe import probe_source
from penstok.types import DocumentRule, Source

Place = tuple[int, int, int, int]
# No end of an input that is known lies so far.
_FAR = 1 << 60


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A file of 90 rows in groups of 7."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    texts = [f"row {idx} " * (idx % 11 + 1) for idx in range(90)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=7)
    source = probe_source(str(path), None, "text")
    assert source.num_rows == 90
    return source


@st.composite
def sources(draw: st.DrawFn, rows: Source, *, streams: bool) -> tuple[list[Source], dict[int, int]]:
    """Draw inputs of several kinds, and how long the content of those is that are streams."""
    kinds = ["plain", "plain", "empty", "framed", "rows", *(["stream"] if streams else [])]
    found: list[Source] = []
    lengths: dict[int, int] = {}
    for idx, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=12))):
        size = 0 if kind == "empty" else draw(st.integers(1, 3000))
        if kind == "rows":
            found.append(rows)
            continue
        if kind == "stream":
            lengths[idx] = draw(st.integers(0, 3000))
        content = draw(st.integers(1, 9000)) if kind == "framed" else 0
        found.append(
            Source(
                path=f"{idx}.txt",
                num_bytes=size,
                mtime_ns=0,
                edges="",
                is_stream=kind == "stream",
                is_empty=kind == "empty",
                content_bytes=content,
            )
        )
    return found, lengths


def places(plan: Plan, lengths: dict[int, int]) -> list[Place]:
    """List the units of a plan."""
    return [
        (unit.source_idx, unit.start, unit.end, min(unit.source_end, _FAR))
        for unit in plan.iter_units(lengths=lengths)
    ]


def places_of_task(plan: Plan, task: Task, lengths: dict[int, int]) -> list[Place]:
    """List the units that the one finds who does a task, as they stand in the plan."""
    start = Start(source_idx=task.first_source, position=task.start)
    units = plan_of_task(plan, task).iter_units(start, lengths, task.stop)
    return [(unit.source_idx, unit.start, unit.end, min(unit.source_end, _FAR)) for unit in units]


@settings(max_examples=rounds(150))
@given(data=st.data())
def test_tasks_cover_every_unit_once_and_in_order(rows: Source, data: st.DataObject) -> None:
    limit = data.draw(st.none() | st.integers(1, 20_000))
    found, lengths = data.draw(sources(rows, streams=limit is None))
    unit_bytes = data.draw(st.integers(1, 700).filter(lambda size: size > 15))
    task_bytes = data.draw(st.integers(1, 5000))
    plan = Plan(found, {}, DocumentRule("file"), False, unit_bytes, limit)
    tasks = divide_tasks(plan, task_bytes)
    assert [task.number for task in tasks] == list(range(len(tasks)))
    done = [place for task in tasks for place in places_of_task(plan, task, lengths)]
    assert done == places(plan, lengths)
    # A task is too large only where it is one piece that cannot be divided further.
    for task in tasks:
        if task.first_source != task.last_source:
            assert task.num_bytes <= task_bytes


@settings(max_examples=rounds(50))
@given(data=st.data())
def test_the_size_of_a_task_is_one_of_whole_units(rows: Source, data: st.DataObject) -> None:
    found, _ = data.draw(sources(rows, streams=True))
    unit_bytes = data.draw(st.integers(1, 1 << 28))
    plan = Plan(found, {}, DocumentRule("file"), False, unit_bytes, None)
    task_bytes = choose_task_bytes(plan)
    assert task_bytes % unit_bytes == 0
    assert task_bytes >= max(64 << 20, unit_bytes)


@given(st.integers(0, 300), st.integers(1, 60))
def test_parts_cover_every_task_once(num_tasks: int, num_parts: int) -> None:
    parts = [tasks_of_part(num_tasks, part, num_parts) for part in range(1, num_parts + 1)]
    assert [number for part in parts for number in part] == list(range(num_tasks))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_tasks_that_cannot_be_divided_are_refused() -> None:
    stream = Source("a.gz", 10, 0, "", is_stream=True)
    limited = Plan([stream], {}, DocumentRule("file"), False, 100, 50)
    with pytest.raises(UsageError, match="compressed inputs"):
        divide_tasks(limited, 1000)
    large = Plan([Source("a", 1 << 28, 0, "")], {}, DocumentRule("file"), False, 16, None)
    with pytest.raises(UsageError, match="too many") as caught:
        divide_tasks(large, 1 << 10)
    size = int(caught.value.next_step.split("--task-size ")[1].split("MiB")[0]) << 20
    assert len(divide_tasks(large, size)) <= 100_000
