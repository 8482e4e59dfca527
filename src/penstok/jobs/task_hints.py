"""Hints about tasks: the `--task-size` that would keep more workers busy.

It divides plans only to count their tasks, and changes nothing. `job` asks it before a job runs;
`run` asks again on a cluster, where the number of workers is not known earlier.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from penstok.engines import engine_needs
from penstok.errors import UsageError
from penstok.inputs.compression import count_fed_workers
from penstok.jobs.memory import divide_memory, needs_beside
from penstok.jobs.tasks import MIN_TASK_BYTES, choose_task_bytes, divide_tasks, fit_task_bytes
from penstok.quantities import format_size, plural
from penstok.types import replace

if TYPE_CHECKING:
    from penstok.jobs.job import Job
    from penstok.jobs.plan import Plan

__all__ = ["find_task_hint", "suggest_more_tasks"]


def find_task_hint(job: Job) -> str:
    """Return what the user should know about tasks before the job runs; empty if nothing."""
    settings = job.settings
    if not settings.is_by_task:
        return _suggest_tasks(job)
    too_small = _explain_least_size(job)
    if too_small or settings.executor == "ray" or settings.part is not None:
        return too_small
    num_tasks = len(divide_tasks(job.plan, job.rules.task_bytes))
    return suggest_more_tasks(job.plan, num_tasks, job.num_workers)


def suggest_more_tasks(plan: Plan, num_tasks: int, num_workers: int) -> str:
    """Name a size that gives more tasks, if there are fewer tasks than workers."""
    size = fit_task_bytes(plan, num_workers) if num_tasks < num_workers else 0
    num_possible = len(divide_tasks(plan, size)) if size else 0
    if num_possible <= num_tasks:
        return ""
    return (
        f"{plural(num_tasks, 'task')} for {plural(num_workers, 'worker')}: "
        f"`--task-size {format_size(size)}` gives {num_possible:,}"
    )


def _suggest_tasks(job: Job) -> str:
    """Name a size at which workers read streams of their own, if one thread cannot feed them."""
    plan, settings = job.plan, job.settings
    # Members of a compressed archive do not count: each task would decompress all of the archive.
    streams = [each for each in plan.sources if each.is_stream and each.archive is None]
    # Neither can be combined with tasks.
    is_refused = plan.limit_bytes is not None or settings.shard_tokens is not None
    if plan.is_piped or is_refused or sum(each.num_bytes for each in streams) <= 2 * MIN_TASK_BYTES:
        return ""
    num_fed = max(count_fed_workers(each.compression) for each in streams)
    # Two tasks for each worker, so that none waits long for the last one.
    size = min(fit_task_bytes(plan, 2 * job.num_workers), choose_task_bytes(plan))
    if job.num_workers <= num_fed or not size or not _fits_memory(job, size):
        return ""
    if len(divide_tasks(replace(plan, sources=streams), size)) <= num_fed:
        return ""
    return (
        "files that can only be read from the start are read by one thread for all workers; "
        f"with `--task-size {format_size(size)}` every worker reads its own, and each task writes "
        "a shard"
    )


def _fits_memory(job: Job, task_bytes: int) -> bool:
    """Tell whether as many workers fit into the memory if each reads for itself."""
    settings, plan = dataclasses.replace(job.settings, task_bytes=task_bytes), job.plan
    needs, needed_beside = engine_needs(job.engine, job.tokenizer), needs_beside(settings, plan)
    memory_bytes, num_sources = settings.memory_bytes, len(plan.sources)
    try:
        divide_memory(memory_bytes, needs, num_sources, job.num_workers, needed_beside)
    except UsageError:
        return False
    return True


def _explain_least_size(job: Job) -> str:
    """Say that tasks are larger than asked for, where units are."""
    size, least = job.settings.task_bytes, job.plan.unit_bytes
    if size is None or size >= least:
        return ""
    if not any(
        each.num_bytes > size and not each.is_stream and not each.is_rows
        for each in job.plan.sources
    ):
        return ""
    return (
        f"`--task-size {format_size(size)}` is less than a unit, {format_size(least)}: "
        "files are not divided further than into units"
    )
