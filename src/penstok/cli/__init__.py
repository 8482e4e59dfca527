"""The command line. Only this package prints; each verb is a module of its own."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from penstok.cli.finish import finish
from penstok.cli.info import info
from penstok.cli.plan import plan
from penstok.cli.show import show
from penstok.cli.tokenize import tokenize
from penstok.cli.train import train_tokenizer
from penstok.cli.verify import verify

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    epilog="Exit codes: 0 done · 1 bug · 2 usage · 3 done, some input skipped · 4 input "
    "cannot be read · 5 output conflicts with this job · 7 locked by another run · 8 disk "
    "full or write failed · 130 interrupted"
)(tokenize)
app.command(epilog="Exit codes: 0 shown · 2 usage · 4 input cannot be read")(plan)
app.command(
    epilog="Exit codes: 0 shown · 2 usage · 4 object store cannot be read · 6 no finished job "
    "there, or damaged"
)(info)
app.command(
    epilog="Exit codes: 0 shown · 2 usage · 4 object store cannot be read · 6 no finished job "
    "there, or damaged"
)(show)

app.command(
    epilog="Exit codes: 0 whole · 1 bug · 2 usage · 4 an input or the object store cannot be read "
    "· 5 an input changed or another job is unfinished there · 6 damaged, or no finished job there "
    "· 7 locked by another run · 8 disk full or write failed · 130 interrupted"
)(verify)

app.command(
    "train-tokenizer",
    epilog="Exit codes: 0 done · 1 bug · 2 usage, or too little memory · 3 done, some input "
    "skipped · 4 input cannot be read · 5 the file is there already · 8 disk full or write "
    "failed · 130 interrupted",
)(train_tokenizer)

app.command(
    epilog="Exit codes: 0 done · 1 bug · 2 usage · 3 done, some input skipped · 4 no document in "
    "the input · 6 parts are missing, or no job there · 7 locked by another run · 8 disk full or "
    "write failed · 130 interrupted"
)(finish)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"penstok {version('penstok')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version)
    ] = False,
) -> None:
    """Text of any size in, train.bin and val.bin out, in a fixed amount of memory."""


def main() -> None:
    """Run the command line."""
    # A name that is not valid UTF-8 must not break a message.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # Else numpy starts a thread for each core, which spin until they are given something to do.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    app()
