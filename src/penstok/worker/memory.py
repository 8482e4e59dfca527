"""The memory budget: how `--memory` is divided, and what processes use.

It starts and stops no process. `jobs.job` asks how many workers fit; a worker asks whether it has
reached its share.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import psutil

from penstok.errors import UsageError
from penstok.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstok.types import MemoryNeeds

__all__ = ["MemoryShare", "divide_memory", "num_cores", "tree_bytes"]

# In the parent process: Python, the command line, and a record per input file.
_PARENT_BYTES = 96 << 20
_SOURCE_BYTES = 1100


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """The memory that one worker may use."""

    limit_bytes: int
    block_bytes: int

    def is_reached(self) -> bool:
        """Return whether another block could exceed the limit."""
        return own_bytes() > self.limit_bytes - self.block_bytes


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
            f"{format_bytes(memory_bytes)} is too little memory for {wanted_workers or 1} "
            f"worker{'s' if (wanted_workers or 1) > 1 else ''}",
            where="--memory",
            next_step=f"pass `--memory {-(-needed >> 20)}MiB`"
            + (" or fewer `--workers`" if wanted_workers and wanted_workers > 1 else ""),
        )
    num_workers = min(wanted, fitting)
    share = MemoryShare((memory_bytes - parent_bytes) // num_workers, total.block_bytes)
    hint = ""
    if num_workers < wanted:
        needed = parent_bytes + total.worker_bytes * wanted
        idle = f"{wanted - num_workers} of {wanted} cores were idle"
        hint = f"{idle}: `--memory {-(-needed >> 20)}MiB` uses them"
    return num_workers, share, hint


def num_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def own_bytes() -> int:
    """Return the resident memory of this process."""
    return int(_process(os.getpid()).memory_info().rss)


@lru_cache(maxsize=1)
def _process(pid: int) -> psutil.Process:
    """Cache the handle of this process: creating it takes ten times as long as the query."""
    return psutil.Process(pid)


def tree_bytes(worker_pids: Iterable[int]) -> int:
    """Return the resident memory of this process and its workers; dead workers count as 0."""
    return own_bytes() + sum(map(_process_bytes, worker_pids))


def _process_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
