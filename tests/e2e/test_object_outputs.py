"""Finished outputs in an object store: read in place, as if they were on this machine."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run, watch_peak
from remote_servers import faulty_proxy, make_bucket, s3_client, use_s3

import penstok
from penstok.data.dataset import Dataset
from penstok.data.remote_tokens import RemoteTokens
from penstok.errors import DamageError, InputError, UsageError
from penstok.output.layout import JOB, WORK
from penstok.storage import close_connections
from penstok.storage.object_paths import ObjectPath, output_path
from penstok.types import SPLITS

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BUCKET = "outputs"
SETTINGS: dict[str, Any] = {
    "engine": "tiktoken",
    "unit_bytes": 100_000,
    "block_bytes": 50_000,
    "val_fraction": 0.2,
    "workers": 1,
}
KINDS = {"whole": None, "sharded": 40_000}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs of two inputs, eight units and one that was skipped; one of them in shards."""
    folder = tmp_path_factory.mktemp("made")
    for number, count in enumerate((300, 100)):
        text = "<|endoftext|>".join(
            f"document {idx} of {number}: " + f"some words, {idx * 7} of them; " * (40 + idx % 30)
            for idx in range(count)
        )
        (folder / f"input{number}.txt").write_text(text)
    (folder / "picture.txt").write_bytes(b"\x89PNG and so on")
    names = [folder / "input0.txt", folder / "input1.txt", folder / "picture.txt"]
    for kind, shard_tokens in KINDS.items():
        penstok.tokenize(
            names, folder / kind, on_error="skip", shard_tokens=shard_tokens, **SETTINGS
        )
    return folder


def upload(client: Any, folder: Path, name: str) -> str:
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        client.put_object(Bucket=BUCKET, Key=f"{name}/{path.name}", Body=path.read_bytes())
    return f"s3://{BUCKET}/{name}"


@pytest.fixture(scope="module")
def bucket(s3_gateway: int, made: Path) -> Iterator[Any]:
    client = s3_client(s3_gateway)
    make_bucket(client, BUCKET)
    for kind in KINDS:
        upload(client, made / kind, kind)
    yield client
    client.close()


@pytest.fixture
def s3(bucket: Any, s3_gateway: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client for what a test changes; penstok finds the same server by its environment."""
    use_s3(monkeypatch, s3_gateway)
    yield bucket
    close_connections()


def told(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command; return its exit code, what it gave and what it said."""
    command = [sys.executable, "-m", "penstok", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "command",
    [
        ["info"],
        ["info", "--json"],
        ["show"],
        ["show", "--split", "train", "--at", "39990", "--tokens", "40", "--ids"],
        ["show", "--document", "17"],
        ["verify", "--seed", "1", "--no-progress"],
        ["verify", "--seed", "1", "--json", "--no-progress"],
        ["verify", "--full", "--no-progress"],
        ["verify", "--full", "--source", "--no-progress"],
    ],
    ids=" ".join,
)
def test_a_command_says_the_same_of_a_folder_and_of_objects(
    s3: Any, made: Path, kind: str, command: list[str]
) -> None:
    verb, *flags = command
    here, there = str(made / kind), f"s3://{BUCKET}/{kind}"
    expected = told(verb, here, *flags)
    found = told(verb, f"{there}/", *flags)
    assert found == tuple(
        each.replace(here, there) if isinstance(each, str) else each for each in expected
    )
    assert found[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_has_the_same_tokens(s3: Any, made: Path, kind: str) -> None:
    here, there = penstok.open(made / kind), penstok.open(f"s3://{BUCKET}/{kind}")
    assert there.manifest == here.manifest
    for split in SPLITS:
        for mine, theirs in zip(here.shards(split), there.shards(split), strict=True):
            assert isinstance(theirs, RemoteTokens)
            assert (len(theirs), theirs.dtype, theirs.shape) == (len(mine), mine.dtype, mine.shape)
            assert (theirs.ndim, theirs.size) == (mine.ndim, mine.size)
            assert np.array_equal(theirs, mine)
            assert theirs.tolist() == mine.tolist()
            assert [*theirs] == [*mine]
    total = here.manifest.splits["train"].tokens
    for start, count in ((0, 10), (39_990, 20), (5, 100_000), (total - 3, 9), (total, 1), (0, 0)):
        found = there.read("train", start, count)
        assert np.array_equal(found, here.read("train", start, count))
        assert found.dtype == here.dtype
    if kind == "whole":
        assert np.array_equal(there.val, here.val)
        assert len(there.train) == total
    else:
        with pytest.raises(UsageError, match="shards"):
            _ = there.train


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_has_the_same_documents(s3: Any, made: Path, kind: str) -> None:
    here, there = penstok.open(made / kind), penstok.open(f"s3://{BUCKET}/{kind}")
    for split in SPLITS:
        mine, theirs = here.documents(split), there.documents(split)
        assert len(theirs) == len(mine) > 20
        for number in (0, 7, -1):
            assert theirs[number].tolist() == mine[number].tolist()
        assert [each.tolist() for each in theirs] == [each.tolist() for each in mine]
    if kind == "whole":
        assert there.train.document(3).tolist() == here.train.document(3).tolist()
        again = pickle.loads(pickle.dumps(there.train))  # noqa: S301 made in this test
        assert again.document(3).tolist() == here.train.document(3).tolist()


def test_tokens_are_indexed_like_an_array(s3: Any, made: Path) -> None:
    mine, theirs = penstok.open(made / "whole").train, penstok.open(f"s3://{BUCKET}/whole").train
    assert isinstance(theirs, RemoteTokens)
    for place in (0, 17, -1, -len(mine)):
        assert theirs[place] == mine[place]
        assert type(theirs[place]) is type(mine[place])
    for key in (
        *(slice(3, 9), slice(-5, None), slice(None, None, 1000), slice(90, 10, -7)),
        *(slice(5, 5), slice(len(mine), None), slice(None, None, -999), slice(9, 3)),
    ):
        assert np.array_equal(theirs[key], mine[key])
    assert np.asarray(theirs, np.int64).dtype == np.int64
    for place in (len(mine), -len(mine) - 1):
        with pytest.raises(IndexError):
            theirs[place]
    with pytest.raises(TypeError):
        theirs["a"]  # type: ignore[call-overload]
    assert "whole/train.bin" in repr(theirs)


def _read_ranges(tokens: RemoteTokens, number: int) -> list[list[int]]:
    return [tokens[number + turn * 900 : number + turn * 900 + 100].tolist() for turn in range(20)]


def _read_in_child(tokens: RemoteTokens, number: int, pipe: Any) -> None:
    pipe.send(_read_ranges(tokens, number))
    close_connections()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_tokens_are_read_in_forked_and_in_new_processes(s3: Any, made: Path) -> None:
    """As data loaders do: none speaks on the connections of another."""
    expected = penstok.open(made / "whole").read("train", 100, 100).tolist()
    dataset = penstok.open(f"s3://{BUCKET}/whole")
    tokens = dataset.train
    assert isinstance(tokens, RemoteTokens)
    assert tokens[100:200].tolist() == expected
    copy: Dataset = pickle.loads(pickle.dumps(dataset))  # noqa: S301
    assert copy.read("train", 100, 100).tolist() == expected
    context = multiprocessing.get_context("fork")
    pipes, children = [], []
    for number in range(3):
        ours, theirs = context.Pipe()
        child = context.Process(target=_read_in_child, args=(tokens, number, theirs))
        child.start()
        pipes.append(ours)
        children.append(child)
    here = penstok.open(made / "whole").train
    for number, pipe in enumerate(pipes):
        assert pipe.poll(60)
        expected_ranges = [
            here[number + turn * 900 : number + turn * 900 + 100].tolist() for turn in range(20)
        ]
        assert pipe.recv() == expected_ranges
    for child in children:
        child.join()
        child.close()


def flip(client: Any, key: str, place: int) -> None:
    content = bytearray(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    content[place] ^= 0x10
    client.put_object(Bucket=BUCKET, Key=key, Body=bytes(content))


def truncate(client: Any, key: str, place: int) -> None:
    content = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    client.put_object(Bucket=BUCKET, Key=key, Body=content[:place])


def delete(client: Any, key: str, place: int) -> None:
    client.delete_object(Bucket=BUCKET, Key=key)


@pytest.mark.parametrize(
    ("harm", "name", "place", "expected"),
    [
        (flip, "train_shard_00001.bin", 4001, "checksum mismatch: the tokens were changed"),
        (truncate, "train_shard_00001.bin", 4000, "has 4,000 bytes instead of 80,000"),
        (delete, "train_shard_00001.bin", 0, "the file is missing"),
        (flip, "manifest.json", 300, "the manifest"),
        (delete, "manifest.json", 0, "the manifest is missing"),
        (flip, "segments.jsonl", 3000, "checksum mismatch in a line of the ledger"),
        (delete, "segments.jsonl", 0, "the ledger is missing"),
        (delete, "skipped.jsonl", 0, "the list of skipped records is missing"),
        (flip, "skipped.jsonl", 5, "the list of skipped records is missing"),
    ],
)
def test_damage_is_found_and_told_as_in_a_folder(
    s3: Any,
    made: Path,
    tmp_path: Path,
    harm: Callable[[Any, str, int], None],
    name: str,
    place: int,
    expected: str,
) -> None:
    url = upload(s3, made / "sharded", "harmed")
    harm(s3, f"harmed/{name}", place)
    folder = tmp_path / "harmed"
    shutil.copytree(made / "sharded", folder)
    (folder / name).unlink()
    if harm is not delete:
        data = s3.get_object(Bucket=BUCKET, Key=f"harmed/{name}")["Body"].read()
        (folder / name).write_bytes(data)
    report = penstok.verify(url, full=True)
    assert expected in report.findings[0].what
    assert report.findings == penstok.verify(folder, full=True).findings
    exit_code, _, said = told("verify", url, "--full", "--no-progress")
    assert exit_code == 6
    assert expected in said
    assert f"penstok tokenize INPUT... -o {url} --overwrite" in said
    assert f"verify {url}/ --repair" not in said


def test_a_very_long_ledger_is_sampled(
    s3: Any, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstok.verification.records._QUICK_LEDGER_BYTES", 1000)
    here = penstok.verify(made / "sharded", seed=3)
    there = penstok.verify(f"s3://{BUCKET}/sharded", seed=3)
    assert here.is_whole
    assert there.is_whole
    assert "is very large" in there.notes[0]
    assert there.units_read > 0


def test_a_shard_of_another_job_is_found(s3: Any, made: Path) -> None:
    url = upload(s3, made / "sharded", "strange")
    s3.put_object(Bucket=BUCKET, Key="strange/train_shard_00077.bin", Body=b"ab")
    s3.put_object(Bucket=BUCKET, Key="strange/deeper/train_shard_00078.bin", Body=b"ab")
    (finding,) = penstok.verify(url).findings
    assert (finding.file, finding.what) == (
        "train_shard_00077.bin",
        "this shard does not belong to the job",
    )


def test_a_missing_or_short_object_cannot_be_opened(s3: Any, made: Path) -> None:
    url = upload(s3, made / "whole", "short")
    truncate(s3, "short/train.bin", 100)
    with pytest.raises(DamageError, match="has 100 bytes") as caught:
        penstok.open(url).read("train", 0, 5)
    assert "--overwrite" in caught.value.next_step
    delete(s3, "short/train.bin", 0)
    exit_code, _, said = told("show", url)
    assert exit_code == 6
    assert "`train.bin` is missing" in said
    assert f"where: {url}/train.bin" in said


def test_an_object_that_changes_is_an_error_and_no_mixture(s3: Any, made: Path) -> None:
    url = upload(s3, made / "whole", "changing")
    dataset = penstok.open(url)
    dataset.read("train", 0, 5)
    flip(s3, "changing/train.bin", 3)
    with pytest.raises(InputError, match="changed while it was read"):
        dataset.read("train", 0, 5)


@pytest.mark.parametrize("command", [["info"], ["show"], ["verify"], ["verify", "--full"]])
@pytest.mark.parametrize("place", [f"{BUCKET}/nothing", "no-such-bucket/run"])
def test_nothing_there_is_said(s3: Any, command: list[str], place: str) -> None:
    verb, *flags = command
    exit_code, _, said = told(verb, f"s3://{place}", *flags)
    assert exit_code == 6
    assert "there is no finished job here" in said
    assert f"penstok tokenize INPUT... -o s3://{place}" in said


def test_an_unfinished_job_is_said(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key=f"begun/{WORK}/{JOB}", Body=b"{}\n")
    with pytest.raises(DamageError, match="is not finished"):
        penstok.verify(f"s3://{BUCKET}/begun")


def test_what_cannot_be_done_with_a_url_is_refused(s3: Any) -> None:
    exit_code, _, said = told("verify", f"s3://{BUCKET}/whole", "--repair")
    assert exit_code == 2
    assert "cannot be repaired in place" in said
    assert "download it" in said
    for verb in ("info", "show", "verify"):
        exit_code, _, said = told(verb, "gs://bucket/run")
        assert exit_code == 2
        assert "outputs cannot be stored in `gs://`; known: folders and `s3://`" in said
    with pytest.raises(UsageError, match="no bucket"):
        penstok.open("s3://")


def test_an_output_path_is_a_folder_or_objects() -> None:
    assert output_path("tokens/") == Path("tokens")
    assert output_path(Path("a/b")) == Path("a/b")
    path = output_path("S3://bucket/a/run/")
    assert str(path) == "s3://bucket/a/run"
    assert output_path(path) is path
    assert isinstance(path, ObjectPath)
    assert path / "x.bin" == ObjectPath("s3://bucket/a/run/x.bin")
    assert ((path / "x.bin").name, (path / "x.bin").parent) == ("x.bin", path)
    assert str(ObjectPath("s3://bucket").parent) == "s3://bucket"
    assert str(output_path("s3a://bucket/run")) == "s3a://bucket/run"


def test_busy_servers_and_cut_lines_are_survived(
    s3: Any, s3_gateway: int, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = penstok.verify(made / "sharded", full=True, seed=1)
    with faulty_proxy(s3_gateway) as line:
        use_s3(monkeypatch, line.port)
        line.num_busy, line.num_cuts, line.cut_after_bytes = 2, 4, 3000
        exit_code, _, said = told("verify", f"s3://{BUCKET}/sharded", "--full", "--no-progress")
        assert exit_code == 0, said
        assert f"{sum(expected.tokens.values()):,} tokens" in said
        assert (line.num_busy, line.num_cuts) == (0, 0)
        line.num_busy, line.num_cuts = 1, 2
        dataset = penstok.open(f"s3://{BUCKET}/sharded")
        found = dataset.read("train", 0, 100_000)
        assert np.array_equal(found, penstok.open(made / "sharded").read("train", 0, 100_000))
        close_connections()


def test_a_server_that_is_gone_is_no_damage(
    s3: Any, s3_gateway: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_proxy(s3_gateway) as line:
        use_s3(monkeypatch, line.port)
        line.num_busy = 1000
        exit_code, _, said = told("verify", f"s3://{BUCKET}/whole", "--full", "--no-progress")
    assert exit_code == 4
    assert re.search(r"cannot be read after \d tries: the server answered 503", said)
    assert f"where: s3://{BUCKET}/whole/" in said


def test_a_range_costs_one_request(
    s3: Any, s3_gateway: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_proxy(s3_gateway) as line:
        use_s3(monkeypatch, line.port)
        dataset = penstok.open(f"s3://{BUCKET}/sharded")
        dataset.read("train", 0, 50_000)
        line.connections = 0
        dataset.read("train", 10, 500)
        assert line.connections == 1
        dataset.read("train", 39_000, 2000)
        assert line.connections == 3
        close_connections()


def _peak_bytes(*arguments: str) -> int:
    command = [sys.executable, "-m", "penstok", *arguments]
    process = subprocess.Popen(command)
    peak = watch_peak(process)
    assert process.wait() == 0
    return peak


@pytest.mark.cold
@pytest.mark.thorough
def test_the_memory_does_not_grow_with_a_shard(
    s3: Any, s3_gateway: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard of 64 MB in units of 8 MB: few requests, of which a few are held at a time."""
    text = "<|endoftext|>".join(f"document {idx}: " + "some words " * 4000 for idx in range(2000))
    (tmp_path / "input.txt").write_text(text)
    penstok.tokenize(
        tmp_path / "input.txt", tmp_path / "big", dtype="uint32", val_fraction=0.0, workers=1
    )
    size = (tmp_path / "big" / "train.bin").stat().st_size
    assert size > 60 << 20
    url = upload(s3, tmp_path / "big", "big")
    small = _peak_bytes("verify", f"s3://{BUCKET}/whole", "--full", "-q", "-j", "2")
    with faulty_proxy(s3_gateway) as line:
        use_s3(monkeypatch, line.port)
        large = _peak_bytes("verify", url, "--full", "-q", "-j", "2")
        assert line.connections < 25 + 2 * size / (8 << 20)
    assert large - small < 32 << 20


def test_small_units_share_requests(
    s3: Any, s3_gateway: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither every unit nor every line of the ledger is a request."""
    text = "\n".join(f"line {idx}: " + "some words " * 20 for idx in range(8000))
    (tmp_path / "input.txt").write_text(text)
    settings = {**SETTINGS, "unit_bytes": 5000, "docs_by": "line"}
    penstok.tokenize(tmp_path / "input.txt", tmp_path / "many", **settings)
    url = upload(s3, tmp_path / "many", "many")
    with faulty_proxy(s3_gateway) as line:
        use_s3(monkeypatch, line.port)
        report = penstok.verify(url, full=True, workers=2)
        close_connections()
    assert report.is_whole
    assert report.units_read > 300
    assert line.connections < 40


def test_inputs_and_output_may_both_be_objects(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [f"document {idx}: " + f"word {idx % 7} " * 270 for idx in range(200)]
    body = "<|endoftext|>".join(documents).encode()
    s3.put_object(Bucket=BUCKET, Key="inputs/a.txt", Body=body)
    output = tmp_path / "out"
    flags = ("--val-fraction", "0.1", "--memory", "2GiB")
    assert run("tokenize", f"s3://{BUCKET}/inputs/a.txt", "-o", output, *flags)[0] == 0
    url = upload(s3, output, "from-s3")
    exit_code, found, said = told("verify", url, "--source", "--json", "--no-progress")
    assert exit_code == 0, said
    summary = json.loads(found.splitlines()[-1])
    assert summary["output"] == url
    assert summary["documents_proved"] == 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_that_of_the_folder(
    kind: str, s3: Any, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    texts = []
    for number, output in enumerate((str(made / kind), f"s3://{BUCKET}/{kind}")):
        written = penstok.report(output, page=tmp_path / f"{number}.html")
        texts.append(written.page.read_text(encoding="utf-8").replace(output, "OUTPUT"))
    assert texts[0] == texts[1]
