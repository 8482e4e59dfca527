"""Compressed and piped inputs: the same bytes as from files, whatever happens on the way."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from compressed import compress
from processes import command_line, contents, run, start, wait_for, workers_of, write_corpus

from penstok.inputs.compression.detection import COMPRESSIONS
from penstok.types import Compression

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
FLAGS = ("--val-fraction", "0.1")
SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "bzip2": ".bz2", "xz": ".xz", "lz4": ".lz4"}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 20 units of text."""
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt", 2000)


@pytest.fixture(scope="module")
def lines(text: Path) -> Path:
    path = text.with_suffix(".jsonl")
    documents = text.read_text().split("<|endoftext|>")
    path.write_text("".join(json.dumps({"id": 1, "text": one}) + "\n" for one in documents))
    return path


@pytest.fixture(scope="module")
def expected(text: Path) -> dict[str, bytes]:
    output = text.parent / "expected"
    assert run("tokenize", text, "-o", output, *FLAGS)[0] == 0
    return contents(output)


def compressed(path: Path, folder: Path, kind: Compression = "gzip") -> Path:
    made = folder / f"{path.name}{SUFFIXES[kind]}"
    made.write_bytes(compress(path.read_bytes(), kind))
    return made


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_every_compression_gives_the_same_bytes(
    text: Path, lines: Path, expected: dict[str, bytes], tmp_path: Path, kind: Compression
) -> None:
    for path in (text, lines):
        output = tmp_path / f"out{path.suffix}"
        exit_code, said = run(
            "tokenize", compressed(path, tmp_path, kind), "-o", output, *FLAGS, "-j", "2"
        )
        assert exit_code == 0, said
        assert contents(output) == expected
        record = json.loads((output / "manifest.json").read_text())["inputs"][0]
        assert record["compression"] == kind
        assert run("verify", output, "--full", "--source")[0] == 0


def test_members_in_a_row_are_one_input(
    text: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    data = text.read_bytes()
    middle = len(data) // 3
    path = tmp_path / "two.txt.gz"
    path.write_bytes(gzip.compress(data[:middle]) + gzip.compress(data[middle:]) + bytes(512))
    assert run("tokenize", path, "-o", tmp_path / "out", *FLAGS)[0] == 0
    assert contents(tmp_path / "out") == expected


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_frames_of_zstd_are_entered_by_all_workers(
    text: Path, lines: Path, expected: dict[str, bytes], tmp_path: Path, suffix: str
) -> None:
    data = (lines if suffix == ".jsonl" else text).read_bytes()
    path = tmp_path / f"frames{suffix}.zst"
    frames = [data[at : at + 70_001] for at in range(0, len(data), 70_001)]
    path.write_bytes(b"".join(compress(frame, "zstd") for frame in frames))
    job = ("tokenize", path, "-o", tmp_path / "out", *FLAGS)
    assert run(*job, "-j", "2", fault="journal on disk:2")[0] == -signal.SIGKILL
    exit_code, said = run(*job, "-j", "3")
    assert exit_code == 0, said
    assert contents(tmp_path / "out") == expected
    assert b'"stream"' not in (tmp_path / "out" / "segments.jsonl").read_bytes()
    assert run("verify", tmp_path / "out", "--full", "--source")[0] == 0
    (tmp_path / "out" / "segments.jsonl").unlink()
    assert run("verify", tmp_path / "out", "--repair")[0] == 0


def test_a_damaged_frame_is_named(text: Path, tmp_path: Path) -> None:
    data = text.read_bytes()
    frames = [compress(data[at : at + 70_001], "zstd") for at in range(0, len(data), 70_001)]
    damaged = bytearray(frames[30])
    damaged[len(damaged) // 2] ^= 0xFF
    path = tmp_path / "frames.txt.zst"
    path.write_bytes(b"".join([*frames[:30], bytes(damaged), *frames[31:]]))
    exit_code, said = run("tokenize", path, "-o", tmp_path / "out", "--docs-by", "line")
    assert exit_code == 4, said
    assert "zstd" in said
    assert str(path) in said


@pytest.mark.cold
@pytest.mark.parametrize("name", ["corpus.txt", "corpus.txt.gz", "corpus.jsonl", "corpus.jsonl.gz"])
def test_standard_input_gives_the_same_bytes(
    text: Path, lines: Path, expected: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    path = lines if "jsonl" in name else text
    path = compressed(path, tmp_path) if name.endswith(".gz") else path
    kind = ("--input-format", "jsonl") if "jsonl" in name else ()
    exit_code, said = run("tokenize", "-", "-o", tmp_path / "out", *FLAGS, *kind, stdin=path)
    assert exit_code == 0, said
    assert contents(tmp_path / "out") == expected
    exit_code, said = run("verify", tmp_path / "out", "--source")
    assert exit_code == 4
    assert "standard input" in said


def test_files_and_streams_mix(text: Path, lines: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for idx in range(3):
        (folder / f"{idx}-a.txt").write_bytes(text.read_bytes())
        (folder / f"{idx}-b.jsonl").write_bytes(lines.read_bytes())
    assert run("tokenize", folder, "-o", tmp_path / "plain", *FLAGS)[0] == 0
    for idx, kind in enumerate(COMPRESSIONS[:3]):
        compressed(folder / f"{idx}-b.jsonl", folder, kind)
        (folder / f"{idx}-b.jsonl").unlink()
    assert run("tokenize", folder, "-o", tmp_path / "mixed", *FLAGS, "-j", "3")[0] == 0
    assert contents(tmp_path / "mixed") == contents(tmp_path / "plain")


@pytest.mark.parametrize("source", ["corpus.jsonl.gz", "corpus.txt.zst", "-"])
def test_a_killed_run_goes_on_in_the_middle(
    text: Path, lines: Path, expected: dict[str, bytes], tmp_path: Path, source: str
) -> None:
    path: str | Path = source
    stdin = text if source == "-" else None
    if source != "-":
        kind: Compression = "zstd" if source.endswith(".zst") else "gzip"
        path = compressed(lines if "jsonl" in source else text, tmp_path, kind)
    job = ("tokenize", path, "-o", tmp_path / "out", *FLAGS)
    for fault in ("journal on disk:2", "journal line torn:3", "tokens on disk:2"):
        assert run(*job, fault=fault, stdin=stdin)[0] == -signal.SIGKILL
    exit_code, said = run(*job, stdin=stdin)
    assert exit_code == 0, said
    assert contents(tmp_path / "out") == expected
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["run"]["units_kept"] > 0


def test_another_text_on_standard_input_is_a_conflict(text: Path, tmp_path: Path) -> None:
    job = ("tokenize", "-", "-o", tmp_path / "out", *FLAGS)
    assert run(*job, fault="journal on disk:2", stdin=text)[0] == -signal.SIGKILL
    other = tmp_path / "other.txt"
    data = bytearray(text.read_bytes())
    data[8000] ^= 1
    other.write_bytes(data)
    exit_code, said = run(*job, stdin=other)
    assert exit_code == 5
    assert "other text" in said


@pytest.mark.parametrize("source", ["corpus.jsonl.gz", "-"])
def test_a_worker_that_dies_is_replaced(
    text: Path, lines: Path, expected: dict[str, bytes], tmp_path: Path, source: str
) -> None:
    path = source if source == "-" else compressed(lines, tmp_path)
    process = start(
        *("tokenize", path, "-o", tmp_path / "out", "-j", "2", *FLAGS),
        stdin=text if source == "-" else None,
    )
    ledger = tmp_path / "out" / ".penstok" / "tasks" / "00000.jsonl"
    wait_for(lambda: ledger.exists() and b'"unit"' in ledger.read_bytes())
    for worker in workers_of(process):
        worker.kill()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert contents(tmp_path / "out") == expected
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["run"]["workers_replaced"]


def test_damaged_tokens_are_made_anew_from_a_stream(
    lines: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    path = compressed(lines, tmp_path)
    job = ("tokenize", path, "-o", tmp_path / "out", *FLAGS)
    assert run(*job, fault="journal on disk:3")[0] == -signal.SIGKILL
    partial = tmp_path / "out" / ".penstok" / "tasks" / "00000" / "train.bin.partial"
    flip(partial, 1000)
    exit_code, said = run(*job)
    assert exit_code == 0, said
    assert "damaged" in said
    assert contents(tmp_path / "out") == expected

    flip(tmp_path / "out" / "train.bin", 200_000)
    assert run("verify", tmp_path / "out", "--full")[0] == 6
    exit_code, said = run("verify", tmp_path / "out", "--repair")
    assert exit_code == 0, said
    assert contents(tmp_path / "out") == expected


@pytest.mark.parametrize("lost", ["a line", "all"])
def test_a_damaged_ledger_of_a_stream_is_repaired(
    lines: Path, expected: dict[str, bytes], tmp_path: Path, lost: str
) -> None:
    path = compressed(lines, tmp_path)
    assert run("tokenize", path, "-o", tmp_path / "out", *FLAGS)[0] == 0
    ledger = tmp_path / "out" / "segments.jsonl"
    whole = ledger.read_bytes()
    if lost == "all":
        ledger.unlink()
    else:
        flip(ledger, len(whole) // 2)
    exit_code, said = run("verify", tmp_path / "out", "--repair")
    assert exit_code == 0, said
    assert ledger.read_bytes() == whole
    assert contents(tmp_path / "out") == expected


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_a_stream_that_is_cut_off_is_named(lines: Path, tmp_path: Path, kind: Compression) -> None:
    path = compressed(lines, tmp_path, kind)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    exit_code, said = run("tokenize", path, "-o", tmp_path / "out")
    assert exit_code == 4
    assert f"the {kind} data is cut off" in said
    assert f"{path}, compressed byte {len(data) // 2}" in said


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_what_comes_before_damage_can_be_kept(
    lines: Path, tmp_path: Path, kind: Compression
) -> None:
    path = compressed(lines, tmp_path, kind)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    after = compressed(lines, tmp_path / "..", kind)
    job = ("tokenize", path, after, "--on-error", "skip", *FLAGS)
    exit_code, said = run(*job, "-o", tmp_path / "out")
    assert exit_code == 3, said
    listed = (tmp_path / "out" / "skipped.jsonl").read_text()
    skipped = [json.loads(line) for line in listed.splitlines()]
    assert any("cut off" in record["reason"] for record in skipped)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    cut, whole = manifest["inputs"]
    assert 0 < cut["documents"] < whole["documents"] == 2000
    assert run("verify", tmp_path / "out", "--full", "--source")[0] == 0
    # Whatever divides the work, it ends at the same place.
    assert run(*job, "-o", tmp_path / "again", "-j", "1")[0] == 3
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


def test_names_that_promise_what_is_not_there(text: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.gz").touch()
    (tmp_path / "plain.txt.gz").write_bytes(text.read_bytes())
    (tmp_path / "other.zst").write_bytes(gzip.compress(b"text"))
    for name, what in [
        ("empty.gz", "is empty"),
        ("plain.txt.gz", "begins with"),
        ("other.zst", "begins with"),
    ]:
        exit_code, said = run("tokenize", tmp_path / name, "-o", tmp_path / "out")
        assert exit_code == 4
        assert what in said
        assert "the name says" in said


def test_a_compressed_nothing_is_an_empty_input(text: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing.txt.gz").write_bytes(gzip.compress(b""))
    exit_code, said = run("tokenize", tmp_path / "nothing.txt.gz", "-o", tmp_path / "out")
    assert exit_code == 4
    assert "no text" in said
    path = compressed(text, tmp_path)
    job = ("tokenize", tmp_path / "nothing.txt.gz", path, "-o", tmp_path / "out", *FLAGS)
    assert run(*job)[0] == 0
    assert run(*job)[0] == 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]["empty_documents"]
    assert run("verify", tmp_path / "out", "--full", "--source")[0] == 0


def test_a_giant_line_in_a_stream_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "giant.jsonl.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b'{"text": "small"}\n{"text": "')
        for _ in range(70):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n')
    exit_code, said = run("tokenize", path, "-o", tmp_path / "out")
    assert exit_code == 4
    assert "a line of more than 64 MiB" in said
    assert str(path) in said


def test_json_on_standard_input_asks_what_it_is(lines: Path, tmp_path: Path) -> None:
    exit_code, said = run("tokenize", "-", "-o", tmp_path / "out", stdin=lines)
    assert exit_code == 2
    assert "--input-format jsonl" in said


@pytest.mark.cold
def test_ctrl_c_on_a_silent_pipe_ends_at_once(text: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, text.read_bytes()[:60_000])
    process = subprocess.Popen(
        command_line("tokenize", "-", "-o", tmp_path / "out"), stdin=reading, stderr=subprocess.PIPE
    )
    os.close(reading)
    # The head of 4 MiB is not there yet: it waits for it, and so for as long as the pipe is open.
    wait_for(lambda: bytes_waiting(writing) == 0)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    os.close(writing)
    assert process.returncode == 130, said


def bytes_waiting(pipe: int) -> int:
    """Return how much was written to a pipe that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
