"""May a job use a place, and is all of it there? What is finished, begun, missing or in the way.

It reads records and deletes what a user asked to overwrite; it does no task. `distributed` asks it
before the work and after.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, DamageError
from penstok.jobs.finishing import tidy_finished
from penstok.jobs.job_files import JOB, JobFile, read_job_file
from penstok.jobs.receipts import TASKS
from penstok.jobs.resume import find_finished
from penstok.jobs.tasks import part_of_task
from penstok.output.layout import LEDGER, MANIFEST, WORK, is_final_name
from penstok.output.manifest import Manifest

if TYPE_CHECKING:
    from penstok.jobs.plan import Plan
    from penstok.output.store.base import Place
    from penstok.types import JobRecord

__all__ = ["find_manifest", "find_whole", "make_room", "note_part", "refuse_missing"]

_PARTS = f"{WORK}/parts/"
_MAX_NAMED = 10


def find_manifest(place: Place) -> Manifest | None:
    """Return the manifest of the job that is finished in a place, whichever it is."""
    data = place.read(MANIFEST)
    if data is None:
        return None
    return Manifest.from_json(data.decode(errors="replace"), place.path / MANIFEST)


def find_whole(place: Place, job: JobRecord, plan: Plan) -> Manifest | None:
    """Return the manifest if this very job is finished; None if there is something to do.

    Raises:
        ConflictError: If another job is.
    """
    finished = find_finished(place.path, job, plan)
    if finished is not None:
        tidy_finished(place, finished)
    elif place.read(MANIFEST) is not None:
        raise ConflictError(
            "the output is finished, and inputs were added since: where tasks make the shards, "
            "that makes another output",
            where=f"{place.name}/{MANIFEST}",
            next_step="choose another `-o`, or pass `--overwrite` to start again",
        )
    return finished


def make_room(place: Place, job: JobFile, *, overwrite: bool, is_alone: bool) -> None:
    """Refuse a place that holds something else; with `overwrite` drop what is unfinished there.

    What is finished stays until this job is.

    Args:
        place: The place.
        job: The job that would use it.
        overwrite: Whether another unfinished job is to be dropped.
        is_alone: Whether no part of another job can be running: then one that has done nothing
            yet is dropped, too.
    """
    if overwrite or (is_alone and not _has_done_anything(place)):
        if not _is_begun(place, job):
            work = [name for prefix in (_PARTS, TASKS) for name in place.iter_names(prefix)]
            # The job goes last: until then it is what a run of it would go on with.
            place.delete([*work, *([f"{WORK}/{LEDGER}"] if overwrite else []), JOB])
            place.clear()
        if overwrite:
            return
    if place.read(JOB) is not None:
        return
    taken = [name for name in place.iter_names("") if is_final_name(name)]
    if place.read(f"{WORK}/{LEDGER}") is not None:
        taken = [f"{WORK}/{LEDGER}"]
    if taken:
        raise ConflictError(
            f"`{taken[0]}` exists and is not of this job",
            where=place.name,
            next_step="choose another `-o`, or pass `--overwrite` to delete what is there",
        )


def note_part(place: Place, part: tuple[int, int]) -> None:
    """Write down that a part was begun, for `refuse_missing` to name those that were not."""
    place.write(f"{_PARTS}{part[0]}-{part[1]}", b"")


def refuse_missing(place: Place, job: JobFile, chosen: dict[int, str]) -> None:
    """Refuse to finish a job some of whose tasks have no receipt; name the parts they are in."""
    missing = [number for number in range(job.num_tasks) if number not in chosen]
    if not missing:
        return
    parts = _missing_parts(place, job.num_tasks, missing)
    named = ", ".join(f"{part}/{of}" for part, of in parts[:_MAX_NAMED])
    more = "" if len(parts) <= _MAX_NAMED else f" and {len(parts) - _MAX_NAMED} more"
    raise DamageError(
        f"{len(missing)} of {job.num_tasks} tasks are not done"
        + (f"; missing or unfinished parts: {named}{more}" if parts else ""),
        where=place.name,
        next_step=f"run them: the same `penstok tokenize ... -o {place.name}` with "
        f"`--part {parts[0][0]}/{parts[0][1]}`"
        if parts
        else "run the same `penstok tokenize` command again: it continues",
    )


def _has_done_anything(place: Place) -> bool:
    return any(True for prefix in (_PARTS, TASKS) for _ in place.iter_names(prefix))


def _is_begun(place: Place, job: JobFile) -> bool:
    """Tell whether this very job is unfinished in a place, to go on with.

    If it is finished there, too, this cannot be told from one that was killed at its very end.
    """
    try:
        there, finished = read_job_file(place), find_manifest(place)
    except DamageError:
        return False
    is_same = there is not None and not there.differences(job)
    return is_same and not (finished is not None and job.has_made(finished))


def _missing_parts(place: Place, num_tasks: int, missing: list[int]) -> list[tuple[int, int]]:
    """Tell which parts have tasks that are not done, as the job was divided when it was begun."""
    seen = [name.removeprefix(_PARTS).split("-") for name in place.iter_names(_PARTS)]
    counts = Counter(int(words[1]) for words in seen if len(words) == 2 and words[1].isdecimal())
    if not counts:
        return []
    num_parts = counts.most_common(1)[0][0]
    parts = {part_of_task(num_tasks, task, num_parts) for task in missing}
    return [(part, num_parts) for part in sorted(parts)]
