"""How a running command shows where it is: a line on a terminal, lines in a log, or JSON lines.

It measures nothing: `jobs.progress` does, and passes a status a few times a second. The commands
choose one of these by where their output goes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from penstok.jobs.progress import SilentProgress

if TYPE_CHECKING:
    from penstok.jobs.progress import Progress, Status

__all__ = ["JsonProgress", "PlainProgress", "TerminalProgress", "choose_progress", "fit_line"]

_PLAIN_SECONDS = 30.0
_JSON_SECONDS = 1.0
_BAR_WIDTH = 10
# Terminals narrower than this have no room for a title and a bar.
_MIN_BAR_COLUMNS = 60
_CLEAR_LINE = "\r\x1b[K"


def choose_progress(*, as_json: bool, silent: bool, title: str) -> Progress:
    """Choose how to show progress."""
    if silent:
        return SilentProgress()
    if as_json:
        return JsonProgress(sys.stdout)
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return PlainProgress(sys.stderr)
    return TerminalProgress(sys.stderr, title)


class PlainProgress(SilentProgress):
    """Writes a plain line now and then, for logs."""

    def __init__(self, stream: TextIO, every_seconds: float = _PLAIN_SECONDS) -> None:
        self._stream = stream
        self._every = every_seconds
        self._next = every_seconds

    def update(self, status: Status) -> None:
        """Write a line if it is time."""
        if status.elapsed_seconds >= self._next:
            self._next = status.elapsed_seconds + self._every
            print(time.strftime("[%H:%M]"), status.line(), file=self._stream, flush=True)


class JsonProgress(SilentProgress):
    """Writes a JSON line of type `status` now and then."""

    def __init__(self, stream: TextIO, every_seconds: float = _JSON_SECONDS) -> None:
        self._stream = stream
        self._every = every_seconds
        self._next = 0.0

    def update(self, status: Status) -> None:
        """Write a line if it is time."""
        if status.elapsed_seconds >= self._next:
            self._next = status.elapsed_seconds + self._every
            line = {"type": "status", **asdict(status)}
            print(json.dumps(line), file=self._stream, flush=True)


class TerminalProgress(SilentProgress):
    """Draws one line that is redrawn in place, and erased at the end.

    It never wraps: what does not fit the terminal is left out.
    """

    def __init__(self, stream: TextIO, title: str) -> None:
        self._stream = stream
        self._title = title

    def __enter__(self) -> TerminalProgress:
        self._draw(f"{self._title}  starting")
        return self

    def __exit__(self, *error: object) -> None:
        self._draw("")

    def update(self, status: Status) -> None:
        """Redraw."""
        # The terminal may be resized at any time. Its last column stays empty, since some
        # terminals wrap when it is written.
        columns = shutil.get_terminal_size().columns - 1
        self._draw(fit_line(self._title, status, columns))

    def _draw(self, line: str) -> None:
        self._stream.write(_CLEAR_LINE + line)
        self._stream.flush()


def fit_line(title: str, status: Status, columns: int) -> str:
    """Write a status in at most so many columns.

    How much is done and the time left, which come first and last, matter most; the fields between
    them are left out from the end.
    """
    fields = [field.strip() for field in status.line().split("  ") if field.strip()]
    if columns >= _MIN_BAR_COLUMNS:
        filled = round(status.fraction * _BAR_WIDTH)
        fields[0] = f"{title} [{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {fields[0]}"
    while len(fields) > 2 and len("  ".join(fields)) > columns:
        del fields[-2]
    return "  ".join(fields)[:columns]
