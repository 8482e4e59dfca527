"""Flags and arguments of the commands, made from the definitions of their settings.

It parses single values and nothing else: settings that contradict each other are found by the
settings records, such as `JobSettings`. Every command makes its `FLAGS` here; `app` turns them
into a command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstok.cli.variables import CONFIG_PLACES
from penstok.errors import UsageError
from penstok.jobs.definition import ESCAPED, PATH, SWITCH, TEXTS, Setting, define

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.shell_completion import CompletionItem

__all__ = [
    "CONFIG",
    "GROUPS",
    "JSON",
    "LOG",
    "NO_PROGRESS",
    "QUIET",
    "RUN",
    "VERBOSE",
    "Argument",
    "Flag",
    "make_flags",
    "open_log",
    "out_argument",
]

# Where a context keeps the names of the log and of the configuration.
LOG_NAME = "penstok.log"
CONFIG_NAME = "penstok.config"
# The order of `--help`.
GROUPS = ("Input", "Tokenizer", "Check", "Output", "Run", "Cluster")


class Flag(click.Option):
    """A flag that `--help` shows in its group."""

    def __init__(self, setting: Setting) -> None:
        is_switch = setting.kind is SWITCH
        default = None if setting.default == () else setting.default
        text = setting.text
        if setting.kind is ESCAPED:
            text = rf"{text} \n, \t, \r and \\ are escapes."
        if default is not None and not is_switch:
            text = f"{text.removesuffix('.')} (default: {default})."
        # Eager: read first, so that an error in another flag is written as JSON and logged, too.
        super().__init__(
            [*setting.flags, setting.field],
            **({"is_flag": True} if is_switch else {"type": _Value(setting)}),
            metavar=setting.metavar or None,
            help=text,
            default=[default] if setting.kind is TEXTS and default is not None else default,
            multiple=setting.kind is TEXTS,
            envvar="PENSTOK_" + setting.name.rstrip("_").upper(),
            is_eager=setting.name in ("json", *_CALLBACKS),
            callback=_CALLBACKS.get(setting.name),
            expose_value=setting.name not in _CALLBACKS,
        )
        self.setting = setting

    @property
    def group(self) -> str:
        """Its heading in `--help`."""
        return self.setting.group


class Argument(click.Argument):
    """An argument with a line of its own in `--help`; one that takes many may be left out."""

    def __init__(self, setting: Setting) -> None:
        is_many = setting.kind is TEXTS
        super().__init__(
            [setting.field],
            type=_Value(setting),
            metavar=setting.metavar,
            nargs=-1 if is_many else 1,
            required=not is_many,
        )
        self.setting = setting
        self.text: str = setting.text

    def make_metavar(self, ctx: click.Context) -> str:
        """Write it as in the usage line: `[INPUT]...`."""
        return f"[{self.metavar}]..." if self.nargs == -1 else str(self.metavar)


class _Value(click.ParamType[Any]):
    """Reads one value, and completes it in a shell."""

    def __init__(self, setting: Setting) -> None:
        self.name = setting.metavar
        self._setting = setting

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read what was typed; a default or a value of a configuration file is read already."""
        parse = self._setting.kind.parse
        is_typed = isinstance(value, str) and parse is not None
        return parse(value, self._setting.flag) if is_typed and parse else value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete a word, or let the shell complete a file name."""
        from click.shell_completion import CompletionItem

        if self._setting.choices:
            words = self._setting.choices
            return [CompletionItem(word) for word in words if word.startswith(incomplete)]
        is_path = self._setting.is_argument or self._setting.kind.types == PATH.types
        return [CompletionItem(incomplete, type="file")] if is_path else []


def _read_config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and not ctx.resilient_parsing:
        from penstok.cli.config import read_config

        ctx.default_map, ctx.meta[CONFIG_PLACES] = read_config(value, str(ctx.info_name))
        ctx.meta[CONFIG_NAME] = value


def _keep_log(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keep the name of the log; it is opened when it is known what the command reads."""
    if not ctx.resilient_parsing:
        ctx.meta[LOG_NAME] = value


def open_log(ctx: click.Context, *, is_parsed: bool) -> None:
    """Open the log that was named, unless the command reads or writes the same file.

    Args:
        ctx: The context of the command.
        is_parsed: Whether the arguments could be read; otherwise its inputs are unknown, and what
            may be one of them is left alone.

    Raises:
        UsageError: If the log cannot be written, or is used for something else.
    """
    path: str | None = ctx.meta.pop(LOG_NAME, None)
    if path is None:
        return
    import shlex
    import sys

    from penstok.cli import log

    if not is_parsed and log.is_foreign(path):
        return
    if is_parsed:
        _refuse_shared_log(ctx, path)
    log.open_log(path, shlex.join(["penstok", *sys.argv[1:]]))


def _refuse_shared_log(ctx: click.Context, path: str) -> None:
    from penstok.cli import log

    values = ctx.params
    inputs = list(values.get("inputs", ()))
    listed = values.get("files_from")
    if listed is not None and Path(listed).is_file():
        from penstok.inputs.discovery import read_list

        inputs += read_list(listed, is_null=values.get("null", False))
    elif listed is not None and log.is_foreign(path):
        raise UsageError(
            "the log may be one of the inputs, whose names come from a pipe",
            where=f"--log {path}",
            next_step="choose a new file, or one that `--log` has written",
        )
    files = (listed, values.get("tokenizer"), ctx.meta.get(CONFIG_NAME))
    output = values.get("output")
    log.refuse_shared(
        path,
        inputs=inputs,
        files=[each for each in files if each is not None],
        output=None if output is None else str(output),
    )


# What is done as soon as the flag is read.
_CALLBACKS = {"config": _read_config, "log": _keep_log}


def make_flags(settings: Iterable[Setting]) -> tuple[Flag | Argument, ...]:
    """Make the flags and arguments of settings, in their order."""
    return tuple(
        Argument(each) if each.is_argument else Flag(each)
        for each in settings
        if each.is_argument or each.flags
    )


def out_argument(text: str) -> Setting:
    """Define the argument that names an output."""
    return Setting("output", "output", "", (), "OUT", text, PATH, None, is_argument=True)


def _switch(names: str, text: str, field: str = "") -> Setting:
    return define("Run", names, text, kind=SWITCH, default=False, field=field, in_python=False)


JSON = _switch("--json", "Write JSON lines to standard output.", "as_json")
QUIET = _switch("-q --quiet", "Print errors only.")
VERBOSE = _switch("-v --verbose", "Print a traceback with errors.")
NO_PROGRESS = _switch("--no-progress", "Don't show progress.")
LOG = define(
    "Run",
    "--log FILE",
    "Append messages and progress to a file, with the time, beside showing them; as JSON lines if "
    "its name ends in .jsonl or .json.",
    kind=PATH,
    in_python=False,
)
CONFIG = define(
    "Run",
    "--config FILE",
    "Read flags from a TOML file, or from [tool.penstok] in a pyproject.toml. Flags and variables "
    "override it.",
    kind=PATH,
    in_python=False,
)
RUN = (JSON, QUIET, VERBOSE, NO_PROGRESS, LOG, CONFIG)
