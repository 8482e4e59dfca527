"""Outputs written to an object store: the same bytes, whatever breaks on the way."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import run, start, write_corpus
from remote_servers import faulty_proxy, make_bucket, s3_client, use_s3
from support import few

from penstok.storage import close_connections

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BUCKET = "written"
FLAGS = ("--val-fraction", "0.3", "--task-size", "800KB", "-j", "1")
# Where a run is killed that writes to an object store; `NAME:3` is the third time.
FAULTS = [
    "one piece uploaded",
    "task uploaded",
    "small object written",
    "intent written",
    "journal uploaded",
    "one upload completed",
    "manifest written",
    "one piece uploaded:5",
    "task uploaded:2",
    "journal uploaded:2",
    "one upload completed:4",
]


@pytest.fixture
def s3(s3_gateway: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the test's own, and what a user would set."""
    client = s3_client(s3_gateway)
    make_bucket(client, BUCKET)
    use_s3(monkeypatch, s3_gateway)
    return client


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield f"s3://{BUCKET}/{tmp_path.name}/{random.randrange(10**9)}"
    close_connections()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of 3 MB, in five tasks, and what an ordinary job makes of them."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "in").mkdir()
    write_corpus(folder / "in" / "a.txt", 700)
    long = "a long document " * 90_000
    (folder / "in" / "b.txt").write_text(f"short<|endoftext|>{long}<|endoftext|>last")
    (folder / "in" / "c.jsonl").write_text('{"text": "good"}\nbad\n{"text": "better"}\n')
    flags = ("--on-error", "skip", "--val-fraction", "0.3")
    assert run("tokenize", folder / "in", "-o", folder / "local", *flags)[0] == 3
    return folder


def job(made: Path, output: str, *flags: str) -> tuple[str | Path, ...]:
    return ("tokenize", made / "in", "-o", output, "--on-error", "skip", *FLAGS, *flags)


def is_shard(name: str, split: str) -> bool:
    return name.startswith(f"{split}_shard_") and name.endswith(".bin")


def objects(s3: Any, url: str) -> dict[str, bytes]:
    """Return all that is there, by name."""
    prefix = url.removeprefix(f"s3://{BUCKET}/") + "/"
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
    return {
        each["Key"].removeprefix(prefix): s3.get_object(Bucket=BUCKET, Key=each["Key"])[
            "Body"
        ].read()
        for each in listed
    }


def uploads(s3: Any, url: str) -> list[str]:
    """Return the names of uploads that were begun and not ended."""
    prefix = url.removeprefix(f"s3://{BUCKET}/") + "/"
    listed = s3.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", ())
    return [each["Key"] for each in listed]


def check_same(s3: Any, url: str, made: Path) -> dict[str, Any]:
    """Compare with the ordinary job; return the manifest."""
    found = objects(s3, url)
    for split in ("train", "val"):
        shards = [found[name] for name in sorted(found) if is_shard(name, split)]
        indexes = [name for name in found if name.startswith(split) and name.endswith(".npy")]
        assert len(indexes) == len(shards)
        assert b"".join(shards) == (made / "local" / f"{split}.bin").read_bytes()
    assert found["skipped.jsonl"] == (made / "local" / "skipped.jsonl").read_bytes()
    assert not [name for name in found if name.startswith(".penstok/")]
    assert not uploads(s3, url)
    manifest: dict[str, Any] = json.loads(found["manifest.json"])
    local = json.loads((made / "local" / "manifest.json").read_text())
    assert manifest["counts"] == local["counts"]
    assert manifest["inputs"] == local["inputs"]
    return manifest


def test_a_job_writes_shards_and_the_manifest_last(s3: Any, url: str, made: Path) -> None:
    exit_code, said = run(*job(made, url))
    assert exit_code == 3, said
    manifest = check_same(s3, url, made)
    assert manifest["run"]["tasks"] == len(manifest["splits"]["train"]["files"]) > 3
    exit_code, said = run("verify", url, "--full", "--source")
    assert exit_code == 0, said
    exit_code, said = run(*job(made, url))
    assert exit_code == 3, said
    assert "nothing to do" in said


def test_parts_of_a_job_meet_in_a_bucket(s3: Any, url: str, made: Path) -> None:
    running = [start(*job(made, url, "--part", f"{part}/3")) for part in (3, 1)]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode in (0, 3), said
    exit_code, said = run("finish", url)
    assert exit_code == 6
    assert "unfinished parts: 2/3" in said
    assert run(*job(made, url, "--part", "2/3"))[0] in (0, 3)
    assert run("finish", url)[0] == 3
    check_same(s3, url, made)
    assert "nothing to do" in run("finish", url)[1]


@pytest.mark.thorough
def test_ray_writes_to_a_bucket(s3: Any, url: str, made: Path) -> None:
    flags = ("--executor", "ray", "--ray-address", "local", "--memory", "600MiB")
    exit_code, said = run(*job(made, url, *flags))
    assert exit_code == 3, said
    manifest = check_same(s3, url, made)
    assert [node["tasks"] for node in manifest["run"]["nodes"]] == [manifest["run"]["tasks"]]


@pytest.mark.crash
@pytest.mark.parametrize("fault", few(FAULTS, 6))
def test_a_kill_here_costs_nothing(s3: Any, url: str, made: Path, fault: str) -> None:
    exit_code, said = run(*job(made, url), fault=fault)
    assert exit_code == -signal.SIGKILL, said
    is_committed = fault == "manifest written"
    assert ("manifest.json" in objects(s3, url)) == is_committed
    exit_code, said = run(*job(made, url))
    assert exit_code == 3, said
    check_same(s3, url, made)


@pytest.mark.thorough
def test_busy_and_cut_lines_are_survived(
    s3: Any, s3_gateway: int, url: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_proxy(s3_gateway) as line:
        use_s3(monkeypatch, line.port)
        line.num_upload_cuts, line.cut_uploads_after_bytes = 3, 5000
        process = start(*job(made, url))
        faults = due = 0
        while process.poll() is None:
            time.sleep(0.01)
            if line.connections >= due:
                faults, due = faults + 1, line.connections + 15
                line.num_busy, line.lose_answers = faults % 2, (faults + 1) % 2
        _, said = process.communicate()
        assert process.returncode == 3, said
        assert faults > 3
        assert line.num_upload_cuts == 0
    check_same(s3, url, made)


@pytest.mark.thorough
def test_an_upload_that_somebody_ended_is_made_again(s3: Any, url: str, made: Path) -> None:
    assert run(*job(made, url), fault="intent written")[0] == -signal.SIGKILL
    prefix = url.removeprefix(f"s3://{BUCKET}/") + "/"
    begun = s3.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix)["Uploads"]
    # The ledger is uploaded too, and would be written again without repeating a task.
    shards = [each for each in begun if "_shard_" in each["Key"]]
    for each in shards[:2]:
        s3.abort_multipart_upload(Bucket=BUCKET, Key=each["Key"], UploadId=each["UploadId"])
    exit_code, said = run(*job(made, url))
    assert exit_code == 3, said
    manifest = check_same(s3, url, made)
    assert 0 < manifest["run"]["tasks_kept"] < manifest["run"]["tasks"]


def test_another_job_is_refused_and_overwriting_keeps_the_old_one_until_the_end(
    s3: Any, url: str, made: Path
) -> None:
    assert run(*job(made, url, "--seed", "7"))[0] == 3
    before = objects(s3, url)
    exit_code, said = run(*job(made, url))
    assert exit_code == 5, said
    assert "`--seed` 7 there, 0 here" in said
    command = job(made, url, "--overwrite")
    assert run(*command, fault="task uploaded:2")[0] == -signal.SIGKILL
    now = objects(s3, url)
    assert {name: now[name] for name in before} == before
    assert run("verify", url)[0] == 0
    assert run(*command)[0] == 3
    check_same(s3, url, made)


@pytest.mark.thorough
def test_what_is_somebody_elses_stays(s3: Any, url: str, made: Path) -> None:
    prefix = url.removeprefix(f"s3://{BUCKET}/")
    begun = [f"{prefix}/backup.tar", f"{prefix}/sub/train_shard_00000.bin"]
    for key in begun:
        s3.create_multipart_upload(Bucket=BUCKET, Key=key)
    assert run(*job(made, url))[0] == 3
    assert sorted(uploads(s3, url)) == begun
    for each in s3.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{prefix}/")["Uploads"]:
        s3.abort_multipart_upload(Bucket=BUCKET, Key=each["Key"], UploadId=each["UploadId"])
    check_same(s3, url, made)


@pytest.mark.crash
def test_an_output_inside_its_input_is_no_input(s3: Any, url: str, made: Path) -> None:
    prefix = url.removeprefix(f"s3://{BUCKET}/")
    for name in ("a.txt", "b.txt", "c.jsonl"):
        data = (made / "in" / name).read_bytes()
        s3.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=data)
    command = ("tokenize", f"{url}/", "-o", f"{url}/tokens/", "--on-error", "skip", *FLAGS)
    assert run(*command, fault="one upload completed:3")[0] == -signal.SIGKILL
    exit_code, said = run(*command)
    assert exit_code == 3, said
    exit_code, said = run(*command)
    assert "nothing to do" in said
    found = objects(s3, f"{url}/tokens")
    shards = [found[name] for name in sorted(found) if is_shard(name, "train")]
    assert b"".join(shards) == (made / "local" / "train.bin").read_bytes()


def test_plans_of_jobs_of_tasks_are_shown(s3: Any, url: str, made: Path) -> None:
    for flags in (("-o", url), ("--part", "1/2"), ("--executor", "ray")):
        exit_code, said = run("plan", made / "in", "--on-error", "skip", *flags)
        assert exit_code == 0, said
    assert objects(s3, url) == {}


@pytest.mark.thorough
def test_one_job_at_a_time(s3: Any, url: str, made: Path) -> None:
    first = start(*job(made, url, "--engine", "tiktoken"))
    deadline = time.monotonic() + 60
    while ".penstok/lock" not in objects(s3, url) and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGSTOP)
    try:
        # It lives on this machine, and its lock will not change: it is watched for long.
        second = start(*job(made, url))
        time.sleep(3)
        assert second.poll() is None
    finally:
        first.send_signal(signal.SIGCONT)
    _, said = second.communicate(timeout=120)
    first.communicate(timeout=120)
    assert first.returncode == 3
    assert second.returncode in (3, 7), said
    check_same(s3, url, made)


def test_a_shard_of_several_pieces(s3: Any, url: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    words = [f"w{chance.randrange(10**6)}" for _ in range(5000)]
    text = " ".join(chance.choices(words, k=4_000_000))
    (tmp_path / "a.txt").write_text(text)
    import penstok

    local = penstok.tokenize(tmp_path / "a.txt", tmp_path / "local", docs_by="file")
    remote = penstok.tokenize(tmp_path / "a.txt", url, docs_by="file", task_size=1 << 30)
    assert remote.splits["train"].tokens == local.splits["train"].tokens > 10_000_000
    found = objects(s3, url)
    assert found["train_shard_00000.bin"] == (tmp_path / "local" / "train.bin").read_bytes()
    dataset, there = penstok.open(tmp_path / "local"), penstok.open(url)
    assert there.read("train", 9_000_000, 7).tolist() == dataset.train[9_000_000:9_000_007].tolist()


@pytest.mark.parametrize(
    ("output", "flags", "exit_code", "words"),
    [
        ("gs://bucket/run", (), 2, "s3://"),
        ("s3:///run", (), 2, "s3://BUCKET"),
        (f"s3://{BUCKET}/a//b", (), 2, "s3://BUCKET"),
        (f"s3://{BUCKET}/../b", (), 2, "s3://BUCKET"),
        (f"s3://{BUCKET}/x", ("--shard-tokens", "1M"), 2, "--task-size"),
    ],
)
def test_what_cannot_be_written_is_refused(
    s3: Any, made: Path, output: str, flags: tuple[str, ...], exit_code: int, words: str
) -> None:
    code, said = run("tokenize", made / "in", "-o", output, "--on-error", "skip", *flags)
    assert (code, words in said) == (exit_code, True), said
