"""The commit protocol: an intent record, files that get their names, the manifest last.

It only rolls forward: once the record is written, any run that finds it completes what it says,
whether that is the commit of a job, of formats, or the reopening of a finished job. It makes no
file itself: `commit`, `reopening` and `conversion` do, and hand them over here.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from penstok.errors import LockedError
from penstok.faults import fault_point
from penstok.jobs.conflicts import JOB, read_job_file
from penstok.jobs.resume import drop_lost_tasks, iter_journals, iter_task_files
from penstok.output.layout import MANIFEST, SEGMENTS, SKIPPED, Layout
from penstok.output.ledger.journal import choose_journals
from penstok.output.manifest import Manifest
from penstok.output.store.base import (
    FINISHED,
    INTENT,
    PARTS,
    REPAIRING,
    TASKS,
    LostShardError,
    StagedFile,
    journal_name,
)
from penstok.types import SPLITS, Struct, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstok.jobs.conflicts import JobFile
    from penstok.output.store.base import OutputStore
    from penstok.storage.object_paths import OutputPath

__all__ = [
    "FINISHED_LOCATION",
    "commit_files",
    "commit_formats",
    "locate_files",
    "roll_forward",
    "start_reopening",
    "tidy_finished",
]

# The location of a resumable task's files until they are published.
_RESUMABLE = {"folder": journal_name(0, None).removesuffix(".jsonl")}
# The location of the records of a finished job to which inputs are added.
FINISHED_LOCATION = {"folder": FINISHED}


class _Intent(Struct, frozen=True):
    """The intent record: what to publish, or which job to reopen.

    Attributes:
        manifest: The text of the manifest to publish; empty when reopening a job.
        staged: The complete files, other than shards, that wait for their final names.
        older: The files of an older output, to delete before anything is published; empty once
            they are deleted. From then on a file under a final name is one that was published. If
            only formats are published, these are files that no format has any more, and are
            deleted after the manifest is written.
        reopen: The shards to unpublish, so that inputs can be added to them.
    """

    manifest: str = ""
    staged: list[StagedFile] = field(default_factory=list)
    older: list[str] = field(default_factory=list)
    reopen: list[str] = field(default_factory=list)


def commit_files(
    store: OutputStore,
    job: JobFile,
    manifest: Manifest,
    staged: list[StagedFile],
    older: Iterable[str] = (),
) -> None:
    """Publish the files of a job, then its manifest.

    Args:
        store: The output.
        job: The job, whose journals say where its tokens are.
        manifest: Its manifest.
        staged: The other files.
        older: The files of an older output, which are deleted first.

    Raises:
        LostShardError: If tokens are missing; the next run repeats what was lost.
    """
    intent = _Intent(manifest.to_json(), staged, [*older])
    store.write(INTENT, msgspec.json.encode(intent))
    fault_point("intent written")
    _publish(store, job, intent, manifest)


def locate_files(
    store: OutputStore, job: JobFile, manifest: Manifest
) -> Callable[[str], OutputPath]:
    """Return where the tokens and indexes of a job are that is not published yet."""
    locations = {name: location for name, location, _ in _iter_shards(store, job, manifest)}
    return lambda name: store.locate(name, locations.get(name))


def commit_formats(
    store: OutputStore, manifest: Manifest, staged: list[StagedFile], older: Iterable[str] = ()
) -> None:
    """Publish files that were made from the tokens of a finished job, then its new manifest.

    Args:
        store: The output.
        manifest: The new manifest.
        staged: The files.
        older: The files of formats that are replaced; those that are not overwritten are deleted.
    """
    names = {name for name, _, _ in staged}
    intent = _Intent(manifest.to_json(), staged, [name for name in older if name not in names])
    # Of a job that was only begun: with it, the intent would be taken for that of its commit.
    store.delete([JOB])
    store.write(INTENT, msgspec.json.encode(intent))
    fault_point("intent of formats written")
    _publish_formats(store, intent)


def _publish_formats(store: OutputStore, intent: _Intent) -> None:
    # Even if the manifest is the same: a file may have been repaired.
    store.publish(intent.staged)
    store.write(MANIFEST, intent.manifest.encode())
    fault_point("manifest written")
    store.delete(intent.older)
    store.tidy()


def _withdraw_formats(store: OutputStore, intent: _Intent) -> None:
    """Cancel a commit of formats whose staged files were lost: they are written again."""
    text, names = store.read(MANIFEST), {name for name, _, _ in intent.staged}
    if text is not None:
        before = Manifest.from_json(text.decode(), store.path / MANIFEST)
        # Some of their files may be replaced by new ones already.
        lost = [each for each in before.formats if names & {file.path for file in each.files}]
        if lost:
            kept = [record for record in before.formats if record not in lost]
            store.write(MANIFEST, replace(before, formats=kept).to_json().encode())
        names |= {file.path for record in lost for file in record.files}
        names -= {*before.files(), SEGMENTS, SKIPPED}
    store.delete([*sorted(names), INTENT])


def start_reopening(store: OutputStore, manifest: Manifest) -> None:
    """Take the files of a finished job back to where they were before it was committed."""
    # Files of other formats are made again at the end; links would grow with the tokens.
    intent = _Intent(reopen=manifest.files(), older=manifest.format_files())
    store.write(INTENT, msgspec.json.encode(intent))
    fault_point("reopening begins")
    _reopen(store, intent)


def roll_forward(store: OutputStore) -> Manifest | None:
    """Complete an interrupted commit or reopening; return the manifest if it was a commit.

    If tokens were lost meanwhile, the job is unfinished again, and None is returned.
    """
    data = store.read(INTENT)
    if data is None:
        return None
    intent, job = msgspec.json.decode(data, type=_Intent), read_job_file(store)
    if not intent.manifest:
        _reopen(store, intent)
        return None
    manifest = Manifest.from_json(intent.manifest, store.path / INTENT)
    if job is None:
        # Formats were being added to a finished job, or work files were being deleted.
        try:
            _publish_formats(store, intent)
        except LostShardError:
            _withdraw_formats(store, intent)
            return None
        return manifest
    try:
        _publish(store, job, intent, manifest)
    except LostShardError:
        return None
    return manifest


def tidy_finished(store: OutputStore, manifest: Manifest) -> bool:
    """Delete the work files that a killed run left; return whether they were of another job.

    That other job was started to overwrite this one and was interrupted. Whoever runs the finished
    job again has no use for its tokens, which nothing else would ever delete.
    """
    if not store.has_work():
        return False
    # If another run holds the lock, it deletes them itself; parts of a job run without it.
    with contextlib.suppress(LockedError), store.lock():
        if store.read(INTENT) is not None:
            # Files were being published: of formats that a conversion adds, for example.
            roll_forward(store)
            return False
        job = read_job_file(store)
        is_other = job is not None and not job.has_made(manifest)
        has_parts = any(True for _ in store.iter_names(PARTS))
        if store.read(REPAIRING) is None and not (is_other and has_parts):
            store.tidy()
            return is_other
    return False


def _publish(store: OutputStore, job: JobFile, intent: _Intent, manifest: Manifest) -> None:
    """Publish everything that is not published yet, then the manifest; then delete work files."""
    text = intent.manifest.encode()
    if store.read(MANIFEST) != text:
        if intent.older:
            store.delete(intent.older)
            intent = replace(intent, older=[])
            store.write(INTENT, msgspec.json.encode(intent))
        try:
            store.publish(_iter_shards(store, job, manifest))
            store.publish(intent.staged)
        except LostShardError:
            _withdraw(store, job, manifest)
            # What was staged is staged again.
            store.delete([*(name for name, _, _ in intent.staged), INTENT])
            raise
        store.write(MANIFEST, text)
        fault_point("manifest written")
    store.tidy()


def _iter_shards(store: OutputStore, job: JobFile, manifest: Manifest) -> Iterator[StagedFile]:
    if not job.is_by_task:
        for split in SPLITS:
            for name, num_bytes in manifest.splits[split].iter_sizes():
                yield name, _RESUMABLE, num_bytes
        return
    layout = Layout.of_job(store.name, job.job)
    chosen = choose_journals(store.iter_names(TASKS))
    yield from iter_task_files(layout, iter_journals(store, chosen, job.digest))


def _withdraw(store: OutputStore, job: JobFile, manifest: Manifest) -> None:
    """Cancel a commit whose tokens are missing: the next run repeats what was lost."""
    if job.is_by_task:
        layout = Layout.of_job(store.name, job.job)
        drop_lost_tasks(store, layout, choose_journals(store.iter_names(TASKS)), job.digest)
    else:
        store.unpublish(manifest.files(), _RESUMABLE)


def _reopen(store: OutputStore, intent: _Intent) -> None:
    store.delete([MANIFEST])
    fault_point("manifest withdrawn")
    store.delete(intent.older)
    store.unpublish(intent.reopen, _RESUMABLE)
    store.unpublish([SEGMENTS, SKIPPED], FINISHED_LOCATION)
    store.delete([INTENT])
