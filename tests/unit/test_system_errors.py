"""Failures of the operating system: each has one of the documented exit codes, and no traceback."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

import penstok
from penstok.cli import app
from penstok.errors import (
    InputError,
    UsageError,
    WriteError,
    expected_error,
    limit_error,
    own_version,
)
from penstok.jobs import reopening, run
from penstok.jobs.settings import parse_output
from penstok.output.store import open_store
from penstok.output.write_errors import write_error
from penstok.storage.object_paths import output_path
from penstok.worker import memory

NOBODY = 65534
WORDS = "<|endoftext|>".join(f"document {idx} has some words" for idx in range(20))


def invoke(*arguments: str, **environment: str) -> Result:
    done = CliRunner().invoke(app, arguments, env=environment, prog_name="penstok")
    assert done.exit_code == 1 or "Traceback" not in done.stderr
    return done


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "some/file")


@pytest.mark.parametrize(
    ("number", "reading", "writing"),
    [
        (errno.EACCES, InputError, WriteError),
        (errno.EPERM, InputError, WriteError),
        (errno.EIO, InputError, WriteError),
        (errno.ESTALE, InputError, WriteError),
        (errno.ENOENT, InputError, WriteError),
        (errno.ENOSPC, WriteError, WriteError),
        (errno.EDQUOT, WriteError, WriteError),
        (errno.EFBIG, WriteError, WriteError),
        (errno.EROFS, WriteError, WriteError),
        (errno.EMFILE, UsageError, UsageError),
        (errno.ENFILE, UsageError, UsageError),
        (errno.EAGAIN, UsageError, UsageError),
        (errno.ENOMEM, UsageError, UsageError),
        (errno.ENAMETOOLONG, UsageError, UsageError),
        (errno.ELOOP, UsageError, UsageError),
        (errno.EBADF, type(None), type(None)),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_an_error_number_has_its_exit_code(number: int, reading: type, writing: type) -> None:
    for reads_only, kind in ((True, reading), (False, writing)):
        found = expected_error(os_error(number), reads_only=reads_only)
        assert type(found) is kind
        if found is not None:
            assert found.next_step
            assert found.where == "some/file"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES])
def test_a_command_reports_an_error_that_nothing_else_has_caught(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise os_error(number)

    monkeypatch.setattr("penstok.data.dataset.open_dataset", fail)
    done = invoke("info", "out", "--json")
    expected = expected_error(os_error(number), reads_only=True)
    assert expected is not None
    assert done.exit_code == expected.exit_code
    assert json.loads(done.stdout)["what"] == expected.what


def test_a_bug_has_a_traceback_and_a_json_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise TypeError("no such thing")

    monkeypatch.setattr("penstok.data.dataset.open_dataset", fail)
    done = invoke("info", "out", "--json")
    assert done.exit_code == 1
    assert "Traceback" in done.stderr
    assert "error: unexpected TypeError: no such thing" in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 1


def test_a_lack_of_memory_is_seen_behind_other_errors() -> None:
    try:
        try:
            raise ImportError("libx.so: failed to map segment from shared object")
        except ImportError as error:
            raise ImportError("numpy is not installed correctly") from error
    except ImportError as error:
        found = limit_error(error, "here")
    assert found is not None
    assert found.what == "not enough memory"
    assert limit_error(MemoryError(), "here") is not None
    assert limit_error(RuntimeError("can't start new thread"), "here") is not None
    assert limit_error(ImportError("no module named `x`"), "here") is None


def test_a_small_address_space_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100 << 20, -1))
    done = invoke("info", "out")
    assert done.exit_code == 2
    assert "100 MiB of address space" in done.stderr
    assert invoke("info", "--help").exit_code == 0


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "larger than the shell or the file system allows"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "cannot be written: Permission denied"),
        (errno.EMFILE, "too many open files"),
    ],
)
def test_a_failed_write_says_why(number: int, words: str) -> None:
    assert words in write_error(os_error(number), Path("out/train.bin")).what


@pytest.mark.parametrize(
    "arguments",
    [["tokenize", "a", "--bad"], ["nothing"], ["--bad"], ["tokenize"], ["show", "x"], ["verify"]],
    ids=" ".join,
)
def test_every_error_is_a_json_line(arguments: list[str], tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        for done in (invoke(*arguments, "--json"), invoke(*arguments, PENSTOK_JSON="yes")):
            if arguments[0] == "show" and not done.stdout:
                continue
            record = json.loads(done.stdout)
            assert record["type"] == "error"
            assert record["exit_code"] == done.exit_code
    finally:
        os.chdir(here)


@pytest.mark.parametrize("name", ["", "-", "~", "~/x", "/", "//", "/.", "a\0b"])
def test_names_that_no_output_has_are_refused(name: str) -> None:
    for parse in (output_path, parse_output, open_store):
        with pytest.raises(UsageError):
            parse(name)


def test_a_file_is_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text(WORDS)
    Path("dangling").symlink_to("nowhere")
    os.mkfifo("fifo")
    for name in ("in.txt", "in.txt/", "fifo", "dangling", "/dev/null"):
        for command in (["tokenize", "in.txt", "-o", name], ["plan", "in.txt", "-o", name]):
            done = invoke(*command)
            assert done.exit_code == 5, done.stderr
        assert invoke("info", name).exit_code == 6
    assert "link to `nowhere`" in invoke("plan", "in.txt", "-o", "dangling").stderr
    assert Path("in.txt").read_text() == WORDS


def test_the_version_needs_no_metadata() -> None:
    assert own_version() == version("penstok")
    assert invoke("--version").output == f"penstok {own_version()}\n"


def test_memory_is_estimated_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/stat")

    before = memory.own_bytes()
    monkeypatch.setattr(memory, "_open_statm", fail)
    monkeypatch.setattr("builtins.open", fail)
    monkeypatch.setattr(psutil, "Process", fail)
    assert memory.own_bytes() >= before // 2
    assert memory.tree_bytes([1, 2]) >= before // 2
    assert memory.total_bytes() > 1 << 28


# ---- permissions ----


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a small output; then run without the rights of root, until the test ends."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    Path("in.txt").write_text(WORDS)
    penstok.tokenize("in.txt", "out", val_fraction=0, engine="tiktoken", workers=1)
    # Load what the commands need while it can be read.
    for command in (["info"], ["show"], ["verify", "--full"], ["finish"]):
        assert invoke(command[0], "out", *command[1:]).exit_code == 0
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield Path("out")
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        for path in (Path("out"), *Path("out").iterdir()):
            path.chmod(0o755)


def lock_out(path: Path, mode: int = 0) -> None:
    """Take away permissions, as the owner."""
    user = os.geteuid()
    os.seteuid(os.getuid())
    path.chmod(mode)
    os.seteuid(user)


@pytest.mark.parametrize("name", ["", "manifest.json", "segments.jsonl", "train.bin"])
def test_an_output_without_permission_is_told_as_that(output: Path, name: str) -> None:
    lock_out(output / name)
    commands = {
        "info": [4, 4, 0, 4],
        "show": [4, 4, 0, 4],
        "verify": [4, 4, 4, 4],
        "finish": [8, 8, 0, 0],
    }
    for command, codes in commands.items():
        done = invoke(command, "out")
        expected = codes[["", "manifest.json", "segments.jsonl", "train.bin"].index(name)]
        assert done.exit_code == expected, done.stderr
        if expected:
            assert "Permission denied" in done.stderr
            assert "no finished job" not in done.stderr
            assert "--overwrite" not in done.stderr


@pytest.mark.parametrize("mode", [0, 0o444, 0o555])
def test_a_job_says_that_it_may_not_write(output: Path, mode: int) -> None:
    lock_out(output, mode)
    for extra in ([], ["--overwrite"]):
        done = invoke("tokenize", "in.txt", "--val-fraction", "0.5", "-o", "out", *extra)
        is_conflict = mode == 0o555 and not extra
        assert done.exit_code == (5 if is_conflict else 8), done.stderr
        assert is_conflict or "Permission denied" in done.stderr


@pytest.mark.parametrize(
    "step", ["claim_output", "Watch.start", "_refuse_changed_inputs", "commit_job"]
)
def test_an_output_that_is_removed_during_the_run_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text(WORDS)
    target = attrgetter(step)(run)

    def remove_first(*args: Any, **kwargs: Any) -> Any:
        shutil.rmtree("out")
        return target(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(f"penstok.jobs.run.{step}", remove_first)
        done = invoke("tokenize", "in.txt", "-o", "out", "--engine", "tiktoken", "-j", "1")
    assert done.exit_code == 8, done.stderr
    assert "removed" in done.stderr
    assert "next:  run the same command again" in done.stderr
    done = invoke("tokenize", "in.txt", "-o", "out", "--engine", "tiktoken", "-j", "1")
    assert done.exit_code == 0, done.stderr


# ---- leftovers ----


def test_leftovers_of_an_interrupted_overwrite_are_named_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text(WORDS)
    penstok.tokenize("in.txt", "out", val_fraction=0, engine="tiktoken", workers=1)

    def fail(*_: Any, **__: Any) -> None:
        raise WriteError("the disk is full")

    settings: dict[str, Any] = {"engine": "tiktoken", "workers": 1, "val_fraction": 0.5}
    with monkeypatch.context() as patched:
        patched.setattr("penstok.jobs.run.commit_job", fail)
        with pytest.raises(WriteError):
            penstok.tokenize("in.txt", "out", overwrite=True, **settings)
    assert Path("out/.penstok/job.jsonl").exists()
    assert "rm -r out/.penstok" in invoke("info", "out").stdout
    assert "rm -r out/.penstok" in json.loads(invoke("info", "out", "--json").stdout)["notes"][0]
    assert "rm -r out/.penstok" in invoke("verify", "out").stderr
    flags = ("-o", "out", "--val-fraction", "0", "--engine", "tiktoken")
    done = invoke("tokenize", "in.txt", *flags)
    assert "interrupted run with `--overwrite` were deleted" in done.stderr
    assert sorted(path.name for path in Path("out").iterdir()) == [
        *("manifest.json", "segments.jsonl", "train.bin", "train_documents.npy"),
        *("val.bin", "val_documents.npy"),
    ]
    assert "note" not in invoke("info", "out").stdout


def test_a_failed_job_removes_the_folders_it_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_text("{bad\n")
    Path("there").mkdir()
    for output in ("n1/n2/n3", "there/n2/n3"):
        with pytest.raises(InputError):
            penstok.tokenize("bad.jsonl", output, engine="tiktoken", workers=1)
    assert not Path("n1").exists()
    assert list(Path("there").iterdir()) == []


def test_a_bad_input_that_is_added_leaves_the_finished_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings: dict[str, Any] = {"engine": "tiktoken", "workers": 1, "val_fraction": 0}
    Path("a.jsonl").write_text('{"text": "good"}\n' * 100)
    penstok.tokenize("a.jsonl", "out", **settings)
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    reopened = []

    def reopen(*arguments: Any) -> None:
        reopened.append(1)
        reopening.reopen_job(*arguments)

    monkeypatch.setattr("penstok.jobs.run.reopen_job", reopen)
    # The bad record is in the first unit, but after all that is read before the job runs.
    with monkeypatch.context() as patched:
        patched.setattr("penstok.jobs.run._make_check", _check_nothing)
        fine = '{"text": "fine"}\n' * 20_000
        Path("b.jsonl").write_text(f"{fine}{{bad\n{fine}")
        with pytest.raises(InputError):
            penstok.tokenize(["a.jsonl", "b.jsonl"], "out", **settings)
    assert reopened
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before
    Path("b.jsonl").write_text('{"text": "fine"}\n' * 100)
    manifest = penstok.tokenize(["a.jsonl", "b.jsonl"], "out", **settings)
    assert manifest.counts["documents"] == 200
    assert penstok.verify("out", full=True).is_whole


def _check_nothing(plan: Any, **_: Any) -> Any:
    from penstok.jobs.task import Check

    return Check([], plan)


# ---- streams and limits of real processes ----


def shell(script: str, folder: Path) -> tuple[int, str]:
    environment = {**os.environ, "P": f"{sys.executable} -m penstok"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("script", "exit_code", "words"),
    [
        ("$P --version >&-", 8, "standard output is closed"),
        ("$P --version >/dev/full", 8, "No space left on device"),
        ("$P --version >/dev/full 2>&-", 8, ""),
        ("$P --nothing 2>/dev/full", 2, ""),
        ("$P --nothing >&- 2>&- <&-", 2, ""),
        ("$P --help | true; exit ${PIPESTATUS[0]}", 141, ""),
        ("$P info nothing --json 2>&- >/dev/full", 6, ""),
        ("$P tokenize - -o out <&-", 4, "standard input is closed"),
        ("$P tokenize --files-from - -o out <&-", 4, "standard input is closed"),
        ("mkdir gone; cd gone; rmdir ../gone; $P tokenize in.txt -o out", 2, "no longer exists"),
        (
            "echo 'raise SystemExit(77)' > click.py; cp click.py json.py; $P --version",
            0,
            "penstok ",
        ),
        ("$P tokenize ftp://nothing.invalid/x -o ''", 2, "is empty"),
    ],
)
def test_streams_and_folders_that_fail(
    script: str, exit_code: int, words: str, tmp_path: Path
) -> None:
    code, said = shell(script, tmp_path)
    assert code == exit_code, said
    assert words in said


def test_a_job_goes_on_when_the_reader_of_its_output_is_gone(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(WORDS)
    job = "$P tokenize in.txt --engine tiktoken -j 1 --val-fraction 0"
    _, said = shell(
        f"{job} -o a --json | true; echo ${{PIPESTATUS[0]}}; {job} -o b >&- 2>&- <&-; echo $?",
        tmp_path,
    )
    assert "the program that read standard output is gone" in said
    assert said.split()[:2] == ["0", "0"]
    tokens = [(tmp_path / name / "train.bin").read_bytes() for name in ("a", "b")]
    assert tokens[0] == tokens[1] != b""


def test_a_file_size_limit_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(WORDS * 200)
    script = "ulimit -f 8; $P tokenize in.txt -o out --engine tiktoken -j 1"
    code, said = shell(script, tmp_path)
    assert code == 8
    assert "ulimit -f" in said
    assert "disk is full" not in said
    assert not (tmp_path / "out").exists()
