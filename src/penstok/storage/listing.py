"""Which objects a URL stands for: one, all under a folder, or those that match a pattern.

It opens none of them. Names come from the service's own listing; what is hidden and how they are
sorted is the same as for local files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstok.errors import InputError, UsageError
from penstok.storage.retries import Retries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["expand_url", "is_url", "list_folder"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAGIC = re.compile(r"[*?\[]")
_STEP = re.compile(r"\*+|\?|\[!?[^\]]+\]")
_LISTINGS = Retries(num_tries=4)


def is_url(argument: str) -> bool:
    """Tell a URL from a path."""
    return _URL.match(argument) is not None


def expand_url(argument: str, sort_key: Callable[[str], list[tuple[int, int, str]]]) -> list[str]:
    """List the objects behind one argument, sorted by `sort_key`.

    Args:
        argument: An object, a folder (all under it, hidden names left out), or a pattern in which
            `**` goes into folders. From web servers, which have no listing, one object only.
        sort_key: What to sort by: `sources.natural_key`.

    Raises:
        InputError: If there is nothing.
        UsageError: If a package is missing, or a web server would have to be listed.
    """
    if argument.lower().startswith(("http://", "https://")):
        return [_web_name(argument)]
    found = _LISTINGS.run(lambda: _find(argument), argument)
    if not found:
        what = "no object matches" if _MAGIC.search(argument) else "no such object or folder:"
        raise InputError(
            f"{what} `{argument}`",
            where="INPUT",
            next_step="check the spelling; `**` goes into folders, hidden names are left out",
        )
    return sorted(found, key=sort_key)


def list_folder(url: str) -> dict[str, int]:
    """Return the names and sizes of the objects that lie directly in a folder of S3.

    Raises:
        InputError: If it cannot be listed.
    """
    from penstok.storage.s3 import iter_sizes

    folder = url.rstrip("/") + "/"

    def attempt() -> dict[str, int]:
        found = iter_sizes(folder, delimiter="/")
        return {name.removeprefix(folder): size for name, size in found if name != folder}

    return _LISTINGS.run(attempt, folder)


def _web_name(url: str) -> str:
    if "*" in url:
        raise UsageError(
            f"a web server has no listing to match a pattern with: `{url}`",
            where="INPUT",
            next_step="pass each URL by its name",
        )
    return url


def _find(argument: str) -> list[str]:
    """List once, from the fixed part of the name on, and choose among what is there."""
    magic = _MAGIC.search(argument)
    fixed = argument[: magic.start()] if magic else argument
    listed = _iter_names(fixed, is_folder=magic is None)
    names = [name for name in listed if not name.endswith("/")]
    if argument in names:
        return [argument]
    if magic:
        pattern = _compile(argument)
        return [name for name in names if pattern.fullmatch(name)]
    folder = argument.rstrip("/") + "/"
    return [
        name
        for name in names
        if name.startswith(folder) and "/." not in "/" + name.removeprefix(folder)
    ]


def _iter_names(fixed: str, *, is_folder: bool) -> Iterator[str]:
    """Yield the names that begin with `fixed`, perhaps others.

    Args:
        fixed: The name up to where a pattern begins.
        is_folder: Whether it ends at a whole name; fsspec lists nothing else.
    """
    if fixed.lower().startswith(("s3://", "s3a://")):
        from penstok.storage.s3 import iter_keys

        return iter_keys(fixed)
    from penstok.storage.generic import iter_names

    return iter_names(fixed if is_folder else fixed[: fixed.rindex("/") + 1])


def _compile(pattern: str) -> re.Pattern[str]:
    """Translate a pattern as the shell means it: `*` ends at a slash and skips hidden names."""
    scheme, _, path = pattern.partition("://")
    steps = path.split("/")
    source = re.escape(f"{scheme}://")
    for idx, step in enumerate(steps):
        is_last = idx == len(steps) - 1
        if step == "**":
            source += r"(?:[^/.][^/]*/)*" + (r"[^/.][^/]*" if is_last else "")
        else:
            source += _compile_step(step) + ("" if is_last else "/")
    return re.compile(source)


def _compile_step(step: str) -> str:
    source = "" if step.startswith(".") or not _MAGIC.search(step) else r"(?!\.)"
    at = 0
    for match in _STEP.finditer(step):
        source += re.escape(step[at : match.start()]) + _compile_sign(match[0])
        at = match.end()
    return source + re.escape(step[at:])


def _compile_sign(sign: str) -> str:
    if sign.startswith("*"):
        return "[^/]*"
    if sign == "?":
        return "[^/]"
    choice = sign[1:-1].replace("\\", r"\\").replace("[", r"\[")
    if choice.startswith("!"):
        return f"[^/{choice[1:]}]"
    return "[" + choice.replace("^", r"\^") + "]"
