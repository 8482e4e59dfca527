"""The command line: from arguments to a command, its help, or a usage error.

It does no work of its own and imports a command only when that command is named. The commands are
the rows of `commands`; `flags` makes their flags, `messages` prints their errors.
"""

from __future__ import annotations

import atexit
import gc
import os
import resource
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

import click

from penstok.cli.commands import COMMANDS
from penstok.cli.flags import GROUPS, Argument, Flag, open_log
from penstok.cli.messages import ErrorReporter, print_data, print_error, say
from penstok.cli.streams import guard_streams
from penstok.cli.variables import find_unknown_variables
from penstok.errors import PenstokError, UsageError, own_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstok.cli.commands import CommandRow

__all__ = ["Command", "app", "main"]

_LEAST_ADDRESS_SPACE = 192 << 20
_COMPLETION_VARIABLE = "_PENSTOK_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")
# New objects, less those that are gone, before Python looks for garbage.
_GC_THRESHOLD = 200_000
_COMPLETION = (
    'bash  eval "$(penstok --show-completion bash)"   # add this to ~/.bashrc',
    'zsh   eval "$(penstok --show-completion zsh)"    # add this to ~/.zshrc',
    "fish  penstok --show-completion fish | source    # add this to ~/.config/fish/config.fish",
)


class CommandModule(Protocol):
    """What the module of a command defines; `run` returns the exit code."""

    EXAMPLES: Sequence[str]
    FLAGS: Sequence[Flag | Argument]
    run: Callable[..., int]


class Command(click.Command):
    """A command with the help layout and the usage errors of this project."""

    def __init__(self, row: CommandRow) -> None:
        module = cast("CommandModule", import_module(row.module))
        super().__init__(
            row.name,
            params=list(module.FLAGS),
            callback=module.run,
            help=row.summary,
            options_metavar="[FLAGS]",
        )
        self.examples: Sequence[str] = module.EXAMPLES
        self.flags: Sequence[Flag | Argument] = module.FLAGS
        self.exit_codes: dict[int, str] = row.exit_codes
        # Refused below, in words of our own.
        self.allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; a mistake in them is a usage error."""
        is_json = _wants_json(args)
        try:
            rest = super().parse_args(ctx, args)
            if rest and not ctx.resilient_parsing:
                raise UsageError(
                    f"unexpected argument `{rest[0]}`",
                    where=ctx.command_path,
                    next_step=f"leave it out, or run `{ctx.command_path} --help`",
                )
            open_log(ctx, is_parsed=True)
            return rest
        except (click.UsageError, PenstokError) as error:
            with suppress(UsageError):
                open_log(ctx, is_parsed=False)
            _exit_with(error, ctx, as_json=ctx.params.get("as_json", is_json))

    def invoke(self, ctx: click.Context) -> None:
        """Run the command, and exit with its code."""
        _refuse_small_address_space()
        for warning in find_unknown_variables():
            say(f"warning: {warning}", is_quiet=ctx.params.get("quiet", False))
        ctx.exit(super().invoke(ctx))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the purpose, examples, flags by group, and exit codes."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            formatter.write("".join(f"  {example}\n" for example in self.examples))
        with formatter.section("Arguments"):
            arguments = [each for each in self.flags if isinstance(each, Argument)]
            formatter.write_dl([(each.make_metavar(ctx), each.text) for each in arguments])
        flags = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        for group in GROUPS:
            members = [each for each in flags if getattr(each, "group", "Run") == group]
            if members:
                with formatter.section(group):
                    formatter.write_dl([_help_row(each, ctx) for each in members])
        first = next(each for each in self.flags if isinstance(each, Flag))
        with formatter.section("Environment"):
            formatter.write(f"  PENSTOK_<FLAG> sets a flag: {first.envvar} is {first.opts[-1]}.\n")
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in self.exit_codes.items()])


class CommandGroup(click.Group):
    """All commands; each is imported only when it is named."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> NoReturn:
        """Run what was typed, and exit with its code; no error leaves it as a traceback alone."""
        words = sys.argv[1:] if args is None else list(args)
        is_verbose = not {"-v", "--verbose"}.isdisjoint(words)
        with ErrorReporter(as_json=_wants_json(words), verbose=is_verbose, reads_only=True):
            _refuse_unknown_completion()
            code = super().main(words, *more, **{**extra, "standalone_mode": False})
        sys.exit(code)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return [row.name for row in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> Command | None:
        """Import one."""
        return next((Command(row) for row in COMMANDS if row.name == cmd_name), None)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what is typed before the command; nothing at all is a question for help."""
        if not args and not ctx.resilient_parsing:
            say(ctx.get_help())
            ctx.exit(UsageError.exit_code)
        is_json = _wants_json(args)
        try:
            return super().parse_args(ctx, args)
        except (click.UsageError, PenstokError) as error:
            _exit_with(error, ctx, as_json=is_json)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named."""
        name, names = args[0], self.list_commands(ctx)
        if name not in names and not ctx.resilient_parsing:
            from difflib import get_close_matches

            error = UsageError(
                f"unknown command `{name}`{_did_you_mean(get_close_matches(name, names))}",
                where="penstok",
                next_step="run `penstok --help`",
            )
            _exit_with(error, ctx, as_json=_wants_json(args))
        return name, self.get_command(ctx, name), args[1:]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the purpose, examples, commands and flags."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            formatter.write("  penstok tokenize corpus/ -o tokens/\n  penstok verify tokens/\n")
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.summary) for row in COMMANDS])
        with formatter.section("Flags"):
            flags = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
            formatter.write_dl([_help_row(each, ctx) for each in flags])
        with formatter.section("Shell completion"):
            formatter.write("".join(f"  {line}\n" for line in _COMPLETION))
        formatter.write("\n`penstok COMMAND --help` shows the flags and exit codes of a command.\n")


def _refuse_small_address_space() -> None:
    """Refuse a limit under which numpy's library would end the program with words of its own."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < _LEAST_ADDRESS_SPACE:
        raise UsageError(
            f"the shell allows only {limit >> 20} MiB of address space; the least is "
            f"{_LEAST_ADDRESS_SPACE >> 20} MiB",
            where="`ulimit -v`",
            next_step="raise the limit with `ulimit -v unlimited`, then run the same command again",
        )


def _help_row(flag: click.Option, ctx: click.Context) -> tuple[str, str]:
    names = ", ".join(flag.opts)
    value = "" if flag.is_flag else f" {flag.make_metavar(ctx)}"
    return names + value, flag.help or ""


def _refuse_unknown_completion() -> None:
    """Refuse a request of a shell that click would answer with silence."""
    wanted = os.environ.get(_COMPLETION_VARIABLE)
    known = [f"{shell}_{what}" for shell in _SHELLS for what in ("source", "complete")]
    if wanted and wanted not in known:
        raise UsageError(
            f"unknown value `{wanted}`; known: {', '.join(known)}",
            where=_COMPLETION_VARIABLE,
            next_step=f"run `unset {_COMPLETION_VARIABLE}`, then the same command again",
        )


def _wants_json(args: Sequence[str]) -> bool:
    """Guess whether `--json` is asked for, where the arguments cannot be parsed."""
    if any(word == "--json" or word.startswith("--json=") for word in args):
        return True
    try:
        return bool(click.BOOL.convert(os.environ.get("PENSTOK_JSON") or "false", None, None))
    except click.BadParameter:
        return True


def _exit_with(
    error: click.UsageError | PenstokError, ctx: click.Context, *, as_json: bool
) -> NoReturn:
    expected = error if isinstance(error, PenstokError) else _usage_error(error, ctx)
    print_error(expected, as_json=as_json)
    ctx.exit(expected.exit_code)


def _usage_error(error: click.UsageError, ctx: click.Context) -> UsageError:
    """Say what click found in three parts."""
    where, next_step = ctx.command_path, f"run `{ctx.command_path} --help`"
    if isinstance(error, click.NoSuchOption):
        hint = _did_you_mean(error.possibilities or ())
        what = f"unknown flag `{error.option_name}`{hint}"
    elif isinstance(error, click.BadOptionUsage):
        named = [each for each in ctx.command.params if error.option_name in each.opts]
        is_switch = any(isinstance(each, click.Option) and each.is_flag for each in named)
        what = f"`{error.option_name}` {'takes no value' if is_switch else 'needs a value'}"
    elif isinstance(error, click.MissingParameter) and error.param is not None:
        what = f"`{error.param.make_metavar(ctx)}` is missing"
        if isinstance(ctx.command, Command):
            next_step = f"name it, as in `{ctx.command.examples[0]}`"
    else:
        what = error.message[:1].lower() + error.message[1:].rstrip(".")
        if isinstance(error, click.BadParameter) and error.param is not None:
            where = error.param.opts[-1]
            if isinstance(error.param, Flag) and error.param.is_flag:
                what = f"`{error.param.resolve_envvar_value(ctx)}` is not true or false"
                next_step = f"run `export {error.param.envvar}=1`, or `unset {error.param.envvar}`"
    return UsageError(what, where=where, next_step=next_step)


def _did_you_mean(names: Sequence[str]) -> str:
    return f"; did you mean `{names[0]}`?" if names else ""


def _print_version(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        print_data(f"penstok {own_version()}")
        ctx.exit()


def _print_completion(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None or ctx.resilient_parsing:
        return
    from click.shell_completion import get_completion_class

    shell = get_completion_class(value)
    if shell is None:
        raise UsageError(
            f"unknown shell `{value}`; known: {', '.join(_SHELLS)}",
            where="--show-completion",
            next_step="run `penstok --show-completion bash`",
        )
    print_data(shell(app, {}, "penstok", _COMPLETION_VARIABLE).source())
    ctx.exit()


app: CommandGroup = CommandGroup(
    "penstok",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Print the version.",
        ),
        click.Option(
            ["--show-completion"],
            metavar="SHELL",
            expose_value=False,
            is_eager=True,
            callback=_print_completion,
            help=f"Print the completion script for a shell: {', '.join(_SHELLS)}.",
        ),
    ],
    options_metavar="[FLAGS]",
    help="Text of any size in, train.bin and val.bin out, in a fixed amount of memory.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main() -> None:
    """Run the command line."""
    guard_streams()
    # Nothing of what a command loads is garbage: 84 searches through it took 15 ms of a small job.
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
    # Without this numpy starts a thread per core, and they spin while they wait for work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Warnings about what libraries leave open are for `python -X dev` only.
    if not sys.flags.dev_mode:
        sys.unraisablehook = lambda _: None
    try:
        app.main(prog_name="penstok")
    except SystemExit as ending:
        _end_now(ending.code)
        raise


def _end_now(code: object) -> None:
    """End the process without freeing its objects one by one, a tenth of a short job's time.

    It is left to Python if something is still running, or if Python is asked to look for leaks.
    """
    if threading.active_count() > 1 or sys.flags.dev_mode or not isinstance(code, int):
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
