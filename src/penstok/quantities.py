"""Numbers as people write them: counts with K M G, bytes also with KiB MiB GiB.

It parses and formats, and checks no limits. The command line and every message use it.
"""

from __future__ import annotations

import math
import re

from penstok.errors import UsageError

__all__ = [
    "format_bytes",
    "format_count",
    "format_seconds",
    "format_size",
    "parse_bytes",
    "parse_count",
    "parse_integer",
    "parse_number",
    "plural",
]

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)\s*", re.ASCII)
_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
_BYTE_UNITS = {
    "": 1,
    "b": 1,
    **{
        f"{letter}{tail}": 10**power
        for letter, power in zip("kmgt", (3, 6, 9, 12), strict=True)
        for tail in ("", "b")
    },
    **{f"{letter}ib": 2**power for letter, power in zip("kmgt", (10, 20, 30, 40), strict=True)},
}


def parse_count(text: str, flag: str) -> int:
    """Read a count such as `500M`."""
    return _parse(text, flag, _COUNT_UNITS, "a count such as `500M` (K, M, G are powers of ten)")


def parse_bytes(text: str, flag: str) -> int:
    """Read a number of bytes such as `1GiB` or `900MB`."""
    return _parse(text, flag, _BYTE_UNITS, "a size such as `1GiB` or `900MB`")


def parse_integer(text: str, flag: str, *, least: int | None = None) -> int:
    """Read a whole number."""
    expected = "a whole number" if least is None else f"a whole number, {least} or more"
    try:
        number = int(text) if text.isascii() else None
    except ValueError:
        number = None
    if number is None or (least is not None and number < least):
        raise UsageError(f"`{text}` is not {expected}", where=flag, next_step=f"pass {expected}")
    return number


def parse_number(text: str, flag: str) -> float:
    """Read a number such as `0.01`."""
    try:
        # Digits of other scripts are numbers to Python.
        return float(text.encode("ascii"))
    except ValueError as error:
        raise UsageError(
            f"`{text}` is not a number", where=flag, next_step="pass a number such as `0.01`"
        ) from error


def _parse(text: str, flag: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER.fullmatch(text)
    unit = units.get(match[2].lower()) if match is not None else None
    number = float(match[1]) * unit if match is not None and unit is not None else math.inf
    if number == math.inf:
        raise UsageError(f"`{text}` is not {expected}", where=flag, next_step=f"pass {expected}")
    return round(number)


def format_count(number: float) -> str:
    """Write a count in short form: 412, 61.2K, 16G."""
    return _scaled(number, 1000, ("", "K", "M", "G", "T"))


def plural(number: int, noun: str, *, is_short: bool = False) -> str:
    """Write a count with its noun: 1 document, 2,000 documents; in short form 2K documents."""
    count = format_count(number) if is_short else f"{number:,}"
    return f"{count} {noun}{'' if number == 1 else 's'}"


def format_bytes(number: float) -> str:
    """Write a size in short form, in powers of ten: 412 B, 1.5 GB."""
    return _scaled(number, 1000, (" B", " kB", " MB", " GB", " TB"))


def format_size(num_bytes: int) -> str:
    """Write a size exactly, as it would be typed: 16KiB, 1GiB, 1000."""
    units = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
    fitting = (each for each in units if num_bytes and num_bytes % each[0] == 0)
    size, unit = next(fitting, (1, ""))
    return f"{num_bytes // size}{unit}"


def format_seconds(seconds: float) -> str:
    """Write a duration: 3.2 s, 12:04, 3:20:11."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _scaled(number: float, step: int, names: tuple[str, ...]) -> str:
    power = 0
    while abs(number) >= step * 0.9995 and power < len(names) - 1:
        number /= step
        power += 1
    whole = power == 0 and number == int(number)
    return f"{int(number)}{names[power]}" if whole else f"{number:.3g}{names[power]}"
