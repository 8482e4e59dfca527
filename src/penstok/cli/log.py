"""The log of a run: `--log FILE` gets the narration, the errors and the progress, with the time.

Lines are text, or JSON if the name ends in `.jsonl` or `.json`. It is written beside what the
terminal shows, never instead of it. A file that cannot be opened, or that the command reads or
writes otherwise, is an error before anything is done; one that cannot be written to later never
stops a job. `app` opens it; `messages` and `progress` write to it.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstok.errors import UsageError

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Iterator

    from penstok.jobs.progress import Progress, Status

__all__ = ["LoggedProgress", "is_foreign", "is_open", "open_log", "refuse_shared", "write"]

_EVERY_SECONDS = 30.0
_OUTSIDE = "choose a file outside of it"
_JSON_SUFFIXES = (".jsonl", ".json")
_FIRST_LINE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:,]+ \$ penstok\b"
    r'|\{"time": "[0-9T:.+-]+", "type": "start", "command": "penstok\b'
)
_TEXT, _JSON = "text", "json"
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
    is_json = path.lower().endswith(_JSON_SUFFIXES)
    handler.setFormatter(logging.Formatter("%(message)s" if is_json else "%(asctime)s %(message)s"))
    handler.set_name(_JSON if is_json else _TEXT)
    # A full disk must not end a job, nor fill the terminal with tracebacks.
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    _handlers.append(handler)
    write(f"$ {command}", {"type": "start", "command": command})


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
        start = reading.stream.read(128) if reading.stream else ""
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
        if any(_is_same(found, log) for found in _iter_files(each, log, with_hidden=False)):
            raise UsageError(
                f"the log is an input, or lies in an input folder: `{each}`",
                where=where,
                next_step=_OUTSIDE if Path(each).is_dir() else "choose another file",
            )
    if output is not None and any(
        _is_same(found, log) for found in _iter_files(output, log, with_hidden=True)
    ):
        raise UsageError(
            f"the log is the output, or lies in it: `{output}`",
            where=where,
            next_step=_OUTSIDE if Path(output).is_dir() else "choose another file",
        )


def _is_same(name: str, log: Path) -> bool:
    path = "/dev/stdin" if name == "-" else name
    try:
        return Path(path).samefile(log)
    except OSError:  # one of them is missing
        return os.path.realpath(path) == os.path.realpath(log)
    except ValueError:  # no name of a file
        return False


def _iter_files(name: str, log: Path, *, with_hidden: bool) -> Iterator[str]:
    """Yield what a file, folder or glob names; the log itself if it would be created there."""
    if os.path.isdir(name):  # noqa: PTH112 a Path may raise
        yield from _walk(name, log, with_hidden=with_hidden)
    elif name == "-" or os.path.lexists(name) or "://" in name or "\0" in name:
        yield name
    else:
        yield from glob.iglob(name, recursive=True)  # noqa: PTH207 keeps paths as typed


def _walk(top: str, log: Path, *, with_hidden: bool) -> Iterator[str]:
    """Yield what may be the log below a folder, also behind links; of a new log, its own name.

    The inputs are listed later, after the log was opened. So this walk asks for nothing that a
    folder's list does not say: not a single file is looked at unless it is a link or the log.
    """
    number, parent = _identify(log), _identify(log.parent)
    seen: set[tuple[int, int] | None] = {None}
    folders = [top]
    while folders:
        folder = folders.pop()
        identity = _identify(folder)
        if identity in seen:
            continue
        seen.add(identity)
        if identity == parent and (with_hidden or not log.name.startswith(".")):
            yield os.path.join(folder, log.name)  # noqa: PTH118 there can be many
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") and not with_hidden:
                    continue
                if entry.is_dir():
                    folders.append(entry.path)
                elif number and (entry.is_symlink() or entry.inode() == number[1]):
                    yield entry.path


def _identify(path: str | Path) -> tuple[int, int] | None:
    """Return the numbers that tell a file from all others; None if it is missing."""
    try:
        found = os.stat(path)  # noqa: PTH116 there can be many
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_open() -> bool:
    """Return whether there is a log."""
    return bool(_handlers)


def write(message: str, *records: dict[str, Any]) -> None:
    """Append what a command says, with the time.

    Args:
        message: For a log of text: each of its lines is one there.
        records: The same for a log of JSON; without them, the message is a record.
    """
    if not _handlers:
        return
    import logging

    for handler in _handlers:
        lines: Iterable[str] = message.splitlines()
        if handler.get_name() == _JSON:
            lines = _json_lines(records or ({"type": "message", "text": message},))
        for line in lines:
            handler.handle(logging.LogRecord("penstok", logging.INFO, "", 0, line, None, None))


def _json_lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    from datetime import datetime

    time = datetime.now().astimezone().isoformat(timespec="milliseconds")
    for record in records:
        yield json.dumps({"time": time, **record})


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
            from msgspec import to_builtins

            self._next = status.elapsed_seconds + self._every
            write(status.line().strip(), {"type": "status", **to_builtins(status)})
