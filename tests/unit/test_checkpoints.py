"""What the thread of the checkpoints meets, the run hears of."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import penstock.checkpoints
from penstock.checkpoints import Checkpoints
from penstock.layout import Layout
from penstock.ledger_lines import Ending
from penstock.resume import Kept
from penstock.store import Store
from penstock.types import (
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
    monkeypatch.setattr(penstock.checkpoints, "_SYNC_SECONDS", 0.01)
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
