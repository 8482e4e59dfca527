"""How a running command shows where it is: a line on a terminal, lines in a log, or JSON lines.

It measures nothing: `jobs.progress` does, and passes a status a few times a second. The commands
choose one of these by where their output goes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

from msgspec import to_builtins

from penstok.cli import log
from penstok.cli.log import LoggedProgress
from penstok.jobs.progress import SilentProgress
from penstok.jobs.progress_line import LineProgress

if TYPE_CHECKING:
    from penstok.jobs.progress import Progress, Status

__all__ = ["JsonProgress", "PlainProgress", "choose_progress"]

_PLAIN_SECONDS = 30.0
_JSON_SECONDS = 1.0


def choose_progress(*, as_json: bool, silent: bool, title: str) -> Progress:
    """Choose how to show progress; it also goes to the log if there is one."""
    shown = _choose_shown(as_json=as_json, silent=silent, title=title)
    return LoggedProgress(shown) if log.is_open() else shown


def _choose_shown(*, as_json: bool, silent: bool, title: str) -> Progress:
    if silent:
        return SilentProgress()
    if as_json:
        return JsonProgress(sys.stdout)
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return PlainProgress(sys.stderr)
    return LineProgress(sys.stderr, title)


class PlainProgress(SilentProgress):
    """Writes a plain line now and then, for logs."""

    def __init__(self, stream: TextIO, every_seconds: float = _PLAIN_SECONDS) -> None:
        self._stream = stream
        self._every = every_seconds
        self._next = every_seconds

    def update(self, status: Status) -> None:
        """Write a line if it is time; a new stage starts its clock again."""
        self._next = min(self._next, status.elapsed_seconds + self._every)
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
        """Write a line if it is time; a new stage starts its clock again."""
        self._next = min(self._next, status.elapsed_seconds + self._every)
        if status.elapsed_seconds >= self._next:
            self._next = status.elapsed_seconds + self._every
            line = {"type": "status", **to_builtins(status)}
            print(json.dumps(line), file=self._stream, flush=True)
