"""The interface of every kind of store: a remote object, its errors, and the retry policy.

It makes no requests. `s3`, `web` and `fsspec_store` implement the interface, `urls` chooses one of
them by the URL's scheme, and `files` reads through it.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstok.errors import InputError, PenstokError, UsageError
from penstok.types import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CHUNK_BYTES",
    "CONNECT_SECONDS",
    "LOOKUP_RETRIES",
    "MAX_CONNECTIONS",
    "READ",
    "READ_SECONDS",
    "Body",
    "ObjectInfo",
    "ObjectMissingError",
    "Operation",
    "RemoteObject",
    "RetryPolicy",
    "TransientError",
    "changed_error",
    "close_connections",
    "first_line",
    "missing_package_error",
    "register_closer",
    "status_error",
]

# Client libraries copy what one call reads; this limits the copy.
CHUNK_BYTES = 1 << 18
CONNECT_SECONDS, READ_SECONDS = 15, 45
MAX_CONNECTIONS = 16
_NOT_FOUND = (404, 410)
_FORBIDDEN = (401, 403, 407)
_TRANSIENT = (408, 409, 425, 429)
# A longer Retry-After would block a worker for nothing: the request is repeated after this.
_MAX_RETRY_AFTER_SECONDS = 60.0

_Result = TypeVar("_Result")
_closers: list[Callable[[], None]] = []


class ObjectInfo(Struct, frozen=True):
    """Size and version of an object, as the server reports them.

    Attributes:
        num_bytes: Its size; None if the server does not report it.
        version: Changes when the object does (ETag, generation, date); empty if there is none.
        has_ranges: Whether the server returns parts of it.
    """

    num_bytes: int | None
    version: str
    has_ranges: bool


class Body(Protocol):
    """The body of one response, read as it arrives."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill part of `buffer`; 0 means the end of the body.

        Raises:
            TransientError: If the connection breaks.
        """

    def close(self) -> None:
        """Release the connection."""


class RemoteObject(Protocol):
    """One object behind a URL; each call is one attempt, without retries."""

    def get_info(self) -> ObjectInfo:
        """Request size and version."""

    def open_range(self, start: int, end: int | None, info: ObjectInfo) -> Body:
        """Request the bytes from `start` to `end` of the version that `info` describes.

        Without an `end` the whole object is requested, without a range.

        Raises:
            TransientError: If a retry may help.
            InputError: If it cannot: missing, forbidden, changed.
        """


class TransientError(Exception):
    """One attempt failed in a way that a retry may fix: disconnected, timed out, overloaded.

    Args:
        reason: What happened, for the message if the last attempt fails too.
        retry_after_seconds: How long the server asks to wait; 0 if it does not say.
    """

    def __init__(self, reason: str, retry_after_seconds: float = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class ObjectMissingError(InputError):
    """The server says that there is no such object."""


class Operation(Struct, frozen=True):
    """What requests are made for, which decides the error raised when they fail.

    Attributes:
        error: The error class.
        done: A participle, as in "cannot be read".
        argument: What the URL is called on the command line.
        permissions: What the credentials must allow, if more than reading.
        then: What to do after the cause is fixed, if it is not obvious.
    """

    error: type[PenstokError]
    done: str
    argument: str
    permissions: str = ""
    then: str = ""

    def failure(self, reason: str, *, where: str, next_step: str) -> PenstokError:
        """Make the error for a failure that a retry cannot fix."""
        return self.error(
            f"cannot be {self.done}: {reason}", where=where, next_step=f"{next_step}{self.then}"
        )

    def credentials_failure(self, reason: str, *, where: str, credentials: str) -> PenstokError:
        """Make the error for missing or unusable credentials."""
        step = f"check the credentials{self.permissions}: {credentials}"
        return self.failure(reason, where=where, next_step=step)


READ = Operation(InputError, "read", "INPUT")


class RetryPolicy(Struct, frozen=True):
    """Exponential backoff with jitter, so that many workers do not return at once.

    With the defaults the delays add up to half a minute at most.
    """

    max_tries: int = 6
    first_delay_seconds: float = 1.0
    max_delay_seconds: float = 30.0

    def run(
        self, attempt: Callable[[], _Result], where: str, operation: Operation = READ
    ) -> _Result:
        """Call `attempt` until it raises no `TransientError`.

        Raises:
            PenstokError: If the last attempt fails too: the error of the operation.
        """
        num_failed = 0
        while True:
            try:
                return attempt()
            except TransientError as error:  # noqa: PERF203 each turn is a request
                num_failed += 1
                if num_failed >= self.max_tries:
                    raise operation.error(
                        f"cannot be {operation.done} after {num_failed} tries: {error.reason}",
                        where=where,
                        next_step="run the same command again: it continues",
                    ) from error
                time.sleep(self.delay_seconds(num_failed, error.retry_after_seconds))

    def delay_seconds(self, num_failed: int, retry_after_seconds: float = 0) -> float:
        """Return how long to wait after `num_failed` failures: at least what the server asks."""
        delay = min(self.first_delay_seconds * (1 << num_failed - 1), self.max_delay_seconds)
        jittered = delay * random.uniform(0.5, 1.0)
        return max(jittered, min(retry_after_seconds, _MAX_RETRY_AFTER_SECONDS))


# For info and listings: a mistyped host name should not take half a minute to be reported.
LOOKUP_RETRIES = RetryPolicy(max_tries=4)


def changed_error(url: str, info: ObjectInfo, found: str) -> InputError:
    """Make the error for an object that is no longer the version in `info`."""
    return InputError(
        f"the file changed while it was read: {found}",
        where=f"{url}, {info.num_bytes} bytes when it was first checked",
        next_step="wait until nothing writes to it, then run the same command again; a job that "
        "started with the old version needs `--overwrite`",
    )


def missing_package_error(
    url: str, package: str, extra: str, operation: Operation = READ
) -> UsageError:
    """Make the error for a URL that needs a package which is not installed."""
    return UsageError(
        f"the package `{package}` is needed for this kind of URL",
        where=url if operation is READ else f"{operation.argument} `{url}`",
        next_step=f"pip install 'penstok[{extra}]'" if extra else f"pip install {package}",
    )


def status_error(
    url: str,
    status: int,
    message: str,
    *,
    credentials: str,
    retry_after_seconds: float = 0,
    operation: Operation = READ,
) -> PenstokError | TransientError:
    """Make the error for an HTTP status that is not a success.

    Args:
        url: The object that was requested.
        status: The HTTP status.
        message: The text beside it.
        credentials: Where credentials for this URL come from.
        retry_after_seconds: How long the server asks to wait.
        operation: What the request was made for.
    """
    reason = f"the server answered {status} {message}".rstrip()
    if status >= 500 or status in _TRANSIENT:
        return TransientError(reason, retry_after_seconds)
    # A mistyped bucket may belong to somebody else, who does not allow writing.
    if status in _NOT_FOUND or (status in _FORBIDDEN and operation is not READ):
        step = f"check the spelling, and the credentials{operation.permissions}: {credentials}"
    elif status in _FORBIDDEN:
        return operation.credentials_failure(reason, where=url, credentials=credentials)
    else:
        step = "check the URL"
    if status in _NOT_FOUND and operation is READ:
        return ObjectMissingError(f"cannot be read: {reason}", where=url, next_step=step)
    return operation.failure(reason, where=url, next_step=step)


def first_line(error: BaseException) -> str:
    """Return what fits into a message of a library's error."""
    return str(error).split("\n", 1)[0][:200]


def register_closer(closer: Callable[[], None]) -> None:
    """Register how to close connections that are kept open for the next object."""
    _closers.append(closer)


def close_connections() -> None:
    """Close all connections of this process; the next request opens new ones."""
    while _closers:
        _closers.pop()()
