"""Memory and cores: what processes use, and whether a worker has reached its share.

It starts and stops no process. `jobs.memory` divides the budget, a worker asks whether it has
reached its share, and `jobs.progress` shows the total.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = [
    "MemoryShare",
    "num_cores",
    "own_bytes",
    "return_freed_memory",
    "total_bytes",
    "tree_bytes",
]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_IS_LINUX: bool = sys.platform == "linux"
_RUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024


class MemoryShare(Struct, frozen=True):
    """The memory that one worker may use."""

    limit_bytes: int
    block_bytes: int

    def is_reached(self) -> bool:
        """Return whether another block could exceed the limit."""
        return own_bytes() > self.limit_bytes - self.block_bytes


def num_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def total_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def own_bytes() -> int:
    """Return the resident memory of this process; its peak where there is no `/proc`."""
    try:
        # A worker asks after each block; psutil opens and parses the same file each time, which
        # took 2 % of a worker's time.
        return int(os.pread(_open_statm(os.getpid()), 64, 0).split()[1]) * _PAGE_BYTES
    except OSError:
        return _process_bytes(os.getpid()) or (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RUSAGE_UNIT
        )


def return_freed_memory() -> None:
    """Let the C library give freed memory back to the system, if it can (glibc)."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@lru_cache(maxsize=1)
def _open_statm(pid: int) -> int:
    """Keep the file open; after a fork, the parent's is replaced."""
    return os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)


def tree_bytes(worker_pids: Iterable[int]) -> int:
    """Return the resident memory of this process and its workers; what is not known is 0."""
    return own_bytes() + sum(map(_process_bytes, worker_pids))


def _process_bytes(pid: int) -> int:
    if _IS_LINUX:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 quick
                return int(file.read().split()[1]) * _PAGE_BYTES
        except OSError:
            return 0
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.Error, OSError):
        return 0
