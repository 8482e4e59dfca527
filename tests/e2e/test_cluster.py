"""Jobs on a real Ray cluster: the bytes of the same job here, whatever happens to its nodes."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clusters import Nodes, processes_in, ray_cluster
from compressed import compress
from processes import SMALL_UNITS, wait_for, write_corpus
from support import ROOT, few

import penstok
from penstok.output.manifest import Manifest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# As in `processes.SMALL_UNITS`.
SMALL: dict[str, Any] = {"unit_bytes": 200_000, "block_bytes": 50_000}
SEPARATOR = "\n=====\n"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    pytest.importorskip("ray")
    with ray_cluster() as nodes:
        yield nodes


def words(seed: int, num_bytes: int) -> str:
    chance = random.Random(seed)
    some = ("the of and zebra Straße 漢字 naïve <|endoftext|> x1 2026 don't ... \n" * 3).split(" ")
    return " ".join(chance.choices(some, k=num_bytes // 7))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of input, some 9 MB: documents longer than tasks, bad records, tiny files."""
    folder = tmp_path_factory.mktemp("corpus")
    sizes = [*([900] * 300), 3_000_000, *([5000] * 40), 2_500_000, 100]
    documents = [words(idx, size) for idx, size in enumerate(sizes)]
    (folder / "a.txt").write_text(SEPARATOR.join(documents))
    records = [json.dumps({"text": words(idx, 1500)}) for idx in range(500)]
    records[70], records[300], records[301] = "{", '{"text": 5}', '{"other": "x"}'
    (folder / "b.jsonl").write_text("\n".join(records))
    texts = pa.table({"text": [words(idx, 2000) for idx in range(400)]})
    pq.write_table(texts, folder / "c.parquet", row_group_size=50)
    (folder / "d.jsonl.gz").write_bytes(gzip.compress("\n".join(records[::-1]).encode()))
    (folder / "e.txt.zst").write_bytes(compress(SEPARATOR.join(documents[250:]).encode(), "zstd"))
    (folder / "tiny").mkdir()
    for idx in range(200):
        (folder / "tiny" / f"{idx:03}.txt").write_text(words(idx, idx * 3))
    return folder


SHAPING: dict[str, Any] = {"val_fraction": 0.5, "on_error": "skip", "doc_separator": SEPARATOR}
FLAGS = ("--val-fraction", "0.5", "--on-error", "skip", "--doc-separator", SEPARATOR)


@pytest.fixture(scope="module")
def local(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job on this machine alone."""
    output = tmp_path_factory.mktemp("local") / "out"
    penstok.tokenize(corpus, output, **SHAPING, **SMALL)
    return output


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten megabytes that take a slow engine long enough to be disturbed; `local` is its output."""
    folder = tmp_path_factory.mktemp("plain")
    write_corpus(folder / "text.txt", 5000)
    penstok.tokenize(folder / "text.txt", folder / "local", engine="tiktoken", **SMALL)
    return folder


def command_of(nodes: Nodes, inputs: Path, output: Path, *flags: str) -> list[str]:
    where = ("--executor", "ray", "--ray-address", nodes.address, "--task-size", "600K")
    job = ("tokenize", str(inputs), "-o", str(output), *where, "--no-progress", *flags)
    return [sys.executable, "-c", SMALL_UNITS, *job]


def start(
    command: list[str], folder: Path = ROOT, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **(environment or {})},
    )


def end(process: subprocess.Popen[str], exit_code: int = 0) -> tuple[str, str]:
    given, said = process.communicate(timeout=120)
    assert process.returncode == exit_code, said
    assert "Traceback" not in said
    return given, said


def run(command: list[str], exit_code: int = 0, **how: Any) -> tuple[str, str]:
    return end(start(command, **how), exit_code)


def joined(output: Path, split: str) -> bytes:
    shards = sorted(output.glob(f"{split}_shard_*.bin"))
    assert len(shards) > 3
    return b"".join(path.read_bytes() for path in shards)


def check(output: Path, local: Path) -> Manifest:
    """Compare with the output of this machine alone; return the manifest."""
    for split in ("train", "val"):
        assert joined(output, split) == (local / f"{split}.bin").read_bytes()
    found, expected = penstok.open(output).manifest, penstok.open(local).manifest
    assert found.counts == expected.counts
    assert found.inputs == expected.inputs
    for split in ("train", "val"):
        assert found.splits[split].documents == expected.splits[split].documents  # type: ignore[index]
        lengths = [
            [len(document) for document in penstok.open(folder).documents(split)]  # type: ignore[arg-type]
            for folder in (output, local)
        ]
        assert lengths[0] == lengths[1]
    lists = [folder / "skipped.jsonl" for folder in (output, local)]
    assert lists[0].exists() == lists[1].exists()
    assert not lists[0].exists() or lists[0].read_bytes() == lists[1].read_bytes()
    assert not (output / ".penstok").exists()
    nodes = found.run["nodes"]
    assert sum(node["tasks"] for node in nodes) == found.run["tasks"]
    assert sum(node["tokens"] for node in nodes) == found.counts["tokens"]
    assert sum(node["text_bytes"] for node in nodes) == found.counts["text_bytes"]
    return found


@pytest.mark.parametrize("number", few([1, 2, 3]))
def test_any_number_of_nodes_makes_the_same_bytes(
    nodes: Nodes, corpus: Path, local: Path, tmp_path: Path, number: int
) -> None:
    nodes.set_number(number)
    given, said = run(command_of(nodes, corpus, tmp_path / "out", *FLAGS, "--json"), 3)
    manifest = check(tmp_path / "out", local)
    assert manifest.counts["skipped_records"] == 6
    assert manifest.counts["special_text_documents"] > 100
    names = [node["name"] for node in manifest.run["nodes"]]
    assert names == sorted(nodes.names)
    summary = json.loads(given.splitlines()[-1])
    assert summary["run"] == manifest.run
    for node in summary["run"]["nodes"]:
        assert f"node {node['name']}: {node['tasks']} tasks" in said
    if number == 3:
        report = penstok.verify(tmp_path / "out", full=True, source=True)
        assert report.is_whole, report.findings


def test_nodes_decode_their_inputs(nodes: Nodes, tmp_path: Path) -> None:
    nodes.set_number(1)
    (tmp_path / "in").mkdir()
    for number, encoding in enumerate(("gb18030", "utf-16", "utf-8", "utf-16-be")):
        text = f"今天的天气非常好，我们决定去公园散步。孩子们在草地上玩耍 {number}。\n" * 40
        (tmp_path / "in" / f"{number}.txt").write_bytes(text.encode(encoding))
    penstok.tokenize(tmp_path / "in", tmp_path / "local", encoding="auto", val_fraction=0.5)
    flags = ("--encoding", "auto", "--val-fraction", "0.5", "--task-size", "1K")
    run(command_of(nodes, tmp_path / "in", tmp_path / "out", *flags))
    found = check(tmp_path / "out", tmp_path / "local")
    assert [each.encoding for each in found.inputs][::2] == ["gb18030", "utf-8"]


@pytest.mark.thorough
def test_a_limit_and_records_only(nodes: Nodes, corpus: Path, tmp_path: Path) -> None:
    """Also: a relative output and input, seen from where the job was started."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("b.jsonl", "c.parquet"):
        shutil.copy(corpus / name, folder)
    penstok.tokenize(folder, tmp_path / "local", on_error="skip", limit=900_000, **SMALL)
    flags = ("--on-error", "skip", "--limit", "900000", "--task-size", "200K")
    command = command_of(nodes, Path("in"), Path("out"), *flags)
    run(command, 3, folder=tmp_path)
    for split in ("train", "val"):
        expected = (tmp_path / "local" / f"{split}.bin").read_bytes()
        assert joined(tmp_path / "out", split) == expected


def num_done(output: Path) -> int:
    return len(list(output.glob(".penstok/tasks/*.jsonl")))


def workers_below(process: psutil.Process) -> list[psutil.Process]:
    """Return penstok's own workers below a process: what does the work."""
    found = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "penstok.executors.worker_process" in " ".join(child.cmdline()):
                found.append(child)
    return found


@pytest.mark.thorough
def test_a_killed_node_and_killed_workers_change_nothing(
    nodes: Nodes, plain: Path, tmp_path: Path
) -> None:
    nodes.set_number(3)
    output = tmp_path / "out"
    command = command_of(nodes, plain / "text.txt", output, "--engine", "tiktoken")
    process = start(command)
    wait_for((output / ".penstok" / "job.jsonl").exists)
    second = start(command)
    wait_for(lambda: num_done(output) >= 1)
    nodes.kill("three")
    wait_for(lambda: workers_below(nodes.raylet("two")) != [])
    worker = workers_below(nodes.raylet("two"))[0]
    worker.send_signal(signal.SIGKILL)
    wait_for(lambda: workers_below(nodes.raylet("one")) != [])
    workers_below(nodes.raylet("one"))[0].parent().send_signal(signal.SIGKILL)
    _, said = end(second, 7)
    assert "another run is writing here" in said
    _, said = end(process)
    manifest = check(output, plain / "local")
    assert manifest.run["tasks_retried"] >= 1
    assert f"{manifest.run['tasks_retried']} task" in said
    assert "retried" in said
    assert manifest.run["workers_replaced"] <= 1


@pytest.mark.thorough
def test_a_removed_node_and_a_new_one_change_nothing(
    nodes: Nodes, plain: Path, tmp_path: Path
) -> None:
    nodes.set_number(2)
    output = tmp_path / "out"
    process = start(command_of(nodes, plain / "text.txt", output, "--engine", "tiktoken"))
    wait_for(lambda: num_done(output) >= 1)
    nodes.remove("two")
    nodes.add("two")
    end(process)
    check(output, plain / "local")


@pytest.mark.thorough
def test_a_driver_killed_in_mid_job_goes_on(nodes: Nodes, plain: Path, tmp_path: Path) -> None:
    nodes.set_number(2)
    output = tmp_path / "out"
    command = command_of(nodes, plain / "text.txt", output, "--engine", "tiktoken")
    process = start(command)
    wait_for(lambda: num_done(output) >= 3)
    process.kill()
    process.communicate()
    assert not (output / "manifest.json").exists()
    # At once: tasks of the killed run may still be in work, and are in nobody's way.
    _, said = run(command)
    manifest = check(output, plain / "local")
    assert 3 <= manifest.run["tasks_kept"] < manifest.run["tasks"]
    assert f"{manifest.run['tasks_kept']} of {manifest.run['tasks']} tasks" in said
    _, said = run(command)
    assert "nothing to do" in said


@contextlib.contextmanager
def blind_node(nodes: Nodes, hidden: Path, num_cores: int) -> Iterator[None]:
    """Add a node that sees nothing of a folder."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs to mount")
    hidden.mkdir()
    name = ("--node-name", "blind", "--num-cpus", str(num_cores))
    node = (*name, "--object-store-memory", str(80 << 20))
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--address", nodes.address]
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    said = hidden.with_name("blind.log")
    with said.open("w") as log:
        process = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", script, str(hidden), *ray, *node, "--block"],
            stdout=log,
            stderr=log,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
            start_new_session=True,
        )
    try:
        wait_for(lambda: "Ray runtime started" in said.read_text())
        yield
    finally:
        below = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.wait(timeout=30)
        for each in psutil.wait_procs(below, timeout=10)[1]:
            each.kill()


@pytest.mark.thorough
def test_what_one_node_does_not_see_is_told_with_its_name(
    nodes: Nodes, plain: Path, tmp_path: Path
) -> None:
    nodes.set_number(1)
    hidden = tmp_path / "hidden"
    text = hidden / "text.txt"
    with blind_node(nodes, hidden, num_cores=1):
        shutil.copy(plain / "text.txt", text)
        _, said = run(command_of(nodes, text, tmp_path / "out"), 4)
        assert f"the input `{text}` is missing" in said
        assert "node blind" in said
        _, said = run(command_of(nodes, plain / "text.txt", hidden / "out"), 8)
        assert "this node does not see the output that the job was started with" in said
        assert f"node blind: {hidden / 'out'}" in said
    # No task was run, so nothing is left behind.
    assert not (tmp_path / "out").exists()
    assert not list((hidden / "out").glob("**/*.bin*"))
    # Without that node the same command works.
    run(command_of(nodes, text, tmp_path / "out"))
    assert joined(tmp_path / "out", "train") == (plain / "local" / "train.bin").read_bytes()


@pytest.mark.thorough
def test_a_node_without_a_core_need_not_see_anything(
    nodes: Nodes, plain: Path, tmp_path: Path
) -> None:
    """As the head of many a cluster."""
    nodes.set_number(1)
    hidden = tmp_path / "hidden"
    with blind_node(nodes, hidden, num_cores=0):
        shutil.copy(plain / "text.txt", hidden)
        run(command_of(nodes, hidden / "text.txt", hidden / "out"))
    manifest = penstok.open(hidden / "out").manifest
    assert [node["name"] for node in manifest.run["nodes"]] == ["one"]


@pytest.mark.thorough
def test_without_a_cluster_one_is_started_here_and_ended(plain: Path, tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    # What a cluster leaves that was killed.
    (folder / "ray_current_cluster").write_text("127.0.0.1:1")
    flags = ("--executor", "ray", "--task-size", "600K", "-o", str(tmp_path / "out"))
    command = [sys.executable, "-c", SMALL_UNITS, "tokenize", str(plain / "text.txt"), *flags]
    run(command, environment={"RAY_TMPDIR": str(folder)})
    assert joined(tmp_path / "out", "train") == (plain / "local" / "train.bin").read_bytes()
    wait_for(lambda: processes_in(folder) == [])
    shutil.rmtree(folder, ignore_errors=True)


def test_more_memory_than_any_node_has_is_refused(
    nodes: Nodes, plain: Path, tmp_path: Path
) -> None:
    _, said = run(command_of(nodes, plain / "text.txt", tmp_path / "out", "--memory", "900GiB"), 2)
    assert "no node of the cluster has a core and 921600 MiB of memory" in said


def test_an_address_without_a_cluster_is_refused_at_once(plain: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    flags = ("--executor", "ray", "--ray-address", "127.0.0.1:1", "-o", str(tmp_path / "out"))
    command = [sys.executable, "-m", "penstok", "tokenize", str(plain / "text.txt"), *flags]
    _, said = run(command, 2)
    assert "no Ray cluster answers at `127.0.0.1:1`" in said
    # Ray itself tries for longer than that.
    assert time.monotonic() - started < 60


def test_without_the_package_the_install_is_named(plain: Path, tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['ray'] = None; from penstok.cli import main; main()"
    job = ("tokenize", str(plain / "text.txt"), "-o", str(tmp_path / "out"), "--executor", "ray")
    _, said = run([sys.executable, "-c", blocked, *job], 2)
    assert "pip install 'penstok[ray]'" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_formats_and_kept_fields_are_those_of_the_same_tasks_here(
    nodes: Nodes, corpus: Path, tmp_path: Path
) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    for idx, name in enumerate(("b.jsonl", "d.jsonl.gz")):
        data = (corpus / name).read_bytes()
        lines = (gzip.decompress(data) if name.endswith("gz") else data).decode().splitlines()
        tagged = [
            line.replace('{"text"', f'{{"url": "{idx}/{at}", "text"')
            for at, line in enumerate(lines)
        ]
        (inputs / f"{idx}.jsonl").write_text("\n".join(tagged))
    formats = "megatron,llmc,torchtitan,olmo,datatrove,litdata,mds,parquet"
    flags = ["--val-fraction", "0.5", "--on-error", "skip", "--sequence-length", "128"]
    flags += ["--format", formats, "--keep", "url,other"]
    run(command_of(nodes, inputs, tmp_path / "ray", *flags), exit_code=3)
    settings: dict[str, Any] = {
        "val_fraction": 0.5,
        "on_error": "skip",
        "sequence_length": 128,
        "format": formats,
        "keep": "url,other",
        "task_size": 600_000,
    }
    penstok.tokenize_part(inputs, tmp_path / "here", 1, 1, **settings, **SMALL)
    penstok.finish(tmp_path / "here")
    found, expected = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file() and path.suffix != ".jsonl" and path.name != "manifest.json"
        }
        for name in ("ray", "here")
    )
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []
    folders = {str(name.parent) for name in found}
    assert set(formats.split(",")) - {"megatron"} <= {each.split("/")[0] for each in folders}
    assert any(name.suffix == ".idx" for name in found)
    assert any(name.name.endswith("_fields.parquet") for name in found)
    assert penstok.verify(tmp_path / "ray", full=True).is_whole
