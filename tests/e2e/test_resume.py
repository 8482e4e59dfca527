"""One job, one output: what continues, what is a conflict, what is added to."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from conftest import RunPenstok
from processes import contents, run, start, wait_for, write_corpus

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
FLAGS = ("--val-fraction", "0.1")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    write_corpus(folder / "part-1.txt", 300)
    write_corpus(folder / "part-2.txt", 250)
    return folder


def interrupted(inputs: Path, output: Path, *flags: str) -> None:
    """Leave an unfinished job that has recorded some units."""
    exit_code, _ = run("tokenize", inputs, "-o", output, *FLAGS, *flags, fault="journal on disk:2")
    assert exit_code == -signal.SIGKILL
    assert '{"unit":' in (output / ".penstok" / "tasks" / "00000.jsonl").read_text()


def finished(inputs: Path, output: Path, *flags: str) -> dict[str, bytes]:
    exit_code, said = run("tokenize", inputs, "-o", output, *FLAGS, *flags)
    assert exit_code == 0, said
    return contents(output)


def test_a_rerun_continues_with_any_number_of_workers(inputs: Path, tmp_path: Path) -> None:
    unbroken = finished(inputs, tmp_path / "unbroken")
    for workers in ("1", "3"):
        output = tmp_path / workers
        interrupted(inputs, output, "-j", "2")
        assert finished(inputs, output, "-j", workers) == unbroken
        manifest = json.loads((output / "manifest.json").read_text())
        assert manifest["run"]["resumed"]
        assert manifest["run"]["units_kept"] > 0


def test_only_what_is_left_is_done(inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    interrupted(inputs, output)
    ledger = (output / ".penstok" / "tasks" / "00000.jsonl").read_text()
    finished(inputs, output)
    # What was recorded stands in the finished ledger as it was.
    assert (output / "segments.jsonl").read_text().startswith(ledger)


def test_a_damaged_unit_of_an_earlier_run_is_done_again(inputs: Path, tmp_path: Path) -> None:
    unbroken = finished(inputs, tmp_path / "unbroken")
    output = tmp_path / "out"
    interrupted(inputs, output)
    partial = output / ".penstok" / "tasks" / "00000" / "train.bin.partial"
    data = bytearray(partial.read_bytes())
    data[1000] ^= 1
    partial.write_bytes(data)
    exit_code, said = run("tokenize", inputs, "-o", output, *FLAGS)
    assert exit_code == 0
    assert "re-encoded 1 damaged unit of an earlier run" in said
    assert contents(output) == unbroken


@pytest.mark.parametrize("flags", [(), ("--docs-by", "file"), ("--eot", "prepend")])
def test_a_unit_with_a_damaged_end_costs_the_next_its_index_nothing(
    inputs: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    unbroken = finished(inputs, tmp_path / "unbroken", *flags)
    output = tmp_path / "out"
    interrupted(inputs, output, *flags)
    journal = (output / ".penstok" / "tasks" / "00000.jsonl").read_text().splitlines()
    segments = [json.loads(line)["segments"] for line in journal if line.startswith('{"unit":')]
    _, _, start, count, _ = segments[0][0]
    partial = output / ".penstok" / "tasks" / "00000" / "train.bin.partial"
    data = bytearray(partial.read_bytes())
    data[2 * (start + count) - 2 : 2 * (start + count)] = b"\0\0"
    partial.write_bytes(data)
    assert finished(inputs, output, *flags) == unbroken


def test_a_missing_shard_costs_only_its_own_units(inputs: Path, tmp_path: Path) -> None:
    flags = ("--shard-tokens", "500")
    unbroken = finished(inputs, tmp_path / "unbroken", *flags)
    output = tmp_path / "out"
    interrupted(inputs, output, *flags)
    shards = sorted((output / ".penstok" / "tasks" / "00000").glob("train_shard_*.bin.partial"))
    shards[0].unlink()
    assert finished(inputs, output, *flags) == unbroken
    assert json.loads((output / "manifest.json").read_text())["run"]["resumed"]


def test_missing_tokens_are_made_again(inputs: Path, tmp_path: Path) -> None:
    unbroken = finished(inputs, tmp_path / "unbroken")
    output = tmp_path / "out"
    interrupted(inputs, output)
    (output / ".penstok" / "tasks" / "00000" / "train.bin.partial").unlink()
    assert finished(inputs, output) == unbroken


@pytest.mark.parametrize("tail", [b"", b'{"unit":', b"\0" * 500, b"\xff\xfe rubbish\n", b"\n"])
def test_a_torn_ledger_is_good_up_to_the_tear(inputs: Path, tmp_path: Path, tail: bytes) -> None:
    unbroken = finished(inputs, tmp_path / "unbroken")
    output = tmp_path / "out"
    interrupted(inputs, output)
    ledger = output / ".penstok" / "tasks" / "00000.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-30] + tail)
    assert finished(inputs, output) == unbroken


def test_other_settings_are_a_conflict(inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    interrupted(inputs, output)
    exit_code, said = run("tokenize", inputs, "-o", output, *FLAGS, "--seed", "5")
    assert exit_code == 5
    assert "another job is unfinished here (`--seed` 0 there, 5 here)" in said
    assert "`--overwrite`" in said
    other = finished(inputs, tmp_path / "other", "--seed", "5")
    assert finished(inputs, output, "--seed", "5", "--overwrite") == other


def grow(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


def touch(path: Path) -> None:
    os.utime(path, ns=(0, 0))


def replace_text(path: Path) -> None:
    """Change the text, and neither size nor time."""
    status = path.stat()
    path.write_text(path.read_text().replace("document 0", "Document 0"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES = [
    (grow, "bytes there"),
    (touch, "was modified since"),
    (replace_text, "has different content"),
    (Path.unlink, "is missing"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_changed_input_is_a_conflict(
    inputs: Path, tmp_path: Path, change: object, words: str
) -> None:
    assert callable(change)
    half, whole = tmp_path / "half", tmp_path / "whole"
    interrupted(inputs, half)
    finished(inputs, whole)
    change(inputs / "part-1.txt")
    for output in (half, whole):
        exit_code, said = run("tokenize", inputs, "-o", output, *FLAGS)
        assert exit_code == 5, said
        assert "part-1.txt" in said
        assert words in said
        assert "`--overwrite`" in said
    assert contents(whole)


def test_added_inputs_are_appended(inputs: Path, tmp_path: Path) -> None:
    half, whole = tmp_path / "half", tmp_path / "whole"
    interrupted(inputs, half)
    finished(inputs, whole)
    before = json.loads((whole / "manifest.json").read_text())["counts"]["input_bytes"]
    write_corpus(inputs / "part-10.txt", 120)
    (inputs / "part-11.txt").touch()
    fresh = finished(inputs, tmp_path / "fresh")
    assert finished(inputs, half) == fresh
    assert finished(inputs, whole) == fresh
    manifest = json.loads((whole / "manifest.json").read_text())
    assert manifest["run"]["work_bytes"] == manifest["counts"]["input_bytes"] - before
    fresh_manifest = json.loads((tmp_path / "fresh" / "manifest.json").read_text())
    for name in ("counts", "inputs", "splits", "inputs_digest", "settings"):
        assert manifest[name] == fresh_manifest[name]


def write_records(path: Path, key: str) -> Path:
    lines = (json.dumps({key: f"document {idx}: " + "word " * 400}) for idx in range(100))
    path.write_text("\n".join(lines))
    return path


def test_added_inputs_that_cannot_be_used_leave_the_finished_job_whole(
    tmp_path: Path, penstok: RunPenstok
) -> None:
    good = write_records(tmp_path / "a.jsonl", "text")
    penstok("tokenize", good, "-o", "out", *FLAGS)
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    bad = write_records(tmp_path / "b.jsonl", "body")
    said = penstok("tokenize", good, bad, "-o", "out", *FLAGS, exit_code=4).stderr
    assert "text key `text` is missing" in said
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    penstok("info", "out")
    penstok("verify", "out", "--full")
    write_records(bad, "text")
    penstok("tokenize", good, bad, "-o", "out", *FLAGS)
    penstok("tokenize", good, bad, "-o", "fresh", *FLAGS)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_added_shards_are_the_same(inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    finished(inputs, output, "--shard-tokens", "20K")
    write_corpus(inputs / "part-3.txt", 120)
    fresh = finished(inputs, tmp_path / "fresh", "--shard-tokens", "20K")
    assert finished(inputs, output, "--shard-tokens", "20K") == fresh


def test_an_input_added_in_between_is_a_conflict(inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    finished(inputs, output)
    write_corpus(inputs / "part-0.txt", 10)
    exit_code, said = run("tokenize", inputs, "-o", output, *FLAGS)
    assert exit_code == 5
    assert "part-0.txt` is new, but sorts before" in said
    assert "`--overwrite`" in said


def test_a_finished_job_has_nothing_to_do(inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    finished(inputs, output)
    times = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    exit_code, said = run("tokenize", inputs, "-o", output, *FLAGS)
    assert exit_code == 0
    assert "nothing to do" in said
    assert {path: path.stat().st_mtime_ns for path in output.iterdir()} == times


def test_an_unfinished_job_is_named(inputs: Path, tmp_path: Path, penstok: RunPenstok) -> None:
    interrupted(inputs, tmp_path / "out")
    said = penstok("info", tmp_path / "out", exit_code=6).stderr
    assert "the job here is not finished" in said
    assert "it continues" in said


@pytest.mark.cold
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_at_once_and_the_next_run_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt", 6000)
    output = tmp_path / "out"
    process = start("tokenize", corpus, "-o", output, "-j", "2", *FLAGS)
    ledger = output / ".penstok" / "tasks" / "00000.jsonl"
    wait_for(lambda: ledger.exists() and '{"unit":' in ledger.read_text())
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "run the same command again: it continues" in said
    assert finished(corpus, output) == finished(corpus, tmp_path / "fresh")
    assert json.loads((output / "manifest.json").read_text())["run"]["resumed"]


def test_two_interrupts_stop_at_once_and_leave_nothing_half(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt", 6000)
    output = tmp_path / "out"
    process = start("tokenize", corpus, "-o", output, *FLAGS)
    ledger = output / ".penstok" / "tasks" / "00000.jsonl"
    wait_for(lambda: ledger.exists() and '{"unit":' in ledger.read_text())
    process.send_signal(signal.SIGINT)
    time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGINT)
    assert not (output / "train.bin").exists()
    assert finished(corpus, output) == finished(corpus, tmp_path / "fresh")


def test_a_job_that_a_later_release_goes_on_with_is_whole(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import penstok as library

    output = tmp_path / "out"
    with monkeypatch.context() as earlier:
        earlier.setattr("penstok.jobs.job.own_version", lambda: "0.0.9")
        library.tokenize(inputs, output, engine="tiktoken", unit_bytes=100_000)
    write_corpus(inputs / "part-3.txt", 20)
    manifest = library.tokenize(inputs, output, engine="tiktoken")
    assert manifest.penstok == "0.0.9"
    assert manifest.run["resumed"]
    assert library.verify(output, full=True).is_whole
