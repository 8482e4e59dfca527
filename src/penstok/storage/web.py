"""Files on web servers and on the Hugging Face hub: ranged requests over persistent connections.

It never asks for compressed responses and never decompresses one, since offsets count stored bytes,
and it lists nothing. `urls` sends `http`, `https` and `hf` here.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstok.errors import InputError
from penstok.storage.base import (
    CONNECT_SECONDS,
    MAX_CONNECTIONS,
    READ,
    READ_SECONDS,
    ObjectInfo,
    TransientError,
    changed_error,
    missing_package_error,
    register_closer,
    status_error,
)

if TYPE_CHECKING:
    import requests

    from penstok.storage.base import Body

__all__ = ["WebObject", "hugging_face_object"]

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_PLAIN = {"Accept-Encoding": "identity"}
# Redirect targets: a signed address is valid for minutes, and requesting a new one every time would
# hit the rate limits of the server that signs them.
_MAX_TARGETS = 256
_targets: dict[str, str] = {}
_HUGGING_FACE = re.compile(
    r"hf://(?P<kind>datasets/|spaces/)?(?P<repo>[^/@]+/[^/@]+)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?/(?P<path>.+)"
)


class WebObject:
    """One file on a web server."""

    def __init__(
        self,
        url: str,
        address: str = "",
        *,
        token: str = "",
        credentials: str = "a user name and password in `~/.netrc`",
    ) -> None:
        """Take a URL, and the address to request if that differs.

        Args:
            url: What the user and messages call it.
            address: Its address on the web; the URL itself if empty.
            token: A bearer token, if any.
            credentials: Where credentials come from, for messages.
        """
        self._url = url
        self._address = address or url
        self._headers = {**_PLAIN, "Authorization": f"Bearer {token}"} if token else _PLAIN
        self._credentials = credentials

    def get_info(self) -> ObjectInfo:
        """Request the first byte: only the response shows whether ranges work."""
        with self._get({"Range": "bytes=0-0"}) as response:
            self._check_status(response)
            _, total = _content_range(response)
            if response.status_code == 206 and total is not None:
                # Once the response is read to its end, the connection is reused.
                _WebBody(response).readinto(memoryview(bytearray(2)))
                return ObjectInfo(total, _version(response), has_ranges=True)
            if response.status_code == 416 and total == 0:
                return ObjectInfo(0, _version(response), has_ranges=True)
            if response.status_code != 200:
                raise self._failure(
                    f"the server answered {response.status_code} to a request for the first byte"
                )
            return ObjectInfo(_content_length(response), _version(response), has_ranges=False)

    def open_range(self, start: int, end: int | None, info: ObjectInfo) -> Body:
        """Request a range, or the whole file."""
        response = self._get({} if end is None else {"Range": f"bytes={start}-{end - 1}"})
        try:
            self._check_status(response)
            self._check_version(response, start, end, info)
        except BaseException:
            response.close()
            raise
        return _WebBody(response)

    def _get(self, headers: dict[str, str]) -> requests.Response:
        target = _targets.get(self._address)
        if target is not None:
            response = self._send(target, {**_PLAIN, **headers})
            if response.status_code not in (400, 401, 403, 404, 410):
                return response
            # The signed address has expired: request a new one.
            response.close()
            _targets.pop(self._address, None)
        response = self._send(self._address, {**self._headers, **headers})
        if response.history and response.status_code in (200, 206):
            while len(_targets) >= _MAX_TARGETS:
                _targets.pop(next(iter(_targets)), None)
            _targets[self._address] = response.url
        return response

    def _send(self, address: str, headers: dict[str, str]) -> requests.Response:
        import requests

        timeouts = CONNECT_SECONDS, READ_SECONDS
        try:
            return _session().get(address, headers=headers, stream=True, timeout=timeouts)
        except requests.RequestException as error:
            is_transient = isinstance(error, (requests.ConnectionError, requests.Timeout))
            # A bad certificate stays bad, although its error is a connection error too.
            if is_transient and not isinstance(error, requests.exceptions.SSLError):
                raise TransientError(_root_cause(error)) from error
            raise self._failure(_root_cause(error)) from error

    def _failure(self, reason: str) -> Exception:
        return READ.failure(reason, where=self._url, next_step="check the URL")

    def _check_status(self, response: requests.Response) -> None:
        if response.status_code >= 400 and response.status_code != 416:
            raise status_error(
                self._url,
                response.status_code,
                response.reason or "",
                credentials=self._credentials,
                retry_after_seconds=_retry_after(response),
            )

    def _check_version(
        self, response: requests.Response, start: int, end: int | None, info: ObjectInfo
    ) -> None:
        """Refuse a response with another range or another version than requested."""
        first, total = _content_range(response)
        if _version(response) != info.version:
            raise changed_error(self._url, info, f"its version is {_version(response)!r} now")
        if end is None:
            self._check_whole(response, info)
        elif response.status_code == 416 or (total is not None and total != info.num_bytes):
            raise changed_error(self._url, info, f"it has {total} bytes now")
        elif response.status_code != 206 or first != start:
            raise TransientError(f"the server answered {response.status_code} without the range")

    def _check_whole(self, response: requests.Response, info: ObjectInfo) -> None:
        length = _content_length(response)
        if length != info.num_bytes:
            raise changed_error(self._url, info, f"it has {length} bytes now")
        if length is None and "chunked" not in response.headers.get("Transfer-Encoding", ""):
            raise InputError(
                "the server does not report the file's size, so a truncated response would go "
                "unnoticed",
                where=self._url,
                next_step="download it first, with `curl -fO`, and pass the file",
            )


def hugging_face_object(url: str) -> WebObject:
    """Return a file on the hub by its web address: the hub's library asks the hub each time."""
    try:
        from huggingface_hub import constants, get_token
    except ImportError as error:
        raise missing_package_error(url, "huggingface_hub", "hf") from error
    match = _HUGGING_FACE.fullmatch(url)
    if match is None:
        raise InputError(
            "not the name of a file on the Hugging Face hub",
            where=f"INPUT `{url}`",
            next_step="pass `hf://datasets/OWNER/NAME/FILE`, or `.../NAME@REVISION/FILE`",
        )
    repo, revision = (match["kind"] or "") + match["repo"], match["revision"] or "main"
    path = f"resolve/{quote(revision, safe='')}/{quote(match['path'])}"
    return WebObject(
        url,
        f"{constants.ENDPOINT}/{repo}/{path}",
        token=get_token() or "",
        credentials="`hf auth login`, or `HF_TOKEN`",
    )


class _WebBody:
    def __init__(self, response: requests.Response) -> None:
        self._response = response

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer` as far as the response goes; urllib3 checks that it is complete."""
        import urllib3

        try:
            data = self._response.raw.read(len(buffer), decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise TransientError(_root_cause(error)) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Keep the connection if the whole response was read, else close it."""
        self._response.close()


@functools.cache
def _session() -> requests.Session:
    """Return the connection pool of this process."""
    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    adapter = HTTPAdapter(pool_maxsize=MAX_CONNECTIONS, max_retries=0)
    session.mount("https://", adapter)
    session.mount("http://", adapter)

    def close() -> None:
        session.close()
        _session.cache_clear()
        _targets.clear()

    register_closer(close)
    return session


def _version(response: requests.Response) -> str:
    return response.headers.get("ETag") or response.headers.get("Last-Modified") or ""


def _content_length(response: requests.Response) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _content_range(response: requests.Response) -> tuple[int | None, int | None]:
    """Return the first byte of the range and the size of the file; None for what is not said."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    first, total = match.groups() if match else (None, None)
    return int(first) if first else None, int(total) if total and total != "*" else None


def _retry_after(response: requests.Response) -> float:
    """Return how long the server asks to wait; dates are ignored."""
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdecimal() else 0


def _root_cause(error: BaseException) -> str:
    """Describe the innermost cause, which has the clearest message."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    message = str(error.args[-1]) if error.args else ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
