"""Whether an input is still what it was when a job read it: by size, time and first and last bytes.

It repairs nothing and reads no content. `probe` collects the facts; runs, repairs and
verification ask it before they trust an input again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.errors import ConflictError, InputError, quoted
from penstok.inputs.probe import probe_stored
from penstok.inputs.streams import STANDARD_INPUT
from penstok.quantities import plural
from penstok.storage import is_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstok.types import Source

__all__ = [
    "changed_meanwhile",
    "find_changed",
    "refuse_changed",
    "refuse_changed_meanwhile",
    "refuse_missing",
]


def find_changed(sources: Sequence[Source]) -> Source | None:
    """Find a local input that changed since the job was planned."""
    checked: Source | None = None
    for source in (each.stored for each in sources):
        if source is checked or source.path == STANDARD_INPUT or is_url(source.path):
            continue  # the one cannot be checked; every answer of a server is checked as it comes
        checked = source
        try:
            status = Path(source.path).stat()
        except OSError:
            return source
        if (status.st_size, status.st_mtime_ns) != (source.num_bytes, source.mtime_ns):
            return source
    return None


def changed_meanwhile(source: Source) -> InputError:
    """Return the error for an input that changed while the job ran."""
    return InputError(
        "the file changed while the job ran",
        where=source.path,
        next_step="wait until nothing writes to it, then start again with another `-o`, or delete "
        "this output first",
    )


def refuse_changed_meanwhile(sources: Sequence[Source]) -> None:
    """Refuse inputs that changed while a command read them that leaves no output behind.

    Raises:
        InputError: If one did.
    """
    changed = find_changed(sources)
    if changed is not None:
        raise InputError(
            "the file changed while it was read",
            where=changed.path,
            next_step="wait until nothing writes to it, then run the same command again",
        )


def refuse_missing(path: str) -> None:
    """Refuse an input of an earlier run that no longer exists.

    Raises:
        InputError: If it does not.
    """
    if not is_url(path) and not os.path.lexists(path):
        raise InputError(
            f"the input `{path}` is missing",
            where=f"seen from `{Path.cwd()}`",
            next_step="bring it back"
            if Path(path).is_absolute()
            else "run this from the folder in which the job was started, or bring it back",
        )


def refuse_changed(source: Source, *, by_time: bool = True) -> None:
    """Refuse an input that is not what it was when the job used it.

    Args:
        source: What it was.
        by_time: Whether another modification time is a change too; False where checksums of the
            tokens decide in the end.

    Raises:
        InputError: If it cannot be read.
        ConflictError: If it changed.
    """
    source = source.stored
    if source.path == STANDARD_INPUT:
        raise InputError(
            "this job read standard input, which cannot be read again",
            where=f"INPUT `{STANDARD_INPUT}`",
            next_step="leave out `--source`; to make the tokens again, pipe the text into "
            "`penstok tokenize - --overwrite`",
        )
    refuse_missing(source.path)
    found, _ = probe_stored(source.path)
    step = "restore the file the job used, or start again with `--overwrite`"
    if found.num_bytes != source.num_bytes:
        now = plural(found.num_bytes, "byte")
        what = f"the input has {now} now, {source.num_bytes:,} when it was used"
    elif found.edges != source.edges:
        what = "the content of the input changed since it was used"
    elif by_time and found.mtime_ns != source.mtime_ns:
        what = "the input was written to since it was used"
        seconds, rest = divmod(source.mtime_ns, 10**9)
        when = f"@{seconds}.{rest:09}"
        step = f"if it is the same text, run `touch -d {when} {quoted(source.path)}`"
    else:
        return
    raise ConflictError(what, where=source.path, next_step=step)
