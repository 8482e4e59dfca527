"""Requests to S3 and compatible services through botocore: reading, listing, and their errors.

Endpoint, region, profile and credentials come from the environment as for the AWS tools; without
credentials requests are unsigned. It writes nothing itself: `s3_folder` writes, through `call_s3`.
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
    CONNECT_SECONDS,
    LOOKUP_RETRIES,
    MAX_CONNECTIONS,
    READ,
    READ_SECONDS,
    ObjectInfo,
    TransientError,
    changed_error,
    first_line,
    missing_package_error,
    register_closer,
    status_error,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstok.errors import PenstokError
    from penstok.storage.base import Body, Operation, RetryPolicy

__all__ = [
    "S3Object",
    "call_s3",
    "encode_md5",
    "iter_keys",
    "iter_s3_urls",
    "load_body",
    "s3_error",
]

_CREDENTIALS = (
    "`AWS_PROFILE`, or `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`; "
    "`AWS_ENDPOINT_URL` for services other than Amazon's"
)
# Whatever status comes with them.
_TRANSIENT_CODES = ("SlowDown", "RequestTimeout", "InternalError", "BadDigest")
# Fields of every complete response: one that is truncated in its headers may look like a success.
_REQUIRED_FIELDS = {
    "get_object": ("ContentLength", "ETag"),
    "head_object": ("ContentLength", "ETag"),
    "put_object": ("ETag",),
    "upload_part": ("ETag",),
    "create_multipart_upload": ("UploadId",),
    "complete_multipart_upload": ("ETag",),
    "list_objects_v2": ("IsTruncated",),
    "list_multipart_uploads": ("IsTruncated",),
}
_TRUNCATED = "the server's response is truncated"
_client_lock = threading.Lock()


class S3Object:
    """One object; ranges are requested with `If-Match`, so they are of one version."""

    def __init__(self, url: str) -> None:
        self._url = url
        bucket, key = _split_url(url)
        self._location = {"Bucket": bucket, "Key": key}

    def get_info(self) -> ObjectInfo:
        """Request size and ETag."""
        answer = call_s3(self._url, "head_object", self._location)
        return ObjectInfo(answer["ContentLength"], answer["ETag"], has_ranges=True)

    def open_range(self, start: int, end: int | None, info: ObjectInfo) -> Body:
        """Request a range of the object with the ETag in `info`."""
        arguments = {**self._location, "IfMatch": info.version}
        if end is not None:
            arguments["Range"] = f"bytes={start}-{end - 1}"
        answer = call_s3(self._url, "get_object", arguments, info=info)
        body = _S3Body(answer["Body"])
        total = answer.get("ContentRange", "").rpartition("/")[2] or str(answer["ContentLength"])
        # Some services ignore If-Match.
        if answer["ETag"] != info.version or total != str(info.num_bytes):
            body.close()
            raise changed_error(self._url, info, f"{total} bytes, ETag {answer['ETag']} now")
        received = answer.get("ContentRange", f"bytes 0-/{total}")
        if not received.startswith(f"bytes {start if end is not None else 0}-"):
            body.close()
            raise TransientError(f"the server answered with another range: {received}")
        return body


class _S3Body:
    def __init__(self, body: Any) -> None:
        self._body = body

    def readinto(self, buffer: memoryview, /) -> int:
        with _network_errors():
            count: int = self._body.readinto(buffer)
        return count

    def close(self) -> None:
        """Keep the connection if the whole response was read, else close it."""
        self._body.close()


def load_body(body: Any) -> bytes:
    """Read the whole body of a response."""
    with contextlib.closing(body), _network_errors():
        data: bytes = body.read()
    return data


@contextlib.contextmanager
def _network_errors() -> Iterator[None]:
    import urllib3
    from botocore.exceptions import BotoCoreError

    try:
        yield
    except (BotoCoreError, urllib3.exceptions.HTTPError, OSError) as error:
        raise TransientError(first_line(error)) from error


def iter_s3_urls(url: str) -> Iterator[str]:
    """Yield the URL of every object whose URL starts with `url`, in the service's order."""
    root = f"{url.partition('://')[0]}://{_split_url(url)[0]}"
    for key, _ in iter_keys(url):
        yield f"{root}/{key}"


def iter_keys(
    url: str,
    *,
    recursive: bool = True,
    retries: RetryPolicy = LOOKUP_RETRIES,
    operation: Operation = READ,
) -> Iterator[tuple[str, int]]:
    """Yield key and size of every object whose URL starts with `url`; each page is retried.

    If not `recursive`, keys with a slash after that prefix are left out by the service. The order
    is that of the keys, except for services that keep a tree: SeaweedFS sorts `a/b` before `a-b`.
    """
    bucket, prefix = _split_url(url)
    arguments = {"Bucket": bucket, "Prefix": prefix, **({} if recursive else {"Delimiter": "/"})}

    def load_page() -> Any:
        page = call_s3(url, "list_objects_v2", arguments, operation=operation)
        if page["IsTruncated"] and not page.get("NextContinuationToken"):
            raise TransientError(_TRUNCATED)
        return page

    while True:
        page = retries.run(load_page, url, operation)
        for entry in page.get("Contents", ()):
            yield entry["Key"], entry["Size"]
        if not page["IsTruncated"]:
            return
        arguments["ContinuationToken"] = page["NextContinuationToken"]


def call_s3(
    url: str,
    method: str,
    arguments: dict[str, Any],
    *,
    info: ObjectInfo | None = None,
    operation: Operation = READ,
    expected: Collection[str] = (),
) -> Any:
    """Make one request and check that the response is complete; translate errors.

    Args:
        url: The object or folder, for messages.
        method: botocore's name of the request.
        arguments: botocore's arguments of it.
        info: The version that was requested, if any.
        operation: What the request is made for.
        expected: Error codes that are answers: for them None is returned.

    Raises:
        TransientError: If a retry may help.
        PenstokError: If it cannot: the error of the operation.
        UsageError: If botocore is missing.
    """
    try:
        from botocore import exceptions
        from botocore.parsers import ResponseParserError
    except ImportError as error:
        raise missing_package_error(url, "botocore", "s3", operation) from error

    try:
        client = _client()
    except (exceptions.BotoCoreError, ValueError) as error:
        raise _unusable(url, error, operation) from error
    try:
        answer = getattr(client, method)(**arguments)
    except exceptions.ClientError as error:
        details = error.response.get("Error", {})
        if details.get("Code") in expected:
            return None
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise s3_error(url, details, status, info=info, operation=operation) from error
    except (exceptions.HTTPClientError, exceptions.ConnectionError, ResponseParserError) as error:
        raise TransientError(first_line(error)) from error
    except exceptions.ParamValidationError as error:
        raise operation.error(
            f"not the name of an object: {str(error).splitlines()[-1]}",
            where=url,
            next_step="check the spelling: `s3://BUCKET/KEY`",
        ) from error
    except exceptions.BotoCoreError as error:
        raise _unusable(url, error, operation) from error
    except ValueError as error:
        # Half a number or date: the connection broke in the middle of a header.
        raise TransientError(f"{_TRUNCATED}: {first_line(error)}") from error
    etag = answer.get("ETag", "")
    is_complete = all(answer.get(field, "") != "" for field in _REQUIRED_FIELDS.get(method, ()))
    if not is_complete or (etag.startswith('"') and not etag.endswith('"', 1)):
        raise TransientError(_TRUNCATED)
    return answer


def s3_error(
    url: str,
    details: dict[str, Any],
    status: int = 0,
    *,
    info: ObjectInfo | None = None,
    operation: Operation = READ,
) -> PenstokError | TransientError:
    """Make the error for a code in a response.

    Args:
        url: The object it is about.
        details: Its code and message.
        status: The HTTP status; 0 for an error about one of several objects.
        info: The version that was requested, if any.
        operation: What the request was made for.
    """
    if not status and details.get("Code") == "AccessDenied":
        status = 403
    message = f"{details.get('Code', '')} {details.get('Message', '')}".strip()
    if info is not None and status in (412, 416):
        return changed_error(url, info, message)
    if status == 501 and operation is not READ:
        return operation.failure(
            f"the server answered {status} {message}",
            where=url,
            next_step="choose a service that supports conditional writes, or a local folder",
        )
    # An error in the middle of a response that started with 200 is only in its text.
    if status < 400 or details.get("Code") in _TRANSIENT_CODES:
        return TransientError(f"the server answered {status} {message}")
    return status_error(url, status, message, credentials=_CREDENTIALS, operation=operation)


def _unusable(url: str, error: Exception, operation: Operation) -> PenstokError:
    return operation.credentials_failure(first_line(error), where=url, credentials=_CREDENTIALS)


def _split_url(url: str) -> tuple[str, str]:
    """Return bucket and key."""
    bucket, _, key = url.partition("://")[2].partition("/")
    return bucket, key


def _client() -> Any:
    # Without the lock, threads that ask at the same time would each make one.
    with _client_lock:
        return _cached_client()


@functools.cache
def _cached_client() -> Any:
    """Make the client of this process, which keeps its connections."""
    import botocore
    import botocore.session
    from botocore.config import Config

    session = botocore.session.get_session()
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=MAX_CONNECTIONS,
        retries={"total_max_attempts": 1},
        # Checksums of whole objects say nothing about ranges.
        response_checksum_validation="when_required",
        # Not every service supports those of requests; all support Content-MD5, which is sent.
        request_checksum_calculation="when_required",
    )
    if session.get_credentials() is None:
        config = config.merge(Config(signature_version=botocore.UNSIGNED))
    client = session.create_client("s3", config=config)
    client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)

    def close() -> None:
        client.close()
        _cached_client.cache_clear()

    register_closer(close)
    return client


def _add_md5(params: dict[str, Any], **_: Any) -> None:
    """Add the header that botocore no longer sends and some services require."""
    params["headers"]["Content-MD5"] = encode_md5(params["body"])


def encode_md5(data: bytes | memoryview) -> str:
    """Compute the value of a Content-MD5 header."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


# A forked process must not use its parent's connections: each would read the other's responses.
os.register_at_fork(after_in_child=_cached_client.cache_clear)
