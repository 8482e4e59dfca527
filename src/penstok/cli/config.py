"""A configuration file: `--config FILE` sets flags from TOML.

A flag or a variable on the command line overrides it, and no file is read unless it is named. Each
value is checked and converted by the definition of its setting; `flags` makes the flag, and click
takes the values as defaults.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstok.cli.commands import COMMANDS
from penstok.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstok.jobs.definition import Setting

__all__ = ["read_config"]

_PROJECT_FILE = "pyproject.toml"
# `plan` shows what `tokenize` would do, so it reads the same table.
_ALSO = {"plan": "tokenize"}
_HINT = "write keys like the flags, as in `val-fraction = 0.01`"


def read_config(path: str, command: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return (values, places) that a file gives the flags of a command, by the settings' fields.

    Keys outside of a table apply to every command that has such a flag; those in a table with the
    name of a command apply to that command alone, and override the others.

    Raises:
        UsageError: If the file cannot be read, or has a key or a value that no flag takes.
    """
    settings = {row.name: _settings_of(row.module) for row in COMMANDS}
    content = _load(path)
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    for name, table in tables.items():
        if name not in settings:
            raise _unknown("table", f"[{name}]", path, list(settings))
        _refuse_unknown(table, settings[name], path, f"[{name}] ")
    flat = {name: value for name, value in content.items() if name not in tables}
    everything = {key: each for of_one in settings.values() for key, each in of_one.items()}
    _refuse_unknown(flat, everything, path, "")
    own = settings[command]
    found = list(_convert(flat, own, path, ""))
    for named in (_ALSO.get(command, command), command):
        found += _convert(tables.get(named, {}), own, path, f"[{named}] ")
    values = {field: value for field, value, _ in found}
    return values, {field: place for field, _, place in found}


def _settings_of(module: str) -> dict[str, Setting]:
    flags = import_module(module).FLAGS
    return {each.setting.name: each.setting for each in flags if each.setting.name != "config"}


def _load(path: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        content = tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(
            f"the configuration cannot be read: {error.strerror}",
            where=f"--config {path}",
            next_step="check the name with `ls -l`",
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            "the configuration is not UTF-8",
            where=f"{path}, byte {error.start}",
            next_step="save it as UTF-8",
        ) from error
    except ValueError as error:
        what, place = re.fullmatch(r"(.*?)(?: \(at (.*)\))?", str(error), re.DOTALL).groups()  # type: ignore[union-attr]
        raise UsageError(
            f"the configuration is not valid TOML: {what[:1].lower()}{what[1:]}",
            where=f"{path}, {place}" if place else path,
            next_step=_HINT,
        ) from error
    if Path(path).name != _PROJECT_FILE:
        return content
    tool = content.get("tool")
    found = tool.get("penstok") if isinstance(tool, dict) else None
    if not isinstance(found, dict):
        raise UsageError(
            "there is no table `[tool.penstok]`", where=path, next_step="write one, and its keys"
        )
    return found


def _refuse_unknown(
    table: dict[str, Any], known: dict[str, Setting], path: str, prefix: str
) -> None:
    seen: dict[str, str] = {}
    for key in table:
        name = key.replace("-", "_")
        if name not in known:
            names = [each.replace("_", "-") for each in known]
            raise _unknown("key", f"{prefix}{key}", path, names, key.replace("_", "-"))
        if name in seen:
            raise UsageError(
                f"the same key is set twice: `{seen[name]}` and `{key}`",
                where=f"{path}, {prefix}{key}",
                next_step="leave out one of them",
            )
        seen[name] = key


def _convert(
    table: dict[str, Any], settings: dict[str, Setting], path: str, prefix: str
) -> Iterator[tuple[str, Any, str]]:
    for key, value in table.items():
        setting = settings.get(key.replace("-", "_"))
        if setting is not None:
            where = f"{path}, {prefix}{key}"
            yield setting.field, setting.check(setting.convert(value, where), where), where


def _unknown(what: str, name: str, path: str, known: list[str], wanted: str = "") -> UsageError:
    from difflib import get_close_matches

    close = get_close_matches(wanted or name.strip("[]"), known, n=1)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    return UsageError(f"unknown {what} `{name}`{hint}", where=path, next_step=_HINT)
