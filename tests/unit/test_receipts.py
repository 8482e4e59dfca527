"""Receipts of tasks: read back as they were written, or refused; by many threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstok.errors import DamageError
from penstok.jobs.receipts import TaskReceipt, choose_receipts, list_receipts, receipt_name
from penstok.output.ledger.lines import format_task
from penstok.output.offsets import TaskTotals
from penstok.types import Counts

TOTALS = TaskTotals(
    tokens={"train": 7, "val": 0},
    documents={"train": 1, "val": 0},
    sources={3: Counts(documents=1, tokens=7, input_bytes=30)},
    reasons={3: ["no text (at 4)"]},
    carried_special=True,
    open_split="val",
    open_special=False,
)
RECEIPT = TaskReceipt(
    receipt=1,
    job="digest",
    task=12,
    attempt="0123456789ab",
    totals=TOTALS,
    num_units=0,
    digests={"train": "x", "val": "y"},
    shards={"train": {"path": "a"}, "val": {"upload": "u", "parts": ["1"]}},
    node="one",
    ledger=format_task(12),
)


def test_a_receipt_is_read_as_it_was_written() -> None:
    data = RECEIPT.to_bytes()
    found = TaskReceipt.from_bytes(data, "here")
    assert found.to_bytes() == data
    assert (found.totals, found.shards) == (RECEIPT.totals, RECEIPT.shards)
    assert found.ledger == RECEIPT.ledger


@pytest.mark.parametrize("place", [0, 5, 60, -1, -20])
def test_a_damaged_receipt_is_refused(place: int) -> None:
    with pytest.raises(DamageError, match="the receipt of a task is damaged"):
        TaskReceipt.from_bytes(RECEIPT.to_bytes()[:place], "here")


def test_a_damaged_line_of_a_receipt_is_refused() -> None:
    broken = RECEIPT.ledger[:5] + b"?" + RECEIPT.ledger[6:]
    spoilt = TaskReceipt.from_bytes(RECEIPT.to_bytes().replace(RECEIPT.ledger, broken), "here")
    with pytest.raises(DamageError, match="torn or damaged"):
        list(spoilt.iter_lines(0, "here"))


def test_one_receipt_of_each_task_is_chosen() -> None:
    names = [receipt_name(3, "b" * 12), receipt_name(3, "a" * 12), receipt_name(100_000, "c" * 12)]
    strange = [".penstok/tasks/00003-bbb", ".penstok/tasks/00003-bbbbbbbbbbbb.jsonl.partial"]
    assert choose_receipts([*names, *strange]) == {3: names[1], 100_000: names[2]}
    assert list_receipts([*names, *strange]) == [(3, names[1]), (3, names[0]), (100_000, names[2])]


def test_threads_may_read_the_first_receipts_at_once() -> None:
    """Else the process is gone: msgspec cannot learn a type in two threads at once."""
    script = f"""
import sys
from concurrent.futures import ThreadPoolExecutor
from penstok.output.offsets import TaskTotals
from penstok.jobs.receipts import TaskReceipt
sys.setswitchinterval(1e-6)
data = {RECEIPT.to_bytes()!r}
with ThreadPoolExecutor(16) as pool:
    for each in [pool.submit(TaskReceipt.from_bytes, data, "") for _ in range(16)]:
        each.result()
"""
    for _ in range(5):
        subprocess.run([sys.executable, "-c", script], check=True)
