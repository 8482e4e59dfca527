"""A job on one machine whose workers encode nothing: what the parent costs a unit.

`run_job` is real from its first line to its last: plan, order of batches, offsets, ledger,
checkpoints, store and manifest. Only the inputs are made up, and the executor: it answers for its
workers at once, in random order, and no message passes through a pipe. The tokens are zeros that
are never written (the files are sparse), so that a run that goes on reads back and proves what the
one before it has recorded.
"""

from __future__ import annotations

import os
import signal
import time
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import xxhash
from made_up import Phases, make_plan, peak_bytes

from penstok.executors.batches import Batch, BatchQueue, iter_batches
from penstok.jobs.progress import SilentProgress
from penstok.jobs.run import run_job
from penstok.jobs.settings import JobSettings
from penstok.output.layout import SEGMENTS
from penstok.types import SPLITS, Counts, EncodedUnit, Segment, WrittenUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from made_up import MadeUpJob

    from penstok.output.offsets import GivesPlaces
    from penstok.types import FinishedUnit, Split, Unit, UnitOffsets
    from penstok.worker.worker import WorkerSpec

# Few, so that all of them fit one file: no file system takes one of 70 TB.
TOKENS: dict[Split, int] = {"train": 1_000, "val": 1}
DOCUMENTS: dict[Split, int] = {"train": 10, "val": 1}
# As many as a machine with 64 cores has under way.
_IN_WORK = 128
_CHECKPOINT_SECONDS = 2.0


def simulate_line(folder: Path, made_up: MadeUpJob, kill_after: float | None) -> dict[str, Any]:
    """Run the job, or begin it and be killed after a share of its units; return what it took."""
    phases = Phases()
    plan = make_plan(made_up)
    executors: list[FakeExecutor] = []

    def make_executor(spec: WorkerSpec, **settings: Any) -> FakeExecutor:
        last = None if kill_after is None else round(made_up.num_units * kill_after)
        executors.append(FakeExecutor(spec, settings["batch_bytes"], last))
        return executors[0]

    settings = JobSettings(inputs=("s3://made-up/crawl/",), output=folder)
    started, cpu = time.monotonic(), time.process_time()
    with (
        mock.patch("penstok.jobs.job.make_plan", return_value=plan),
        mock.patch("penstok.jobs.run.ProcessExecutor", make_executor),
        phases.watch({"penstok.jobs.run.keep_units": "look"}),
    ):
        outcome = run_job(settings, SilentProgress())
    manifest, executor = outcome.manifest, executors[0]
    all_seconds = time.process_time() - cpu
    look_seconds = phases.seen["look"].cpu_seconds
    return {
        "units": made_up.num_units,
        "units_kept": manifest.run["units_kept"],
        "inputs": made_up.num_sources,
        "documents": manifest.counts["documents"],
        "tokens": manifest.counts["tokens"],
        "text_bytes": manifest.counts["input_bytes"],
        "segments_bytes": (folder / SEGMENTS).stat().st_size,
        "cpu_seconds": all_seconds,
        "fake_seconds": executor.fake_seconds,
        "run_seconds": all_seconds - look_seconds - executor.fake_seconds,
        "wall_seconds": time.monotonic() - started,
        "ready_seconds": executor.entered - started,
        "peak_bytes": peak_bytes(),
        "phases": phases.report(),
    }


class FakeExecutor:
    """Answers for all workers at once; batches are encoded and written in random order."""

    def __init__(self, spec: WorkerSpec, batch_bytes: int, kill_at: int | None) -> None:
        self.num_replaced = 0
        self.lengths: Mapping[int, int] = {}
        self.entered = 0.0
        self.fake_seconds = 0.0
        self._layout = spec.layout
        self._batch_bytes = batch_bytes
        self._kill_at = kill_at
        self._rng = Random(0)
        self._digests = {
            split: xxhash.xxh3_128_hexdigest(bytes(count * self._layout.token_bytes))
            for split, count in TOKENS.items()
        }

    def __enter__(self) -> FakeExecutor:
        """Make the files; note when the driver knew what is to do."""
        self.entered = time.monotonic()
        for split in SPLITS:
            path = self._layout.partial_path(split, 0)
            path.touch()
            # A hole of any size reads as zeros.
            os.truncate(path, 1 << 40)
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: there are no processes."""

    def pids(self) -> list[int]:
        """Return nothing: there are no workers."""
        return []

    def expect(self, last: Unit | None) -> None:
        """Do nothing: no input is a stream."""

    def check(self, samples: list[Unit]) -> tuple[int, int]:
        """Foresee one token: the files have holes, and take no room."""
        return sum(unit.source.num_bytes for unit in samples), 1

    def run(
        self, units: Iterable[Unit], offsets: GivesPlaces, on_tick: Callable[[], None]
    ) -> Iterator[FinishedUnit]:
        """Do all units; yield what became of them in unit order."""
        order = BatchQueue(iter_batches(units, self._batch_bytes), offsets)
        waiting: dict[int, Batch] = {}
        encoding: list[Batch] = []
        num_done = next_number = 0
        while True:
            while len(encoding) < _IN_WORK and (batch := order.next_batch()) is not None:
                encoding.append(batch)
            if not encoding:
                return
            batch = self._take(encoding)
            batch.encoded = self._encode(batch)
            waiting[batch.number] = batch
            while (ready := waiting.pop(next_number, None)) is not None and order.can_write(ready):
                ready.written = self._write(ready)
                order.add_done(ready)
                next_number += 1
            on_tick()
            for finished in order.take_done():
                if num_done == self._kill_at:
                    self._die()
                num_done += 1
                yield finished

    def _take(self, encoding: list[Batch]) -> Batch:
        chosen = self._rng.randrange(len(encoding))
        encoding[chosen], encoding[-1] = encoding[-1], encoding[chosen]
        return encoding.pop()

    def _encode(self, batch: Batch) -> list[EncodedUnit]:
        started = time.thread_time()
        encoded = [
            EncodedUnit(
                unit.index,
                Counts(sum(DOCUMENTS.values()), sum(TOKENS.values()), unit.end - unit.start),
                dict(TOKENS),
                dict(DOCUMENTS),
                0,
                carried_special=False,
                open_split=None,
                open_special=False,
            )
            for unit in batch.units
        ]
        self.fake_seconds += time.thread_time() - started
        return encoded

    def _write(self, batch: Batch) -> list[WrittenUnit]:
        started = time.thread_time()
        receipts = [WrittenUnit(grant.unit_idx, self._segments(grant)) for grant in batch.offsets]
        self.fake_seconds += time.thread_time() - started
        return receipts

    def _segments(self, grant: UnitOffsets) -> tuple[Segment, ...]:
        return tuple(
            Segment(split, 0, grant.offsets[split], TOKENS[split], self._digests[split])
            for split in SPLITS
        )

    def _die(self) -> NoReturn:
        """Be killed, but not before a checkpoint was made: it comes every second."""
        time.sleep(_CHECKPOINT_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)
        raise SystemExit(1)
