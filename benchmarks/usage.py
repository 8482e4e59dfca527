"""What was used: the record that every measurement is, and a clock for this process.

It imports little, because scripts import it whose startup is measured. `measure` takes the usage of
whole process trees.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """What a contender used in one turn, and what it made."""

    wall_seconds: float = 0.0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    page_faults: int = 0
    num_bytes: int = 0
    num_tokens: int = 0

    @property
    def cpu_seconds(self) -> float:
        """User and system time."""
        return self.user_seconds + self.system_seconds

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(mine + theirs for mine, theirs in zip(self.row(), other.row(), strict=True)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*(mine - theirs for mine, theirs in zip(self.row(), other.row(), strict=True)))

    def row(self) -> tuple[Any, ...]:
        """Return the fields in order, as they are stored."""
        return (
            *(self.wall_seconds, self.user_seconds, self.system_seconds),
            *(self.page_faults, self.num_bytes, self.num_tokens),
        )


class Clock:
    """Measures this process from its creation on."""

    def __init__(self) -> None:
        self._wall, self._usage = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)

    def stop(self, num_bytes: int, num_tokens: int) -> Usage:
        """Return what was used since then."""
        usage, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        return from_rusage(usage, wall, num_bytes, num_tokens) - from_rusage(
            self._usage, self._wall, 0, 0
        )


def from_rusage(
    usage: resource.struct_rusage, wall_seconds: float, num_bytes: int, num_tokens: int
) -> Usage:
    """Take over what the system says about a process."""
    faults = usage.ru_minflt + usage.ru_majflt
    return Usage(wall_seconds, usage.ru_utime, usage.ru_stime, faults, num_bytes, num_tokens)
