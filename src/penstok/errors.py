"""The errors a user can act on: what happened, where, and what to type next.

It catches nothing. Every package raises these errors, and words failures of the operating system
through `read_error` and `limit_error`; `cli` turns an error into its message and exit code, and
passes whatever else reaches it through `expected_error`.

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

import errno
import os
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ConflictError",
    "DamageError",
    "EngineError",
    "InputError",
    "InterruptedRunError",
    "LockedError",
    "NotTextError",
    "PenstokError",
    "PenstokWarning",
    "UsageError",
    "WriteError",
    "expected_error",
    "is_refused",
    "limit_error",
    "own_version",
    "quoted",
    "read_error",
]

_AGAIN = "then run the same command again"
# Errors that only a mistake in this program can cause.
_OWN_MISTAKES = (errno.EBADF, errno.EFAULT, errno.EINVAL, errno.ENOTTY, errno.ESPIPE)
_WRITE_ONLY = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# How the loader of shared libraries says that memory is short.
_CANNOT_MAP = ("failed to map segment", "cannot allocate memory", "cannot create shared object")


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


class PenstokWarning(UserWarning):
    """Something about a finished job that its caller should know and can act on."""


class InterruptedRunError(PenstokError):
    """The run was interrupted; a rerun is safe."""

    exit_code = 130


def read_error(error: OSError, where: str, next_step: str = "") -> PenstokError:
    """Return the error for something that cannot be read."""
    return limit_error(error, where) or InputError(
        f"cannot be read: {error.strerror}",
        where=where,
        next_step=next_step or f"check the disk and the file's permissions, {_AGAIN}",
    )


def is_refused(error: OSError) -> bool:
    """Return whether a file may be fine, but this process cannot open it.

    It is then neither missing nor damaged, and must not be reported or repaired as such.
    """
    return isinstance(error, PermissionError) or limit_error(error, "") is not None


def limit_error(error: BaseException, where: str) -> UsageError | None:
    """Return the error for a limit of the system or the shell; None if it is something else."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        what, next_step = "too many open files", "raise the limit with `ulimit -n 1024`"
    elif number == errno.EAGAIN or "can't start new thread" in str(error):
        what = "the system allows no more processes or threads"
        next_step = "raise the limit with `ulimit -u`, or pass `-j 1`"
    elif number == errno.ENOMEM or any(map(_lacks_memory, _chain(error))):
        what = "not enough memory"
        next_step = "close other programs, or raise the limit with `ulimit -v unlimited`"
    else:
        return None
    return UsageError(what, where=where, next_step=f"{next_step}, {_AGAIN}")


def expected_error(error: BaseException, *, reads_only: bool) -> PenstokError | None:
    """Return the error for a failure that no package has named; None if it is a bug.

    Args:
        error: What was raised.
        reads_only: Nothing is written, so what failed was a read.
    """
    if isinstance(error, PenstokError):
        return error
    name = getattr(error, "filename", None)
    where = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
    if (limit := limit_error(error, where or "this computer")) is not None:
        return limit
    if not isinstance(error, OSError) or error.errno in (None, *_OWN_MISTAKES):
        return None
    if error.errno == errno.ENOENT and _is_adrift():
        return UsageError(
            "the current folder no longer exists",
            where="the shell in which the command was started",
            next_step="change to a folder that exists with `cd`, " + _AGAIN,
        )
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return UsageError(
            f"the name cannot be used: {error.strerror}",
            where=where[:100],
            next_step="pass a shorter name, or one without links to itself",
        )
    if reads_only and error.errno not in _WRITE_ONLY:
        return read_error(error, where)
    return WriteError(
        f"cannot be read or written: {error.strerror}",
        where=where,
        next_step=f"check the disk and the permissions, {_AGAIN}: it continues",
    )


def quoted(name: object) -> str:
    """Return the name of a file as it can be pasted into a shell; always one line."""
    import shlex

    text = str(name)
    # A name that begins like a flag would be taken for one.
    text = f"./{text}" if text.startswith("-") and text != "-" else text
    if text.isprintable():
        return shlex.quote(text)
    plain = "".join(map(_quoted_character, text))
    return f"$'{plain}'"


def _quoted_character(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors=errors))


def own_version() -> str:
    """Return the version of this package."""
    from penstok import __version__

    return __version__


def _is_adrift() -> bool:
    """Return whether the current folder was deleted."""
    try:
        os.getcwd()  # noqa: PTH109 `Path` would import pathlib for the sake of this
    except OSError:
        return True
    return False


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, ImportError):
        return any(words in str(error).lower() for words in _CANNOT_MAP)
    return isinstance(error, MemoryError)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
