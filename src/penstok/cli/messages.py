"""What a command prints: data on standard output, narration and errors on standard error.

It decides nothing about a job. Every command runs inside an `ErrorReporter`, which turns an
error into its three-part message and exit code, and a signal into an interruption.
"""

from __future__ import annotations

import errno
import json
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

import click

from penstok.cli import log
from penstok.cli.streams import failure_of
from penstok.cli.variables import name_source
from penstok.errors import (
    InterruptedRunError,
    PenstokError,
    WriteError,
    expected_error,
    own_version,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType

__all__ = [
    "ErrorReporter",
    "escape",
    "one_line",
    "print_data",
    "print_error",
    "print_result",
    "quote",
    "say",
]


# Sent by a closing terminal, a scheduler or a shutdown; both stop a job like Ctrl-C.
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# What a shell reports of a program that SIGPIPE ended.
_EXIT_READER_GONE = 141
# Not printable to Python, but part of ordinary text: the spaces of Unicode, and the two joiners,
# without which words in Hindi and other scripts look different.
_PLAIN = frozenset(
    "\n\u00a0\u1680\u202f\u205f\u3000\u200c\u200d" + "".join(map(chr, range(0x2000, 0x200B)))
)


def print_data(text: str, *, ends_line: bool = True) -> None:
    """Print on standard output."""
    click.echo(text, nl=ends_line)


def print_result(
    lines: Sequence[str], *records: dict[str, Any], as_json: bool, is_quiet: bool
) -> None:
    """Print what a command has done: lines for people, and with `as_json` the records, too."""
    if as_json:
        print_data("\n".join(map(json.dumps, records)))
    say("\n".join(lines), *records, is_quiet=is_quiet)


def say(message: str, *records: dict[str, Any], is_quiet: bool = False) -> None:
    """Print on standard error, and write to the log; if `is_quiet`, only to the log.

    Args:
        message: Lines for people.
        records: The same for a log of JSON.
        is_quiet: Only for the log.
    """
    log.write(message, *records)
    if not is_quiet:
        click.echo(message, err=True)


def escape(text: str) -> str:
    """Make text from a corpus safe to print: no control sequence reaches the terminal."""
    return "".join(
        character if character.isprintable() or character in _PLAIN else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode() if character != "\t" else "\\t"


def one_line(text: str) -> str:
    """Make text safe to print within a line."""
    return escape(text).replace("\n", "\\n")


def quote(text: str) -> str:
    """Show text from a corpus within a line, in quotation marks."""
    return f"'{one_line(text)}'"


class ErrorReporter:
    """Turns an error inside its `with` into a message and an exit code.

    Args:
        as_json: Print the error as a JSON line, too.
        verbose: Print a traceback before the message.
        reads_only: The command writes nothing, so an interruption leaves nothing to continue.
    """

    def __init__(
        self, *, as_json: bool = False, verbose: bool = False, reads_only: bool = False
    ) -> None:
        self._as_json = as_json
        self._verbose = verbose
        self._reads_only = reads_only
        self._handlers: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> None:
        self._handlers = [(each, signal.signal(each, _interrupt)) for each in _STOP_SIGNALS]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._check_output()
            elif isinstance(error, (KeyboardInterrupt, click.Abort)):
                self._exit_with(_interruption(reads_only=self._reads_only))
            elif isinstance(error, Exception) and not isinstance(error, click.exceptions.Exit):
                expected = expected_error(error, reads_only=self._reads_only)
                if self._verbose or expected is None:
                    traceback.print_exception(error)
                self._exit_with(expected or _bug(error))
        finally:
            for each, handler in self._handlers:
                signal.signal(each, handler)

    def _check_output(self) -> None:
        """End with another code if data on standard output were lost."""
        failure = failure_of(sys.stdout)
        if failure is None:
            return
        if failure.errno != errno.EPIPE:
            self._exit_with(_lost_output(failure))
        if self._reads_only:
            raise SystemExit(_EXIT_READER_GONE)
        say("note: the program that read standard output is gone; the work was finished without it")

    def _exit_with(self, error: PenstokError) -> None:
        print_error(error, as_json=self._as_json)
        raise SystemExit(error.exit_code) from None


def _bug(error: Exception) -> PenstokError:
    return PenstokError(
        f"unexpected {type(error).__name__}: {error}",
        where=f"a bug in penstok {own_version()}",
        next_step="report this, with the traceback above",
    )


def _lost_output(failure: OSError) -> WriteError:
    is_closed = failure.errno == errno.EBADF
    return WriteError(
        "standard output is closed"
        if is_closed
        else f"standard output cannot be written: {failure.strerror}",
        where="standard output",
        next_step="send it to a file or a program that takes it, then run the same command again",
    )


def _interruption(*, reads_only: bool) -> InterruptedRunError:
    if reads_only:
        return InterruptedRunError(
            "interrupted; nothing was changed",
            next_step="run the same command again: it starts over",
        )
    return InterruptedRunError(
        "interrupted; finished work is kept",
        next_step="run the same command again: it continues",
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def print_error(error: PenstokError, *, as_json: bool) -> None:
    """Print an error: what, where, next; with `as_json` also as a JSON line."""
    name_source(error)
    record = {
        "type": "error",
        "what": error.what,
        "where": error.where,
        "next": error.next_step,
        "exit_code": error.exit_code,
    }
    # A name with a line break must not look like another part of the message.
    lines = [one_line(error.what)]
    lines += [f"  where: {one_line(error.where)}"] if error.where else []
    lines += [f"  next:  {one_line(error.next_step)}"] if error.next_step else []
    lines[0] = f"error: {lines[0]}"
    print_result(lines, record, as_json=as_json, is_quiet=False)
