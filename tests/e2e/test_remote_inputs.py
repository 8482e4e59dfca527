"""Jobs with remote inputs: the same bytes as from local files, in spite of all failures."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import signal
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from processes import run, token_files
from remote_servers import HOST, WebServer, faulty_proxy, make_bucket, s3_client, use_s3, web_server
from row_cases import write_rows

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
FLAGS = ("--val-fraction", "0.1", "--memory", "2GiB")
BUCKET = "jobs"
NAMES = ("a.txt", "b.jsonl", "c.jsonl.gz", "d.parquet")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents in four formats, about eight units each."""
    folder = tmp_path_factory.mktemp("files")
    documents = [f"document {idx}: " + f"word {idx % 7} " * 270 for idx in range(800)]
    (folder / "a.txt").write_text("<|endoftext|>".join(documents))
    lines = "".join(json.dumps({"text": each}) + "\n" for each in documents)
    (folder / "b.jsonl").write_text(lines)
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    write_rows(
        folder / "d.parquet",
        pa.table({"text": documents}),
        row_group_size=100,
        compression="none",
        use_dictionary=False,
    )
    return folder


@pytest.fixture(scope="module")
def expected(files: Path) -> dict[str, bytes]:
    output = files.parent / "expected"
    assert run("tokenize", files / "a.txt", "-o", output, *FLAGS)[0] == 0
    return token_files(output)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing may be copied to disk: the folders a job could use for that stay empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    for name in ("TMPDIR", "HOME"):
        monkeypatch.setenv(name, str(folder))
    yield
    assert list(folder.iterdir()) == []


@pytest.fixture
def web(files: Path) -> Iterator[WebServer]:
    with web_server() as server:
        server.files = {path.name: path.read_bytes() for path in files.iterdir()}
        yield server


@pytest.fixture(scope="module")
def bucket(s3_gateway: int, files: Path) -> int:
    client = s3_client(s3_gateway)
    make_bucket(client, BUCKET)
    for path in files.iterdir():
        client.put_object(Bucket=BUCKET, Key=f"in/{path.name}", Body=path.read_bytes())
    client.close()
    return s3_gateway


@pytest.fixture
def s3(bucket: int, monkeypatch: pytest.MonkeyPatch) -> int:
    use_s3(monkeypatch, bucket)
    return bucket


def times(count: int, expected: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data * count for name, data in expected.items()}


def manifest(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    return content


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_web_server_gives_the_same_bytes(
    web: WebServer, expected: dict[str, bytes], tmp_path: Path
) -> None:
    urls = [web.url(name) for name in NAMES]
    exit_code, said = run("tokenize", *urls, "-o", tmp_path / "out", *FLAGS, "-j", "1")
    assert exit_code == 0, said
    assert token_files(tmp_path / "out") == times(4, expected)
    assert [each["path"] for each in manifest(tmp_path / "out")["inputs"]] == urls
    made = {path.name for path in (tmp_path / "out").iterdir()}
    indexes = {"train_documents.npy", "val_documents.npy"}
    assert made - {".penstok"} == {
        "train.bin",
        "val.bin",
        "segments.jsonl",
        "manifest.json",
        *indexes,
    }
    counts = Counter(path for path, _ in web.requests)
    # Info and the head; for text the start for its separator, two samples and the search for a
    # document of val; then the units.
    assert counts["a.txt"] <= 9 + 8
    assert counts["b.jsonl"] <= 4 + 9
    assert counts["c.jsonl.gz"] <= 6
    # Three times the footer, twice a sample's row group, then each row group.
    assert counts["d.parquet"] <= 7 + 8
    # The command looks at the four inputs at once, if they are slow; its worker has one more.
    assert web.connections <= 5


def test_a_web_server_without_ranges(
    web: WebServer, expected: dict[str, bytes], tmp_path: Path
) -> None:
    web.has_ranges = False
    urls = [web.url(name) for name in NAMES]
    exit_code, said = run("tokenize", *urls[:3], "-o", tmp_path / "out", *FLAGS, "-j", "2")
    assert exit_code == 0, said
    assert token_files(tmp_path / "out") == times(3, expected)
    exit_code, said = run("tokenize", *urls, "-o", tmp_path / "rows", *FLAGS)
    assert exit_code == 4
    assert "parquet cannot be read from front to back" in said
    assert urls[3] in said


@pytest.mark.parametrize("argument", ["in", "i*/?.*", "in/**"])
def test_s3_gives_the_same_bytes(
    s3: int, expected: dict[str, bytes], tmp_path: Path, argument: str
) -> None:
    job = ("tokenize", f"s3://{BUCKET}/{argument}", "-o", tmp_path / "out", *FLAGS)
    exit_code, said = run(*job, "-j", "2")
    assert exit_code == 0, said
    assert token_files(tmp_path / "out") == times(4, expected)
    if argument == "in":
        exit_code, said = run(*job)
        assert exit_code == 0, said
        assert "done already" in said or "nothing" in said, said


def test_a_remote_job_is_verified_and_repaired(
    s3: int, expected: dict[str, bytes], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert run("tokenize", f"s3://{BUCKET}/in", "-o", output, *FLAGS)[0] == 0
    exit_code, said = run("verify", output, "--full", "--source")
    assert exit_code == 0, said
    for position in (100_000, 1_000_000, 1_500_000, 2_000_000):
        flip(output / "train.bin", position)
    assert run("verify", output, "--repair")[0] == 0
    assert token_files(output) == times(4, expected)
    ledger = output / "segments.jsonl"
    whole = ledger.read_bytes()
    ledger.unlink()
    exit_code, said = run("verify", output, "--repair")
    assert exit_code == 0, said
    assert ledger.read_bytes() == whole


@pytest.mark.parametrize("kind", ["web", "s3"])
def test_jobs_survive_broken_connections(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    expected: dict[str, bytes],
    tmp_path: Path,
    kind: str,
) -> None:
    port = request.getfixturevalue("web").port if kind == "web" else request.getfixturevalue("s3")
    with faulty_proxy(port) as proxy:
        use_s3(monkeypatch, proxy.port)
        root = f"http://{HOST}:{proxy.port}" if kind == "web" else f"s3://{BUCKET}/in"
        proxy.cut_after_bytes, proxy.num_cuts = 300_000, 22
        urls = [f"{root}/{name}" for name in NAMES]
        exit_code, said = run("tokenize", *urls, "-o", tmp_path / "out", *FLAGS, "-j", "2")
        assert exit_code == 0, said
        assert proxy.num_cuts == 0
    assert token_files(tmp_path / "out") == times(4, expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_run_continues(
    s3: int, expected: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    job = ("tokenize", f"s3://{BUCKET}/in/{name}", "-o", tmp_path / "out", *FLAGS)
    assert run(*job, fault="journal on disk:2")[0] == -signal.SIGKILL
    assert run(*job, fault="journal line torn")[0] == -signal.SIGKILL
    exit_code, said = run(*job)
    assert exit_code == 0, said
    assert token_files(tmp_path / "out") == expected
    assert manifest(tmp_path / "out")["run"]["units_kept"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_an_object_that_changed_between_runs_is_a_conflict(
    web: WebServer, tmp_path: Path, name: str
) -> None:
    job = ("tokenize", web.url(name), "-o", tmp_path / "out", *FLAGS)
    assert run(*job, fault="journal on disk:2")[0] == -signal.SIGKILL
    web.etags[name] = '"v2"'
    exit_code, said = run(*job)
    assert exit_code == 5, said
    assert web.url(name) in said


class ChangingTags(dict[str, str]):
    """Returns the first version's ETag so many times, then the second's."""

    def __init__(self, num_answers: int) -> None:
        super().__init__()
        self.left = num_answers

    def get(self, key: str, default: Any = None) -> Any:
        self.left -= 1
        return '"v1"' if self.left >= 0 else '"v2"'


@pytest.mark.parametrize("name", NAMES)
def test_an_object_that_changes_during_a_run_is_an_error(
    web: WebServer, tmp_path: Path, name: str
) -> None:
    """Whichever request notices it."""
    web.etags = ChangingTags(1 << 30)
    assert run("tokenize", web.url(name), "-o", tmp_path / "out", *FLAGS, "-j", "1")[0] == 0
    num_requests = len(web.requests)
    for num_answers in (num_requests // 2, num_requests - 1):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        web.etags = ChangingTags(num_answers)
        exit_code, said = run("tokenize", web.url(name), "-o", tmp_path / "out", *FLAGS, "-j", "1")
        assert exit_code == 4, said
        assert "the file changed while it was read" in said
        assert web.url(name) in said
        assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_missing_input_is_named(
    s3: int, web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(url: str) -> str:
        exit_code, said = run("tokenize", url, "-o", tmp_path / "out")
        assert exit_code == 4, said
        assert url in said
        assert not (tmp_path / "out").exists()
        return said.split("next:")[1]

    assert "credentials" in refusal(web.url("none.txt"))
    assert "check the spelling" in refusal(f"s3://{BUCKET}/none/")
    assert "AWS_ENDPOINT_URL" in refusal("s3://no-such-bucket/in/a.txt")
    web.token = "secret"
    assert "~/.netrc" in refusal(web.url("a.txt"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "AWS_PROFILE" in refusal(f"s3://{BUCKET}/in/a.txt")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "AWS_PROFILE" in refusal(f"s3://{BUCKET}/in/a.txt")


def test_a_missing_input_can_be_skipped(
    web: WebServer, expected: dict[str, bytes], tmp_path: Path
) -> None:
    urls = [web.url(name) for name in ("none.txt", "a.txt", "none.parquet")]
    exit_code, said = run("tokenize", *urls, "-o", tmp_path / "out", "--on-error", "skip", *FLAGS)
    assert exit_code == 3, said
    assert token_files(tmp_path / "out") == expected
    listed = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    assert [json.loads(line)["path"] for line in listed] == [urls[0], urls[2]]


def test_a_url_given_twice_is_refused(s3: int, web: WebServer, tmp_path: Path) -> None:
    for inputs in (
        [web.url("a.txt"), web.url("b.jsonl"), web.url("a.txt")],
        [f"s3://{BUCKET}/in/a.txt", f"s3://{BUCKET}/in"],
    ):
        exit_code, said = run("tokenize", *inputs, "-o", tmp_path / "out")
        assert exit_code == 2
        assert "the same file is named twice" in said
        assert inputs[0] in said


def test_many_objects_keep_their_order(s3: int, tmp_path: Path) -> None:
    client = s3_client(s3)
    for idx in range(40):
        client.put_object(Bucket=BUCKET, Key=f"many-{idx}.txt", Body=f"document {idx}".encode())
    client.close()
    exit_code, said = run("tokenize", f"s3://{BUCKET}/many-*", "-o", tmp_path / "out", *FLAGS)
    assert exit_code == 0, said
    paths = [each["path"] for each in manifest(tmp_path / "out")["inputs"]]
    assert paths == [f"s3://{BUCKET}/many-{idx}.txt" for idx in range(40)]


def test_local_and_remote_inputs_mix(
    web: WebServer, s3: int, files: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    inputs: list[str | Path] = [
        files / "d.parquet",
        web.url("a.txt"),
        f"s3://{BUCKET}/in/c.jsonl.gz",
        files / "a.txt",
    ]
    job: tuple[str | Path, ...] = ("tokenize", *inputs, "-o", tmp_path / "out", *FLAGS, "-j", "2")
    assert run(*job, fault="journal on disk:5")[0] == -signal.SIGKILL
    exit_code, said = run(*job)
    assert exit_code == 0, said
    assert token_files(tmp_path / "out") == times(4, expected)


def test_a_limit_holds_for_remote_inputs(web: WebServer, files: Path, tmp_path: Path) -> None:
    limit = ("--limit", str((files / "a.txt").stat().st_size + 300_000))
    urls = [web.url(name) for name in ("a.txt", "d.parquet")]
    paths = [files / name for name in ("a.txt", "d.parquet")]
    assert run("tokenize", *urls, "-o", tmp_path / "a", *FLAGS, *limit)[0] == 0
    assert run("tokenize", *paths, "-o", tmp_path / "b", *FLAGS, *limit)[0] == 0
    assert token_files(tmp_path / "a") == token_files(tmp_path / "b")


def test_archives_on_a_web_server_give_the_same_bytes(
    web: WebServer, files: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name in NAMES[:3]:
            tar.add(files / name, name)
    web.files = {"a.tar": plain.getvalue(), "b.tgz": gzip.compress(plain.getvalue())}
    for name, has_ranges in (("a.tar", True), ("a.tar", False), ("b.tgz", True)):
        web.has_ranges = has_ranges
        output = tmp_path / f"{name}-{has_ranges}"
        exit_code, said = run("tokenize", web.url(name), "-o", output, *FLAGS, "-j", "2")
        assert exit_code == 0, said
        assert token_files(output) == times(3, expected)
        exit_code, said = run("verify", output, "--full")
        assert exit_code == 0, said


@pytest.mark.usefixtures("s3")
def test_outputs_in_a_folder_of_objects_are_ignored(bucket: int, tmp_path: Path) -> None:
    client = s3_client(bucket)
    marks = {"done/manifest.json": b'{\n  "format": "penstok",', "killed/.penstok/job.jsonl": b"{}"}
    texts = ("a.txt", "done/train.bin", "killed/train_shard_00000.bin", "site/b.txt")
    for name, data in {**marks, **dict.fromkeys(texts, b"text")}.items():
        client.put_object(Bucket=BUCKET, Key=f"mixed/{name}", Body=data)
    client.close()
    exit_code, said = run("tokenize", f"s3://{BUCKET}/mixed", "-o", tmp_path / "out", *FLAGS)
    assert exit_code == 0, said
    inputs = manifest(tmp_path / "out")["inputs"]
    found = {each["path"].partition("/mixed/")[2]: each["reason"] for each in inputs}
    ignored = "this folder is an output of penstok"
    assert found == {"a.txt": None, "site/b.txt": None, "done": ignored, "killed": ignored}
    for name in ("done", "killed"):
        exit_code, said = run("tokenize", f"s3://{BUCKET}/mixed/{name}", "-o", tmp_path / "other")
        assert exit_code == 4
        assert "holds tokens, not text" in said
