"""Journals of tasks: errors of their thread reach the run; finished ones are read or refused."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from penstok.errors import DamageError
from penstok.output.layout import Layout
from penstok.output.ledger import journal as journals
from penstok.output.ledger.journal import (
    FinishedJournal,
    Journal,
    TaskRecord,
    choose_journals,
    list_journals,
)
from penstok.output.ledger.lines import InputLines, format_job, format_task
from penstok.output.ledger.reader import Digests
from penstok.output.offsets import TaskTotals
from penstok.output.store.base import journal_name
from penstok.output.store.folder import FolderStore, FolderTaskFiles
from penstok.types import (
    Counts,
    EncodedUnit,
    FinishedUnit,
    JobRecord,
    Source,
    Split,
    TokenizerRecord,
    Unit,
    UnitOffsets,
    WrittenUnit,
)

SOURCE = Source("in.txt", 1000, 0, "0" * 16)
JOB = JobRecord("0.1.0", TokenizerRecord("gpt2", 50257, 50256, "x"), "uint16", 10, {})
TOTALS = TaskTotals(
    tokens={"train": 7, "val": 0},
    documents={"train": 1, "val": 0},
    sources={3: Counts(documents=1, tokens=7, input_bytes=30)},
    reasons={3: ["no text (at 4)"]},
    carried_special=True,
    open_split="val",
    open_special=False,
)
RECORD = TaskRecord(
    done=1,
    job="digest",
    task=12,
    totals=TOTALS,
    num_units=0,
    digests={"train": "x", "val": "y"},
    shards={"train": {"folder": "a"}, "val": {"upload": "u", "parts": ["1"]}},
    node="one",
)
TASK = format_task(12)
DATA = format_job(JOB) + TASK + RECORD.to_line()


def finished(idx: int) -> FinishedUnit:
    unit = Unit(idx, 0, SOURCE, 10 * idx, 10 * idx + 10, SOURCE.num_bytes)
    nothing: dict[Split, int] = {"train": 0, "val": 0}
    encoded = EncodedUnit(idx, Counts(), nothing, nothing, 0, False, None, False)
    return FinishedUnit(
        unit, encoded, UnitOffsets(idx, "train", nothing, nothing), WrittenUnit(idx, ())
    )


def open_journal(folder: Path) -> Journal:
    store = FolderStore(str(folder))
    return Journal(
        store.open_journal(0, None),
        store.begin_task(Layout(str(folder), 2, None), 0, None),
        InputLines([SOURCE]),
        Digests(),
        first_lines=format_job(JOB),
        num_units=0,
        tokens={"train": 0, "val": 0},
        token_bytes=2,
        drop_cache=False,
    )


@pytest.fixture
def broken_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """A journal whose sync raises what nobody expected."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr(FolderTaskFiles, "sync", fail)
    monkeypatch.setattr(journals, "_SYNC_SECONDS", 0.01)
    return open_journal(tmp_path)


def append_units(journal: Journal, num_units: int) -> None:
    with journal:
        for idx in range(num_units):
            journal.append(finished(idx))
            time.sleep(0.01)
        pytest.fail("units were taken that are not recorded")


def append_and_finish(journal: Journal) -> None:
    with journal:
        journal.append(finished(0))
        journal.finish(RECORD.to_line())


def test_any_error_of_the_thread_stops_the_run(broken_journal: Journal) -> None:
    with pytest.raises(RuntimeError, match="nobody expected this"):
        append_units(broken_journal, 100)


def test_no_last_line_is_written_behind_lost_units(broken_journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nobody expected this"):
        append_and_finish(broken_journal)
    assert b'"done"' not in (tmp_path / journal_name(0, None)).read_bytes()


def test_units_without_tokens_do_not_wait_in_any_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync, appended = Event(), list[int]()

    def wait_for_disk(*_: object, **__: object) -> None:
        may_sync.wait(10)

    monkeypatch.setattr(FolderTaskFiles, "sync", wait_for_disk)
    monkeypatch.setattr(journals, "_MAX_UNSYNCED_BYTES", 4 * journals._LEAST_UNIT_BYTES)
    monkeypatch.setattr(journals, "_SYNC_SECONDS", 0.01)
    with open_journal(tmp_path) as journal:

        def append_all() -> None:
            for idx in range(20):
                journal.append(finished(idx))
                appended.append(idx)

        thread = Thread(target=append_all)
        thread.start()
        thread.join(0.3)
        assert len(appended) == 4
        may_sync.set()
        thread.join()
    assert journal.num_units == 20


def test_a_journal_is_read_as_it_was_written() -> None:
    found = FinishedJournal.from_bytes(DATA, "here")
    assert found.record == RECORD
    assert found.record.to_line() == RECORD.to_line()
    assert list(found.iter_lines(0)) == [TASK]


@pytest.mark.parametrize("cut", [0, 5, 60, -1, -20, -len(RECORD.to_line())])
def test_a_journal_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(DamageError, match="the journal of a task is damaged"):
        FinishedJournal.from_bytes(DATA[:cut], "here")


def test_a_damaged_line_of_a_journal_is_refused() -> None:
    broken = TASK[:5] + b"?" + TASK[6:]
    journal = FinishedJournal.from_bytes(DATA.replace(TASK, broken), "here")
    with pytest.raises(DamageError, match="incomplete or damaged"):
        list(journal.iter_lines(0))


def test_one_journal_of_each_task_is_chosen() -> None:
    names = [journal_name(3, "b" * 12), journal_name(3, "a" * 12), journal_name(100_000, "c" * 12)]
    strange = [".penstok/tasks/00003-bbb", ".penstok/tasks/00003-bbbbbbbbbbbb.jsonl.partial"]
    assert choose_journals([*names, *strange]) == {3: names[1], 100_000: names[2]}
    assert list_journals([*names, *strange]) == [(3, names[1]), (3, names[0]), (100_000, names[2])]


def test_threads_may_read_the_first_journals_at_once() -> None:
    """Otherwise the process dies: msgspec cannot learn a type in two threads at once."""
    script = f"""
import sys
from concurrent.futures import ThreadPoolExecutor
from penstok.output.ledger.journal import FinishedJournal
sys.setswitchinterval(1e-6)
data = {DATA!r}
with ThreadPoolExecutor(16) as pool:
    for each in [pool.submit(FinishedJournal.from_bytes, data, "") for _ in range(16)]:
        each.result()
"""
    for _ in range(5):
        subprocess.run([sys.executable, "-c", script], check=True)
