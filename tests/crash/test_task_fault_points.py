"""Jobs of tasks in a folder, killed at their fault points; a rerun ends with the same bytes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from processes import contents, run, write_corpus

import penstok as library

pytestmark = [pytest.mark.crash, pytest.mark.slow]

# While a part runs, while parts are finished, and while a driver replaces an older output.
DOING = [
    "task on disk",
    "task on disk:3",
    "journal on disk:2",
    "small file written",
]
FINISHING = [
    "small file written",
    "small file written:2",
    "intent written",
    "one file published",
    "one file published:2",
    "one file published:9",
    "one file published:15",
    "manifest written",
    "one thing tidied",
    "one thing tidied:2",
    "one thing tidied:3",
]
OVERWRITING = [
    "task on disk:3",
    "intent written",
    "one file deleted",
    "one file published:3",
    "manifest written",
]
# Behind the intent the same command completes the commit, and has nothing more to do.
CONTINUED = OVERWRITING[:1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of 1.2 MB, one of which is skipped, and outputs of them.

    `half` has one part of two, `parts` has both, `unbroken` is finished, `older` is another job.
    """
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "in").mkdir()
    write_corpus(folder / "in" / "a.txt", 300)
    write_corpus(folder / "in" / "b.txt", 280)
    (folder / "in" / "c.txt.gz").write_bytes(b"not gzip")
    assert run(*job(folder, folder / "half", "--part", "2/2"))[0] == 0
    shutil.copytree(folder / "half", folder / "parts")
    assert run(*job(folder, folder / "parts", "--part", "1/2"))[0] == 0
    shutil.copytree(folder / "parts", folder / "unbroken")
    assert run("finish", folder / "unbroken")[0] == 3
    assert len(contents(folder / "unbroken")) == 28
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_BY_TASK", "1")
        other = ("--seed", "7", "--task-size", "100K")
        assert run(*job(folder, folder / "older", *other))[0] == 3
    return folder


@pytest.fixture
def by_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a driver do what a cluster would."""
    monkeypatch.setenv("TEST_BY_TASK", "1")


def job(folder: Path, output: Path, *flags: str) -> tuple[str | Path, ...]:
    shaping = ("--on-error", "skip", "--val-fraction", "0.2", "--task-size", "200K")
    return ("tokenize", folder / "in", "-o", output, *shaping, *flags)


def kill(*command: str | Path, fault: str) -> None:
    exit_code, said = run(*command, fault=fault)
    assert exit_code == -signal.SIGKILL, said


def check(folder: Path, output: Path) -> None:
    assert contents(output) == contents(folder / "unbroken")
    assert (output / "skipped.jsonl").read_bytes() == (
        folder / "unbroken" / "skipped.jsonl"
    ).read_bytes()
    assert not (output / ".penstok").exists()
    assert library.verify(output, full=True).is_whole


@pytest.mark.parametrize("fault", DOING)
def test_a_part_killed_here_is_done_again(folder: Path, tmp_path: Path, fault: str) -> None:
    output = tmp_path / "out"
    shutil.copytree(folder / "half", output)
    kill(*job(folder, output, "--part", "1/2"), fault=fault)
    assert run(*job(folder, output, "--part", "1/2"))[0] == 0
    library.finish(output)
    check(folder, output)


@pytest.mark.parametrize("fault", FINISHING)
def test_finish_killed_here_finishes_again(folder: Path, tmp_path: Path, fault: str) -> None:
    output = tmp_path / "out"
    shutil.copytree(folder / "parts", output)
    kill("finish", output, fault=fault)
    assert run("finish", output)[0] == 3
    check(folder, output)


@pytest.mark.parametrize("fault", ["one file published:5", "manifest written"])
def test_after_a_killed_finish_a_part_has_nothing_to_do(
    folder: Path, tmp_path: Path, fault: str
) -> None:
    output = tmp_path / "out"
    shutil.copytree(folder / "parts", output)
    kill("finish", output, fault=fault)
    exit_code, said = run(*job(folder, output, "--part", "1/2"))
    assert exit_code == 0
    assert "0 B of text" in said
    library.finish(output)
    check(folder, output)


@pytest.mark.usefixtures("by_task")
@pytest.mark.parametrize("fault", OVERWRITING)
def test_an_overwriting_driver_killed_here_overwrites_again(
    folder: Path, tmp_path: Path, fault: str
) -> None:
    output = tmp_path / "out"
    shutil.copytree(folder / "older", output)
    older = contents(output)
    kill(*job(folder, output, "--overwrite"), fault=fault)
    if (output / "manifest.json").exists() and fault != "manifest written":
        assert contents(output) == older
        assert library.verify(output, full=True).is_whole
    exit_code, said = run(*job(folder, output, "--overwrite"))
    assert exit_code == 3, said
    assert ("resumed" in said) == (fault in CONTINUED)
    check(folder, output)
