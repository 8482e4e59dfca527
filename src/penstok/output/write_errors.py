"""What the system says when an output cannot be written, as errors with a next step.

It writes nothing. Everything in `output` that does uses it.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from penstok.errors import PenstokError, WriteError, limit_error, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.storage.object_paths import OutputPath

__all__ = ["write_error", "write_errors"]


@contextlib.contextmanager
def write_errors(path: OutputPath) -> Iterator[None]:
    """Turn an operating system error during a write into a `WriteError` with a next step."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error


def write_error(error: OSError, path: OutputPath) -> PenstokError:
    """Return the error for a failed write; finished units are not lost."""
    if (limit := limit_error(error, str(path))) is not None:
        return limit
    what, next_step = f"cannot be written: {error.strerror}", ""
    if error.errno == errno.ENOSPC:
        what, next_step = "the disk is full", "free some space"
    elif error.errno == errno.EDQUOT:
        what, next_step = "the disk quota is used up", "free some space, or ask for a larger quota"
    elif error.errno == errno.EFBIG:
        what = "the file would be larger than the shell or the file system allows"
        next_step = "raise the limit with `ulimit -f unlimited`, or choose another `-o`"
    elif error.errno == errno.EROFS:
        what, next_step = (
            "the file system is read-only",
            "choose another `-o`, or mount it writable",
        )
    if next_step:
        next_step += ", then run the same command again: it continues"
    else:
        quoted_folder = quoted(path.parent)
        next_step = (
            f"check `ls -ld {quoted_folder} {quoted(path)}` and `df {quoted_folder}`, then run "
            "the same command again"
        )
    return WriteError(what, where=str(path), next_step=next_step)
