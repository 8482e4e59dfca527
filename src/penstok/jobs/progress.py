"""How far a job is: counters in, one line out.

It prints nothing: `cli.progress` does. The pipeline updates it a few times a second.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from penstok.quantities import format_bytes, format_count, format_seconds
from penstok.worker.memory import tree_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from penstok.jobs.plan import Plan
    from penstok.output.offsets import Offsets
    from penstok.types import Unit

__all__ = [
    "Meter",
    "Progress",
    "Showable",
    "SilentProgress",
    "Status",
    "Watch",
    "seconds_left",
]

_TICK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Status:
    """A running job at one moment; what is `kept` was done by an earlier run.

    Bytes that are done, kept and in all are those of the input as it is stored, `text_bytes` those
    of its text. How many units there are, only reading tells where an input is a stream.
    """

    elapsed_seconds: float
    done_bytes: int
    kept_bytes: int
    total_bytes: int
    text_bytes: int
    kept_text_bytes: int
    num_units_done: int
    num_units: int | None
    num_tokens: int
    kept_tokens: int
    num_documents: int
    memory_bytes: int

    @property
    def fraction(self) -> float:
        """How much of the input is done, from 0 to 1."""
        return min(self.done_bytes / self.total_bytes, 1.0) if self.total_bytes else 1.0

    def line(self) -> str:
        """Say it in one line."""
        seconds = max(self.elapsed_seconds, 1e-6)
        left = seconds_left(self.done_bytes, self.kept_bytes, self.total_bytes, seconds)
        of_all = "" if self.num_units is None else f"/{self.num_units}"
        is_known = self.total_bytes > 0
        return "  ".join(
            (
                f"{self.fraction:4.0%}" if is_known else format_bytes(self.text_bytes),
                f"{format_bytes((self.text_bytes - self.kept_text_bytes) / seconds)}/s",
                f"{format_count((self.num_tokens - self.kept_tokens) / seconds)} tok/s",
                f"{self.num_units_done}{of_all} units",
                f"memory {format_bytes(self.memory_bytes)}",
                f"ETA {format_seconds(left) if is_known and left is not None else '?'}",
            )
        )


def seconds_left(done: int, kept: int, total: int, seconds: float) -> float | None:
    """Tell how long the rest takes, if what is not `kept` took so long; None if nobody can tell."""
    rate = (done - kept) / seconds
    return max(total - done, 0) / rate if rate else None


class Showable(Protocol):
    """What is shown of a running job: a `Status`, or that of a job of tasks."""

    @property
    def elapsed_seconds(self) -> float:
        """How long it runs."""
        ...

    @property
    def fraction(self) -> float:
        """How much of the input is done, from 0 to 1."""
        ...

    def line(self) -> str:
        """Say it in one line."""
        ...


class Progress(Protocol):
    """Shows a running job; used in a `with` around the run."""

    def __enter__(self) -> Progress: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def update(self, status: Showable) -> None:
        """Show the newest state."""
        ...


class SilentProgress:
    """Shows nothing."""

    def __enter__(self) -> SilentProgress:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def update(self, status: Showable) -> None:
        """Do nothing."""


class Meter:
    """Counts what is done of work that is not a job: what verify reads, proves and repairs."""

    def __init__(self, progress: Progress, total_bytes: int, num_units: int) -> None:
        self.done_bytes = 0
        self.num_units_done = 0
        self.num_tokens = 0
        self.num_documents = 0
        self._progress = progress
        self._total_bytes = total_bytes
        self._num_units = num_units
        self._started = time.monotonic()
        self._next = 0.0

    def tick(self, pids: Iterable[int] = ()) -> None:
        """Show where it is, unless it was shown just now."""
        elapsed = time.monotonic() - self._started
        if elapsed < self._next:
            return
        self._next = elapsed + _TICK_SECONDS
        self._progress.update(
            Status(
                elapsed_seconds=elapsed,
                done_bytes=self.done_bytes,
                kept_bytes=0,
                total_bytes=self._total_bytes,
                text_bytes=self.done_bytes,
                kept_text_bytes=0,
                num_units_done=self.num_units_done,
                num_units=self._num_units,
                num_tokens=self.num_tokens,
                kept_tokens=0,
                num_documents=self.num_documents,
                memory_bytes=tree_bytes(pids),
            )
        )


class Watch:
    """Looks at the running job a few times a second: progress and memory."""

    def __init__(self, progress: Progress, plan: Plan, offsets: Offsets) -> None:
        self.peak_bytes = 0
        self.work_seconds = 0.0
        self._progress = progress
        self._offsets = offsets
        self._total_bytes = plan.input_bytes
        self._num_units = plan.num_units
        self._sizes = [0, *accumulate(source.num_bytes for source in plan.sources)]
        self._num_units_done = 0
        self._done_bytes = self._kept_bytes = 0
        self._started = 0.0
        self._next = 0.0
        self._kept = offsets.counts

    def start(self, last: Unit | None) -> None:
        """Start the clock: the workers are ready, the work begins behind the `last` unit done."""
        self._started = time.monotonic()
        self._kept = self._offsets.counts
        if last is not None:
            self.add(last)
            self._kept_bytes = self._done_bytes

    def add(self, unit: Unit) -> None:
        """Note that a unit is done, and all before it."""
        self._num_units_done = unit.index + 1
        self._done_bytes = self._sizes[unit.source_idx] + unit.stored_end

    @property
    def work_bytes(self) -> int:
        """How much text was done since the start."""
        return self._offsets.counts.input_bytes - self._kept.input_bytes

    def tick(self, pids: list[int], *, now: bool = False) -> None:
        """Show where the job is, unless it was shown just now."""
        self.work_seconds = elapsed = time.monotonic() - self._started
        if elapsed < self._next and not now:
            return
        self._next = elapsed + _TICK_SECONDS
        memory_bytes = tree_bytes(pids)
        self.peak_bytes = max(self.peak_bytes, memory_bytes)
        counts = self._offsets.counts
        self._progress.update(
            Status(
                elapsed_seconds=elapsed,
                done_bytes=self._done_bytes,
                kept_bytes=self._kept_bytes,
                total_bytes=self._total_bytes,
                text_bytes=counts.input_bytes,
                kept_text_bytes=self._kept.input_bytes,
                num_units_done=self._num_units_done,
                num_units=self._num_units,
                num_tokens=counts.tokens,
                kept_tokens=self._kept.tokens,
                num_documents=counts.documents,
                memory_bytes=memory_bytes,
            )
        )
