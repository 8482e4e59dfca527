"""URLs: the table of schemes, and which objects an argument names (one, a folder, a pattern).

It reads no content. Names come from the store's own listing; hidden names and the order are handled
as for local files. `inputs` resolves arguments with it, `files` opens objects through its table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstok.errors import InputError, UsageError
from penstok.storage.base import LOOKUP_RETRIES
from penstok.storage.fsspec_store import FsspecObject, iter_fsspec_urls
from penstok.storage.s3 import S3Object, iter_s3_urls
from penstok.storage.web import WebObject, hugging_face_object
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstok.storage.base import ObjectInfo, RemoteObject, RetryPolicy

__all__ = ["expand_url", "find_object", "get_object_info", "is_url"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAGIC = re.compile(r"[*?\[]")
_WILDCARD = re.compile(r"\*+|\?|\[!?[^\]]+\]")


class _Scheme(Struct, frozen=True):
    """How objects behind one URL scheme are reached.

    Attributes:
        find_object: Makes the object of a URL.
        iter_urls: Lists the URLs below a folder, or the one object; None if there is no listing.
        lists_prefixes: Whether `iter_urls` also takes part of a name.
    """

    find_object: Callable[[str], RemoteObject]
    iter_urls: Callable[[str], Iterator[str]] | None
    lists_prefixes: bool = False


_SCHEMES = {
    "http": _Scheme(WebObject, None),
    "https": _Scheme(WebObject, None),
    "s3": _Scheme(S3Object, iter_s3_urls, lists_prefixes=True),
    "s3a": _Scheme(S3Object, iter_s3_urls, lists_prefixes=True),
    "hf": _Scheme(hugging_face_object, iter_fsspec_urls),
}
_OTHER_SCHEME = _Scheme(FsspecObject, iter_fsspec_urls)


def is_url(argument: str) -> bool:
    """Tell a URL from a path."""
    return _URL.match(argument) is not None


def find_object(url: str) -> RemoteObject:
    """Return the object behind a URL; no request is made."""
    return _find_scheme(url).find_object(url)


def get_object_info(url: str, retries: RetryPolicy = LOOKUP_RETRIES) -> ObjectInfo:
    """Request an object's size and version, and whether the server returns ranges of it.

    Raises:
        InputError: If it is missing or cannot be read.
        UsageError: If a package is missing.
    """
    return retries.run(find_object(url).get_info, url)


def expand_url(
    argument: str,
    sort_key: Callable[[str], list[tuple[int, int, str]]],
    *,
    with_hidden: bool = False,
) -> list[str]:
    """List the objects that one argument names, sorted by `sort_key`.

    Args:
        argument: An object, a folder (everything below it except hidden names), or a pattern in
            which `**` matches folders at any depth. Web servers have no listing: one object only.
        sort_key: The sort key: `discovery.natural_key`.
        with_hidden: List hidden names of a folder too.

    Raises:
        InputError: If nothing is found.
        UsageError: If a package is missing, or a web server would have to be listed.
    """
    scheme = _find_scheme(argument)
    if scheme.iter_urls is None:
        if "*" in argument:
            raise UsageError(
                f"web servers have no listing to match the pattern `{argument}` with",
                where="INPUT",
                next_step="pass each URL separately",
            )
        return [argument]
    found = _list_matches(
        argument,
        scheme.iter_urls,
        lists_prefixes=scheme.lists_prefixes,
        with_hidden=with_hidden,
    )
    if not found:
        what = "no object matches" if _MAGIC.search(argument) else "no such object or folder:"
        raise InputError(
            f"{what} `{argument}`",
            where="INPUT",
            next_step="check the spelling; `**` matches folders at any depth, hidden names are "
            "left out",
        )
    return sorted(found, key=sort_key)


def _find_scheme(url: str) -> _Scheme:
    return _SCHEMES.get(url.partition("://")[0].lower(), _OTHER_SCHEME)


def _list_matches(
    argument: str,
    iter_urls: Callable[[str], Iterator[str]],
    *,
    lists_prefixes: bool,
    with_hidden: bool,
) -> list[str]:
    """List once, by the part of the name before any wildcard, and filter."""
    magic = _MAGIC.search(argument)
    prefix = argument[: magic.start()] if magic else argument
    if magic and not lists_prefixes:
        prefix = prefix[: prefix.rindex("/") + 1]
    names = [name for name in iter_urls(prefix) if not name.endswith("/")]
    if argument in names:
        return [argument]
    if magic:
        pattern = _compile(argument)
        return [name for name in names if pattern.fullmatch(name)]
    folder = argument.rstrip("/") + "/"
    return [
        name
        for name in names
        if name.startswith(folder) and (with_hidden or "/." not in "/" + name.removeprefix(folder))
    ]


def _compile(pattern: str) -> re.Pattern[str]:
    """Translate a pattern as a shell reads it: `*` stops at a slash and skips hidden names."""
    scheme, _, path = pattern.partition("://")
    segments = path.split("/")
    source = re.escape(f"{scheme}://")
    for idx, segment in enumerate(segments):
        is_last = idx == len(segments) - 1
        if segment == "**":
            source += r"(?:[^/.][^/]*/)*" + (r"[^/.][^/]*" if is_last else "")
        else:
            source += _compile_segment(segment) + ("" if is_last else "/")
    return re.compile(source)


def _compile_segment(segment: str) -> str:
    source = "" if segment.startswith(".") or not _MAGIC.search(segment) else r"(?!\.)"
    end = 0
    for match in _WILDCARD.finditer(segment):
        source += re.escape(segment[end : match.start()]) + _compile_wildcard(match[0])
        end = match.end()
    return source + re.escape(segment[end:])


def _compile_wildcard(wildcard: str) -> str:
    if wildcard.startswith("*"):
        return "[^/]*"
    if wildcard == "?":
        return "[^/]"
    choice = wildcard[1:-1].replace("\\", r"\\").replace("[", r"\[")
    if choice.startswith("!"):
        return f"[^/{choice[1:]}]"
    return "[" + choice.replace("^", r"\^") + "]"
