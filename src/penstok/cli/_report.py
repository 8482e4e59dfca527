"""How every command ends: an error in three parts, or what it has to say."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from penstok.errors import InterruptedRunError, PenstokError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["errors_reported", "escape", "say"]


# What a terminal that closes, a scheduler and a shutdown send; each stops like Ctrl-C.
_STOPPING = (signal.SIGTERM, signal.SIGHUP)


def say(message: str) -> None:
    """Narrate on standard error."""
    typer.echo(message, err=True)


def escape(text: str) -> str:
    """Make text from a corpus safe to show: no control sequence reaches the terminal."""
    return "".join(
        character if character.isprintable() or character == "\n" else _spell(character)
        for character in text
    )


def _spell(character: str) -> str:
    return character.encode("unicode_escape").decode() if character != "\t" else "\\t"


@contextmanager
def errors_reported(
    *, as_json: bool = False, verbose: bool = False, reads_only: bool = False
) -> Iterator[None]:
    """Turn an error into its message and exit code.

    A command that `reads_only` has nothing to keep or to continue when it is interrupted.
    """
    before = [(number, signal.signal(number, _interrupt)) for number in _STOPPING]
    try:
        yield
    except KeyboardInterrupt:
        stopped = _interrupted(reads_only=reads_only)
        _report(stopped, as_json=as_json)
        raise typer.Exit(stopped.exit_code) from None
    except PenstokError as error:
        if verbose:
            traceback.print_exc()
        _report(error, as_json=as_json)
        raise typer.Exit(error.exit_code) from error
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _interrupted(*, reads_only: bool) -> InterruptedRunError:
    if reads_only:
        return InterruptedRunError(
            "interrupted; nothing was changed",
            next_step="run the same command again: it begins anew",
        )
    return InterruptedRunError(
        "interrupted; what is finished is kept",
        next_step="run the same command again: it continues",
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _report(error: PenstokError, *, as_json: bool) -> None:
    if as_json:
        line = {
            "type": "error",
            "what": error.what,
            "where": error.where,
            "next": error.next_step,
            "exit_code": error.exit_code,
        }
        print(json.dumps(line), file=sys.stdout, flush=True)  # noqa: T201
    say(f"error: {escape(str(error))}")
