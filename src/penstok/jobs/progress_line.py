"""The progress of a job as a line that is redrawn in place, in a notebook as a bar, or as calls.

It measures nothing: `progress` does, and passes a status a few times a second. It writes only to
the stream it is given: `cli` passes the terminal, and `api` does if a caller asked for progress.
In a notebook it updates one output of the cell instead.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from penstok.errors import UsageError
from penstok.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from penstok.jobs.progress import Progress, Status

__all__ = ["CallerProgress", "LineProgress", "NotebookProgress", "fit_line", "make_progress"]

_MIN_BAR, _BAR, _MAX_BAR = 4, 10, 30
# What is left out first where there is little room. The bar, how much is done, the rate and the
# time left are kept to the end.
_DISPENSABLE = ("memory", "units", "title", "nodes", "tokens", "retried", "slow", "tasks")
# The cursor waits at the start of the line. Where a narrower terminal has wrapped it, all of its
# rows are erased.
_CLEAR_LINE = "\r\x1b[J"


def make_progress(wanted: bool | Callable[[Status], object], title: str) -> Progress:  # noqa: FBT001 the keyword of every function
    """Make what shows progress as a caller asked for."""
    from penstok.jobs.progress import SilentProgress

    if callable(wanted):
        return CallerProgress(wanted)
    if not isinstance(wanted, bool):
        raise UsageError(
            f"`{wanted}` is not a function",
            where="progress",
            next_step="pass `progress=True`, or a function that takes a `penstok.Status`",
        )
    if not wanted:
        return SilentProgress()
    return NotebookProgress(title) if _is_notebook() else LineProgress(sys.stderr, title)


def _is_notebook() -> bool:
    """Tell whether this is the kernel of a notebook, without loading anything of it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class CallerProgress(Resource):
    """Passes each status to a function of the caller."""

    def __init__(self, function: Callable[[Status], object]) -> None:
        self._function = function

    def update(self, status: Status) -> None:
        """Pass it on."""
        self._function(status)


class NotebookProgress(Resource):
    """Shows a bar in the output of a cell; the last status stays there.

    Each status replaces the one before, so a notebook that is saved has one line of output. A line
    that is redrawn with carriage returns would leave all of them in the file.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._handle: Any = None

    def update(self, status: Status) -> None:
        """Replace what is shown."""
        from html import escape
        from importlib import import_module

        line = f"{self._title}  {status.line().strip()}"
        value = f'value="{status.fraction:.3f}"' if status.total_bytes else ""
        shown = {
            "text/plain": line,
            "text/html": f"<progress {value}></progress> <code>{escape(line)}</code>",
        }
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


class LineProgress(Resource):
    """Draws one line that is redrawn in place, and erased at the end.

    It never wraps: what does not fit the terminal is left out. Where there is no terminal, it is
    cleared with spaces.
    """

    def __init__(self, stream: TextIO, title: str) -> None:
        self._stream = stream
        self._title = title
        self._drawn = 0

    def __enter__(self) -> LineProgress:
        self._draw(f"{self._title}  starting"[: self._columns()])
        return self

    def close(self) -> None:
        """Erase the line."""
        self._draw("")

    def update(self, status: Status) -> None:
        """Redraw."""
        self._draw(fit_line(self._title, status, self._columns()))

    def _columns(self) -> int:
        """Return how long a line may be.

        The terminal may be resized at any time, and standard output may be a file. Its last column
        stays empty, since some terminals wrap when it is written.
        """
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (AttributeError, OSError, ValueError):
            columns = 0
        return (columns or shutil.get_terminal_size().columns) - 1

    def _draw(self, line: str) -> None:
        if self._stream.isatty():
            self._stream.write(f"{_CLEAR_LINE}{line}\r")
        else:
            self._stream.write(f"\r{' ' * self._drawn}\r{line}")
        self._stream.flush()
        self._drawn = len(line)


def fit_line(title: str, status: Status, columns: int) -> str:
    """Write a status in at most so many columns: what matters least is left out first."""
    fields = {"title": title} | {name: text.strip() for name, text in status.fields().items()}
    has_bar = status.total_bytes > 0
    for name in _DISPENSABLE:
        if _width(fields, has_bar=has_bar) <= columns:
            break
        fields.pop(name, None)
    if _width(fields, has_bar=has_bar, bar=_MIN_BAR) > columns:
        has_bar = False
    if _width(fields, has_bar=has_bar) > columns and not has_bar:
        fields.pop("rate", None)
    if has_bar:
        room = columns - _width(fields, has_bar=True, bar=0)
        cells = min(room, _MAX_BAR)
        filled = round(status.fraction * cells)
        fields["done"] = f"[{'#' * filled}{'.' * (cells - filled)}] {fields['done']}"
    if "title" in fields and has_bar:
        fields["done"] = f"{fields.pop('title')} {fields['done']}"
    return "  ".join(fields.values())[:columns]


def _width(fields: dict[str, str], *, has_bar: bool, bar: int = _BAR) -> int:
    """Return how long a line is with a bar of so many cells."""
    return len("  ".join(fields.values())) + (bar + 3 - ("title" in fields)) * has_bar
