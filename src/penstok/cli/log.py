"""The log of a run: `--log FILE` gets the narration, the errors and the progress, with the time.

It is written beside what the terminal shows, never instead of it. A file that cannot be opened is
an error before anything is done; one that cannot be written to later never stops a job. `messages`
and `progress` write to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstok.errors import UsageError

if TYPE_CHECKING:
    import logging

    from penstok.jobs.progress import Progress, Status

__all__ = ["LoggedProgress", "is_open", "open_log", "write"]

_EVERY_SECONDS = 30.0
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
