"""How a running command shows where it is."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from penstok.jobs.progress import SilentProgress

if TYPE_CHECKING:
    from rich.console import Console

    from penstok.jobs.progress import Status

__all__ = ["JsonProgress", "PlainProgress", "TerminalProgress"]

_PLAIN_SECONDS = 30.0
_JSON_SECONDS = 1.0


class PlainProgress(SilentProgress):
    """Writes a plain line now and then, for logs."""

    def __init__(self, stream: TextIO, every_seconds: float = _PLAIN_SECONDS) -> None:
        self._stream = stream
        self._every = every_seconds
        self._next = every_seconds

    def update(self, status: Status) -> None:
        """Write a line if the last one is long ago."""
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
        """Write a line if the last one is long ago."""
        if status.elapsed_seconds >= self._next:
            self._next = status.elapsed_seconds + self._every
            line = {"type": "status", **asdict(status)}
            print(json.dumps(line), file=self._stream, flush=True)


class TerminalProgress:
    """Draws one line with a bar that is redrawn in place."""

    def __init__(self, console: Console, title: str) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[line]}"),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=1.0, line="starting")

    def __enter__(self) -> TerminalProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, status: Status) -> None:
        """Redraw."""
        fields: dict[str, Any] = {"line": status.line()}
        self._bar.update(self._task, completed=status.fraction, **fields)
