"""Receipts of tasks: what each came to, and the lines of its units, as one small file or object.

A task that has a receipt is done: its tokens are where the receipt says, durable. It reads and
writes text only; `places` keeps it, `executors.tasks` makes it, `finishing` joins all to a ledger.

    {"receipt": 1, "task": 3, ...}     what it came to, where its shards are
    {"task": 3}                        then the lines for the ledger; units are counted from 0
    {"input": 7, ...}
    {"unit": 0, ...}
"""

from __future__ import annotations

import re
import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from penstok.errors import DamageError
from penstok.output.layout import WORK
from penstok.output.ledger.lines import UNIT_START, format_line, line_body, renumber_unit
from penstok.output.offsets import TaskTotals  # noqa: TC001 msgspec reads annotations
from penstok.types import Split  # noqa: TC001 msgspec reads annotations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "TASKS",
    "TaskReceipt",
    "choose_receipts",
    "list_receipts",
    "new_attempt",
    "receipt_name",
]

TASKS = f"{WORK}/tasks/"
_NAME = re.compile(r"(?P<task>\d{5,})-(?P<attempt>[0-9a-f]{12})\.jsonl")


@dataclass(frozen=True, slots=True)
class TaskReceipt:
    """A finished task.

    Attributes:
        receipt: The version of this record.
        job: Which job it belongs to: a digest of all that makes it.
        task: Its number.
        attempt: What tells this attempt from others at the same task.
        totals: What it came to.
        num_units: How many units it had.
        digests: For each split, the digest of its shard.
        shards: For each split, where the shard is until the job is finished; the place knows.
        engine: What encoded it.
        node: Who did it.
        seconds: How long that took.
        peak_bytes: How much memory it took.
        num_replaced: How many workers were replaced.
        ledger_bytes: How long its lines for the ledger are.
        ledger: Those lines.
    """

    receipt: int
    job: str
    task: int
    attempt: str
    totals: TaskTotals
    num_units: int
    digests: dict[Split, str]
    shards: dict[Split, dict[str, Any]]
    engine: str = ""
    node: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    num_replaced: int = 0
    ledger_bytes: int = 0
    ledger: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> bytes:
        """Write it."""
        content = asdict(self)
        del content["ledger"]
        totals = content["totals"]
        totals["sources"] = {
            idx: {name: count for name, count in counts.items() if count}
            for idx, counts in totals["sources"].items()
            if any(counts.values())
        }
        content["ledger_bytes"] = len(self.ledger)
        return format_line(content) + self.ledger

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> TaskReceipt:
        """Read it.

        Raises:
            DamageError: If it is not whole.
        """
        end = data.find(b"\n") + 1
        try:
            receipt = _decoder.decode(line_body(data[:end]) or b"")
        except ValueError as error:
            raise _damaged(where, str(error)) from error
        if receipt.receipt != 1 or len(data) != end + receipt.ledger_bytes:
            raise _damaged(where, "it ends too early, or is of another version")
        return replace(receipt, ledger=data[end:])

    def iter_lines(self, first_unit: int, where: str) -> Iterator[bytes]:
        """Yield its lines for the ledger, with units counted on from `first_unit`.

        Raises:
            DamageError: If one is not whole.
        """
        number = first_unit
        for line in self.ledger.splitlines(keepends=True):
            body = line_body(line)
            if body is None:
                raise _damaged(where, "a line is torn or damaged")
            if body.startswith(UNIT_START):
                yield renumber_unit(body, number)
                number += 1
            else:
                yield line
        if number != first_unit + self.num_units:
            raise _damaged(where, "units are missing")


# Made here and not at first use: threads that did so at the same time would crash in msgspec.
_decoder = msgspec.json.Decoder(TaskReceipt)


def new_attempt() -> str:
    """Make the name of an attempt, that no other has."""
    return secrets.token_hex(6)


def receipt_name(task: int, attempt: str) -> str:
    """Return where in the output a receipt is kept."""
    return f"{TASKS}{task:05}-{attempt}.jsonl"


def choose_receipts(names: Iterable[str]) -> dict[int, str]:
    """Choose one receipt for each task; two attempts at a task make the same tokens."""
    chosen: dict[int, str] = {}
    for task, name in list_receipts(names):
        chosen.setdefault(task, name)
    return chosen


def list_receipts(names: Iterable[str]) -> list[tuple[int, str]]:
    """List the tasks that receipts are of, and their names; a task may have several."""
    matches = [(_NAME.fullmatch(name.removeprefix(TASKS)), name) for name in sorted(names)]
    return [(int(match["task"]), name) for match, name in matches if match is not None]


def _damaged(where: str, why: str) -> DamageError:
    return DamageError(
        f"the receipt of a task is damaged: {why}",
        where=where,
        next_step="delete it, then run the same command again: the task is done anew",
    )
