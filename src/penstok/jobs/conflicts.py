"""Whether a job may use an output, and what is finished, unfinished or in the way there.

It compares records, and deletes an unfinished job if the user asked for that; it runs no task.
`jobs.run` calls it before a job starts and before the commit.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash
from msgspec import to_builtins

from penstok.errors import ConflictError, DamageError, LockedError, quoted
from penstok.jobs.differences import find_differences
from penstok.jobs.tasks import part_of_task
from penstok.output import layout
from penstok.output.layout import MANIFEST, SEGMENTS, is_final_name
from penstok.output.ledger.lines import format_job, format_line, line_body, read_job
from penstok.output.ledger.reader import LedgerReader
from penstok.output.manifest import (
    ForeignManifestError,
    Manifest,
    NewerManifestError,
    digest_inputs,
)
from penstok.output.store.base import PARTS, TASKS, has_progress, journal_name
from penstok.quantities import plural
from penstok.storage import is_url
from penstok.storage.object_paths import repair_step
from penstok.types import SPLITS, JobRecord, Struct, field, replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstok.jobs.plan import Plan
    from penstok.output.store.base import HeldLock, OutputStore
    from penstok.storage.object_paths import OutputPath
    from penstok.types import Source

__all__ = [
    "JOB",
    "JobFile",
    "claim_output",
    "find_finished",
    "find_manifest",
    "foreign_file",
    "is_recorded",
    "note_part",
    "read_job_file",
    "refuse_lost_lock",
    "refuse_missing_tasks",
    "refuse_own_input",
    "refuse_progress",
]

JOB = f"{layout.WORK}/{layout.JOB}"
_MAX_NAMED = 10
_VAL_HASH = "val_hash"


class _Inputs(Struct, frozen=True):
    """The second line of a job file: the inputs, and the number of tasks."""

    inputs: str
    num_inputs: int
    num_tasks: int
    skipped: dict[str, str]
    ignored: dict[str, str] = field(default_factory=dict)


class JobFile(Struct, frozen=True):
    """The record of a job that its output holds while the job is unfinished.

    Attributes:
        job: The settings that affect token bytes.
        inputs_digest: A digest of the inputs, as in the manifest.
        num_inputs: The number of inputs.
        num_tasks: The number of tasks.
        skipped: The inputs that are skipped, and why.
        ignored: What was found in folders and is not text, and why.
    """

    job: JobRecord
    inputs_digest: str
    num_inputs: int
    num_tasks: int
    skipped: dict[str, str]
    ignored: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, job: JobRecord, plan: Plan, num_tasks: int) -> JobFile:
        """Create the record of a job."""
        digest = digest_inputs(plan.sources)
        return cls(job, digest, len(plan.sources), num_tasks, plan.skipped, plan.ignored)

    @property
    def is_by_task(self) -> bool:
        """Whether every task writes its own shards; otherwise there is one resumable task."""
        return self.job.settings.get("task_bytes") is not None

    @property
    def digest(self) -> str:
        """The digest by which journals refer to the job."""
        return xxhash.xxh3_128_hexdigest(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Format the job file."""
        inputs = to_builtins(
            _Inputs(self.inputs_digest, self.num_inputs, self.num_tasks, self.skipped, self.ignored)
        )
        if not self.ignored:
            del inputs["ignored"]
        return format_job(self.job) + format_line(inputs)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> JobFile:
        """Parse a job file.

        Raises:
            DamageError: If it is damaged or has another version.
        """
        try:
            first, second = (line_body(line) or b"" for line in data.splitlines(keepends=True))
            inputs = msgspec.json.decode(second, type=_Inputs)
            job = read_job(first)
        except ValueError as error:
            raise DamageError(
                f"the record of the job is damaged or has another version: {error}",
                where=where,
                next_step="choose another `-o`, or pass `--overwrite` to start again",
            ) from error
        return cls(
            job,
            inputs.inputs,
            inputs.num_inputs,
            inputs.num_tasks,
            inputs.skipped,
            inputs.ignored,
        )

    def has_made(self, manifest: Manifest) -> bool:
        """Return whether a finished job is this one."""
        is_same = manifest.settings == self.job.settings
        return is_same and manifest.inputs_digest == self.inputs_digest

    def differences(self, other: JobFile) -> list[str]:
        """List how another job (`here`) differs from this one, which is in the output (`there`)."""
        found = find_differences(self.job, other.job)
        if self.job.unit_bytes != other.job.unit_bytes:
            size = plural(self.job.unit_bytes, "byte")
            found.append(f"units of {size} there, {other.job.unit_bytes:,} here")
        if self.num_inputs != other.num_inputs:
            found.append(f"{plural(self.num_inputs, 'input')} there, {other.num_inputs:,} here")
        elif self.inputs_digest != other.inputs_digest:
            found.append("an input was changed or replaced, or has another encoding")
        if self.skipped.keys() != other.skipped.keys():
            num_skipped = plural(len(self.skipped), "input")
            found.append(f"{num_skipped} skipped there, {len(other.skipped):,} here")
        return found or _val_difference(self.job.settings, other.job.settings)


def refuse_own_input(output: str, inputs: Sequence[str]) -> None:
    """Refuse an input, or a file in an input folder, as `-o`: nobody should move it away.

    Raises:
        ConflictError: If it is one.
    """
    if is_url(output) or not os.path.isfile(output):  # noqa: PTH113 it raises no OSError
        return
    real = Path(output).resolve()
    folders = {real, *real.parents}
    if any(not is_url(each) and Path(each).resolve() in folders for each in inputs):
        raise ConflictError(
            f"`{output}` is an input, so it cannot be the output folder",
            where="INPUT, -o",
            next_step="choose another `-o`, such as `-o tokens`",
        )


def read_job_file(store: OutputStore) -> JobFile | None:
    """Return the record of the unfinished job in an output; None if there is none."""
    data = store.read(JOB)
    return None if data is None else JobFile.from_bytes(data, f"{store.name}/{JOB}")


def find_manifest(store: OutputStore) -> Manifest | None:
    """Return the manifest of the finished job in an output, whether or not it is this job."""
    data = store.read(MANIFEST)
    if data is None:
        return None
    return Manifest.from_json(data.decode(errors="replace"), store.path / MANIFEST)


def is_recorded(store: OutputStore, job: JobFile) -> bool:
    """Return whether an output holds exactly this job, finished or not."""
    with contextlib.suppress(DamageError):
        finished = find_manifest(store)
        if finished is not None:
            return job.has_made(finished)
        there = read_job_file(store)
        if there is not None:
            return not replace(job, num_tasks=there.num_tasks).differences(there)
    return False


def find_finished(
    store: OutputStore, job: JobRecord, plan: Plan, *, is_part: bool = False
) -> Manifest | None:
    """Return the manifest if exactly this job is finished.

    None means that there is something to do: the whole job, or inputs that were added.

    Raises:
        ConflictError: If the output holds another job.
    """
    folder = store.path
    try:
        manifest = find_manifest(store)
    except NewerManifestError as error:
        raise ConflictError(
            f"the output holds something else: {error.what}",
            where=error.where,
            next_step=_start_over("to delete what is there", is_part=is_part),
        ) from error
    except ForeignManifestError as error:
        raise ConflictError(
            f"`{MANIFEST}` exists and is not from penstok",
            where=error.where,
            next_step="choose another `-o`",
        ) from error
    except DamageError as error:
        then = "; then run the same command again"
        raise ConflictError(
            error.what, where=error.where, next_step=error.next_step + then
        ) from error
    if manifest is None:
        return None
    differing = find_differences(manifest, job)
    if not differing:
        _refuse_missing_files(folder, manifest)
        if plan.is_piped:
            differing = ["standard input cannot be compared with what was read before"]
        elif manifest.inputs_digest == digest_inputs(plan.sources):
            if not (differing := _val_difference(manifest.settings, job.settings)):
                return manifest
        elif job.settings.get("task_bytes") is not None:
            differing = ["its inputs differ, and inputs cannot be added to a job of many tasks"]
        else:
            differing = _input_differences(_recorded_sources(folder), plan.sources)
        differing = differing or _val_difference(manifest.settings, job.settings)
    if not differing:
        return None
    sizes = [num_bytes for _, num_bytes in manifest.iter_sizes()]
    next_step = _start_over(
        f"to delete {plural(len(sizes), 'file')} ({plural(sum(sizes), 'byte')}) and start again",
        is_part=is_part,
    )
    if added := _find_convert(store.name, manifest, job):
        next_step = f"run `{added}`, which keeps the tokens; or {next_step}"
    raise ConflictError(
        f"the output was made by another job ({'; '.join(differing)})",
        where=str(folder / MANIFEST),
        next_step=next_step,
    )


def _find_convert(output: str, manifest: Manifest, job: JobRecord) -> str | None:
    """Return the command that adds the formats of a job, if it differs in nothing else."""
    names = ("format", "sequence_length", "columns")
    old, new = (
        {name: value for name, value in each.settings.items() if name not in names}
        for each in (manifest, job)
    )
    wanted = [name for name in str(job.settings.get("format", "raw")).split(",") if name != "raw"]
    if is_url(output) or old != new or not wanted:
        return None
    values = {**job.settings, "format": ",".join(wanted)}
    flags = [
        f"--{name.replace('_', '-')} {quoted(str(values[name]))}"
        for name in names
        if values.get(name) is not None
    ]
    return f"penstok convert {quoted(output)} {' '.join(flags)}"


def claim_output(
    store: OutputStore, job: JobFile, plan: Plan, *, overwrite: bool, is_alone: bool
) -> JobFile:
    """Record which job an output is for, or join the same job there; return it as recorded.

    A finished output stays until this job is committed.

    Args:
        store: The output.
        job: The job.
        plan: Its inputs.
        overwrite: Whether to delete another unfinished job.
        is_alone: Whether this run holds the lock, so that another job without progress can be
            deleted; a part of a job does not hold it.

    Raises:
        ConflictError: If the output holds something else.
    """
    names = [name for name in store.iter_names("") if is_final_name(name)]
    try:
        there = read_job_file(store)
        differing = [] if there is None else _job_differences(store, there, job, plan)
    except DamageError as error:
        there, differing = None, [error.what]
    store.refuse_irregular()
    # Only shards of tasks may have been published by an unfinished job.
    may_be_ours = there is not None and there.is_by_task
    if not overwrite and names and MANIFEST not in names and not may_be_ours:
        raise ConflictError(
            f"`{names[0]}` exists and is not from a finished job of penstok",
            where=store.name,
            next_step=_start_over(
                "to delete " + ", ".join(f"`{name}`" for name in names[:5]), is_part=not is_alone
            ),
        )
    if differing:
        if not (overwrite or (is_alone and not has_progress(store))):
            raise ConflictError(
                f"another job is unfinished here ({'; '.join(differing)})",
                where=f"{store.name}/{JOB}",
                next_step="run the command that was started here, "
                + _start_over("to delete what is done and start again", is_part=not is_alone),
            )
        _drop(store)
        there = None
    if there is None:
        if store.write_new(JOB, job.to_bytes()):
            return job
        return claim_output(store, job, plan, overwrite=False, is_alone=False)
    if there.inputs_digest != job.inputs_digest:
        # Inputs were added.
        there = replace(job, job=there.job)
        store.write(JOB, there.to_bytes())
    return there


def _start_over(what: str, *, is_part: bool) -> str:
    """Return the next step for starting over; a part cannot overwrite the work of other parts."""
    if is_part:
        return "choose another `-o`, or delete what is there and run all parts again"
    return f"choose another `-o`, or pass `--overwrite` {what}"


def _job_differences(store: OutputStore, there: JobFile, here: JobFile, plan: Plan) -> list[str]:
    """List how a job differs from the recorded one; inputs may be added to a single task."""
    if there.is_by_task or here.is_by_task:
        return there.differences(here)
    differing = find_differences(there.job, here.job)
    of_val = _val_difference(there.job.settings, here.job.settings)
    if differing or there.inputs_digest == here.inputs_digest:
        return differing or of_val
    journal = store.path / journal_name(0, None)
    if not journal.exists():
        return of_val
    reader = LedgerReader(journal)
    for _ in reader.iter_units():
        pass
    return _input_differences(reader.sources, plan.sources) or of_val


def _drop(store: OutputStore) -> None:
    """Delete an unfinished job; its record last, so that it stays resumable until then."""
    work = [name for prefix in (PARTS, TASKS) for name in store.iter_names(prefix)]
    store.drop_tasks()
    store.delete(work)
    store.delete([JOB])


def note_part(store: OutputStore, part: tuple[int, int]) -> None:
    """Record that a part was started, so that `refuse_missing_tasks` can list missing parts."""
    store.write(f"{PARTS}{part[0]}-{part[1]}", b"")


def refuse_missing_tasks(store: OutputStore, job: JobFile, chosen: dict[int, str]) -> None:
    """Refuse to commit a job with unfinished tasks; list the parts they are in."""
    missing = [number for number in range(job.num_tasks) if number not in chosen]
    if not missing:
        return
    parts = _missing_parts(store, job.num_tasks, missing)
    named = ", ".join(f"{part}/{of}" for part, of in parts[:_MAX_NAMED])
    more = "" if len(parts) <= _MAX_NAMED else f" and {len(parts) - _MAX_NAMED} more"
    raise DamageError(
        f"not done: {len(missing):,} of {plural(job.num_tasks, 'task')}"
        + (f"; missing or unfinished parts: {named}{more}" if parts else ""),
        where=store.name,
        next_step=f"run them: the same `penstok tokenize ... -o {quoted(store.name)}` with "
        f"`--part {parts[0][0]}/{parts[0][1]}`"
        if parts
        else "run the same `penstok tokenize` command again: it continues",
    )


def refuse_lost_lock(lock: HeldLock, store: OutputStore) -> None:
    """Refuse to commit if another run may be committing."""
    if lock.is_lost:
        raise LockedError(
            "the lock could not be renewed, and another run may have taken it",
            where=store.name,
            next_step="run the same command again: it continues",
        )


def _missing_parts(store: OutputStore, num_tasks: int, missing: list[int]) -> list[tuple[int, int]]:
    """Return the parts with unfinished tasks, by the division that most parts were started with."""
    seen = [name.removeprefix(PARTS).split("-") for name in store.iter_names(PARTS)]
    counts = Counter(int(words[1]) for words in seen if len(words) == 2 and words[1].isdecimal())
    if not counts:
        return []
    num_parts = counts.most_common(1)[0][0]
    parts = {part_of_task(num_tasks, task, num_parts) for task in missing}
    return [(part, num_parts) for part in sorted(parts)]


def _val_difference(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Say how val differs if one of the jobs has too few documents for it."""
    old, new = there.get(_VAL_HASH), here.get(_VAL_HASH)
    if old == new:
        return []
    if old is None:
        return ["val: no document was chosen for it; now one is, because there are too few"]
    other = "now `--val-fraction` chooses others" if new is None else "now it would be another"
    return [f"val was one document, chosen because there were too few; {other}"]


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
        f"the inputs differ from those of the finished job here, and {what}",
        where=str(folder / SEGMENTS),
        next_step=f"run `penstok verify {quoted(folder)} --repair`, then the same command again",
    )


def _input_differences(there: Sequence[Source], here: Sequence[Source]) -> list[str]:
    """List how the first inputs differ from the recorded ones; more inputs may follow."""
    for old, new in zip(there, here, strict=False):
        if old.path != new.path:
            if old.path in {source.path for source in here}:
                return [f"input `{new.path}` is new, but sorts before `{old.path}`, which is done"]
            return [f"input `{old.path}` is missing"]
        if old.num_bytes != new.num_bytes:
            return [
                f"input `{old.path}`: {plural(old.num_bytes, 'byte')} there, {new.num_bytes:,} here"
            ]
        if old.format != new.format:
            return [f"input `{old.path}`: read as {old.format} there, as {new.format} here"]
        if old.compression != new.compression:
            return [
                f"input `{old.path}`: compression {old.compression} there, {new.compression} here"
            ]
        if old.encoding != new.encoding:
            return [f"input `{old.path}`: encoding {old.encoding} there, {new.encoding} here"]
        if old.edges != new.edges:
            return [f"input `{old.path}` has different content"]
        if old.mtime_ns != new.mtime_ns:
            return [f"input `{old.path}` was modified since"]
    if len(there) > len(here):
        return [f"input `{there[len(here)].path}` is missing"]
    return []


def _refuse_missing_files(folder: OutputPath, manifest: Manifest) -> None:
    """Refuse a finished job whose files are missing or incomplete."""
    for split in SPLITS:
        for file in manifest.splits[split].files:
            path = folder / file.path
            if not path.is_file() or path.stat().st_size != file.bytes:
                raise ConflictError(
                    f"this job is finished, but `{file.path}` is missing or has another size",
                    where=str(path),
                    next_step=repair_step(folder),
                )


def foreign_file(store: OutputStore, name: str) -> ConflictError:
    """Return the error for a file under the name of an output that no job wrote."""
    return ConflictError(
        f"`{name}` is not from this job",
        where=store.name,
        next_step="move it away, then run the same command again",
    )


def refuse_progress(store: OutputStore) -> None:
    """Refuse an output in which a job is unfinished, whose files would be deleted at the end.

    Raises:
        ConflictError: If there is one.
    """
    if has_progress(store):
        raise ConflictError(
            "another job is unfinished here",
            where=store.name,
            next_step="run the command that was started here again, then this one",
        )
