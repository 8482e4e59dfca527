"""From the receipts of all tasks to a finished job: one ledger, final names, the manifest last.

It reads receipts in the order of the tasks, sixteen at a time; no token passes through it. Killed
anywhere, it can be run again. `distributed` calls it when all tasks are done.
"""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstok.errors import ConflictError, LockedError
from penstok.faults import fault_point
from penstok.jobs.job_files import read_job_file
from penstok.jobs.plan import nothing_found
from penstok.jobs.receipts import TASKS, TaskReceipt, choose_receipts
from penstok.output.layout import MANIFEST, SEGMENTS, SKIPPED, WORK, Layout, is_final_name
from penstok.output.ledger.lines import (
    INPUT_START,
    Ending,
    format_ending,
    format_job,
    line_body,
    read_input,
    read_unit,
)
from penstok.output.ledger.reader import list_skipped, list_skipped_inputs
from penstok.output.manifest import make_manifest
from penstok.output.offsets import Offsets
from penstok.output.store.base import LostShardError
from penstok.types import SPLITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstok.jobs.job_files import JobFile
    from penstok.output.manifest import Manifest
    from penstok.output.store.base import Place, Shard
    from penstok.types import Source, Split

__all__ = ["Sums", "drop_lost", "finish_job", "iter_receipts", "tidy_finished"]

# Receipts that are fetched ahead: from an object store each takes some hundredths of a second.
_AHEAD = 16
# Only as a name: in a text the quotes would be escaped.
_HAS_SKIPPED = b'"skipped":['
# What an older job left, while it is deleted.
_OLDER = f"{WORK}/older"


@dataclass(slots=True)
class NodeSums:
    """What one node did."""

    tasks: int = 0
    text_bytes: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Sums:
    """What the receipts come to, one after the other."""

    offsets: Offsets = field(default_factory=Offsets)
    num_units: int = 0
    num_tasks: int = 0
    num_replaced: int = 0
    peak_bytes: int = 0
    seconds: float = 0.0
    engines: set[str] = field(default_factory=set)
    nodes: dict[str, NodeSums] = field(default_factory=dict)
    starts: dict[Split, list[int]] = field(default_factory=lambda: {each: [] for each in SPLITS})
    digests: dict[tuple[Split, int], str] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    def add(self, receipt: TaskReceipt) -> None:
        """Add the next task."""
        for split in SPLITS:
            self.starts[split].append(self.offsets.tokens[split])
            self.digests[split, receipt.task] = receipt.digests[split]
        self.offsets.add_task(receipt.totals)
        self.num_tasks += 1
        self.num_units += receipt.num_units
        self.num_replaced += receipt.num_replaced
        self.peak_bytes = max(self.peak_bytes, receipt.peak_bytes)
        self.seconds += receipt.seconds
        self.engines.add(receipt.engine)
        node = self.nodes.setdefault(receipt.node, NodeSums())
        node.tasks += 1
        node.text_bytes += sum(each.input_bytes for each in receipt.totals.sources.values())
        node.tokens += sum(receipt.totals.tokens.values())
        node.seconds += receipt.seconds

    def of(self, split: Split, shard: int) -> str:
        """Return the digest of a shard."""
        return self.digests[split, shard]


def iter_receipts(place: Place, chosen: Mapping[int, str], job: str) -> Iterator[TaskReceipt]:
    """Read the receipts of tasks in order, some ahead.

    Args:
        place: Where they are.
        chosen: The name of each, by task.
        job: The digest of the job that they must belong to.

    Raises:
        ConflictError: If one belongs to another job.
        DamageError: If one is damaged.
    """

    def fetch(name: str) -> TaskReceipt:
        data, where = place.read(name), f"{place.name}/{name}"
        receipt = TaskReceipt.from_bytes(data or b"", where)
        if receipt.job != job:
            raise ConflictError(
                "this task was done for another job",
                where=where,
                next_step="delete it, then run the same command again: the task is done anew",
            )
        return receipt

    names = deque(name for _, name in sorted(chosen.items()))
    waiting: deque[Future[TaskReceipt]] = deque()
    with ThreadPoolExecutor(_AHEAD) as pool:
        while names or waiting:
            while names and len(waiting) < _AHEAD:
                waiting.append(pool.submit(fetch, names.popleft()))
            yield waiting.popleft().result()


def drop_lost(place: Place, layout: Layout, chosen: dict[int, str], job: str) -> None:
    """Forget receipts whose tokens are gone: their tasks are done anew."""
    of_shard: dict[str, int] = {}

    def shards(names: Mapping[int, str]) -> Iterator[tuple[str, Shard, int]]:
        # One at a time: a petabyte of objects is tens of millions of parts, which shards name.
        for receipt in iter_receipts(place, names, job):
            for name, shard, num_bytes in _shards(layout, receipt):
                of_shard[name] = receipt.task
                yield name, shard, num_bytes

    doubtful = dict(chosen)
    while doubtful:
        lost = {of_shard[name] for name in place.find_lost(shards(doubtful))}
        place.delete([chosen.pop(task) for task in sorted(lost)])
        # Another attempt at the same task may be whole.
        others = choose_receipts(place.iter_names(TASKS)) if lost else {}
        doubtful = {task: others[task] for task in lost if task in others}
        chosen |= doubtful


def finish_job(
    place: Place,
    job: JobFile,
    chosen: Mapping[int, str],
    make_run: Callable[[Sums], dict[str, Any]],
) -> Manifest:
    """Make the job exist: its ledger, its shards under their names, then the manifest.

    An older output under these names goes first, its manifest before all else.

    Args:
        place: Where everything is.
        job: The job.
        chosen: The receipt of every task.
        make_run: Says how it ran, for the manifest.

    Raises:
        LostShardError: If the tokens of a task are gone; its receipt is dropped.
        InputError: If there is no document in any input.
    """
    layout = Layout.of_job(place.name, job.job)
    if place.read(MANIFEST) is not None:
        _look_at_all(place, chosen, job.digest)
    _delete_older(place, layout, job.num_tasks)
    sums, endings = Sums(), list[Ending]()

    def lines() -> Iterator[bytes]:
        yield format_job(job.job)
        for receipt in iter_receipts(place, chosen, job.digest):
            for line in receipt.iter_lines(sums.num_units, chosen[receipt.task]):
                _note_input(line, sums)
                yield line
            sums.add(receipt)
        endings.append(Ending(make_run(sums), job.skipped))
        yield format_ending(endings[0])

    place.write_lines(SEGMENTS, lines())
    fault_point("ledger of tasks joined")
    manifest = make_manifest(
        job=job.job,
        sources=sums.sources,
        offsets=sums.offsets,
        digests=sums,
        ending=endings[0],
        starts=sums.starts,
    )
    _refuse_nothing(place, sums, [SEGMENTS])
    _publish(place, layout, chosen, job.digest)
    if manifest.counts["skipped_records"]:
        place.write_lines(SKIPPED, _iter_skipped(place, chosen, job, sums.sources))
    place.write(MANIFEST, manifest.to_json().encode())
    fault_point("manifest of tasks written")
    place.tidy()
    return manifest


def tidy_finished(place: Place, manifest: Manifest) -> None:
    """Delete what a run that was killed at its very end left beside its finished job.

    What another job has begun here, to overwrite it, stays.
    """
    left = next(place.iter_names(f"{WORK}/"), None)
    job = read_job_file(place)
    if left is None or (job is not None and not job.has_made(manifest)):
        return
    # If another run has the lock, it does this itself.
    with contextlib.suppress(LockedError), place.lock():
        place.tidy()


def _publish(place: Place, layout: Layout, chosen: Mapping[int, str], job: str) -> None:
    """Give all shards their names; where one is gone, its task must be done again."""
    receipts = iter_receipts(place, chosen, job)
    try:
        place.publish(shard for receipt in receipts for shard in _shards(layout, receipt))
    except LostShardError:
        drop_lost(place, layout, dict(chosen), job)
        raise


def _shards(layout: Layout, receipt: TaskReceipt) -> Iterator[tuple[str, Shard, int]]:
    for split in SPLITS:
        num_bytes = receipt.totals.tokens[split] * layout.token_bytes
        yield layout.file_name(split, receipt.task), receipt.shards[split], num_bytes


def _delete_older(place: Place, layout: Layout, num_tasks: int) -> None:
    """Delete what an older job left under final names, its manifest first.

    They are written down before: after a kill in the middle they can be told from files of somebody
    else, and from those of this job.

    Raises:
        ConflictError: If a name that a job would use is taken by somebody else's file.
    """
    names = [name for name in place.iter_names("") if is_final_name(name)]
    older = (place.read(_OLDER) or b"").decode().split()
    if MANIFEST in names:
        older = sorted(names, key=lambda name: name != MANIFEST)
        place.write(_OLDER, "\n".join(older).encode())
    own = {layout.file_name(split, shard) for split in SPLITS for shard in range(num_tasks)}
    known = {*own, *older, SEGMENTS, SKIPPED}
    foreign = [name for name in names if name not in known]
    if foreign:
        raise ConflictError(
            f"`{foreign[0]}` is not of this job",
            where=place.name,
            next_step="move it away, then run the same command again",
        )
    is_begun = MANIFEST not in names
    place.delete(name for name in older if not (is_begun and name in own))


def _note_input(line: bytes, sums: Sums) -> None:
    if line.startswith(INPUT_START):
        body = line_body(line)
        if body is not None:
            sums.sources.append(read_input(body)[1])


def _iter_skipped(
    place: Place, chosen: Mapping[int, str], job: JobFile, sources: Sequence[Source]
) -> Iterator[bytes]:
    """List what was left out, from the lines of units that left something out; no others are read.

    `ledger.iter_skipped` gives the same from a ledger, unit by unit.
    """
    for receipt in iter_receipts(place, chosen, job.digest):
        for line in receipt.ledger.splitlines(keepends=True):
            if _HAS_SKIPPED in line:
                unit = read_unit(line_body(line) or b"")
                listed = list_skipped(sources[unit.input].path, unit.end, unit.encoded())
                yield "".join(listed).encode()
    yield "".join(list_skipped_inputs(job.skipped)).encode()


def _look_at_all(place: Place, chosen: Mapping[int, str], job: str) -> None:
    """See that all receipts are whole and have a document, before an older output goes."""
    sums = Sums()
    for receipt in iter_receipts(place, chosen, job):
        for line in receipt.iter_lines(0, chosen[receipt.task]):
            _note_input(line, sums)
        sums.add(receipt)
    _refuse_nothing(place, sums, [])


def _refuse_nothing(place: Place, sums: Sums, written: list[str]) -> None:
    if sums.offsets.counts.documents == 0:
        place.delete(written)
        place.tidy()
        raise nothing_found(sums.sources, sums.offsets.counts.empty_documents)
