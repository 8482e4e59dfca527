"""The journal of a task: a line per finished unit, and a last line when the task is complete.

The process that runs the task writes it; a thread syncs tokens and lines about once a second. It
decides nothing about resuming: `jobs.resume` reads interrupted journals, and `jobs.commit` joins
finished ones into the ledger.

    {"format": "penstok ledger", ...}  what affects token bytes, as in the ledger
    {"task": 3}                        only if each task writes its own shards
    {"input": 7, ...}
    {"unit": 0, ...}                   units are counted from 0
    {"done": 1, "task": 3, ...}        totals and shard locations, only if each task writes its own
"""

from __future__ import annotations

import re
import secrets
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import to_builtins

from penstok.errors import DamageError
from penstok.faults import fault_point
from penstok.output.documents import StagedIndex  # noqa: TC001 msgspec reads annotations
from penstok.output.ledger.lines import (
    UNIT_START,
    format_line,
    format_unit,
    line_body,
    renumber_unit,
)
from penstok.output.offsets import TaskTotals  # noqa: TC001 msgspec reads annotations
from penstok.output.store.base import TASKS
from penstok.quantities import plural
from penstok.types import Split, Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from penstok.output.ledger.lines import InputLines
    from penstok.output.ledger.reader import Digests
    from penstok.output.store.base import JournalFile, TaskFiles
    from penstok.types import FinishedUnit

__all__ = [
    "FinishedJournal",
    "Journal",
    "NodeTotals",
    "TaskRecord",
    "choose_journals",
    "list_journals",
    "new_attempt",
]

_NAME = re.compile(r"(?P<task>\d{5,})-(?P<attempt>[0-9a-f]{12})\.jsonl")
_DONE_START = b'{"done":'
_SYNC_SECONDS = 1.0
_SYNC_BYTES = 64 << 20
# The run waits when more than this is written but not on disk, so that little is left to sync after
# a Ctrl-C, and the machine's memory does not fill with dirty pages on a slow disk.
_MAX_UNSYNCED_BYTES = 256 << 20
# The least that a unit counts: its record is held in memory until it is written, however few tokens
# it has, and millions of tiny inputs are encoded faster than their lines are written.
_LEAST_UNIT_BYTES = 16 << 10


class TaskRecord(Struct, frozen=True):
    """A task whose tokens are all written and durable.

    Attributes:
        done: The version of this record.
        job: The digest of the job that the task belongs to.
        task: Its number.
        totals: Its totals.
        num_units: How many units it has.
        digests: Per split, the digest of its shard; empty if one task writes all files.
        shards: Per split, where the files are until the commit; only the store reads it.
        indexes: Per split, the document index of each file.
        engine: The engine that encoded it.
        node: The machine that ran it.
        seconds: How long it took.
        peak_bytes: The most memory it used.
        num_replaced: How many workers were replaced.
    """

    done: int
    job: str
    task: int
    totals: TaskTotals
    num_units: int
    digests: dict[Split, str]
    shards: dict[Split, dict[str, Any]]
    indexes: dict[Split, list[StagedIndex]] = field(default_factory=dict)
    engine: str = ""
    node: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    num_replaced: int = 0

    def to_line(self) -> bytes:
        """Format the last line of a journal."""
        content = to_builtins(self)
        totals = content["totals"]
        totals["sources"] = {
            idx: {name: count for name, count in counts.items() if count}
            for idx, counts in totals["sources"].items()
            if any(counts.values())
        }
        return format_line(content)


class NodeTotals(Struct):
    """The totals of the tasks of one node; `seconds` is the sum over its cores."""

    name: str
    tasks: int = 0
    text_bytes: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, record: TaskRecord) -> None:
        """Add a task."""
        counts = record.totals.counts
        self.tasks += 1
        self.text_bytes += counts.text_bytes
        self.tokens += counts.tokens
        self.seconds = round(self.seconds + record.seconds, 3)

    @property
    def rate(self) -> float:
        """Bytes of text per second per core."""
        return self.text_bytes / self.seconds if self.seconds else 0.0


# Created here, not at first use: two threads doing that at the same time would crash in msgspec.
_decoder = msgspec.json.Decoder(TaskRecord)


class FinishedJournal(Struct, frozen=True):
    """A complete journal: its record, and its lines for the ledger.

    Attributes:
        record: The totals of the task.
        where: Its name, for messages.
        open_lines: Returns its lines, including the first and the last.
    """

    record: TaskRecord
    where: str
    open_lines: Callable[[], Iterable[bytes]]

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> FinishedJournal:
        """Read the journal of a task.

        Raises:
            DamageError: If it is not complete.
        """
        lines = data.splitlines(keepends=True)
        body = line_body(lines[-1]) if lines else None
        if body is None or not body.startswith(_DONE_START):
            raise _damaged(where, "its last line is missing or damaged")
        try:
            record = _decoder.decode(body)
        except ValueError as error:
            raise _damaged(where, str(error)) from error
        if record.done != 1:
            raise _damaged(where, f"it has version {record.done}; this penstok reads version 1")
        return cls(record, where, lambda: lines)

    def iter_lines(self, first_unit: int) -> Iterator[bytes]:
        """Yield its lines for the ledger, with units numbered from `first_unit`.

        Raises:
            DamageError: If a line is damaged or missing.
        """
        number = first_unit
        for idx, line in enumerate(self.open_lines()):
            body = line_body(line)
            if body is None:
                raise _damaged(self.where, f"line {idx + 1} is incomplete or damaged")
            if body.startswith(UNIT_START):
                yield renumber_unit(body, number) if first_unit else line
                number += 1
            elif idx > 0 and not body.startswith(_DONE_START):
                yield line
        if number != first_unit + self.record.num_units:
            raise _damaged(
                self.where,
                f"it has {number - first_unit:,} of {plural(self.record.num_units, 'unit')}",
            )


class Journal:
    """The journal of a running task; leaving its `with` block records all appended units.

    Attributes:
        num_units: How many units it has.
        tokens: Per split, how many tokens are written, including those of earlier runs.
        digests: The digests of the files.
        is_complete: Whether it has its last line; from then on its tokens must not be deleted.
    """

    def __init__(
        self,
        file: JournalFile,
        files: TaskFiles,
        inputs: InputLines,
        digests: Digests,
        *,
        first_lines: bytes,
        num_units: int,
        tokens: dict[Split, int],
        token_bytes: int,
        drop_cache: bool,
    ) -> None:
        """Continue after what an earlier run recorded.

        Args:
            file: The journal file, open for appending.
            files: Makes tokens durable.
            inputs: Formats the line of each input, which precedes its first unit.
            digests: The digests of the files so far.
            first_lines: The first lines of a new journal; empty when continuing one.
            num_units: How many units are recorded.
            tokens: Per split, how many tokens the recorded units have.
            token_bytes: The size of a token.
            drop_cache: Whether to drop synced tokens from the page cache.
        """
        self.num_units: int = num_units
        self.tokens: dict[Split, int] = dict(tokens)
        self.digests = digests
        self.is_complete: bool = False
        self._file = file
        self._files = files
        self._inputs = inputs
        self._first_lines = first_lines
        self._token_bytes = token_bytes
        self._drop_cache = drop_cache
        self._pending: list[FinishedUnit] = []
        self._unsynced_bytes = 0
        self._is_closing = False
        self._failure: BaseException | None = None
        self._changed = Condition()
        self._thread = Thread(target=self._run, daemon=True, name="journal")

    def __enter__(self) -> Journal:
        if self._first_lines:
            self._file.append(self._first_lines)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record what is pending; an error that is already being raised takes precedence."""
        try:
            self._stop()
        finally:
            self._file.close()
        if error is None:
            self._raise_failure()

    def append(self, finished: FinishedUnit) -> None:
        """Add a unit whose tokens are written; units must come in order."""
        self.digests.add(finished.written)
        self.num_units += 1
        for segment in finished.written.segments:
            self.tokens[segment.split] += segment.num_tokens
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or self._unsynced_bytes < _MAX_UNSYNCED_BYTES
            )
            self._raise_failure()
            self._pending.append(finished)
            num_bytes = finished.encoded.counts.tokens * self._token_bytes
            self._unsynced_bytes += max(num_bytes, _LEAST_UNIT_BYTES)
            self._changed.notify_all()

    def finish(self, last_line: bytes) -> None:
        """Record pending units, then the inputs without units, then `last_line`."""
        self._stop()
        self._raise_failure()
        self._file.append(b"".join([*self._inputs.rest(), last_line]))
        self.is_complete = True
        self._file.finish()

    def _stop(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        is_last = False
        while not is_last:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_closing or self._unsynced_bytes >= _SYNC_BYTES, _SYNC_SECONDS
                )
                units, self._pending = self._pending, []
                num_bytes, is_last = self._unsynced_bytes, self._is_closing
            try:
                self._record(units)
            except BaseException as error:  # noqa: BLE001 the thread's boundary: raised by `append`
                # Nothing may be recorded after this: the system drops pages that it could not write
                # to disk, and reports that only once.
                self._failure, is_last = error, True
            with self._changed:
                self._unsynced_bytes -= num_bytes
                self._changed.notify_all()

    def _record(self, units: list[FinishedUnit]) -> None:
        if not units:
            return
        files = {
            (segment.split, segment.shard) for unit in units for segment in unit.written.segments
        }
        fault_point("tokens not on disk")
        self._files.sync(files, drop_cache=self._drop_cache)
        fault_point("tokens on disk")
        lines: list[bytes] = []
        for unit in units:
            lines += [*self._inputs.before(unit.unit), format_unit(unit)]
        self._file.append(b"".join(lines))


def new_attempt() -> str:
    """Return a unique name for an attempt at a task."""
    return secrets.token_hex(6)


def choose_journals(names: Iterable[str]) -> dict[int, str]:
    """Choose one finished journal per task; all attempts at a task write the same tokens."""
    chosen: dict[int, str] = {}
    for task, name in list_journals(names):
        chosen.setdefault(task, name)
    return chosen


def list_journals(names: Iterable[str]) -> list[tuple[int, str]]:
    """List the finished journals as (task, name); a task may have several."""
    matches = [(_NAME.fullmatch(name.removeprefix(TASKS)), name) for name in sorted(names)]
    return [(int(match["task"]), name) for match, name in matches if match is not None]


def _damaged(where: str, why: str) -> DamageError:
    return DamageError(
        f"the journal of a task is damaged: {why}",
        where=where,
        next_step="delete this file, then run the job or its part again: it repeats the task",
    )
