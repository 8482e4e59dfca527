"""What is in the output folder already, and what of it this job can keep.

It compares and checks; it encodes nothing and writes nothing but what the store does for it. The
pipeline asks it first: is the job finished, unfinished, another one, or not there?
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, DamageError
from penstok.inputs.streams import STANDARD_INPUT
from penstok.jobs.plan import Start
from penstok.jobs.settings import settings_differences
from penstok.output.layout import MANIFEST, SEGMENTS
from penstok.output.ledger.reader import Digests, LedgerReader
from penstok.output.manifest import Manifest, digest_inputs
from penstok.output.offsets import Offsets
from penstok.output.segments import SegmentReader, write_errors
from penstok.types import SPLITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from penstok.jobs.plan import Plan
    from penstok.output.layout import Layout
    from penstok.output.store.local import Store
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Finished, JobRecord, Source, Split, Unit

__all__ = ["Kept", "find_finished", "keep_units"]

# Units are checked this many at a time; with more damaged ones than that, those behind the first
# are done again as if they had never been.
_BATCH_UNITS = 256
_MAX_DAMAGED = 4096


@dataclass(frozen=True, slots=True)
class Kept:
    """What an earlier run of the same job has done.

    Attributes:
        job: The job as that run recorded it; this one divides the inputs the same way.
        num_units: How many units are recorded.
        start: Where the run goes on.
        last: The last unit that is recorded.
        num_inputs: How many inputs are.
        ledger_bytes: Where the good lines of the ledger end.
        damaged: Recorded units whose tokens are no longer what was written.
        problem: What is wrong with the ledger behind its good lines.
        is_finished: Whether that run had finished; its output stands under its final names.
    """

    job: JobRecord
    num_units: int = 0
    start: Start = field(default_factory=Start)
    last: Unit | None = None
    num_inputs: int = 0
    ledger_bytes: int = 0
    offsets: Offsets = field(default_factory=Offsets)
    digests: Digests = field(default_factory=Digests)
    damaged: list[Finished] = field(default_factory=list)
    problem: str = ""
    is_finished: bool = False

    def told(self) -> str:
        """Say what was done again and why; empty if nothing was."""
        if self.damaged:
            return f"{len(self.damaged)} units of an earlier run were damaged and are done anew"
        if self.problem:
            return f"the ledger of an earlier run was good up to unit {self.num_units} only"
        return ""


def find_finished(folder: OutputPath, job: JobRecord, plan: Plan) -> Manifest | None:
    """Return the manifest if this very job is done already.

    None means that there is something to do: all of it, or what was added to the inputs.

    Raises:
        ConflictError: If the folder holds the output of another job.
    """
    with write_errors(folder):
        is_there = (folder / MANIFEST).exists()
    if not is_there:
        return None
    try:
        manifest = Manifest.load(folder)
    except DamageError as error:
        raise ConflictError(
            f"the output folder holds something else: {error.what}",
            where=error.where,
            next_step="choose another `-o`, or pass `--overwrite` to delete what is there",
        ) from error
    differing = settings_differences(manifest.settings, job.settings)
    if not differing:
        _refuse_missing_files(folder, manifest)
        if STANDARD_INPUT in [source.path for source in plan.sources]:
            differing = ["standard input cannot be compared with what was read then"]
        elif manifest.inputs_digest == digest_inputs(plan.sources):
            return manifest
        else:
            differing = _input_differences(_recorded_sources(folder), plan.sources)
    if not differing:
        return None
    num_bytes = sum(file.bytes for split in SPLITS for file in manifest.splits[split].files)
    raise ConflictError(
        f"the output was made by another job ({'; '.join(differing)})",
        where=str(folder / MANIFEST),
        next_step="choose another `-o`, or pass `--overwrite` to delete "
        f"{len(manifest.files())} files ({num_bytes} bytes) and start again",
    )


def keep_units(
    store: Store, layout: Layout, job: JobRecord, plan: Plan, *, overwrite: bool, num_threads: int
) -> Kept:
    """Find the units an earlier run has done, after a look at their checksums.

    A finished job to which inputs were added stays as it is; the pipeline reopens it when nothing
    speaks against a start.

    Raises:
        ConflictError: If they belong to another job; with `overwrite` they are deleted instead.
    """
    if store.is_finished and not overwrite:
        if find_finished(store.folder, job, plan) is not None:
            raise ConflictError(
                "another run has finished this job just now",
                where=str(store.folder),
                next_step=f"see what it made: `penstok info {store.folder}`",
            )
        kept = _look_at_units(
            store.folder / SEGMENTS, layout.final_path, layout.token_bytes, num_threads
        )
        return replace(kept, is_finished=True)
    store.refuse_foreign_files(overwrite=overwrite)
    store.refuse_tasks(overwrite=overwrite)
    if not store.ledger.exists():
        store.clear()
        return Kept(job)
    try:
        reader = LedgerReader(store.ledger)
        _refuse_other_job(store, reader, job, plan)
    except (ConflictError, DamageError) as error:
        if not overwrite and store.has_units:
            raise ConflictError(error.what, where=error.where, next_step=_START_AGAIN) from error
        store.clear()
        return Kept(job)
    return _look_at_units(store.ledger, layout.partial_path, layout.token_bytes, num_threads)


def _look_at_units(
    ledger: Path, path_of: Callable[[Split, int], Path], token_bytes: int, num_threads: int
) -> Kept:
    reader = LedgerReader(ledger)
    damaged = _find_damaged(reader.iter_units(), path_of, token_bytes, num_threads)
    if len(damaged) > _MAX_DAMAGED:
        reader = LedgerReader(ledger)
        for _ in islice(reader.iter_units(), damaged[0].unit.index):
            pass
        damaged = []
    return Kept(
        job=reader.job,
        num_units=reader.num_units,
        start=reader.start(),
        last=reader.last,
        num_inputs=len(reader.sources),
        ledger_bytes=reader.valid_bytes,
        offsets=reader.offsets,
        digests=reader.digests,
        damaged=damaged,
        problem=reader.problem,
    )


_START_AGAIN = (
    "run the command that was started here, choose another `-o`, or pass `--overwrite` to drop "
    "what is done and start again"
)


def _refuse_other_job(store: Store, reader: LedgerReader, job: JobRecord, plan: Plan) -> None:
    differing = settings_differences(reader.job.settings, job.settings)
    if not differing:
        for _ in reader.iter_units():
            pass
        differing = _input_differences(reader.sources, plan.sources)
    if differing:
        raise ConflictError(
            f"another job is unfinished here ({'; '.join(differing)})", where=str(store.ledger)
        )


def _recorded_sources(folder: OutputPath) -> list[Source]:
    try:
        reader = LedgerReader(folder / SEGMENTS)
        for _ in reader.iter_units():
            pass
        if reader.ending is not None:
            return reader.sources
        what = f"`{SEGMENTS}` is damaged: {reader.problem or 'it ends too early'}"
    except DamageError as error:
        what = error.what
    raise ConflictError(
        f"the inputs are not those of the finished job here, and {what}",
        where=str(folder / SEGMENTS),
        next_step=f"`penstok verify {folder} --repair`, then run the same command again",
    )


def _input_differences(there: Sequence[Source], here: Sequence[Source]) -> list[str]:
    """Say how the first inputs differ from those that were used; more behind them may follow."""
    for old, new in zip(there, here, strict=False):
        if old.path != new.path:
            if old.path in {source.path for source in here}:
                return [f"input `{new.path}` is new, and comes before `{old.path}`, which is done"]
            return [f"input `{old.path}` is no longer there"]
        if old.num_bytes != new.num_bytes:
            return [f"input `{old.path}`: {old.num_bytes} bytes there, {new.num_bytes} here"]
        if old.format != new.format:
            return [f"input `{old.path}` was read as {old.format} there, {new.format} here"]
        if old.compression != new.compression:
            return [f"input `{old.path}`: compressed with {old.compression}, now {new.compression}"]
        if old.edges != new.edges:
            return [f"input `{old.path}` holds other text"]
        if old.mtime_ns != new.mtime_ns:
            return [f"input `{old.path}` was modified since"]
    if len(there) > len(here):
        return [f"input `{there[len(here)].path}` is no longer there"]
    return []


def _refuse_missing_files(folder: OutputPath, manifest: Manifest) -> None:
    """A finished job whose files are not there, or not whole, is not finished."""
    for split in SPLITS:
        for file in manifest.splits[split].files:
            path = folder / file.path
            if not path.is_file() or path.stat().st_size != file.bytes:
                raise ConflictError(
                    f"this job is finished, but `{file.path}` is missing or has another size",
                    where=str(path),
                    next_step=f"`penstok verify {folder} --repair` makes what is damaged anew",
                )


def _find_damaged(
    units: Iterable[Finished],
    path_of: Callable[[Split, int], Path],
    token_bytes: int,
    num_threads: int,
) -> list[Finished]:
    """Read the tokens of units back, and return those that are not what was written."""
    readers: SimpleQueue[SegmentReader] = SimpleQueue()
    for _ in range(num_threads):
        readers.put(SegmentReader(path_of, token_bytes))

    def is_whole(finished: Finished) -> bool:
        reader = readers.get()
        try:
            return all(map(reader.is_whole, finished.receipt.segments))
        finally:
            readers.put(reader)

    damaged: list[Finished] = []
    waiting = iter(units)
    with ThreadPoolExecutor(num_threads) as pool:
        while batch := list(islice(waiting, _BATCH_UNITS)):
            answers = zip(batch, pool.map(is_whole, batch), strict=True)
            damaged += [finished for finished, whole in answers if not whole]
    while not readers.empty():
        readers.get().close()
    return damaged
