"""The log of a run: `--log FILE` gets the narration, the errors and the progress, with the time.

It is written beside what the terminal shows, never instead of it. A file that cannot be opened, or
that the command reads or writes otherwise, is an error before anything is done; one that cannot be
written to later never stops a job. `app` opens it; `messages` and `progress` write to it.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from penstok.errors import UsageError

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Iterator

    from penstok.jobs.progress import Progress, Status

__all__ = ["LoggedProgress", "is_foreign", "is_open", "open_log", "refuse_shared", "write"]

_EVERY_SECONDS = 30.0
_OUTSIDE = "choose a file outside of it"
_FIRST_LINE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:,]+ \$ penstok ")
_handlers: list[logging.FileHandler] = []


def open_log(path: str, command: str) -> None:
    """Append to a file from now on; the first line is the command.

    Raises:
        UsageError: If it cannot be written.
    """
    import logging

    for handler in _handlers:
        handler.close()
    _handlers.clear()
    try:
        _refuse_pipe(path)
        handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(
            f"the log cannot be written: {error.strerror}",
            where=f"--log {path}",
            next_step="choose a file in a folder that exists and is writable",
        ) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    # A full disk must not end a job, nor fill the terminal with tracebacks.
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    _handlers.append(handler)
    write(f"$ {command}")


def _refuse_pipe(path: str) -> None:
    """Refuse a named pipe: opening it waits for a reader; the shell's `>(...)` has one."""
    try:
        is_pipe = stat.S_ISFIFO(Path(path).stat().st_mode)
    except OSError:
        return
    if is_pipe and not path.startswith("/dev/"):
        raise OSError(errno.EINVAL, "this is a named pipe")


def is_foreign(path: str) -> bool:
    """Tell whether a file holds something else than a log, so that it may be an input."""
    import logging

    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return False
        reading = logging.FileHandler(path, "r", encoding="utf-8", errors="replace")
        start = reading.stream.read(64) if reading.stream else ""
        reading.close()
    except OSError:
        return False
    return bool(start) and _FIRST_LINE.match(start) is None


def refuse_shared(
    path: str, *, inputs: Iterable[str], files: Iterable[str], output: str | None
) -> None:
    """Refuse a log that the command also reads or writes.

    Args:
        path: The log.
        inputs: Files, folders and globs, as typed; what else there is among them is ignored.
        files: Other files that are read.
        output: The output, if it is in a file or a folder.

    Raises:
        UsageError: If it is one of them, or lies in such a folder.
    """
    log = Path(path)
    where = f"--log {path}"
    for each in files:
        if _is_same(each, log):
            raise UsageError(
                f"the log is a file that this command reads: `{each}`",
                where=where,
                next_step="choose another file",
            )
    for each in inputs:
        if _is_below(log, each, with_hidden=False) or any(
            _is_same(found, log) for found in _iter_files(each)
        ):
            raise UsageError(
                f"the log is an input, or lies in an input folder: `{each}`",
                where=where,
                next_step=_OUTSIDE if Path(each).is_dir() else "choose another file",
            )
    if output is not None and (
        _is_below(log, output, with_hidden=True)
        or any(_is_same(found, log) for found in _iter_files(output))
    ):
        raise UsageError(
            f"the log is the output, or lies in it: `{output}`",
            where=where,
            next_step=_OUTSIDE if Path(output).is_dir() else "choose another file",
        )


def _is_same(name: str, log: Path) -> bool:
    try:
        return Path(name).samefile(log)
    except (OSError, ValueError):  # one of them is missing, or no name of a file
        return os.path.realpath(name) == os.path.realpath(log) if "\0" not in name else False


def _is_below(log: Path, folder: str, *, with_hidden: bool) -> bool:
    if not os.path.isdir(folder):  # noqa: PTH112 a Path may raise
        return False
    words = Path(os.path.relpath(os.path.realpath(log), os.path.realpath(folder))).parts
    is_hidden = any(word.startswith(".") for word in words)
    return words[0] != os.pardir and (with_hidden or not is_hidden)


def _iter_files(name: str) -> Iterator[str]:
    """Yield what a file, folder or glob names."""
    if os.path.isdir(name):  # noqa: PTH112 a Path may raise
        for folder, _, files in os.walk(name):
            yield from (os.path.join(folder, each) for each in files)  # noqa: PTH118 many
    elif os.path.lexists(name) or "://" in name or "\0" in name:
        yield name
    else:
        yield from glob.iglob(name, recursive=True)  # noqa: PTH207 keeps paths as typed


def is_open() -> bool:
    """Return whether there is a log."""
    return bool(_handlers)


def write(message: str) -> None:
    """Append lines, each with the time."""
    if not _handlers:
        return
    import logging

    for line in message.splitlines():
        for handler in _handlers:
            handler.handle(logging.LogRecord("penstok", logging.INFO, "", 0, line, None, None))


class LoggedProgress:
    """Shows progress, and writes a line to the log every 30 seconds."""

    def __init__(self, progress: Progress, every_seconds: float = _EVERY_SECONDS) -> None:
        self._progress = progress
        self._every = every_seconds
        self._next = 0.0

    def __enter__(self) -> LoggedProgress:
        self._progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.__exit__(*error)  # type: ignore[arg-type]

    def update(self, status: Status) -> None:
        """Pass it on, and log it if it is time."""
        self._progress.update(status)
        if status.elapsed_seconds >= self._next:
            self._next = status.elapsed_seconds + self._every
            write(status.line().strip())
