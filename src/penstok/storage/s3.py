"""Objects in S3 and what speaks like it, through botocore: signed, ranged, pinned to one version.

It takes endpoint, region, profile and credentials from the environment as the AWS tools do, and
asks unsigned where there are no credentials. It retries nothing itself; `retries` does. What is
written goes through `s3_folder`, which makes its requests here.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import os
import threading
from typing import TYPE_CHECKING, Any

from penstok.storage.base import (
    READING,
    PassingError,
    RemoteFacts,
    changed,
    explain_status,
    missing_package,
    on_close,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstok.errors import PenstokError
    from penstok.storage.base import Body, Purpose

__all__ = [
    "S3Transport",
    "call_s3",
    "encode_md5",
    "explain_error",
    "iter_keys",
    "iter_sizes",
    "load_body",
]

_CONNECT_SECONDS, _READ_SECONDS = 15, 45
_MAX_CONNECTIONS = 16
_CREDENTIALS = (
    "`AWS_PROFILE`, or `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`; "
    "`AWS_ENDPOINT_URL` for other services than Amazon's"
)
# Whatever the status beside them is.
_PASSING_CODES = ("SlowDown", "RequestTimeout", "InternalError", "BadDigest")
_client_lock = threading.Lock()


class S3Transport:
    """The way to one object."""

    def __init__(self, url: str) -> None:
        self._url = url
        bucket, _, key = url.partition("://")[2].partition("/")
        self._place = {"Bucket": bucket, "Key": key}

    def look(self) -> RemoteFacts:
        """Ask for size and ETag."""
        answer = call_s3(self._url, "head_object", self._place)
        return RemoteFacts(answer["ContentLength"], answer.get("ETag", ""), is_ranged=True)

    def ask(self, start: int, end: int | None, facts: RemoteFacts) -> Body:
        """Ask for a range of the object with the ETag that was seen."""
        wanted: dict[str, Any] = dict(self._place)
        if end is not None:
            wanted["Range"] = f"bytes={start}-{end - 1}"
        if facts.version:
            wanted["IfMatch"] = facts.version
        answer = call_s3(self._url, "get_object", wanted, facts=facts)
        body = _S3Body(answer["Body"])
        total = answer.get("ContentRange", "").rpartition("/")[2] or str(answer["ContentLength"])
        # Not every service knows If-Match.
        if answer.get("ETag", "") != facts.version or total != str(facts.num_bytes):
            body.close()
            raise changed(self._url, facts, f"{total} bytes, ETag {answer.get('ETag')} now")
        given = answer.get("ContentRange", f"bytes 0-/{total}")
        if not given.startswith(f"bytes {start if end is not None else 0}-"):
            body.close()
            raise PassingError(f"the server answered with another range: {given}")
        return body


class _S3Body:
    def __init__(self, body: Any) -> None:
        self._body = body

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of `buffer`."""
        with _cuts_may_pass():
            count: int = self._body.readinto(buffer)
        return count

    def close(self) -> None:
        """Keep the connection if all of the answer was read, else close it."""
        self._body.close()


def load_body(body: Any) -> bytes:
    """Read all of an answer."""
    with contextlib.closing(body), _cuts_may_pass():
        data: bytes = body.read()
    return data


@contextlib.contextmanager
def _cuts_may_pass() -> Iterator[None]:
    import urllib3
    from botocore.exceptions import BotoCoreError

    try:
        yield
    except (BotoCoreError, urllib3.exceptions.HTTPError, OSError) as error:
        raise PassingError(_first_line(error)) from error


def iter_keys(url: str) -> Iterator[str]:
    """Yield every object whose name begins like `url`, in the order of the service."""
    for name, _ in iter_sizes(url):
        yield name


def iter_sizes(url: str, *, delimiter: str = "") -> Iterator[tuple[str, int]]:
    """Yield the same with their sizes; with a `delimiter`, only names without it behind `url`."""
    scheme, _, path = url.partition("://")
    bucket, _, prefix = path.partition("/")
    wanted = {"Bucket": bucket, "Prefix": prefix}
    if delimiter:
        wanted["Delimiter"] = delimiter
    token = ""
    while True:
        more = {"ContinuationToken": token} if token else {}
        page = call_s3(url, "list_objects_v2", {**wanted, **more})
        for entry in page.get("Contents", ()):
            yield f"{scheme}://{bucket}/{entry['Key']}", entry["Size"]
        token = page.get("NextContinuationToken", "")
        if not page.get("IsTruncated") or not token:
            return


def call_s3(
    url: str,
    method: str,
    arguments: dict[str, Any],
    *,
    facts: RemoteFacts | None = None,
    purpose: Purpose = READING,
    expected: Collection[str] = (),
) -> Any:
    """Make one request; say what an error means.

    Args:
        url: Whom it is about, for messages.
        method: What botocore calls it.
        arguments: What botocore takes for it.
        facts: What the object must still be, if that was asked for.
        purpose: What the request is made for.
        expected: Codes of errors that are answers: they return None.

    Raises:
        PassingError: If it is worth another try.
        PenstokError: If it is not: the error of the purpose.
        UsageError: If botocore is missing.
    """
    try:
        from botocore import exceptions
        from botocore.parsers import ResponseParserError
    except ImportError as error:
        raise missing_package(url, "botocore", "s3", purpose) from error

    try:
        client = _client()
    except (exceptions.BotoCoreError, ValueError) as error:
        raise _unusable(url, error, purpose) from error
    try:
        return getattr(client, method)(**arguments)
    except exceptions.ClientError as error:
        details = error.response.get("Error", {})
        if details.get("Code") in expected:
            return None
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise explain_error(url, details, status, facts=facts, purpose=purpose) from error
    except (exceptions.HTTPClientError, exceptions.ConnectionError, ResponseParserError) as error:
        raise PassingError(_first_line(error)) from error
    except exceptions.ParamValidationError as error:
        raise purpose.error(
            f"not the name of an object: {_first_line(error)}",
            where=url,
            next_step="check the spelling: `s3://BUCKET/KEY`",
        ) from error
    except exceptions.BotoCoreError as error:
        raise _unusable(url, error, purpose) from error
    except ValueError as error:
        # Half a number or date: the connection was cut in the middle of a header.
        raise PassingError(f"the server's answer is cut: {_first_line(error)}") from error


def _unusable(url: str, error: Exception, purpose: Purpose) -> PenstokError:
    return purpose.failure(
        f": {_first_line(error)}",
        where=url,
        next_step=f"check the credentials{purpose.rights}: {_CREDENTIALS}",
    )


def explain_error(
    url: str,
    details: dict[str, Any],
    status: int = 0,
    *,
    facts: RemoteFacts | None = None,
    purpose: Purpose = READING,
) -> PenstokError | PassingError:
    """Say what an error in an answer means.

    Args:
        url: Whom it is about.
        details: Its code and message.
        status: That of the answer; 0 for an error about one of several objects.
        facts: What the object should have been, if that was asked for.
        purpose: What the request was made for.
    """
    if not status and details.get("Code") == "AccessDenied":
        status = 403
    answer = f"{details.get('Code', '')} {details.get('Message', '')}".strip()
    if facts is not None and status in (412, 416):
        return changed(url, facts, answer)
    if status == 501 and purpose is not READING:
        return purpose.failure(
            f": the server answered {status} {answer}",
            where=url,
            next_step="choose a service that knows conditional writes, or a folder of this machine",
        )
    # An error in the middle of an answer that began with 200 says so in its text alone.
    if status < 400 or details.get("Code") in _PASSING_CODES:
        return PassingError(f"the server answered {status} {answer}")
    return explain_status(url, status, answer, credentials=_CREDENTIALS, purpose=purpose)


def _client() -> Any:
    # The cache alone would make one for each of several threads that ask at once.
    with _client_lock:
        return _cached_client()


@functools.cache
def _cached_client() -> Any:
    """Make what keeps the connections of this process; set up as the AWS tools would be."""
    import botocore
    import botocore.session
    from botocore.config import Config

    session = botocore.session.get_session()
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=_MAX_CONNECTIONS,
        retries={"total_max_attempts": 1},
        # The checksums of whole objects say nothing of ranges.
        response_checksum_validation="when_required",
        # Nor does every service know those of requests: Content-MD5 is sent, which all do.
        request_checksum_calculation="when_required",
    )
    if session.get_credentials() is None:
        config = config.merge(Config(signature_version=botocore.UNSIGNED))
    client = session.create_client("s3", config=config)
    client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)

    def close() -> None:
        client.close()
        _cached_client.cache_clear()

    on_close(close)
    return client


def _add_md5(params: dict[str, Any], **_: Any) -> None:
    """Add what botocore no longer sends and some services insist on."""
    params["headers"]["Content-MD5"] = encode_md5(params["body"])


def encode_md5(data: bytes | memoryview) -> str:
    """Compute what goes into a Content-MD5 header."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


# A process that was forked off must not speak on the connections of its parent: each would read the
# answers of the other.
os.register_at_fork(after_in_child=_cached_client.cache_clear)


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]
