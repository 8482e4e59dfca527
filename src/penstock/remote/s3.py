"""Objects in S3 and what speaks like it, through botocore: signed, ranged, pinned to one version.

It takes endpoint, region, profile and credentials from the environment as the AWS tools do, and
asks unsigned where there are no credentials. It retries nothing itself; `retries` does.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError
from penstock.remote.base import (
    PassingError,
    RemoteFacts,
    changed,
    explain_status,
    missing_package,
    on_close,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.remote.base import Body

__all__ = ["S3Transport", "iter_keys"]

_CONNECT_SECONDS, _READ_SECONDS = 15, 45
_MAX_CONNECTIONS = 16
_CREDENTIALS = (
    "`AWS_PROFILE`, or `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`; "
    "`AWS_ENDPOINT_URL` for other services than Amazon's"
)


class S3Transport:
    """The way to one object."""

    def __init__(self, url: str) -> None:
        self._url = url
        bucket, _, key = url.partition("://")[2].partition("/")
        self._place = {"Bucket": bucket, "Key": key}

    def look(self) -> RemoteFacts:
        """Ask for size and ETag."""
        answer = _call(self._url, "head_object", self._place)
        return RemoteFacts(answer["ContentLength"], answer.get("ETag", ""), is_ranged=True)

    def ask(self, start: int, end: int | None, facts: RemoteFacts) -> Body:
        """Ask for a range of the object with the ETag that was seen."""
        wanted: dict[str, Any] = dict(self._place)
        if end is not None:
            wanted["Range"] = f"bytes={start}-{end - 1}"
        if facts.version:
            wanted["IfMatch"] = facts.version
        answer = _call(self._url, "get_object", wanted, facts)
        body = _S3Body(answer["Body"])
        total = answer.get("ContentRange", "").rpartition("/")[2] or str(answer["ContentLength"])
        # Not every service knows If-Match.
        if answer.get("ETag", "") != facts.version or total != str(facts.num_bytes):
            body.close()
            raise changed(self._url, facts, f"{total} bytes, ETag {answer.get('ETag')} now")
        return body


class _S3Body:
    def __init__(self, body: Any) -> None:
        self._body = body

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of `buffer`."""
        import urllib3
        from botocore.exceptions import BotoCoreError

        try:
            count: int = self._body.readinto(buffer)
        except (BotoCoreError, urllib3.exceptions.HTTPError, OSError) as error:
            raise PassingError(_first_line(error)) from error
        return count

    def close(self) -> None:
        """Keep the connection if all of the answer was read, else close it."""
        self._body.close()


def iter_keys(url: str) -> Iterator[str]:
    """Yield every object whose name begins like `url`, in the order of the service."""
    scheme, _, path = url.partition("://")
    bucket, _, prefix = path.partition("/")
    token = ""
    while True:
        more = {"ContinuationToken": token} if token else {}
        page = _call(url, "list_objects_v2", {"Bucket": bucket, "Prefix": prefix, **more})
        for entry in page.get("Contents", ()):
            yield f"{scheme}://{bucket}/{entry['Key']}"
        token = page.get("NextContinuationToken", "")
        if not page.get("IsTruncated") or not token:
            return


def _call(
    url: str, method: str, arguments: dict[str, Any], facts: RemoteFacts | None = None
) -> Any:
    """Make one request; say what an error means."""
    try:
        from botocore import exceptions
        from botocore.parsers import ResponseParserError
    except ImportError as error:
        raise missing_package(url, "botocore", "s3") from error

    try:
        return getattr(_client(), method)(**arguments)
    except exceptions.ClientError as error:
        raise _explain(url, error.response, facts) from error
    except (exceptions.HTTPClientError, exceptions.ConnectionError, ResponseParserError) as error:
        raise PassingError(_first_line(error)) from error
    except exceptions.ParamValidationError as error:
        raise InputError(
            f"not the name of an object: {_first_line(error)}",
            where=url,
            next_step="check the spelling: `s3://BUCKET/KEY`",
        ) from error
    except exceptions.BotoCoreError as error:
        raise InputError(
            f"cannot be read: {_first_line(error)}",
            where=url,
            next_step=f"check the credentials: {_CREDENTIALS}",
        ) from error


def _explain(url: str, response: Any, facts: RemoteFacts | None) -> InputError | PassingError:
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    details = response.get("Error", {})
    answer = f"{details.get('Code', '')} {details.get('Message', '')}".strip()
    if facts is not None and status in (412, 416):
        return changed(url, facts, answer)
    # An error in the middle of an answer that began with 200 says so in its text alone.
    if status < 400 or details.get("Code") in ("SlowDown", "RequestTimeout", "InternalError"):
        return PassingError(f"the server answered {status} {answer}")
    return explain_status(url, status, answer, credentials=_CREDENTIALS)


@functools.cache
def _client() -> Any:
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
    )
    if session.get_credentials() is None:
        config = config.merge(Config(signature_version=botocore.UNSIGNED))
    client = session.create_client("s3", config=config)

    def close() -> None:
        client.close()
        _client.cache_clear()

    on_close(close)
    return client


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]
