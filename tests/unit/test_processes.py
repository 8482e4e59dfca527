"""Workers that end, as the executor sees them: whose batch is to blame, and what is repeated."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from specs import worker_spec

from penstok.errors import EngineError
from penstok.executors import processes
from penstok.executors.processes import ProcessExecutor
from penstok.jobs.settings import JobSettings
from penstok.types import Source, Unit

Serve = Callable[[Connection], None]


def answer(pipe: Connection) -> None:
    kind, payload = pipe.recv()
    pipe.send((kind, [f"{kind} {idx}" for idx, _ in enumerate(payload)]))


def work(pipe: Connection) -> None:
    """Answer requests until the executor hangs up."""
    try:
        while True:
            answer(pipe)
    except (EOFError, OSError):
        pass


class FakeChild:
    """The executor's end of a pipe to a thread that stands for a worker."""

    pid = 0

    def __init__(self, serve: Serve) -> None:
        ours, theirs = socket.socketpair()
        self.pipe = Connection(ours.detach())
        self.far_end = Connection(theirs.detach())
        Thread(target=serve, args=(self.far_end,), daemon=True).start()

    def wait(self) -> int:
        return -9

    def stop(self) -> None:
        self.pipe.close()


class Offsets:
    def grant(self, unit: Any, encoded: Any) -> Any:
        return "offsets", unit.index, encoded


def run(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: Iterator[Serve],
    on_tick: Callable[[ProcessExecutor], None],
) -> tuple[list[int], ProcessExecutor]:
    """Run two units with two workers, which `serve` stands for, in the order of their start."""
    path.write_text("text")
    monkeypatch.setattr(processes, "start_child", lambda *_: FakeChild(next(serve)))
    units = [Unit(idx, 0, Source(str(path), 4, 0, "", "text"), 0, 4, 4) for idx in range(2)]
    spec = worker_spec(JobSettings(inputs=(str(path),), output=str(path.parent / "out")))
    executor = ProcessExecutor(
        spec, num_workers=2, batch_bytes=1, priority="normal", lock_file=None
    )
    with executor:
        done = [
            each.unit.index for each in executor.run(units, Offsets(), lambda: on_tick(executor))
        ]
    return done, executor


def test_a_batch_is_not_blamed_for_a_worker_that_never_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are killed at once; the first is given the batch of the other before that shows."""
    may_end, far_ends = Event(), []

    def answer_once(pipe: Connection) -> None:
        far_ends.append(pipe)
        answer(pipe)

    def end_later(pipe: Connection) -> None:
        pipe.recv()
        may_end.wait(60)
        pipe.close()

    def watch(executor: ProcessExecutor) -> None:
        first = executor._processes[0]
        if first.writing and first.encoding is None:
            may_end.set()
        elif first.encoding is not None and first.encoding.num_failures and not far_ends[0].closed:
            far_ends[0].close()

    serve = iter([answer_once, end_later, work, work])
    done, executor = run(tmp_path / "a.txt", monkeypatch, serve, watch)
    assert done == [0, 1]
    assert executor.num_replaced == 2


def test_a_batch_that_ends_two_workers_stops_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also workers that never read it, because they end at their start."""

    def end_at_once(pipe: Connection) -> None:
        pipe.close()

    serve = iter([end_at_once] * 9)
    with pytest.raises(
        EngineError, match="failed twice on the same text: it was killed by SIGKILL"
    ):
        run(tmp_path / "a.txt", monkeypatch, serve, lambda _: None)
