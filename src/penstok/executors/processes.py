"""Worker processes on this machine: started, fed, monitored and replaced.

It sends units and offsets and receives counts and checksums, never text or tokens. `jobs.task`
passes it units and gets finished units back, both in unit order; `children` starts and ends
processes, and each runs `worker_process`.
"""

from __future__ import annotations

import signal
from collections import deque
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from penstok.engines import name_reference
from penstok.errors import EngineError, PenstokError
from penstok.executors.batches import Batch, BatchQueue, iter_batches
from penstok.executors.children import Child, start_child
from penstok.quantities import plural
from penstok.resources import Resource
from penstok.types import SampleTotals, Struct, field, replace
from penstok.worker.comparison import Comparison, needs_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstok.inputs.feed import Feed
    from penstok.output.layout import Layout
    from penstok.output.offsets import AssignsOffsets
    from penstok.types import FailedTokenizer, FinishedUnit, Priority, Source, Split, Unit
    from penstok.worker.worker import Sample, WorkerSpec

__all__ = ["ProcessExecutor"]

# How many encoded batches a worker may hold while it waits for earlier batches of other workers.
_MAX_WAITING_BATCHES = 2
_MAX_FAILURES = 2
_TICK_SECONDS = 0.2


class _Process(Struct, eq=False):
    """A worker process, and its batches: being encoded, waiting for offsets, being written.

    One of them first compares the engine with the reference on some texts.
    """

    child: Child
    last_request: str = ""
    # Whether a request could not be sent, because the worker is gone.
    is_gone: bool = False
    comparing: Comparison | None = None
    encoding: Batch | None = None
    waiting: list[Batch] = field(default_factory=list)
    writing: deque[Batch] = field(default_factory=deque)
    num_encoded: int = 0

    def batches(self) -> list[Batch]:
        encoding = [] if self.encoding is None else [self.encoding]
        return [*self.writing, *self.waiting, *encoding]

    def find_suspect(self, *, is_reset: bool) -> Batch | None:
        """Return the batch that may have ended the process, if it ended by itself.

        Workers can be killed at the same time. One that has encoded before, and is given a batch of
        another one before it is known to be gone, has not read that request: then the connection is
        reset, or could not be written to.
        """
        is_unread = self.last_request == "encode" and (self.is_gone or is_reset)
        if self.encoding is not None and not (is_unread and self.num_encoded):
            return self.encoding
        return next(iter([*self.writing, *self.waiting]), None)

    def has_room(self) -> bool:
        is_idle = self.encoding is None and self.comparing is None
        return is_idle and len(self.waiting) < _MAX_WAITING_BATCHES


class ProcessExecutor(Resource):
    """Runs workers as processes of this machine; use it in a `with`.

    It starts no more workers than there are batches. A worker that dies is replaced and its units
    are repeated; a unit that kills a worker twice stops the job. A worker that reaches its share of
    memory is replaced the same way.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        num_workers: int,
        batch_bytes: int,
        priority: Priority,
        lock_file: int | None,
        feed: Feed | None = None,
        num_at_start: int = 1,
        advice: str = "",
    ) -> None:
        """Store the settings; workers are started when there is work for them.

        Args:
            spec: Everything needed to create a worker.
            num_workers: The largest number of workers.
            batch_bytes: Units smaller than this are sent together.
            priority: Of their processes.
            lock_file: Workers inherit it, so that it holds until the last of them is gone.
            feed: Reads inputs that can only be read from the start, if there are any; closed here.
            num_at_start: How many are started before it is known how many units there are.
            advice: What to try if a worker fails twice; more memory or another engine if empty.
        """
        self._spec = replace(spec, needs_library=needs_library(spec))
        self._feed = feed
        self._inherited = [] if lock_file is None else [lock_file]
        self._inherited += [] if feed is None else [feed.ring.file.file]
        self._num_workers = num_workers
        self._num_at_start = min(num_at_start, num_workers)
        self._batch_bytes = batch_bytes
        self._priority = priority
        self._advice = advice or _other_ways(spec)
        self._processes: list[_Process] = []
        self._num_failed_comparisons = 0
        self.num_replaced: int = 0
        # Tokenizers of a count whose engines differ from the reference; those of a job stop it.
        self.failed: tuple[FailedTokenizer, ...] = ()

    def close(self) -> None:
        """Stop all workers at once, and the feed."""
        for process in self._processes:
            process.child.stop()
        self._processes.clear()
        if self._feed is not None:
            self._feed.close()

    @property
    def lengths(self) -> Mapping[int, int]:
        """The lengths of streams whose ends have been reached, by input."""
        return {} if self._feed is None else self._feed.lengths

    def change_inputs(self, sources: Sequence[Source]) -> None:
        """Read streams of other inputs from now on; no unit may be in progress."""
        if self._feed is not None:
            self._feed.change_inputs(sources)

    def expect(self, last: Unit | None) -> None:
        """Require that the stream of an earlier run's last unit has the same text up to its end."""
        if self._feed is not None and last is not None and last.passed is not None:
            self._feed.expected[last.source_idx, last.end] = last.passed.digest

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [process.child.pid for process in self._processes]

    def check(self, samples: list[Unit], *, is_beside: bool) -> SampleTotals:
        """Let one worker encode samples, then compare the engine with the reference on them.

        If `is_beside`, the other workers can encode units during the comparison, and `run` returns
        no unit before it has passed. Otherwise it has passed when this returns.

        Returns what the samples have together.
        """
        files = [unit for unit in samples if not unit.source.is_stream]
        seen = list(zip(files, self._encode_samples(files), strict=True))
        # Sampling a stream means decoding it from its start: one is enough.
        for unit in [unit for unit in samples if unit.source.is_stream][:1]:
            filled = None if self._feed is None else self._feed.fill_sample(unit)
            if self._feed is not None and filled is not None:
                seen += zip([filled], self._encode_samples([filled]), strict=True)
                self._feed.release(filled)
        texts = [text for _, sample in seen for text in sample.texts]
        comparison = Comparison.prepare(texts, (self._spec, *self._spec.others))
        self._compare(self._processes[0], comparison)
        if not is_beside:
            self.finish_check()
        num_bytes = sum(unit.stored_bytes(sample.input_bytes) for unit, sample in seen)
        return SampleTotals(
            num_bytes,
            sum(sample.num_tokens for _, sample in seen),
            sum(sample.spool_bytes for _, sample in seen),
        )

    def finish_check(self) -> None:
        """Wait until the comparison with the reference has passed, if one is running."""
        while (process := self._find_comparing()) is not None:
            self._receive_comparison(process)

    def write_to(self, layout: Layout) -> None:
        """Let the workers write to other files from now on; no unit may be in progress."""
        self._spec = replace(self._spec, layout=layout)
        for process in self._processes:
            self._send(process, "layout", layout)

    def find_open_split(self, unit: Unit, unit_bytes: int) -> Split:
        """Let one worker find the split of the document that is open at a unit's start."""
        split: Split = self._ask("open", (unit, unit_bytes))
        return split

    def _encode_samples(self, units: list[Unit]) -> list[Sample]:
        samples: list[Sample] = self._ask("sample", units)
        return samples

    def _compare(self, process: _Process, comparison: Comparison) -> None:
        process.comparing = comparison
        self._send(process, "compare", comparison)

    def _find_comparing(self) -> _Process | None:
        found = (process for process in self._processes if process.comparing is not None)
        return next(found, None)

    def _receive_comparison(self, process: _Process) -> None:
        """Take the answer of the worker that compares; if it has died, a new one repeats it."""
        comparison, process.comparing = process.comparing, None
        if comparison is None:
            return
        try:
            kind, answer = process.child.pipe.recv()
        except (EOFError, OSError):
            failure = _cause_of_death(process)
            self._num_failed_comparisons += 1
            if self._num_failed_comparisons >= _MAX_FAILURES:
                raise self._died_twice(failure) from None
            self._compare(self._restart(process), comparison)
            return
        if kind == "error":
            raise answer
        self.failed += answer or ()

    def _ask(self, kind: str, payload: Any) -> Any:
        """Send a request to one worker and wait for its answer; no unit may be in progress."""
        failure = ""
        while len(self._processes) < self._num_at_start:
            self._add_process()
        for _ in range(_MAX_FAILURES):
            process = self._processes[0]
            self._send(process, kind, payload)
            try:
                answered, answer = process.child.pipe.recv()
            except (EOFError, OSError):
                failure = _cause_of_death(process)
                self._restart(process)
                continue
            if answered == "error":
                raise answer
            return answer
        raise self._died_twice(failure)

    def _died_twice(self, failure: str) -> EngineError:
        return EngineError(
            f"a worker died twice during startup: {failure}",
            where=f"engine `{self._spec.engine}`",
            next_step=self._advice,
        )

    def run(
        self, units: Iterable[Unit], offsets: AssignsOffsets, on_tick: Callable[[], None]
    ) -> Iterator[FinishedUnit]:
        """Encode and write all units; yield finished units in unit order.

        None is yielded before the comparison with the reference has passed: what is not yielded is
        not in the journal, so no later run takes it for good.

        Args:
            units: In output order; with a feed, its thread iterates over them.
            offsets: Assigns each unit its offsets.
            on_tick: Called several times a second.
        """
        filled = units if self._feed is None else self._feed.iter_filled(units)
        queue = BatchQueue(iter_batches(filled, self._batch_bytes), offsets)
        while True:
            self._send_batches(queue)
            is_comparing = self._find_comparing() is not None
            is_idle = not any(process.batches() for process in self._processes)
            if queue.is_exhausted and is_idle and not is_comparing:
                return
            for process in self._ready(queue):
                if process.comparing is None:
                    self._receive(process, queue)
                else:
                    self._receive_comparison(process)
            self._send_offsets(queue)
            on_tick()
            if self._find_comparing() is not None:
                continue
            for finished in queue.take_done():
                if self._feed is not None:
                    self._feed.release(finished.unit)
                yield finished

    def _send_batches(self, queue: BatchQueue) -> None:
        """Send every worker that has room a batch; start workers while batches are left.

        None is started for the units of a small job, which the worker that compares can do next.
        """
        for process in self._processes:
            if process.has_room() and (batch := queue.next_batch()) is not None:
                self._encode(process, batch)
        if self._find_comparing() is not None:
            return
        while len(self._processes) < self._num_workers and (batch := queue.next_batch()):
            self._encode(self._add_process(), batch)

    def _encode(self, process: _Process, batch: Batch) -> None:
        process.encoding = batch
        self._send(process, "encode", batch.units)

    def _add_process(self) -> _Process:
        self._processes.append(self._start())
        return self._processes[-1]

    def _ready(self, queue: BatchQueue) -> list[_Process]:
        """Wait until a worker answers or dies, a unit is ready, or a tick has passed."""
        # If no worker has room, units that are ready must not end the wait: it would spin.
        has_room = len(self._processes) < self._num_workers
        has_room = has_room or any(map(_Process.has_room, self._processes))
        wants_units = has_room and not queue.is_exhausted
        by_pipe = {id(process.child.pipe): process for process in self._processes}
        feeds = [self._feed.wake_file] if self._feed is not None and wants_units else []
        ready = wait([*(process.child.pipe for process in self._processes), *feeds], _TICK_SECONDS)
        return [by_pipe[id(pipe)] for pipe in ready if id(pipe) in by_pipe]

    def _receive(self, process: _Process, queue: BatchQueue) -> None:
        try:
            kind, answer = process.child.pipe.recv()
        except (EOFError, OSError) as error:
            suspect = process.find_suspect(is_reset=isinstance(error, ConnectionResetError))
            self._replace(process, queue, suspect, _cause_of_death(process))
            return
        if kind == "error":
            raise answer
        if kind == "full":
            suspect = None if process.num_encoded else process.find_suspect(is_reset=False)
            self._replace(process, queue, suspect, "it needs too much memory")
        elif kind == "encode" and process.encoding is not None:
            if process.encoding.offsets and answer != process.encoding.encoded:
                raise _differs(process.encoding)
            process.encoding.encoded = answer
            process.num_encoded += 1
            process.waiting.append(process.encoding)
            process.encoding = None
        else:
            batch = process.writing.popleft()
            batch.written = answer
            queue.add_done(batch)

    def _send_offsets(self, queue: BatchQueue) -> None:
        """Let workers write the batches that have their offsets."""
        waiting = [(batch, process) for process in self._processes for batch in process.waiting]
        for batch, process in sorted(waiting, key=lambda pair: pair[0].number):
            if queue.can_write(batch):
                process.waiting.remove(batch)
                process.writing.append(batch)
                self._send(process, "write", batch.offsets)

    def _replace(
        self, process: _Process, queue: BatchQueue, suspect: Batch | None, failure: str
    ) -> None:
        """Replace a worker that is gone; its batches are repeated."""
        if suspect is not None:
            suspect.num_failures += 1
            if suspect.num_failures >= _MAX_FAILURES:
                raise _failed_twice(suspect, failure, self._advice)
        queue.take_back(process.batches())
        self._restart(process)

    def _restart(self, process: _Process) -> _Process:
        process.child.stop()
        place = self._processes.index(process)
        self._processes[place] = self._start()
        self.num_replaced += 1
        return self._processes[place]

    def _start(self) -> _Process:
        ring = None if self._feed is None else self._feed.ring.file
        spec = replace(self._spec, ring=ring)
        return _Process(start_child(spec, self._priority, self._inherited))

    def _send(self, process: _Process, kind: str, payload: Any) -> None:
        """Send a request; if the worker has died, the next receive reports it."""
        process.last_request = kind
        try:
            process.child.pipe.send((kind, payload))
        except ConnectionError:
            process.is_gone = True


def _other_ways(spec: WorkerSpec) -> str:
    reference = name_reference(spec.tokenizer)
    other = "auto" if spec.engine == reference else reference
    return f"pass more `--memory` or `--engine {other}`; if that does not help, report it"


def _cause_of_death(process: _Process) -> str:
    code = process.child.wait()
    if code >= 0:
        return f"it exited with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"it was killed by {name}" + (", perhaps for lack of memory" if code == -9 else "")


def _failed_twice(batch: Batch, failure: str, next_step: str) -> PenstokError:
    first, last = batch.units[0], batch.units[-1]
    where = first.where
    if last is not first:
        where += f", or in the {plural(len(batch.units) - 1, 'input')} after it"
    return EngineError(
        f"a worker failed twice on the same text: {failure}",
        where=where,
        next_step=next_step,
    )


def _differs(batch: Batch) -> PenstokError:
    first = batch.units[0]
    return EngineError(
        "the same text gave different counts when it was encoded again",
        where=replace(first, end=batch.units[-1].end).where,
        next_step="make sure that nothing writes to the inputs, then run the same command again",
    )
