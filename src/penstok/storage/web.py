"""Files on web servers: ranged requests over connections that are kept, through `requests`.

It never asks for compressed answers and never unpacks one: positions count stored bytes. Hugging
Face files come this way, too; `transports` gives it their address and token.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from penstok.errors import InputError
from penstok.storage.base import PassingError, RemoteFacts, changed, explain_status, on_close

if TYPE_CHECKING:
    import requests

    from penstok.storage.base import Body

__all__ = ["WebTransport"]

_CONNECT_SECONDS, _READ_SECONDS = 15, 45
_MAX_CONNECTIONS = 16
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
# Where a redirect led: signed addresses hold for minutes, and asking for a new one for every
# request would run into the rate limits of the server that gives them out.
_MAX_TARGETS = 256
_targets: dict[str, str] = {}


class WebTransport:
    """The way to one file on a web server."""

    def __init__(
        self,
        url: str,
        address: str = "",
        *,
        token: str = "",
        credentials: str = "a user name and password in `~/.netrc`",
    ) -> None:
        """Take a URL, and what it is asked for by, if that differs.

        Args:
            url: What messages and the user call it.
            address: Where it is on the web; the URL itself if empty.
            token: What to identify with, if anything.
            credentials: Where credentials come from, for messages.
        """
        self._url = url
        self._address = address or url
        self._headers = {"Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._credentials = credentials

    def look(self) -> RemoteFacts:
        """Ask for the first byte: only the answer tells whether ranges work."""
        response = self._get({"Range": "bytes=0-0"})
        with response:
            self._check(response)
            _, _, total = _content_range(response)
            if response.status_code == 206 and total is not None:
                # With all of the answer read, the connection is kept for the next request.
                _WebBody(response).readinto(memoryview(bytearray(2)))
                return RemoteFacts(total, _version(response), is_ranged=True)
            if response.status_code == 416 and total == 0:
                return RemoteFacts(0, _version(response), is_ranged=True)
            if response.status_code != 200:
                raise InputError(
                    f"cannot be read: the server answered {response.status_code} to a request "
                    "for the first byte",
                    where=self._url,
                    next_step="check the URL",
                )
            return RemoteFacts(_content_length(response), _version(response), is_ranged=False)

    def ask(self, start: int, end: int | None, facts: RemoteFacts) -> Body:
        """Ask for a range, or for all."""
        headers = {} if end is None else {"Range": f"bytes={start}-{end - 1}"}
        response = self._get(headers)
        try:
            self._check(response)
            self._compare(response, start, end, facts)
        except BaseException:
            response.close()
            raise
        return _WebBody(response)

    def _get(self, headers: dict[str, str]) -> requests.Response:
        target = _targets.get(self._address)
        if target is not None:
            response = self._send(target, {"Accept-Encoding": "identity", **headers})
            if response.status_code not in (400, 401, 403, 404, 410):
                return response
            # The signed address has run out: ask for a new one.
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

        timeout = (_CONNECT_SECONDS, _READ_SECONDS)
        try:
            return _session().get(address, headers=headers, stream=True, timeout=timeout)
        except requests.exceptions.SSLError as error:
            raise self._unusable(error) from error
        except (requests.ConnectionError, requests.Timeout) as error:
            raise PassingError(_reason(error)) from error
        except requests.RequestException as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> InputError:
        return InputError(
            f"cannot be read: {_reason(error)}", where=self._url, next_step="check the URL"
        )

    def _check(self, response: requests.Response) -> None:
        if response.status_code >= 400 and response.status_code != 416:
            raise explain_status(
                self._url,
                response.status_code,
                response.reason or "",
                credentials=self._credentials,
                wait_seconds=_retry_after(response),
            )

    def _compare(
        self, response: requests.Response, start: int, end: int | None, facts: RemoteFacts
    ) -> None:
        """Refuse an answer that is not about the range and the version that was asked for."""
        first, _, total = _content_range(response)
        if _version(response) != facts.version:
            raise changed(self._url, facts, f"its version is {_version(response)!r} now")
        if end is None:
            self._compare_whole(response, facts)
        elif response.status_code == 416 or (total is not None and total != facts.num_bytes):
            raise changed(self._url, facts, f"it has {total} bytes now")
        elif response.status_code != 206 or first != start:
            raise PassingError(f"the server answered {response.status_code} without the range")

    def _compare_whole(self, response: requests.Response, facts: RemoteFacts) -> None:
        length = _content_length(response)
        if length != facts.num_bytes:
            raise changed(self._url, facts, f"it has {length} bytes now")
        if length is None and "chunked" not in response.headers.get("Transfer-Encoding", ""):
            raise InputError(
                "the server does not say where the file ends: a cut would not be noticed",
                where=self._url,
                next_step="download it first, with `curl -fO`, and pass the file",
            )


class _WebBody:
    def __init__(self, response: requests.Response) -> None:
        self._response = response

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer` as far as the answer goes; urllib3 sees to it that it is whole."""
        import urllib3

        try:
            data = self._response.raw.read(len(buffer), decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise PassingError(_reason(error)) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Keep the connection if all of the answer was read, else close it."""
        self._response.close()


@functools.cache
def _session() -> requests.Session:
    """Make what keeps the connections of this process."""
    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    adapter = HTTPAdapter(pool_maxsize=_MAX_CONNECTIONS, max_retries=0)
    session.mount("https://", adapter)
    session.mount("http://", adapter)

    def close() -> None:
        session.close()
        _session.cache_clear()
        _targets.clear()

    on_close(close)
    return session


def _version(response: requests.Response) -> str:
    return response.headers.get("ETag") or response.headers.get("Last-Modified") or ""


def _content_length(response: requests.Response) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _content_range(response: requests.Response) -> tuple[int | None, int | None, int | None]:
    """Read which bytes an answer holds, and of how many; None for what it does not say."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if match is None:
        return None, None, None
    first, last, total = (int(part) if part and part != "*" else None for part in match.groups())
    return first, last, total


def _retry_after(response: requests.Response) -> float:
    """Read how long the server asks to be left alone; a date counts as not said."""
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdecimal() else 0


def _reason(error: BaseException) -> str:
    """Say what happened, from the innermost cause, which has the plainest words."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    words = str(error.args[-1]) if error.args else ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
