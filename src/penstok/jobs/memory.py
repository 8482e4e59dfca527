"""The memory budget: how many workers fit into `--memory`, and the share of each.

It measures nothing and starts nothing; `worker.memory` checks that a worker stays within its share.
`jobs.job` asks it when a job is prepared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.errors import UsageError
from penstok.jobs.plan import input_needs
from penstok.output.fields import SEALING_BYTES
from penstok.output.store.base import UPLOAD_BYTES
from penstok.quantities import format_bytes, plural
from penstok.readers.columnar import COLUMN_BYTES, INDEX_FACTOR
from penstok.storage import REMOTE_BYTES
from penstok.types import MemoryNeeds
from penstok.worker.memory import MemoryShare, num_cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstok.jobs.plan import Plan
    from penstok.jobs.settings import JobSettings

__all__ = ["divide_memory", "needs_beside"]

# In the parent process: Python, the command line, and a record per input file.
_PARENT_BYTES = 96 << 20
_SOURCE_BYTES = 1100


def divide_memory(
    memory_bytes: int,
    needs: MemoryNeeds,
    num_sources: int,
    wanted_workers: int | None,
    inputs: Sequence[MemoryNeeds] = (),
) -> tuple[int, MemoryShare, str]:
    """Return the worker count, the share of each worker, and a hint if cores stay idle.

    Args:
        memory_bytes: For the whole process tree.
        needs: What the engine needs.
        num_sources: How many inputs the parent has a record of.
        wanted_workers: The worker count the user asked for; None for one per core.
        inputs: What inputs and output need in addition to the engine.
    """
    total = sum(inputs, needs)
    parent_bytes = _PARENT_BYTES + _SOURCE_BYTES * num_sources + total.parent_bytes
    fitting = (memory_bytes - parent_bytes) // total.worker_bytes
    wanted = wanted_workers or num_cores()
    if fitting < 1 or (wanted_workers and fitting < wanted_workers):
        needed = parent_bytes + total.worker_bytes * (wanted_workers or 1)
        raise UsageError(
            f"{format_bytes(memory_bytes)} is too little memory for "
            f"{plural(wanted_workers or 1, 'worker')}",
            where="--memory",
            next_step=f"pass `--memory {-(-needed >> 20)}MiB`"
            + (" or fewer `--workers`" if wanted_workers and wanted_workers > 1 else ""),
        )
    num_workers = min(wanted, fitting)
    share = MemoryShare((memory_bytes - parent_bytes) // num_workers, total.block_bytes)
    hint = ""
    if num_workers < wanted:
        needed = parent_bytes + total.worker_bytes * wanted
        idle = f"only {num_workers} of {plural(wanted, 'core')} can be used"
        hint = f"{idle}: `--memory {-(-needed >> 20)}MiB` uses them"
    return num_workers, share, hint


def needs_beside(settings: JobSettings, plan: Plan) -> list[MemoryNeeds]:
    """Return what inputs and output take beside the engine: in the parent, and for each worker."""
    needs = input_needs(plan.sources, plan.unit_bytes)
    if settings.provenance:
        # Four bytes per document, and with its separator the shortest has two.
        needs.append(MemoryNeeds(worker_bytes=2 * plan.unit_bytes))
    if settings.keep:
        needs.append(_fields_needs(settings, plan))
    if not settings.is_by_task:
        return needs
    # Every worker has its own feed and upload buffer.
    needs = [MemoryNeeds(worker_bytes=each.parent_bytes + each.worker_bytes) for each in needs]
    if isinstance(settings.output, str):
        needs.append(MemoryNeeds(parent_bytes=REMOTE_BYTES, worker_bytes=UPLOAD_BYTES))
    return needs


def _fields_needs(settings: JobSettings, plan: Plan) -> MemoryNeeds:
    """Return what kept fields take: in a worker those of a block, in the parent a row group."""
    num_columns = settings.keep.count(",") + 1
    # Values are extracted, gathered and written; a column of rows is decoded beside the text.
    worker_bytes = (num_columns + 4) * settings.block_bytes
    if any(source.is_rows for source in plan.sources):
        index_bytes = max(source.index_bytes for source in plan.sources)
        worker_bytes += num_columns * (COLUMN_BYTES + INDEX_FACTOR * index_bytes)
    return MemoryNeeds(parent_bytes=SEALING_BYTES, worker_bytes=worker_bytes)
