"""Where the value of a flag came from: the command line, a variable or a configuration file.

It reads no value; `flags` and `config` do. `messages` names the variable or the key instead of the
flag in errors, and `app` warns of variables that set nothing.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from penstok.cli.commands import COMMANDS

if TYPE_CHECKING:
    from penstok.errors import PenstokError

__all__ = ["CONFIG_PLACES", "find_unknown_variables", "name_source"]

# Where a context keeps the places in a configuration file, by the fields that they set.
CONFIG_PLACES = "penstok.config.places"
_PREFIX = "PENSTOK_"
# Read by the kernel, and by the tests of this project.
_OTHER = ("PENSTOK_KERNEL_", "PENSTOK_FAULT", "PENSTOK_TEST_", "PENSTOK_CORPUS")


def name_source(error: PenstokError) -> None:
    """Name the variable or the key where an error names the flag that it set."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return
    places: dict[str | None, str] = ctx.meta.get(CONFIG_PLACES, {})
    for param in ctx.command.params:
        source = ctx.get_parameter_source(str(param.name))
        place = None
        if source is ParameterSource.ENVIRONMENT:
            place = str(param.envvar)
        elif source is ParameterSource.DEFAULT_MAP:
            place = places.get(param.name)
        if place is not None:
            flag = param.opts[-1] if isinstance(param, click.Option) else str(param.metavar)
            word = rf"(?<![\w/.-]){re.escape(flag)}(?![\w/.-])"
            error.where = re.sub(word, place.replace("\\", r"\\"), error.where)


def find_unknown_variables() -> list[str]:
    """Say which variables look as if they set a flag, and set none."""
    set_ones = [
        name for name in os.environ if name.startswith(_PREFIX) and not name.startswith(_OTHER)
    ]
    if not set_ones:
        return []
    from difflib import get_close_matches

    known = {each.envvar for row in COMMANDS for each in import_module(row.module).FLAGS}
    names = sorted(name for name in known if name)
    found = []
    for name in sorted(set(set_ones) - known):
        close = get_close_matches(name, names, n=1, cutoff=0.8)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        found.append(f"the variable `{name}` sets no flag{hint}")
    return found
