"""What a transport is: the way to one object behind a URL, and the words for its failures.

It asks nothing of a network itself. Each kind of URL has a transport of its own; files and streams
are built on any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstok.errors import InputError, PenstokError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "PIECE_BYTES",
    "READING",
    "Body",
    "MissingError",
    "PassingError",
    "Purpose",
    "RemoteFacts",
    "Transport",
    "changed",
    "close_connections",
    "explain_status",
    "missing_package",
    "on_close",
]

# Libraries make a copy of what one call reads; this bounds it.
PIECE_BYTES = 1 << 18
_FOUND_NOTHING = (404, 410)
_REFUSED = (401, 403, 407)
_PASSING = (408, 409, 425, 429)

_closers: list[Callable[[], None]] = []


@dataclass(frozen=True, slots=True)
class Purpose:
    """What requests are made for, which settles what is said when they fail.

    Attributes:
        error: The class of the error.
        done: What cannot be done, as in "cannot be read".
        place: What the URL is called on the command line.
        rights: What the credentials must allow, if more than reading.
        after: What to do when the cause is mended, if it is not plain.
    """

    error: type[PenstokError]
    done: str
    place: str
    rights: str = ""
    after: str = ""

    def failure(self, what: str, *, where: str, next_step: str) -> PenstokError:
        """Say that it cannot be done."""
        return self.error(
            f"cannot be {self.done}{what}", where=where, next_step=f"{next_step}{self.after}"
        )


READING = Purpose(InputError, "read", "INPUT")


@dataclass(frozen=True, slots=True)
class RemoteFacts:
    """An object as its server describes it.

    Attributes:
        num_bytes: Its size; None where the server does not tell.
        version: What differs when the object does (ETag, generation, date); empty if there is none.
        is_ranged: Whether any part of it can be asked for.
    """

    num_bytes: int | None
    version: str
    is_ranged: bool


class PassingError(Exception):
    """One try that failed in a way that may pass: cut, timed out, too busy.

    Args:
        answer: What was seen, for the message when the last try fails.
        wait_seconds: How long the server asks to be left alone; 0 if it does not say.
    """

    def __init__(self, answer: str, wait_seconds: float = 0) -> None:
        super().__init__(answer)
        self.answer = answer
        self.wait_seconds = wait_seconds


class MissingError(InputError):
    """There is no such object, says the server."""


class Body(Protocol):
    """The bytes of one answer, as they arrive."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of `buffer`; 0 is the end of the answer.

        Raises:
            PassingError: If the answer ends before its end.
        """

    def close(self) -> None:
        """Let go of the connection."""


class Transport(Protocol):
    """The way to one object; each call is one try."""

    def look(self) -> RemoteFacts:
        """Ask what the object is."""

    def ask(self, start: int, end: int | None, facts: RemoteFacts) -> Body:
        """Ask for the bytes from `start` to `end` of the object that `facts` describes.

        Without an `end` it asks for all of it, in one answer without ranges.

        Raises:
            PassingError: If it is worth another try.
            InputError: If it is not: not there, not allowed, changed.
        """


def changed(url: str, facts: RemoteFacts, answer: str) -> InputError:
    """Say that an object is no longer what it was."""
    return InputError(
        f"the file changed while it was read: {answer}",
        where=f"{url}, {facts.num_bytes} bytes when it was first looked at",
        next_step="wait until nothing writes to it, then run the same command again; a job that "
        "was begun with it needs `--overwrite`",
    )


def missing_package(url: str, package: str, extra: str, purpose: Purpose = READING) -> UsageError:
    """Say which package a URL needs."""
    return UsageError(
        f"the package `{package}` is needed for this kind of URL",
        where=url if purpose is READING else f"{purpose.place} `{url}`",
        next_step=f"pip install 'penstok[{extra}]'" if extra else f"pip install {package}",
    )


def explain_status(
    url: str,
    status: int,
    answer: str,
    *,
    credentials: str,
    wait_seconds: float = 0,
    purpose: Purpose = READING,
) -> PenstokError | PassingError:
    """Say what a status that is no success means.

    Args:
        url: Whose answer it is.
        status: The HTTP status.
        answer: What stands beside it.
        credentials: Where credentials for this URL come from.
        wait_seconds: How long the server asks to be left alone.
        purpose: What the request was made for.
    """
    said = f"the server answered {status} {answer}".rstrip()
    if status >= 500 or status in _PASSING:
        return PassingError(said, wait_seconds)
    # A bucket with another name may be somebody else's, who lets nobody write.
    if status in _FOUND_NOTHING or (status in _REFUSED and purpose is not READING):
        step = f"check the spelling, and the credentials{purpose.rights}: {credentials}"
    elif status in _REFUSED:
        step = f"check the credentials{purpose.rights}: {credentials}"
    else:
        step = "check the URL"
    if status in _FOUND_NOTHING and purpose is READING:
        return MissingError(f"cannot be read: {said}", where=url, next_step=step)
    return purpose.failure(f": {said}", where=url, next_step=step)


def on_close(closer: Callable[[], None]) -> None:
    """Note how to let go of connections that are kept for the next object."""
    _closers.append(closer)


def close_connections() -> None:
    """Let go of all connections of this process; the next request makes new ones."""
    while _closers:
        _closers.pop()()
