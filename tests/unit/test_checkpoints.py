"""What the thread of the checkpoints meets, the run hears of."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event, Thread

import pytest

import penstok.jobs.checkpoints
from penstok.jobs.checkpoints import Checkpoints
from penstok.jobs.resume import Kept
from penstok.output.layout import Layout
from penstok.output.ledger.lines import Ending
from penstok.output.store.local import Store
from penstok.types import (
    Counts,
    Encoded,
    Finished,
    Grant,
    JobRecord,
    Receipt,
    Source,
    Split,
    TokenizerRecord,
    Unit,
)

SOURCE = Source("in.txt", 1000, 0, "0" * 16)
LEAST_UNIT_BYTES = penstok.jobs.checkpoints._LEAST_UNIT_BYTES
JOB = JobRecord("0.1.0", TokenizerRecord("gpt2", 50257, 50256, "x"), "uint16", 10, {})


def finished(idx: int) -> Finished:
    unit = Unit(idx, 0, SOURCE, 10 * idx, 10 * idx + 10, SOURCE.num_bytes)
    nothing: dict[Split, int] = {"train": 0, "val": 0}
    encoded = Encoded(idx, Counts(), nothing, nothing, 0, False, None, False)
    return Finished(unit, encoded, Grant(idx, "train", nothing), Receipt(idx, ()))


@pytest.fixture
def broken_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose sync meets what nobody thought of."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(Store, "sync", fail)
    monkeypatch.setattr(penstok.jobs.checkpoints, "_SYNC_SECONDS", 0.01)
    return Store(Layout(str(tmp_path / "out"), 2, None))


def append_units(checkpoints: Checkpoints, num_units: int) -> None:
    with checkpoints:
        for idx in range(num_units):
            checkpoints.append(finished(idx))
            time.sleep(0.01)
        pytest.fail("units were taken that nobody records")


def append_and_finish(checkpoints: Checkpoints) -> None:
    with checkpoints:
        checkpoints.append(finished(0))
        checkpoints.finish(Ending({}, {}))


def test_any_error_of_the_thread_stops_the_run(broken_store: Store) -> None:
    with broken_store as store:
        checkpoints = Checkpoints(store, [SOURCE], Kept(JOB), give_back=False)
        with pytest.raises(RuntimeError, match="nobody thought of this"):
            append_units(checkpoints, 100)


def test_no_ending_is_written_behind_units_that_were_lost(broken_store: Store) -> None:
    with broken_store as store:
        checkpoints = Checkpoints(store, [SOURCE], Kept(JOB), give_back=False)
        with pytest.raises(RuntimeError, match="nobody thought of this"):
            append_and_finish(checkpoints)
        assert b'"run"' not in store.ledger.read_bytes()


def test_units_without_tokens_do_not_wait_in_any_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync, appended = Event(), list[int]()

    def wait_for_disk(*_: object, **__: object) -> None:
        may_sync.wait(10)

    monkeypatch.setattr(Store, "sync", wait_for_disk)
    monkeypatch.setattr(penstok.jobs.checkpoints, "_MAX_UNSYNCED_BYTES", 4 * LEAST_UNIT_BYTES)
    monkeypatch.setattr(penstok.jobs.checkpoints, "_SYNC_SECONDS", 0.01)
    with Store(Layout(str(tmp_path / "out"), 2, None)) as store:
        with Checkpoints(store, [SOURCE], Kept(JOB), give_back=False) as checkpoints:

            def append_all() -> None:
                for idx in range(20):
                    checkpoints.append(finished(idx))
                    appended.append(idx)

            thread = Thread(target=append_all)
            thread.start()
            thread.join(0.3)
            assert len(appended) == 4
            may_sync.set()
            thread.join()
        assert checkpoints.num_units == 20
