"""Object folders against a real S3: every write happens once, even if responses are lost."""

from __future__ import annotations

import copy
import gc
import hashlib
import http.server
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import pytest
from remote_servers import HOST, FaultyProxy, faulty_proxy, make_bucket, s3_client, use_s3

from penstok.errors import UsageError, WriteError
from penstok.storage import RetryPolicy, close_connections
from penstok.storage.s3_folder import LostUploadError, S3Folder

MIB = 1 << 20
QUICK = RetryPolicy(max_tries=6, first_delay_seconds=0.01, max_delay_seconds=0.05)
PARTS = [random.Random(1).randbytes(5 * MIB), random.Random(2).randbytes(5 * MIB), b"the rest"]
HOSTILE = [
    *("plain", "a b+ä%?#&<>'\"~*()!;:@,$=", "%41", "a%2Fb", "a+b", " lead", "trail ", "\x01\x1f"),
    *("a\nb", "a\rb", "\u4e00/\U0001f600", "e\u0301", "\xe9", "deep/er/x", "?versionId=1", "]]>"),
]


@pytest.fixture(autouse=True)
def connections() -> Iterator[None]:
    close_connections()
    yield
    close_connections()
    gc.collect()


@pytest.fixture(scope="module")
def port(s3_gateway: int) -> int:
    client = s3_client(s3_gateway)
    make_bucket(client, "tokens")
    client.close()
    return s3_gateway


@pytest.fixture
def folder(port: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> S3Folder:
    """An empty folder for each test."""
    use_s3(monkeypatch, port)
    # SeaweedFS treats a backslash as a slash.
    return S3Folder(f"s3://tokens/{request.node.name}".replace("\\", "-"), QUICK)


@pytest.fixture
def proxy(folder: S3Folder, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """A proxy between the folder and its service."""
    with faulty_proxy(port) as proxy:
        use_s3(monkeypatch, proxy.port)
        yield proxy


def upload(folder: S3Folder, name: str) -> tuple[str, list[str]]:
    upload_id = folder.begin_upload(name)
    etags = [folder.upload_part(name, upload_id, idx, part) for idx, part in enumerate(PARTS, 1)]
    return upload_id, etags


def test_objects_are_written_and_read(folder: S3Folder) -> None:
    assert folder.get("a") is None
    assert folder.find_info("a") is None
    etag = folder.put("a", b"one")
    assert etag == f'"{hashlib.md5(b"one").hexdigest()}"'
    assert folder.get("a") == b"one"
    assert folder.find_info("a") == (3, etag)
    assert folder.put("a", b"three") != etag
    assert folder.get("a") == b"three"
    folder.put("empty", b"")
    assert folder.get("empty") == b""
    assert copy.deepcopy(folder).get("a") == b"three"


def test_urls_of_a_folder(folder: S3Folder) -> None:
    folder.put("a", b"x")
    assert folder.url.startswith("s3://tokens/")
    same = S3Folder(f"{folder.url}///", QUICK)
    assert (same.url, same.get("a")) == (folder.url, b"x")
    bucket = S3Folder("s3://tokens", QUICK)
    assert bucket.get(folder.url.removeprefix("s3://tokens/") + "/a") == b"x"
    for url in ("s3://", "s3:///run", "tokens/run", "gs://tokens/run", ""):
        with pytest.raises(UsageError, match="not the name of a folder in a bucket"):
            S3Folder(url)


def test_conditions_are_obeyed(folder: S3Folder) -> None:
    assert folder.put_if_absent("a", b"one")
    assert not folder.put_if_absent("a", b"two")
    assert not folder.put_if_absent("a", b"one")
    assert folder.get("a") == b"one"
    found = folder.find_info("a")
    assert found is not None
    new = folder.put_if_match("a", b"two", found[1])
    assert new is not None
    assert folder.find_info("a") == (3, new)
    assert folder.put_if_match("a", b"three", found[1]) is None
    folder.delete(["a"])
    assert folder.put_if_match("a", b"three", new) is None
    assert folder.get("a") is None


@pytest.mark.parametrize("is_there", [False, True])
def test_one_of_many_concurrent_writers_wins(folder: S3Folder, is_there: bool) -> None:
    """Several threads share one folder."""
    for turn in range(10):
        name = f"a{turn}"
        etag = folder.put(name, b"old") if is_there else ""

        def put(idx: int, name: str = name, etag: str = etag) -> bool:
            data = f"by {idx}".encode()
            if is_there:
                return folder.put_if_match(name, data, etag) is not None
            return folder.put_if_absent(name, data)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(put, range(8)))
        assert sum(won) == 1
        assert folder.get(name) == f"by {won.index(True)}".encode()


def test_listings_have_pages_and_deletions_batches(folder: S3Folder) -> None:
    names = [f"ledger/{idx:05}" for idx in range(1203)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: folder.put(name, name[-2:].encode() * 3), names))
    folder.put("ledger-other", b"x")
    other = S3Folder(f"{folder.url}-other", QUICK)
    other.put("a", b"x")
    assert list(folder.iter_names("ledger/")) == [(name, 6) for name in names]
    assert [name for name, _ in folder.iter_names("ledger/0100")] == names[1000:1010]
    assert sorted(name for name, _ in folder.iter_names()) == sorted([*names, "ledger-other"])
    assert list(folder.iter_names("none")) == []
    folder.delete(iter([*names[:1100], "was/never/there"]))
    assert [name for name, _ in folder.iter_names("ledger/")] == names[1100:]
    folder.delete([*names, "ledger-other"])
    folder.delete([])
    assert list(folder.iter_names()) == []
    assert list(other.iter_names()) == [("a", 1)]


@pytest.mark.parametrize("prefix", ["", "run ä+%?#&<>'\"\n/x/"])
def test_names_may_contain_anything(folder: S3Folder, prefix: str) -> None:
    folder = S3Folder(f"{folder.url}/{prefix}", QUICK)
    for name in HOSTILE:
        folder.put(name, name.encode())
    assert {name for name, _ in folder.iter_names()} == set(HOSTILE)
    for name in HOSTILE:
        assert folder.get(name) == name.encode()
        assert not folder.put_if_absent(name, b"")
        found = folder.find_info(name)
        assert found is not None
        assert found[0] == len(name.encode())
    uploads = {(name, folder.begin_upload(name)) for name in HOSTILE}
    listed = {name: upload_id for name, upload_id in uploads if name.isprintable()}
    assert listed.items() <= set(folder.iter_uploads())
    for name, upload_id in uploads:
        etag = folder.upload_part(name, upload_id, 1, b"new")
        folder.complete_upload(name, upload_id, [etag])
        assert folder.get(name) == b"new"
    folder.delete(HOSTILE)
    assert list(folder.iter_names()) == []
    assert list(folder.iter_uploads()) == []


def test_an_object_is_uploaded_in_parts(folder: S3Folder) -> None:
    upload_id = folder.begin_upload("big")
    folder.upload_part("big", upload_id, 2, b"to be replaced")
    parts = list(enumerate(PARTS, 1))
    with ThreadPoolExecutor(3) as pool:
        etags = list(
            pool.map(lambda each: folder.upload_part("big", upload_id, *each), reversed(parts))
        )[::-1]
    assert etags == [f'"{hashlib.md5(part).hexdigest()}"' for part in PARTS]
    assert folder.get("big") is None
    assert list(folder.iter_uploads()) == [("big", upload_id)]
    folder.complete_upload("big", upload_id, etags)
    assert folder.get("big") == b"".join(PARTS)
    assert list(folder.iter_uploads()) == []


def test_a_part_may_be_any_view(folder: S3Folder) -> None:
    buffer = bytearray(PARTS[0] + PARTS[1])
    numbers = memoryview(buffer)[8 : 5 * MIB + 16].cast("H")
    upload_id = folder.begin_upload("a")
    etag = folder.upload_part("a", upload_id, 1, numbers)
    last = folder.upload_part("a", upload_id, 2, memoryview(buffer)[-3:])
    folder.complete_upload("a", upload_id, [etag, last])
    assert folder.get("a") == bytes(numbers) + buffer[-3:]


def test_a_completion_can_be_repeated(folder: S3Folder, port: int) -> None:
    upload_id, etags = upload(folder, "a")
    for _ in range(3):
        folder.complete_upload("a", upload_id, etags)
    # If the service has forgotten the upload, the object itself is checked.
    folder.complete_upload("a", "0" * len(upload_id), etags)
    with pytest.raises(LostUploadError, match="the upload is gone") as caught:
        folder.complete_upload("a", "0" * len(upload_id), etags[:2])
    assert caught.value.where == f"{folder.url}/a"
    assert caught.value.exit_code == 8
    for name, parts in (("never", etags), ("a", ["no checksum"] * 3)):
        with pytest.raises(LostUploadError):
            folder.complete_upload(name, "0" * len(upload_id), parts)


def test_an_aborted_upload_is_gone(folder: S3Folder) -> None:
    upload_id, etags = upload(folder, "a")
    folder.abort_upload("a", upload_id)
    folder.abort_upload("a", upload_id)
    assert list(folder.iter_uploads()) == []
    with pytest.raises(LostUploadError):
        folder.complete_upload("a", upload_id, etags)
    with pytest.raises(LostUploadError):
        folder.upload_part("a", upload_id, 1, b"x")
    assert folder.get("a") is None


def test_a_listing_of_uploads_has_pages(folder: S3Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstok.storage.s3_folder._PAGE_SIZE", 4)
    begun = {(f"a b/{idx // 2}", folder.begin_upload(f"a b/{idx // 2}")) for idx in range(18)}
    S3Folder(f"{folder.url}-other", QUICK).begin_upload("x")
    found = list(folder.iter_uploads())
    assert len(found) == 18
    assert set(found) == begun


def test_a_part_that_arrives_damaged_is_sent_again(
    folder: S3Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstok.storage import s3_folder

    sent: list[bytes] = []

    def damage(data: bytes) -> object:
        sent.append(data)
        return BytesIO(b"other" + data[5:] if len(sent) == 1 else data)

    monkeypatch.setattr(s3_folder, "BytesIO", damage)
    upload_id, etags = upload(folder, "a")
    assert len(sent) == len(PARTS) + 1
    folder.complete_upload("a", upload_id, etags)
    assert folder.get("a") == b"".join(PARTS)


def every_request(folder: S3Folder, trouble: Callable[[], None]) -> None:
    """Make all kinds of requests, with `trouble` before each."""

    def troubled(method: str, *arguments: Any) -> Any:
        trouble()
        result = getattr(folder, method)(*arguments)
        return list(result) if method.startswith("iter") else result

    etag = troubled("put", "a", b"one")
    assert troubled("get", "a") == b"one"
    assert troubled("find_info", "a") == (3, etag)
    assert troubled("put_if_absent", "b", b"two")
    new = troubled("put_if_match", "a", b"three", etag)
    assert folder.find_info("a") == (5, new)
    assert not troubled("put_if_absent", "b", b"other")
    assert troubled("put_if_match", "a", b"other", etag) is None
    assert troubled("iter_names") == [("a", 5), ("b", 3)]
    troubled("delete", ["a", "b"])
    assert list(folder.iter_names()) == []
    upload_id = troubled("begin_upload", "c")
    etags = [
        troubled("upload_part", "c", upload_id, idx, memoryview(part))
        for idx, part in enumerate(PARTS, 1)
    ]
    assert ("c", upload_id) in troubled("iter_uploads")
    troubled("complete_upload", "c", upload_id, etags)
    assert folder.get("c") == b"".join(PARTS)
    for name, left in folder.iter_uploads():
        troubled("abort_upload", name, left)
    assert list(folder.iter_uploads()) == []


def test_a_busy_service_is_retried(folder: S3Folder, proxy: FaultyProxy) -> None:
    def trouble() -> None:
        assert proxy.num_busy == 0
        proxy.num_busy = 2

    every_request(folder, trouble)
    proxy.num_busy = 1000
    for request in (lambda: folder.put("x", b""), lambda: folder.put_if_absent("x", b"")):
        with pytest.raises(WriteError, match=r"cannot be written after 6 tries.*503") as caught:
            request()
        assert caught.value.where == f"{folder.url}/x"
        assert "run the same command again" in caught.value.next_step
    with pytest.raises(WriteError, match=r"cannot be deleted after 6 tries"):
        folder.delete(["x"])
    with pytest.raises(WriteError, match=r"cannot be read after 6 tries"):
        folder.get("x")


def test_lost_responses_are_harmless(folder: S3Folder, proxy: FaultyProxy) -> None:
    """Each request is carried out twice without a response, then once with one."""

    def trouble() -> None:
        assert proxy.lose_answers == 0
        proxy.lose_answers = 2

    every_request(folder, trouble)


# In the status, a length, an ETag, a date, between headers, in the body.
@pytest.mark.parametrize("after_bytes", [0, 10, 40, 54, 63, 80, 104, 120, 165, 182, 300, 400])
def test_truncated_responses_are_retried(
    folder: S3Folder, proxy: FaultyProxy, after_bytes: int
) -> None:
    proxy.cut_after_bytes = after_bytes

    def trouble() -> None:
        proxy.num_cuts = 1

    every_request(folder, trouble)


@pytest.mark.parametrize("after_bytes", [0, 1000, 3 * MIB])
def test_a_broken_upload_is_retried(folder: S3Folder, proxy: FaultyProxy, after_bytes: int) -> None:
    proxy.cut_uploads_after_bytes = after_bytes
    upload_id, etags = folder.begin_upload("a"), []
    for idx, part in enumerate(PARTS[:2], 1):
        proxy.num_upload_cuts = 2
        etags.append(folder.upload_part("a", upload_id, idx, memoryview(part)))
        assert proxy.num_upload_cuts == 0
    proxy.num_upload_cuts = 2
    folder.put("plain", PARTS[0])
    assert proxy.num_upload_cuts == 0
    folder.complete_upload("a", upload_id, etags)
    assert folder.get("a") == PARTS[0] + PARTS[1]
    assert folder.get("plain") == PARTS[0]
    proxy.num_upload_cuts = 1000
    with pytest.raises(WriteError, match=r"cannot be written after 6 tries") as caught:
        folder.upload_part("a", folder.begin_upload("b"), 7, PARTS[0])
    assert caught.value.where == f"{folder.url}/a, part 7"


def answers_in_turn(
    bodies: list[bytes], status: int = 200
) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_PUT(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            body = bodies.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    return Handler


def test_an_error_after_status_200_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amazon starts the response to a completion with 200 before the result is known."""
    error = (
        b"<?xml version='1.0'?>\n  <Error><Code>InternalError</Code><Message>no</Message></Error>"
    )
    done = b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
    bodies = [error, b"", b" \n <Comple", error, done]
    with http.server.ThreadingHTTPServer((HOST, 0), answers_in_turn(bodies)) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        use_s3(monkeypatch, server.server_address[1])
        S3Folder("s3://tokens/run", QUICK).complete_upload("a", "id", ["x"])
        assert bodies == []
        bodies += [error] * 6
        with pytest.raises(WriteError, match=r"after 6 tries.*InternalError no"):
            S3Folder("s3://tokens/run", QUICK).complete_upload("a", "id", ["x"])
        server.shutdown()


def test_a_page_of_a_listing_without_the_next_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing must not end early and silently."""
    shape = "<ListBucketResult><IsTruncated>{}</IsTruncated>{}</ListBucketResult>"
    entry = "<Contents><Key>run/a</Key><Size>3</Size></Contents>"
    bodies = [shape.format("true", entry).encode(), shape.format("false", entry).encode()]
    with http.server.ThreadingHTTPServer((HOST, 0), answers_in_turn(bodies)) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        use_s3(monkeypatch, server.server_address[1])
        assert list(S3Folder("s3://tokens/run", QUICK).iter_names()) == [("a", 3)]
        assert bodies == []
        server.shutdown()


def test_a_service_without_conditions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"<Error><Code>NotImplemented</Code><Message>a header</Message></Error>"
    bodies = [body]
    handler = answers_in_turn(bodies, status=501)
    with http.server.ThreadingHTTPServer((HOST, 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        use_s3(monkeypatch, server.server_address[1])
        with pytest.raises(WriteError, match="501 NotImplemented a header") as caught:
            S3Folder("s3://tokens/run", QUICK).put_if_absent("a", b"x")
        assert "conditional writes" in caught.value.next_step
        server.shutdown()


def test_a_deletion_may_fail_for_some_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = "<DeleteResult><Error><Key>run/b</Key><Code>{}</Code></Error></DeleteResult>"
    codes = ["InternalError", "SlowDown", "NoSuchKey", "AccessDenied"]
    bodies = [shape.format(code).encode() for code in codes]
    with http.server.ThreadingHTTPServer((HOST, 0), answers_in_turn(bodies)) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        use_s3(monkeypatch, server.server_address[1])
        folder = S3Folder("s3://tokens/run", QUICK)
        folder.delete(["a", "b"])
        assert len(bodies) == 1
        with pytest.raises(WriteError, match=r"cannot be deleted.*AccessDenied") as caught:
            folder.delete(["a", "b"])
        assert caught.value.where == "s3://tokens/run/b"
        server.shutdown()


def test_the_first_requests_may_be_concurrent(folder: S3Folder) -> None:
    """Only one client is made, and none is left open."""
    close_connections()
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda idx: folder.put(f"{idx}", b"x" * idx), range(96)))
    assert dict(folder.iter_names()) == {f"{idx}": idx for idx in range(96)}


@pytest.mark.parametrize("method", ["put", "put_if_absent", "begin_upload", "delete", "iter_names"])
def test_wrong_credentials_are_named(
    folder: S3Folder, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    folder.put("a", b"x")
    arguments = {"put": ("a", b""), "put_if_absent": ("b", b""), "delete": (["a"],)}
    for key, secret, said in (
        ("nobody", "test-secret", "403 InvalidAccessKeyId"),
        ("test-key", "wrong", "403 SignatureDoesNotMatch"),
        ("read-key", "test-secret", "AccessDenied"),
    ):
        if key == "read-key" and method == "iter_names":
            continue
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        close_connections()
        with pytest.raises(WriteError, match=f"^cannot be .*{said}") as caught:
            list(getattr(folder, method)(*arguments.get(method, ("a",))) or ())
        assert caught.value.where.startswith(folder.url)
        assert "credentials, which must allow" in caught.value.next_step
        assert "AWS_ACCESS_KEY_ID" in caught.value.next_step
        assert "run the same command again" in caught.value.next_step


def test_no_credentials_are_named(folder: S3Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    close_connections()
    with pytest.raises(WriteError, match=r"cannot be written.*403") as caught:
        folder.put("a", b"")
    assert "AWS_PROFILE" in caught.value.next_step


def test_a_wrong_bucket_is_named(folder: S3Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "write-key")
    close_connections()
    wrong = S3Folder("s3://tokenz/run", QUICK)
    requests: list[Callable[[], object]] = [
        lambda: wrong.put("a", b""),
        lambda: wrong.put_if_absent("a", b""),
        lambda: wrong.get("a"),
        lambda: wrong.begin_upload("a"),
        lambda: wrong.abort_upload("a", "x"),
        lambda: list(wrong.iter_names()),
    ]
    for request in requests:
        with pytest.raises(WriteError, match=r"NoSuchBucket|AccessDenied") as caught:
            request()
        assert caught.value.where.startswith("s3://tokenz/run")
        assert "check the spelling" in caught.value.next_step
    with pytest.raises(WriteError, match="not the name of an object"):
        S3Folder("s3://no bucket/run", QUICK).put("a", b"")


@pytest.mark.parametrize("address", ["nonsense", "http://", "http://ho st"])
def test_a_wrong_endpoint_is_named(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    use_s3(monkeypatch, 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(WriteError, match="cannot be written") as caught:
        S3Folder("s3://tokens/run", QUICK).put("a", b"x")
    assert "AWS_ENDPOINT_URL" in caught.value.next_step


def test_a_refused_connection_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as free:
        use_s3(monkeypatch, free.getsockname()[1])
    with pytest.raises(WriteError, match="cannot be written after 6 tries"):
        S3Folder("s3://tokens/run", QUICK).put("a", b"")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(UsageError, match="`botocore` is needed") as caught:
        S3Folder("s3://tokens/run", QUICK).put("a", b"")
    assert caught.value.where == "--output `s3://tokens/run/a`"
    assert caught.value.next_step == "pip install 'penstok[s3]'"
