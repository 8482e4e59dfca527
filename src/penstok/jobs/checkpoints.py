"""Makes finished units last: their tokens to disk, then their ledger lines, every second or so.

A thread does it, so that nobody waits for the disk but a run that is too far ahead of it. It reads
nothing back; `ledger_lines` knows the lines, the store pushes the data. After a kill, what was not
recorded yet is done again: a second or two of work, however large the corpus is.
"""

from __future__ import annotations

import os
from threading import Condition, Thread
from typing import TYPE_CHECKING

from penstok.faults import fault_point
from penstok.output.ledger.lines import InputLines, format_ending, format_job, format_unit
from penstok.output.segments import write_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from penstok.jobs.resume import Kept
    from penstok.output.ledger.lines import Ending
    from penstok.output.ledger.reader import Digests
    from penstok.output.store.local import Store
    from penstok.types import Finished, Source

__all__ = ["Checkpoints"]

_SYNC_SECONDS = 1.0
_SYNC_BYTES = 64 << 20
# More than this is never written without being on disk: on a slow disk the run waits here, so that
# a Ctrl-C has little left to push out and the machine's memory does not fill with unwritten pages.
_MAX_UNSYNCED_BYTES = 256 << 20
# What a unit counts at the least: it is held here until it is recorded, however few tokens it has.
# Millions of tiny inputs come faster than their lines are written.
_LEAST_UNIT_BYTES = 16 << 10


class Checkpoints:
    """An open ledger; use it in a `with`, whose end records all that was appended."""

    def __init__(
        self,
        store: Store,
        sources: Sequence[Source],
        kept: Kept,
        *,
        give_back: bool,
    ) -> None:
        """Go on behind what was kept.

        Args:
            store: Pushes data to disk.
            sources: The inputs; one is recorded before its first unit.
            kept: The job, and what an earlier run recorded of it.
            give_back: Give the pages of what is on disk back to the system.
        """
        self.num_units = kept.num_units
        self.digests: Digests = kept.digests
        self._store = store
        self._job = kept.job
        self._inputs = InputLines(sources, kept.num_inputs)
        self._valid_bytes = kept.ledger_bytes
        self._token_bytes = 2 if kept.job.dtype == "uint16" else 4
        self._give_back = give_back
        self._pending: list[Finished] = []
        self._unsynced_bytes = 0
        self._is_closing = False
        self._failure: BaseException | None = None
        self._changed = Condition()
        self._thread = Thread(target=self._run, daemon=True, name="checkpoints")

    def __enter__(self) -> Checkpoints:
        path = self._store.ledger
        with write_errors(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(path, flags, 0o644)
            # What stands behind is torn, or the ending of a job that goes on now.
            os.ftruncate(self._file, self._valid_bytes)
            os.lseek(self._file, 0, os.SEEK_END)
        if not self._valid_bytes:
            self._write(format_job(self._job))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record what is left; an error that is on its way already goes first."""
        try:
            self._stop()
        finally:
            os.close(self._file)
        if error is None:
            self._raise_failure()

    def append(self, finished: Finished) -> None:
        """Take a unit whose tokens are written; units must come in order."""
        self.digests.add(finished.receipt)
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or self._unsynced_bytes < _MAX_UNSYNCED_BYTES
            )
            self._raise_failure()
            self._pending.append(finished)
            num_bytes = finished.encoded.counts.tokens * self._token_bytes
            self._unsynced_bytes += max(num_bytes, _LEAST_UNIT_BYTES)
            self._changed.notify_all()

    def finish(self, ending: Ending) -> None:
        """Record all that is left, and the end of the job."""
        self._stop()
        self._raise_failure()
        lines = [*self._inputs.rest(), format_ending(ending)]
        self._write(b"".join(lines))

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
            except BaseException as error:  # noqa: BLE001 the thread's border: nobody else hears it
                # Nothing may be recorded any more: the system drops what it could not write, and
                # reports that only once.
                self._failure, is_last = error, True
            with self._changed:
                self._unsynced_bytes -= num_bytes
                self._changed.notify_all()

    def _record(self, units: list[Finished]) -> None:
        if not units:
            return
        files = {
            (segment.split, segment.shard) for unit in units for segment in unit.receipt.segments
        }
        fault_point("tokens not on disk")
        self._store.sync(files, give_back=self._give_back)
        fault_point("tokens on disk")
        lines: list[bytes] = []
        for unit in units:
            lines += [*self._inputs.before(unit.unit), format_unit(unit)]
        self._write(b"".join(lines))
        self.num_units += len(units)

    def _write(self, lines: bytes) -> None:
        with write_errors(self._store.ledger):
            middle = len(lines) // 2
            _write_all(self._file, lines[:middle])
            fault_point("ledger line torn")
            _write_all(self._file, lines[middle:])
            fault_point("ledger not on disk")
            os.fsync(self._file)
            fault_point("ledger on disk")


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
