"""Flags and arguments of the commands, with the groups and environment variables they share.

It parses single values and nothing else: settings that contradict each other are found by
`JobSettings`. Every command builds its `FLAGS` from here; `app` turns them into a command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

__all__ = [
    "GROUPS",
    "JSON",
    "NO_PROGRESS",
    "OUT",
    "QUIET",
    "VERBOSE",
    "Argument",
    "Flag",
    "argument",
    "flag",
    "switch",
    "unescape",
]

# The order of `--help`.
GROUPS = ("Input", "Tokenizer", "Check", "Output", "Run", "Cluster")
# The placeholder for a path in `--help`.
_PATHS = ("[INPUT...]", "OUT", "FILE", "TOKENIZER")


class Flag(click.Option):
    """A flag that `--help` shows in its group."""

    group = "Run"


class Argument(click.Argument):
    """An argument with a line of its own in `--help`."""

    help = ""


def _complete_path(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete file names."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")] if param.metavar in _PATHS else []


def flag(
    group: str,
    names: str,
    text: str,
    *,
    default: object = None,
    parse: Callable[[str, str], Any] | None = None,
    multiple: bool = False,
) -> Flag:
    """Make a flag that takes a value.

    Args:
        group: Its heading in `--help`.
        names: As in `--help`: `-o --output OUT`, then the parameter's name if it is another.
        text: What it does, in one or two sentences.
        default: Shown in `--help` unless it is None.
        parse: Reads the text; also gets the flag, for its error.
        multiple: Whether it can be repeated.
    """
    long = _long(names)
    metavar = next(word for word in names.split() if word.isupper())
    result = Flag(
        [word for word in names.split() if word != metavar],
        type=str if parse is None else lambda value: _read(value, parse, long),
        metavar=metavar,
        shell_complete=_complete_path,
        help=text if default is None else f"{text.removesuffix('.')} (default: {default}).",
        default=default,
        multiple=multiple,
        envvar=_variable(long),
    )
    result.group = group
    return result


def switch(group: str, names: str, text: str, *, is_eager: bool = False) -> Flag:
    """Make a flag that is on or off."""
    result = Flag(
        names.split(), is_flag=True, help=text, is_eager=is_eager, envvar=_variable(_long(names))
    )
    result.group = group
    return result


def argument(name: str, metavar: str, text: str, *, many: bool = False) -> Argument:
    """Make a positional argument; one that takes many may be left out."""
    result = Argument(
        [name],
        metavar=f"[{metavar}...]" if many else metavar,
        shell_complete=_complete_path,
        nargs=-1 if many else 1,
        required=not many,
    )
    result.help = text
    return result


def _long(names: str) -> str:
    return next(name for name in names.split() if name.startswith("--"))


def _variable(long: str) -> str:
    return "PENSTOK_" + long.removeprefix("--").replace("-", "_").upper()


def _read(value: object, parse: Callable[[str, str], Any], long: str) -> Any:
    # A default may be a number already.
    return parse(value, long) if isinstance(value, str) else value


def unescape(text: str, _flag: str = "") -> str:
    r"""Replace the escapes \n, \t, \r and \\, which shells make hard to type."""
    escapes = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}
    result, at = "", 0
    while at < len(text):
        pair = text[at : at + 2]
        result += escapes.get(pair, text[at])
        at += 2 if pair in escapes else 1
    return result


OUT = argument("output", "OUT", "A finished output: a folder, or s3://BUCKET/NAME.")
# Eager: read first, so that an error in another flag is written as JSON, too.
JSON = switch("Run", "--json as_json", "Write JSON lines to standard output.", is_eager=True)
QUIET = switch("Run", "-q --quiet", "Print errors only.")
VERBOSE = switch("Run", "-v --verbose", "Print a traceback with errors.")
NO_PROGRESS = switch("Run", "--no-progress", "Don't show progress.")
