"""How a setting is defined: once, as a field of a settings record.

The flag, the variable, the key of a configuration file and the keyword of the Python function are
all made from that field; nothing here knows a command. `JobSettings`, `TrainingSettings` and
`VerifySettings` define their fields with `setting`; `cli` and `api` read them with `settings_of`.
It imports nothing heavy, since `--help` reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import Field, field, fields
from keyword import iskeyword
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

from penstok.errors import UsageError
from penstok.quantities import parse_bytes, parse_count, parse_integer, parse_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "COUNT",
    "ESCAPED",
    "INTEGER",
    "NUMBER",
    "PATH",
    "SIZE",
    "SWITCH",
    "TEXT",
    "TEXTS",
    "TOKEN",
    "Kind",
    "Setting",
    "argument",
    "convert_argument",
    "define",
    "divide_fields",
    "make_fields",
    "python_only",
    "setting",
    "settings_of",
]


class Kind(NamedTuple):
    """The kind of value that a setting takes.

    Attributes:
        expected: What it is, for messages.
        annotation: The type of the keyword in Python.
        types: What a keyword, or a key of a configuration file, may be besides None.
        parse: Reads what was typed as a flag or a variable; also gets the flag, for its error.
        is_parsed: Text in a keyword or a key is parsed like a flag; otherwise it is taken as it is.
    """

    expected: str
    annotation: str
    types: tuple[type, ...]
    parse: Callable[[str, str], Any] | None = None
    is_parsed: bool = False


def _unescape(text: str, _flag: str) -> str:
    r"""Replace the escapes \n, \t, \r and \\, which shells make hard to type."""
    escapes = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}
    result, at = "", 0
    while at < len(text):
        pair = text[at : at + 2]
        result += escapes.get(pair, text[at])
        at += 2 if pair in escapes else 1
    return result


TEXT = Kind("text", "str", (str,))
ESCAPED = Kind("text", "str", (str,), _unescape)
PATH = Kind("a path", "str | os.PathLike[str]", (str, os.PathLike))
TEXTS = Kind("a list of texts", "str | Sequence[str]", (str, list, tuple))
TOKEN = Kind("a token, as text or id", "str | int", (str, Integral))
SWITCH = Kind("true or false", "bool", (bool,))
INTEGER = Kind("a whole number", "int", (Integral,), parse_integer)
NUMBER = Kind("a number", "float", (Real,), parse_number)
SIZE = Kind("a size such as `2GiB`", "int | str", (Real, str), parse_bytes, is_parsed=True)
COUNT = Kind("a count such as `500M`", "int | str", (Real, str), parse_count, is_parsed=True)


class Setting(NamedTuple):
    """One setting of a command.

    Attributes:
        name: The keyword in Python and the key in a configuration file: the flag without dashes.
        field: The field of the settings record.
        group: Its heading in `--help`.
        flags: Its spellings on the command line; none if it is a Python keyword only.
        metavar: What stands for its value in `--help`; empty if it is on or off.
        text: What it does, in one or two sentences.
        kind: What it takes.
        default: As it is typed: `1GiB`, not the number of bytes.
        choices: The words it can be set to, if there are only a few.
        in_python: Whether Python functions have it as a keyword.
        is_argument: It has no flag: its place on the command line says what it is.
    """

    name: str
    field: str
    group: str
    flags: tuple[str, ...]
    metavar: str
    text: str
    kind: Kind
    default: Any
    choices: tuple[str, ...] = ()
    in_python: bool = True
    is_argument: bool = False

    @property
    def flag(self) -> str:
        """The long spelling, for messages."""
        return self.flags[-1] if self.flags else self.metavar or self.name

    @property
    def value(self) -> Any:
        """The default as the settings record has it."""
        return self.convert(self.default, self.flag)

    def convert(self, value: Any, where: str) -> Any:
        """Convert the value of a keyword, or of a key in a configuration file.

        Raises:
            UsageError: If it is not of the right kind.
        """
        kind = self.kind
        if value is None and self.default is None:
            return None
        if kind is TEXTS:
            return self._convert_texts(value, where)
        is_switch = isinstance(value, bool)
        if is_switch != (kind is SWITCH) or not isinstance(value, kind.types):
            raise self._wrong_kind(value, where)
        if is_switch:
            return value
        if isinstance(value, os.PathLike):
            value = self._convert_path(value, where)
        if kind is TOKEN:
            return str(value)
        if isinstance(value, str):
            return kind.parse(value, where) if kind.is_parsed and kind.parse else value
        try:
            number = float(value) if kind is NUMBER else int(value)
        except (OverflowError, ValueError) as error:  # too large, infinite or not a number
            raise self._wrong_kind(value, where) from error
        if kind is not NUMBER and number != value:
            raise self._wrong_kind(value, where)
        return number

    def check(self, value: Any, where: str) -> Any:
        """Return a value, unless it is a word that the setting does not know.

        Raises:
            UsageError: If it is.
        """
        if self.choices and value is not None and value not in self.choices:
            raise UsageError(
                f"unknown value `{value}`; known: {', '.join(self.choices)}",
                where=where,
                next_step=f"pass `{self.flag} {self.choices[0]}`",
            )
        return value

    def _convert_texts(self, value: Any, where: str) -> tuple[str, ...]:
        several = [value] if isinstance(value, PATH.types) else value
        if not isinstance(several, Iterable) or isinstance(several, (bytes, bytearray)):
            raise self._wrong_kind(value, where)
        return tuple(self._convert_path(each, where) for each in several)

    def _convert_path(self, value: Any, where: str) -> str:
        path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
        if not isinstance(path, str):  # the path of a path-like object may be bytes
            raise self._wrong_kind(value, where)
        return path

    def _wrong_kind(self, value: Any, where: str) -> UsageError:
        expected = " or ".join(self.choices) or self.kind.expected
        if self.is_argument and self.kind is TEXTS:
            expected = "a path or a list of paths"
        is_not = "is text, not" if isinstance(value, str) else "is not"
        return UsageError(
            f"`{value}` {is_not} {expected}", where=where, next_step=f"pass {expected}"
        )


def define(
    group: str,
    names: str,
    text: str,
    *,
    kind: Kind = TEXT,
    default: Any = None,
    choices: tuple[str, ...] = (),
    field: str = "",
    in_python: bool = True,
) -> Setting:
    """Define a setting.

    Args:
        group: Its heading in `--help`.
        names: Its flags and what stands for its value, as in `-o --output OUT`.
        text: What it does.
        kind: What it takes.
        default: As it is typed.
        choices: The words it can be set to.
        field: The field of the settings record, if it has another name.
        in_python: Whether Python functions have it as a keyword.
    """
    words = names.split()
    flags = tuple(word for word in words if word.startswith("-"))
    name = flags[-1].removeprefix("--").replace("-", "_")
    # `--from` is `from_` in Python.
    name += "_" * iskeyword(name)
    metavar = words[-1] if words[-1] not in flags else ""
    return Setting(
        name, field or name, group, flags, metavar, text, kind, default, choices, in_python
    )


def setting(
    group: str,
    names: str,
    text: str,
    *,
    kind: Kind = TEXT,
    default: Any = None,
    choices: tuple[str, ...] = (),
    in_python: bool = True,
) -> Any:
    """Make a field of a settings record; its default is read as if it had been typed."""
    made = define(
        group, names, text, kind=kind, default=default, choices=choices, in_python=in_python
    )
    return _make_field(made)


def argument(metavar: str, text: str, *, kind: Kind) -> Any:
    """Make the field of a positional argument; its record checks that it was given."""
    return field(
        metadata={"setting": Setting("", "", "", (), metavar, text, kind, (), is_argument=True)}
    )


def python_only(default: int, text: str) -> Any:
    """Make a field that has a keyword in Python and no flag."""
    return _make_field(Setting("", "", "Run", (), "", text, INTEGER, default))


def _make_field(made: Setting) -> Any:
    return field(default=made.value, metadata={"setting": made})


def divide_fields(
    fields: Mapping[str, Any], settings: Iterable[Setting]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide fields into those of some settings and all others."""
    names = {each.field for each in settings}
    return (
        {name: value for name, value in fields.items() if name in names},
        {name: value for name, value in fields.items() if name not in names},
    )


def settings_of(record: type[Any]) -> tuple[Setting, ...]:
    """Return the settings that the fields of a record define."""
    return tuple(_named(each) for each in fields(record) if "setting" in each.metadata)


def _named(each: Field[Any]) -> Setting:
    made: Setting = each.metadata["setting"]
    return made._replace(field=each.name, name=made.name or each.name)


def convert_argument(name: str, kind: Kind, value: Any) -> Any:
    """Convert an argument that only a Python function has.

    Raises:
        UsageError: If it is not of the right kind.
    """
    return Setting(name, name, "", (), "", "", kind, "", is_argument=True).convert(value, name)


def make_fields(settings: Iterable[Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the values of Python keywords to the fields of a settings record."""
    given = (each for each in settings if each.name in values)
    return {each.field: each.convert(values[each.name], each.flag) for each in given}
