"""The comparison with the reference engine, while other workers encode the first units."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from processes import wait_for, workers_of, write_corpus

import penstok as library
from penstok.output.ledger.lines import UNIT_START
from penstok.output.store.base import TASKS, journal_name

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.cold]

# The program with small units and a reference engine that waits while there is a file `wait`, and
# gives wrong ids if there is a file `wrong`. Workers are forks, so they have it too.
CHANGED_REFERENCE = """
import os, sys, time
from pathlib import Path
import penstok.executors.children, penstok.jobs.settings as s
import penstok.worker.comparison as comparison
from penstok.cli import main
class Reference:
    name = "tiktoken"
    def __init__(self, engine):
        self._engine = engine
    def encode(self, block, out=None):
        Path("comparing").write_text(str(os.getpid()))
        while Path("wait").exists():
            time.sleep(0.01)
        return self._engine.encode(block) + Path("wrong").exists()
load_engine = comparison.load_engine
def load(name, *rest):
    engine = load_engine(name, *rest)
    return Reference(engine) if name == "tiktoken" else engine
comparison.load_engine = load
defaults = s.JobSettings.__init__.__kwdefaults__
defaults["unit_bytes"], defaults["block_bytes"] = 200_000, 50_000
if os.environ.get("TEST_FORKS"):
    penstok.executors.children._can_fork = lambda: True
if os.environ.get("TEST_BY_TASK"):
    s.JobSettings.is_by_task = property(lambda self: True)
sys.argv[0] = "penstok"
main()
"""
SAID = "engine `kernel` returned other ids than the reference engine"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 4 MB: 20 units."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.txt", 2000)


@pytest.fixture(scope="module")
def unbroken(corpus: Path) -> bytes:
    """The tokens of a run that nothing disturbs."""
    library.tokenize(corpus, corpus.parent / "unbroken")
    return (corpus.parent / "unbroken" / "train.bin").read_bytes()


def start(corpus: Path, folder: Path, *flags: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHANGED_REFERENCE, "tokenize", corpus, "-o", "out", "-j", "2"]
    return subprocess.Popen(
        [*map(str, command), *map(str, flags)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def partial_bytes(folder: Path) -> int:
    partial = folder / "out" / TASKS / "00000" / "train.bin.partial"
    return partial.stat().st_size if partial.exists() else 0


def num_journaled(folder: Path) -> int:
    journal = folder / "out" / journal_name(0, None)
    lines = journal.read_bytes().splitlines() if journal.exists() else []
    return sum(line.startswith(UNIT_START) for line in lines)


def start_and_wait(corpus: Path, folder: Path) -> subprocess.Popen[str]:
    """Start a job; return when units are written and the comparison still runs."""
    (folder / "wait").touch()
    process = start(corpus, folder)
    wait_for(lambda: partial_bytes(folder) > 500_000 and (folder / "comparing").exists())
    assert process.poll() is None
    assert num_journaled(folder) == 0
    return process


def test_units_are_encoded_during_the_comparison_and_journaled_after_it(
    corpus: Path, unbroken: bytes, tmp_path: Path
) -> None:
    process = start_and_wait(corpus, tmp_path)
    (tmp_path / "wait").unlink()
    code, said = finish(process)
    assert code == 0, said
    assert (tmp_path / "out" / "train.bin").read_bytes() == unbroken


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_failed_comparison_leaves_nothing_that_another_run_takes_for_good(
    corpus: Path, unbroken: bytes, tmp_path: Path, *, is_stream: bool
) -> None:
    source = corpus
    if is_stream:
        source = tmp_path / "corpus.txt.gz"
        source.write_bytes(gzip.compress(corpus.read_bytes(), 1))
        (tmp_path / "wrong").touch()
        process = start(source, tmp_path)
    else:
        process = start_and_wait(source, tmp_path)
        (tmp_path / "wrong").touch()
        (tmp_path / "wait").unlink()
    code, said = finish(process)
    assert code == 1
    assert SAID in said
    assert "pass `--engine tiktoken`" in said
    assert not (tmp_path / "out").exists()
    # Every run compares.
    code, said = finish(start(source, tmp_path))
    assert (code, SAID in said) == (1, True)
    # The engine is no setting of the output: units of the other one would be kept.
    (tmp_path / "wrong").unlink()
    code, said = finish(start(source, tmp_path, "--engine", "tiktoken"))
    assert code == 0, said
    assert (tmp_path / "out" / "train.bin").read_bytes() == unbroken
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["run"]["units_kept"] == 0


def test_a_run_killed_during_the_comparison_is_repeated_and_compared(
    corpus: Path, unbroken: bytes, tmp_path: Path
) -> None:
    process = start_and_wait(corpus, tmp_path)
    process.kill()
    (tmp_path / "wait").unlink()
    finish(process)
    (tmp_path / "wrong").touch()
    code, said = finish(start(corpus, tmp_path))
    assert (code, SAID in said) == (1, True)
    assert num_journaled(tmp_path) == 0
    (tmp_path / "wrong").unlink()
    code, said = finish(start(corpus, tmp_path))
    assert code == 0, said
    assert (tmp_path / "out" / "train.bin").read_bytes() == unbroken


@pytest.mark.parametrize("is_second_killed", [False, True])
def test_the_comparison_of_a_killed_worker_is_repeated_once(
    corpus: Path, unbroken: bytes, tmp_path: Path, *, is_second_killed: bool
) -> None:
    process = start_and_wait(corpus, tmp_path)
    first = {worker.pid for worker in workers_of(process)}
    psutil.Process(int((tmp_path / "comparing").read_text())).send_signal(signal.SIGKILL)
    while is_second_killed and process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for worker in workers_of(process):
                if worker.pid not in first:
                    worker.send_signal(signal.SIGKILL)
        time.sleep(0.01)
    (tmp_path / "wait").unlink()
    code, said = finish(process)
    if is_second_killed:
        assert code == 1
        assert "a worker died twice during startup: it was killed by SIGKILL" in said
        assert not (tmp_path / "out").exists()
    else:
        assert code == 0, said
        assert (tmp_path / "out" / "train.bin").read_bytes() == unbroken


def test_a_finished_output_is_not_reopened_before_the_comparison_has_passed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The threads that check the finished tokens may still be ending.
    monkeypatch.setenv("TEST_FORKS", "1")
    added = tmp_path / "more.txt"
    added.write_text("one more document")
    first = tmp_path / "first.txt"
    first.write_bytes(corpus.read_bytes()[:1_000_000])
    assert finish(start(first, tmp_path))[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "wrong").touch()
    code, said = finish(start(first, tmp_path, added))
    assert (code, SAID in said) == (1, True)
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_tasks_start_when_the_comparison_has_passed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_BY_TASK", "1")
    (tmp_path / "wrong").touch()
    code, said = finish(start(corpus, tmp_path, "--task-size", "1MB"))
    assert (code, SAID in said) == (1, True)
    assert not list((tmp_path / "out").glob(f"{TASKS}/*"))
