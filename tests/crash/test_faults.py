"""Real processes, real signals: nothing half, nothing left over, and a rerun is right."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from processes import (
    ENDED,
    command_line,
    run,
    start,
    status_of,
    wait_for,
    wait_until_paused,
    workers_of,
    write_corpus,
)

import penstok as library
from penstok.output.store.base import journal_name

pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 12 MB, enough to be interrupted anywhere."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.txt", 6000)


def start_job(corpus: Path, output: Path, *flags: str) -> subprocess.Popen[str]:
    return start("tokenize", corpus, "-o", output, "-j", "2", *flags)


@pytest.fixture(scope="module")
def unbroken(corpus: Path) -> bytes:
    """The tokens of a run that nothing disturbs."""
    output = corpus.parent / "unbroken"
    library.tokenize(corpus, output, engine="tiktoken")
    return (output / "train.bin").read_bytes()


def finish(corpus: Path, output: Path) -> bytes:
    again = start_job(corpus, output)
    again.communicate(timeout=120)
    assert again.returncode == 0
    assert not (output / ".penstok").exists()
    return (output / "train.bin").read_bytes()


@pytest.mark.cold
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_at_once_and_leaves_nothing(
    corpus: Path,
    unbroken: bytes,
    tmp_path: Path,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No unit may be finished before the signal comes, however busy the machine is.
    monkeypatch.setenv("TEST_UNIT_BYTES", "6000000")
    output = tmp_path / "out"
    process = start_job(corpus, output, "--limit", "9MB")
    wait_for(lambda: len(workers_of(process)) == 2)
    workers = workers_of(process)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "run the same command again" in said
    assert not output.exists()
    wait_for(lambda: all(status_of(worker.pid) == ENDED for worker in workers), 5)
    assert finish(corpus, output) == unbroken


@pytest.mark.cold
def test_a_killed_parent_takes_its_workers_along(
    corpus: Path, unbroken: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    process = start_job(corpus, output)
    wait_for(lambda: len(workers_of(process)) == 2)
    workers = workers_of(process)
    process.kill()
    process.communicate()
    assert not (output / "train.bin").exists()
    # At once: the workers may still be at a unit, and hold the lock until they notice.
    assert finish(corpus, output) == unbroken
    wait_for(lambda: all(status_of(worker.pid) == ENDED for worker in workers), 30)


def written_units(output: Path) -> int:
    journal = output / journal_name(0, None)
    partial = output / ".penstok" / "tasks" / "00000" / "train.bin.partial"
    return partial.stat().st_size // 100_000 if journal.exists() and partial.exists() else 0


@pytest.mark.parametrize("after_units", [0, 3, 15, 40])
@pytest.mark.parametrize("victims", [1, 2])
def test_killed_workers_are_replaced(
    corpus: Path, unbroken: bytes, tmp_path: Path, after_units: int, victims: int
) -> None:
    output = tmp_path / "out"
    process = start_job(corpus, output)
    wait_for(lambda: len(workers_of(process)) == 2)
    wait_for(lambda: process.poll() is not None or written_units(output) >= after_units)
    # At once: the second must not be given the unit of the first in between and then be killed.
    process.send_signal(signal.SIGSTOP)
    wait_until_paused(process)
    for worker in workers_of(process)[:victims]:
        worker.send_signal(signal.SIGKILL)
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert (output / "train.bin").read_bytes() == unbroken
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["run"]["workers_replaced"] >= 1


@pytest.mark.cold
def test_text_that_kills_every_worker_stops_the_job(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    process = start_job(corpus, output)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            for worker in workers_of(process):
                worker.send_signal(signal.SIGKILL)
        time.sleep(0.05)
    _, said = process.communicate()
    assert process.returncode == 1
    assert "twice" in said
    assert "SIGKILL" in said
    assert "`--engine auto`" in said
    assert not output.exists()


@pytest.mark.thorough
def test_many_long_names_do_not_block_the_pipes(tmp_path: Path) -> None:
    # Requests and answers that are larger than what a socket holds, both ways at once.
    folder = tmp_path.joinpath("in", *["x" * 200] * 8)
    folder.mkdir(parents=True)
    for number in range(600):
        (folder / f"{number}.txt").write_text("word " * 300)
    manifest = library.tokenize(
        tmp_path / "in", tmp_path / "out", engine="tiktoken", docs_by="file", shard_tokens=50
    )
    assert manifest.counts["documents"] == 600


def test_two_jobs_on_one_output_do_not_mix(corpus: Path, unbroken: bytes, tmp_path: Path) -> None:
    output = tmp_path / "out"
    first = start_job(corpus, output)
    wait_for((output / journal_name(0, None)).exists)
    # It must not be done before the second has started.
    first.send_signal(signal.SIGSTOP)
    second = start_job(corpus, output)
    _, said = second.communicate(timeout=60)
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=120)
    assert second.returncode == 7
    assert f"pid {first.pid}" in said
    assert first.returncode == 0
    assert (output / "train.bin").read_bytes() == unbroken


@pytest.mark.parametrize("blocks", [0, 1, 2048])
def test_a_full_disk_is_said_and_the_job_continues(
    corpus: Path, unbroken: bytes, tmp_path: Path, blocks: int
) -> None:
    # A limit on file sizes fails a write as a full disk does, in the real system call: of the
    # lock, of the first tokens, of later ones.
    output = tmp_path / "out"
    command = command_line("tokenize", corpus, "-o", output)
    process = subprocess.Popen(
        ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", *command],
        stderr=subprocess.PIPE,
        text=True,
    )
    _, said = process.communicate(timeout=120)
    assert process.returncode == 8, said
    assert "raise the limit with `ulimit -f unlimited`" in said
    assert not (output / "train.bin").exists()
    assert output.exists() == (blocks == 2048)
    assert finish(corpus, output) == unbroken


def test_a_full_disk_during_a_conversion_loses_nothing(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    finish(corpus, output)
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    # The small shards fit below the limit, the one file of torchtitan does not.
    flags = ("--format", "llmc,torchtitan", "--shard-tokens", "100K")
    command = command_line("convert", output, *flags)
    limited = ["sh", "-c", 'ulimit -f 512; exec "$@"', "sh", *command]
    process = subprocess.Popen(limited, stderr=subprocess.PIPE, text=True)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 8, said
    assert "raise the limit with `ulimit -f unlimited`" in said
    assert {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()} == before
    staged = output / ".penstok" / "formats" / "llmc" / "tokens_train_000000.bin.partial"
    inode = staged.stat().st_ino
    assert run("verify", output)[0] == 0
    assert run("convert", output, *flags)[0] == 0
    assert (output / "llmc" / "tokens_train_000000.bin").stat().st_ino == inode
    assert run("verify", output, "--full")[0] == 0
    assert not (output / ".penstok").exists()


def test_an_input_that_grows_is_noticed(corpus: Path, tmp_path: Path) -> None:
    output, growing = tmp_path / "out", Path(shutil.copy(corpus, tmp_path))
    process = start_job(growing, output)
    wait_for((output / journal_name(0, None)).exists)
    with growing.open("a") as file:
        file.write("more")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 4, said
    assert "changed while" in said
    assert not (output / "train.bin").exists()


def test_a_really_full_disk_loses_nothing(corpus: Path, unbroken: bytes, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small disk here; the limit on file sizes stands for it")
    try:
        output = disk / "out"
        process = start_job(corpus, output)
        journal = output / journal_name(0, None)
        wait_for(journal.exists)
        wait_for(lambda: journal.read_bytes().count(b'\n{"unit":') >= 10)
        # Somebody else fills the disk while the job runs.
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        _, said = process.communicate(timeout=120)
        assert process.returncode == 8, said
        assert "the disk is full" in said
        assert "it continues" in said
        (disk / "filler").unlink()
        assert finish(corpus, output) == unbroken
        assert json.loads((output / "manifest.json").read_text())["run"]["units_kept"] >= 10
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_too_small_a_disk_is_refused_before_the_start(corpus: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small disk here")
    try:
        process = start_job(corpus, disk / "out")
        _, said = process.communicate(timeout=120)
        assert process.returncode == 8
        assert "too little disk" in said
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_an_output_that_goes_away_is_said(corpus: Path, unbroken: bytes, tmp_path: Path) -> None:
    output = tmp_path / "out"
    process = start_job(corpus, output)
    wait_for(lambda: written_units(output) >= 3)
    shutil.rmtree(output)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 8, said
    assert "the output folder was removed during the run" in said
    assert finish(corpus, output) == unbroken
