"""The errors a user can act on: what happened, where, and what to type next.

It holds no logic and catches nothing. Every package raises these errors; `cli` turns an error
into its message and exit code.

    PenstokError            exit 1   a bug, or an engine that disagrees with the reference
    ├── UsageError                2   a flag or setting that cannot work
    ├── InputError                4   an input that cannot be read
    │   └── NotTextError          4   an input that is not text by its kind
    ├── ConflictError             5   the output conflicts with this job
    ├── DamageError               6   the output is damaged, or there is nothing to verify
    ├── LockedError               7   the output is locked by another run
    ├── WriteError                8   disk full or write failed; safe to rerun
    ├── EngineError               1   wrong ids, or a worker that keeps crashing
    └── InterruptedRunError     130   interrupted; safe to rerun
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ConflictError",
    "DamageError",
    "EngineError",
    "InputError",
    "InterruptedRunError",
    "LockedError",
    "NotTextError",
    "PenstokError",
    "UsageError",
    "WriteError",
]


class PenstokError(Exception):
    """An expected failure, reported in three parts.

    Args:
        what: What happened, with the value; lower-case, no full stop.
        where: File, offset, unit, flag: as exact as is known.
        next_step: A flag or command that works as typed.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all three parts; the default would lose the keyword arguments."""
        state = {"what": self.what, "where": self.where, "next_step": self.next_step}
        return (type(self), (self.what,), state)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.next_step:
            lines.append(f"  next:  {self.next_step}")
        return "\n".join(lines)


class UsageError(PenstokError):
    """A flag or setting that cannot work."""

    exit_code = 2


class InputError(PenstokError):
    """An input that is missing, unreadable, not text, or changed while it was read."""

    exit_code = 4


class NotTextError(InputError):
    """An input that is not text by its kind: a picture, a pipe, an output of Penstok.

    It is an error if the user named it; where it was found in a folder, it is ignored and listed.
    """


class ConflictError(PenstokError):
    """The output holds something that this job would overwrite or contradict."""

    exit_code = 5


class DamageError(PenstokError):
    """The output is damaged, incomplete or missing."""

    exit_code = 6


class LockedError(PenstokError):
    """The output is locked by another run."""

    exit_code = 7


class WriteError(PenstokError):
    """The output cannot be written; finished work is kept, and a rerun is safe."""

    exit_code = 8


class EngineError(PenstokError):
    """An engine gave other ids than the reference, or crashed its worker twice."""

    exit_code = 1


class InterruptedRunError(PenstokError):
    """The run was interrupted; a rerun is safe."""

    exit_code = 130
