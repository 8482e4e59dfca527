"""Remote inputs against real servers: the right bytes, in few requests, or a clear error."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from remote_servers import (
    HOST,
    S3_KEY,
    S3_SECRET,
    FaultyProxy,
    WebServer,
    faulty_proxy,
    make_bucket,
    s3_client,
    use_s3,
    web_server,
)

from penstok.errors import InputError, UsageError
from penstok.inputs.discovery import natural_key
from penstok.storage import (
    ObjectInfo,
    RemoteFile,
    RetryPolicy,
    close_connections,
    expand_url,
    get_object_info,
    open_seekable,
    open_stream,
)

MIB = 1 << 20
UNIT = 16 * MIB
QUICK = RetryPolicy(max_tries=6, first_delay_seconds=0.01, max_delay_seconds=0.05)
TEXT = random.Random(1).randbytes(3 * MIB + 17)


@pytest.fixture(autouse=True)
def connections() -> Iterator[None]:
    close_connections()
    yield
    close_connections()
    gc.collect()


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        server.files["a.txt"] = TEXT
        yield server


@pytest.fixture(scope="module")
def s3_port(s3_gateway: int) -> int:
    client = s3_client(s3_gateway)
    make_bucket(client, "corpus")
    for key in ("a.txt", "dir/part-10.txt", "dir/part-2.txt", "dir/deep/x.parquet"):
        client.put_object(Bucket="corpus", Key=key, Body=TEXT if key == "a.txt" else key.encode())
    for key in ("dir/.hidden.txt", "dir/.cache/y.parquet", "dir2/other.txt", "odd/a b+ä%.txt"):
        client.put_object(Bucket="corpus", Key=key, Body=key.encode())
    client.close()
    return s3_gateway


@pytest.fixture
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> int:
    use_s3(monkeypatch, s3_port)
    return s3_port


@pytest.fixture(params=["web", "s3", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same bytes in each kind of store."""
    if request.param == "web":
        return str(request.getfixturevalue("web").url("a.txt"))
    if request.param == "s3":
        request.getfixturevalue("s3")
        return "s3://corpus/a.txt"
    (tmp_path / "a.txt").write_bytes(TEXT)
    return f"file://{tmp_path}/a.txt"


def test_any_range_has_the_right_bytes(url: str) -> None:
    chance = random.Random(2)
    info = get_object_info(url)
    assert info.num_bytes == len(TEXT)
    assert info.has_ranges
    assert info.version
    with RemoteFile(url, info, QUICK) as file:
        for turn in range(60):
            start = chance.randrange(-10, len(TEXT) + 10)
            end = start + chance.choice([0, 1, 3, 300, 5000, 70_000, MIB, 4 * MIB])
            assert file.read_at(start, end) == TEXT[max(start, 0) : max(end, 0)]
            if turn % 20 == 10:
                file.prefetch(start, end)
            start = min(max(start, 0), len(TEXT))
            buffer = bytearray(min(end, len(TEXT)) - start if end > start else 0)
            file.read_into(memoryview(buffer), start)
            assert buffer == TEXT[start : start + len(buffer)]
        with pytest.raises(InputError, match="beyond the end"):
            file.read_into(memoryview(bytearray(10)), len(TEXT) - 5)


def test_a_stream_and_a_file_object_have_the_right_bytes(url: str) -> None:
    with open_stream(url) as stream:
        pieces = iter(lambda: stream.read(100_001), b"")
        assert b"".join(pieces) == TEXT
        assert stream.read(1) == b""
    with open_seekable(url) as file:
        assert file.seek(-100, os.SEEK_END) == len(TEXT) - 100
        assert file.read() == TEXT[-100:]
        assert file.seek(1000) == 1000
        assert file.read(MIB) == TEXT[1000 : 1000 + MIB]
        assert file.seek(-8, os.SEEK_CUR) == 1000 + MIB - 8
        assert file.read(8) == TEXT[1000 + MIB - 8 :][:8]


def test_pyarrow_reads_parquet_through_it(web: WebServer) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({"text": [f"document {idx}" for idx in range(100_000)]})
    parquet.write_table(table, sink, row_group_size=20_000)
    web.files["a.parquet"] = sink.getvalue().to_pybytes()
    with open_seekable(web.url("a.parquet")) as file:
        opened = parquet.ParquetFile(file)
        assert opened.read_row_group(3)["text"][5].as_py() == "document 60005"
    assert len(web.requests) <= 4


@pytest.mark.parametrize("is_prefetched", [True, False])
def test_a_unit_costs_few_requests(web: WebServer, is_prefetched: bool) -> None:
    """As readers do: the head, short reads around both edges, all of it, short reads again."""
    chance = random.Random(3)
    data = chance.randbytes(3 * UNIT)
    web.files["big.txt"] = data
    web.connections = 0
    info = get_object_info(web.url("big.txt"))
    web.requests.clear()
    with RemoteFile(web.url("big.txt"), info, QUICK) as file:
        assert file.read_at(0, 3) == data[:3]
        if is_prefetched:
            file.prefetch(UNIT - 4, 2 * UNIT + MIB)
        for edge in (UNIT, 2 * UNIT):
            for _ in range(25):
                start = edge + chance.randrange(-13, 60_000)
                end = start + chance.choice([4, 256, 1024, 4096, 16_384])
                assert file.read_at(start, end) == data[start:end]
        buffer = bytearray(UNIT + 65_536)
        file.read_into(memoryview(buffer), UNIT)
        assert buffer == data[UNIT : UNIT + len(buffer)]
        for start in (UNIT, 2 * UNIT, 2 * UNIT + 500):
            assert file.read_at(start, start + 256) == data[start : start + 256]
    assert len(web.requests) <= (2 if is_prefetched else 4)
    assert web.connections == 1


def test_a_search_far_ahead_takes_few_requests(web: WebServer) -> None:
    with RemoteFile(web.url("a.txt")) as file:
        web.requests.clear()
        at, look = 5000, 256
        while at < 2 * MIB:
            assert file.read_at(at, at + look) == TEXT[at : at + look]
            at, look = at + look, min(look * 4, 65_536)
    assert len(web.requests) <= 4


def cut_server(kind: str, request: pytest.FixtureRequest, proxy: FaultyProxy) -> str:
    if kind == "web":
        return f"http://{HOST}:{proxy.port}/a.txt"
    use_s3(request.getfixturevalue("monkeypatch"), proxy.port)
    return "s3://corpus/a.txt"


@pytest.fixture(params=["web", "s3"])
def cut(request: pytest.FixtureRequest) -> Iterator[tuple[str, FaultyProxy]]:
    """An object behind a proxy that can break connections."""
    is_web = request.param == "web"
    port = request.getfixturevalue("web").port if is_web else request.getfixturevalue("s3_port")
    with faulty_proxy(port) as proxy:
        yield cut_server(request.param, request, proxy), proxy


def test_a_broken_connection_is_resumed(cut: tuple[str, FaultyProxy]) -> None:
    url, proxy = cut
    info = get_object_info(url)
    for cut_after in (0, 10, 3000, MIB):
        proxy.cut_after_bytes, proxy.num_cuts, before = cut_after, 2, proxy.connections
        with RemoteFile(url, info, QUICK) as file:
            assert file.read_at(5, len(TEXT)) == TEXT[5:]
        assert proxy.connections - before in (2, 3)
        proxy.num_cuts = 2
        with open_stream(url, info, QUICK) as stream:
            assert stream.read(4 * MIB) == TEXT


@pytest.mark.parametrize("after_bytes", [0, 10, 40, 63, 80, 104, 120, 165, 182])
def test_truncated_headers_are_retried(s3: int, after_bytes: int) -> None:
    """Without its ETag a response would look like one of another version."""
    info = get_object_info("s3://corpus/a.txt")
    with pytest.MonkeyPatch.context() as monkeypatch, faulty_proxy(s3) as proxy:
        use_s3(monkeypatch, proxy.port)
        proxy.cut_after_bytes, proxy.num_cuts = after_bytes, 2
        assert get_object_info("s3://corpus/a.txt", QUICK) == info
        proxy.num_cuts = 2
        with RemoteFile("s3://corpus/a.txt", info, QUICK) as file:
            assert file.read_at(0, 100) == TEXT[:100]
        assert proxy.num_cuts == 0


def test_a_busy_server_is_retried(cut: tuple[str, FaultyProxy]) -> None:
    url, proxy = cut
    proxy.num_busy = 2
    info = get_object_info(url, QUICK)
    proxy.num_busy = 4
    with RemoteFile(url, info, QUICK) as file:
        assert file.read_at(0, 100) == TEXT[:100]
        proxy.num_busy = 1000
        with pytest.raises(InputError, match=r"after 6 tries.*503") as caught:
            file.read_at(MIB, 2 * MIB)
    assert f"{url}, bytes {MIB} to {2 * MIB}" in caught.value.where
    assert "run the same command again" in caught.value.next_step


def test_a_connection_that_always_breaks_is_an_error_soon(cut: tuple[str, FaultyProxy]) -> None:
    url, proxy = cut
    info = get_object_info(url)
    proxy.cut_after_bytes, proxy.num_cuts, before = 2000, 1000, proxy.connections
    with RemoteFile(url, info, QUICK) as file, pytest.raises(InputError, match="after 6 tries"):
        file.read_at(0, MIB)
    # A reused connection that the server has closed meanwhile counts as a try.
    assert proxy.connections - before in (5, 6)
    proxy.num_cuts = 1000
    with open_stream(url, info, QUICK) as stream, pytest.raises(InputError, match=r"6 tries|cut"):
        stream.read(4 * MIB)


def test_a_refused_connection_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_proxy(1) as proxy:
        pass
    with pytest.raises(InputError, match=r"after 6 tries.*refused"):
        get_object_info(f"http://{HOST}:{proxy.port}/a.txt", QUICK)
    use_s3(monkeypatch, proxy.port)
    with pytest.raises(InputError, match="after 6 tries"):
        get_object_info("s3://corpus/a.txt", QUICK)


def test_delays_grow_and_obey_retry_after() -> None:
    retries = RetryPolicy(first_delay_seconds=1, max_delay_seconds=8)
    for num_failed, most in enumerate([1, 2, 4, 8, 8], 1):
        assert most / 2 <= retries.delay_seconds(num_failed) <= most
    assert retries.delay_seconds(1, 20) == 20
    assert retries.delay_seconds(1, 10_000) == 60


def test_a_missing_object_is_an_error_at_once(web: WebServer, s3: int) -> None:
    for url in (web.url("b.txt"), "s3://corpus/b.txt", "s3://no-such-bucket/b.txt"):
        with pytest.raises(InputError, match="404") as caught:
            get_object_info(url)
        assert "credentials" in caught.value.next_step
        assert "tries" not in caught.value.what


def test_a_forbidden_object_is_an_error_at_once(
    web: WebServer, s3: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.token = "secret"
    with pytest.raises(InputError, match="403") as caught:
        get_object_info(web.url("a.txt"))
    assert "netrc" in caught.value.next_step
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    close_connections()
    with pytest.raises(InputError, match="403") as caught:
        get_object_info("s3://corpus/a.txt")
    assert "AWS_PROFILE" in caught.value.next_step
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    close_connections()
    with pytest.raises(InputError, match="403"):
        get_object_info("s3://corpus/a.txt")


def test_a_profile_gives_credentials(
    s3: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    config = tmp_path / "config"
    config.write_text(
        f"[profile lab]\nregion = us-east-1\nendpoint_url = http://{HOST}:{s3}\n"
        f"aws_access_key_id = {S3_KEY}\naws_secret_access_key = {S3_SECRET}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    close_connections()
    assert get_object_info("s3://corpus/a.txt").num_bytes == len(TEXT)
    monkeypatch.setenv("AWS_PROFILE", "none")
    close_connections()
    with pytest.raises(InputError, match="none"):
        get_object_info("s3://corpus/a.txt")


@pytest.mark.parametrize("new", [TEXT[::-1], TEXT + b"more", TEXT[:100], None])
def test_an_object_that_changes_is_an_error(web: WebServer, s3: int, new: bytes | None) -> None:
    client = s3_client(s3)
    client.put_object(Bucket="corpus", Key="changing.txt", Body=TEXT)
    url = web.url("a.txt")
    files = [RemoteFile(url), RemoteFile("s3://corpus/changing.txt")]
    assert [file.read_at(0, 100) for file in files] == [TEXT[:100]] * 2
    if new is None:
        del web.files["a.txt"]
        client.delete_object(Bucket="corpus", Key="changing.txt")
    else:
        web.files["a.txt"], web.etags["a.txt"] = new, '"v2"'
        client.put_object(Bucket="corpus", Key="changing.txt", Body=new)
    client.close()
    for file in files:
        with pytest.raises(InputError, match="404" if new is None else "changed"):
            file.read_at(MIB, 2 * MIB)


def test_another_size_is_a_change_without_a_version(web: WebServer) -> None:
    web.etags["a.txt"] = ""
    with RemoteFile(web.url("a.txt")) as file:
        web.files["a.txt"] += b"more"
        with pytest.raises(InputError, match="changed"):
            file.read_at(0, 10)


def test_a_server_without_ranges_is_read_as_a_stream(web: WebServer) -> None:
    web.has_ranges = False
    info = get_object_info(web.url("a.txt"))
    assert info == ObjectInfo(len(TEXT), '"v1"', has_ranges=False)
    with pytest.raises(InputError, match="parts"):
        RemoteFile(web.url("a.txt"), info)
    with open_stream(web.url("a.txt"), info) as stream:
        assert stream.read(4 * MIB) == TEXT
    web.is_chunked = True
    assert get_object_info(web.url("a.txt")).num_bytes is None
    with open_stream(web.url("a.txt")) as stream:
        assert stream.read(MIB) + stream.read(4 * MIB) == TEXT
        assert stream.read(1) == b""


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_broken_connection_without_ranges_is_an_error(web: WebServer, is_chunked: bool) -> None:
    web.has_ranges, web.is_chunked = False, is_chunked
    info = get_object_info(web.url("a.txt"))
    web.cut_after_bytes = 2 * MIB
    with open_stream(web.url("a.txt"), info, QUICK) as stream:
        assert stream.read(MIB) == TEXT[:MIB]
        with pytest.raises(InputError, match="cut"):
            stream.read(4 * MIB)


def test_a_response_without_a_length_is_refused(web: WebServer) -> None:
    web.has_ranges = web.has_length = False
    with open_stream(web.url("a.txt")) as stream, pytest.raises(InputError, match="unnoticed"):
        stream.read(1)


def test_compressed_responses_are_not_requested(web: WebServer) -> None:
    web.zips_if_allowed = True
    with RemoteFile(web.url("a.txt")) as file:
        assert file.read_at(100, MIB) == TEXT[100:MIB]


def test_empty_files(web: WebServer, s3: int) -> None:
    web.files["empty"] = b""
    client = s3_client(s3)
    client.put_object(Bucket="corpus", Key="empty", Body=b"")
    client.close()
    for url in (web.url("empty"), "s3://corpus/empty"):
        assert get_object_info(url).num_bytes == 0
        with RemoteFile(url) as file, open_stream(url) as stream:
            file.prefetch(0, 100)
            assert file.read_at(0, 10) == stream.read(10) == b""


def test_listing(s3: int) -> None:
    def expand(argument: str) -> list[str]:
        return [name.removeprefix("s3://corpus/") for name in expand_url(argument, natural_key)]

    parts = ["dir/part-2.txt", "dir/part-10.txt"]
    assert expand("s3://corpus/a.txt") == ["a.txt"]
    assert expand("s3://corpus/dir") == expand("s3://corpus/dir/") == ["dir/deep/x.parquet", *parts]
    assert expand("s3://corpus/dir/*.txt") == expand("s3://corpus/dir/part-*") == parts
    assert expand("s3://corpus/d*/part-[0-9].t?t") == ["dir/part-2.txt"]
    assert expand("s3://corpus/dir/part-[!2]*") == ["dir/part-10.txt"]
    assert expand("s3://corpus/**/*.parquet") == ["dir/deep/x.parquet"]
    assert expand("s3://corpus/dir/**") == ["dir/deep/x.parquet", *parts]
    assert expand("s3://corpus/dir/.hidden.txt") == ["dir/.hidden.txt"]
    assert expand("s3://corpus/dir/.h*") == ["dir/.hidden.txt"]
    assert expand("s3://corpus/odd") == ["odd/a b+ä%.txt"]
    with RemoteFile("s3://corpus/odd/a b+ä%.txt") as file:
        assert file.read_at(0, 100) == "odd/a b+ä%.txt".encode()
    for argument in ("s3://corpus/none", "s3://corpus/*.none", "s3://corpus/di"):
        with pytest.raises(InputError, match="no "):
            expand(argument)
    with pytest.raises(InputError, match="404"):
        expand("s3://no-such-bucket/")


def test_a_listing_of_many_pages(s3: int) -> None:
    client = s3_client(s3)
    for idx in range(1005):
        client.put_object(Bucket="corpus", Key=f"many/{idx}", Body=b"x")
    client.close()
    names = expand_url("s3://corpus/many", natural_key)
    assert names == [f"s3://corpus/many/{idx}" for idx in range(1005)]


def test_listing_through_fsspec(tmp_path: Path) -> None:
    for name in ("part-10.txt", "part-2.txt", ".hidden", "deep/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    root = f"file://{tmp_path}"
    found = [f"{root}/deep/x.txt", f"{root}/part-2.txt", f"{root}/part-10.txt"]
    assert expand_url(root, natural_key) == found
    assert expand_url(f"{root}/part-*", natural_key) == found[1:]
    assert expand_url(found[0], natural_key) == found[:1]
    with pytest.raises(InputError, match=r"no such|404"):
        expand_url(f"{root}/none", natural_key)
    with pytest.raises(InputError, match="unknown URL scheme"):
        expand_url("nonsense://x", natural_key)
    for url in ("github://owner/x", "data:///x", "zip://x"):
        with pytest.raises(InputError, match=r"`\w+://` cannot be read"):
            expand_url(url, natural_key)


def test_web_servers_are_not_listed(web: WebServer) -> None:
    assert expand_url("https://host/a?b=[1]", natural_key) == ["https://host/a?b=[1]"]
    with pytest.raises(UsageError, match="listing"):
        expand_url("https://host/*.txt", natural_key)


def test_hugging_face_files(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is sent to the hub only; the redirect target is reused until it is refused."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", f"http://{HOST}:{web.port}")
    monkeypatch.setenv("HF_TOKEN", "secret")
    with web_server() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://{HOST}:{hub.port}")
        hub.redirects["datasets/org/name/resolve/main/a%20b.txt"] = web.url("a.txt?signed=1")
        url = "hf://datasets/org/name/a b.txt"
        with RemoteFile(url) as file:
            assert file.read_at(0, 100) == TEXT[:100]
            assert file.read_at(MIB, 2 * MIB) == TEXT[MIB : 2 * MIB]
            assert len(hub.requests) == 1
            web.statuses = [403]
            assert file.read_at(2 * MIB, 3 * MIB) == TEXT[2 * MIB : 3 * MIB]
            assert len(hub.requests) == 2
        hub.token = "secret"
        hub.files["datasets/org/name/resolve/refs%2Fconvert%2Fparquet/b.txt"] = b"text"
        with RemoteFile("hf://datasets/org/name@refs/convert/parquet/b.txt") as file:
            assert file.read_at(0, 100) == b"text"
    with pytest.raises(InputError, match="not the name"):
        get_object_info("hf://datasets/name")


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [
        ("botocore", "s3://corpus/a.txt", "s3"),
        ("gcsfs", "gs://corpus/a.txt", "gs"),
        ("huggingface_hub", "hf://datasets/a/b/c", "hf"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, module: str, url: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    for ask in (get_object_info, lambda each: expand_url(each, natural_key)):
        with pytest.raises(UsageError) as caught:
            ask(url)
        assert caught.value.next_step == f"pip install 'penstok[{extra}]'"


def test_open_connections_cause_no_warning_at_exit(web: WebServer, s3: int) -> None:
    """As in a worker, which exits with connections still open."""
    program = (
        "import sys; from penstok.storage import RemoteFile\n"
        "for url in sys.argv[1:]:\n"
        "    with RemoteFile(url) as file: assert len(file.read_at(0, 10)) == 10"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(
        [*command, web.url("a.txt"), "s3://corpus/a.txt"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
