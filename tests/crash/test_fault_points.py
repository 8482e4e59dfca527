"""A run is killed at every named fault point; the same command then ends with the same bytes."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from processes import contents, run, start, wait_for, write_corpus
from support import ROOT, few, rounds

pytestmark = [pytest.mark.crash, pytest.mark.slow]

# `make soak` asks for more.
NUM_KILLS = int(os.environ.get("PENSTOK_TEST_KILLS", rounds(40)))
# Each scenario leads a run to the fault points below it; `NAME:3` is the third time.
FRESH = [
    "worker wrote some tokens",
    "worker wrote some tokens:7",
    "tokens not on disk",
    "tokens not on disk:2",
    "tokens on disk",
    "tokens on disk:2",
    "journal line torn",
    "journal line torn:2",
    "journal line torn:3",
    "journal not on disk",
    "journal not on disk:3",
    "journal on disk",
    "journal on disk:2",
    "one index written",
    "one index written:2",
    "task on disk",
    "small file written",
    "small file written:2",
    "small file written:3",
    "small file written:4",
    "intent written",
    "one file published",
    "one file published:2",
    "one file published:3",
    "manifest written",
    "one thing tidied",
    "one thing tidied:2",
    "one thing tidied:4",
]
OVERWRITING = [
    "one index written",
    "task on disk",
    "intent written",
    "one file deleted",
    "one file deleted:2",
    "one file deleted:4",
    "one file published:2",
    "manifest written",
]
EXTENDING = [
    "ledger copied",
    "small file written:2",
    "reopening begins",
    "manifest withdrawn",
    "one file taken back",
    "one file taken back:2",
    "one file deleted:2",
    "tokens on disk",
    "one index written",
    "one index written:2",
    "intent written",
    "one file published",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of 3 MB, one of which is skipped, and the output of an unbroken run."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "in").mkdir()
    write_corpus(folder / "in" / "a.txt", 700)
    write_corpus(folder / "in" / "b.txt", 800)
    (folder / "in" / "c.txt.gz").write_bytes(b"not gzip")
    assert run(*job(folder, folder / "unbroken"))[0] == 3
    return folder


def job(folder: Path, output: Path, *flags: str) -> tuple[str | Path, ...]:
    flags = ("--on-error", "skip", "--val-fraction", "0.1", *flags)
    return ("tokenize", folder / "in", "-o", output, *flags)


def make_fresh(folder: Path, output: Path) -> None:
    """Leave no output at all."""


def make_older(folder: Path, output: Path) -> None:
    """Leave a finished job with other settings."""
    assert run(*job(folder, output, "--seed", "7", "--shard-tokens", "100K"))[0] == 3


def make_shorter(folder: Path, output: Path) -> None:
    """Leave a finished job on the first input alone."""
    flags = ("--val-fraction", "0.1", "--doc-separator", "<|endoftext|>")
    assert run("tokenize", folder / "in" / "a.txt", "-o", output, *flags)[0] == 0


SCENARIOS = {"fresh": make_fresh, "overwriting": make_older, "extending": make_shorter}
CASES = [
    *(("fresh", fault) for fault in FRESH if ":" not in fault),
    *few([("fresh", fault) for fault in FRESH if ":" in fault], 0),
    *(("overwriting", fault) for fault in OVERWRITING),
    *(("extending", fault) for fault in EXTENDING),
]


def command_of(scenario: str, folder: Path, output: Path) -> tuple[str | Path, ...]:
    flags = ["--overwrite"] if scenario == "overwriting" else []
    return job(folder, output, *flags)


@pytest.mark.parametrize(("scenario", "fault"), CASES)
def test_a_kill_here_costs_nothing(folder: Path, tmp_path: Path, scenario: str, fault: str) -> None:
    output = tmp_path / "out"
    SCENARIOS[scenario](folder, output)
    command = command_of(scenario, folder, output)
    exit_code, said = run(*command, fault=fault)
    # A killed worker is replaced, or stops the run; all other faults kill the parent.
    assert exit_code in ((1, 3) if fault.startswith("worker") else (-signal.SIGKILL,)), said
    exit_code, said = run(*command)
    assert exit_code == 3, said
    assert contents(output) == contents(folder / "unbroken")
    assert not (output / ".penstok").exists()


# A job that also writes other formats.
FORMATS = ("--format", "llmc,torchtitan,olmo,megatron,parquet", "--shard-tokens", "100K")
WITH_FORMATS = [
    "one format file written",
    "one format file written:4",
    "small file written:6",
    "intent written",
    "one file published:3",
    "one file published:14",
    "manifest written",
    "one thing tidied",
    "one thing tidied:3",
]
REPLACING_FORMATS = [
    "one file deleted",
    "one file deleted:9",
    "one file deleted:14",
    "one file published:9",
    "manifest written",
]
EXTENDING_FORMATS = [
    "reopening begins",
    "one file deleted:3",
    "one file taken back:2",
    "one format file written:3",
    "one file published:10",
]
CONVERTING = [
    "one format file written",
    "one format file written:5",
    "small file written:2",
    "intent of formats written",
    "one file published",
    "one file published:6",
    "manifest written",
    "one file deleted:2",
    "one thing tidied",
    "one thing tidied:2",
]


def whole(output: Path) -> dict[str, bytes]:
    """Return all files but the records; no folder is empty, and none is left of the run."""
    paths = sorted(output.rglob("*"))
    assert not [path for path in paths if path.is_dir() and not any(path.iterdir())]
    assert not (output / ".penstok").exists()
    names = ("manifest.json", "segments.jsonl", "skipped.jsonl")
    files = [path for path in paths if path.is_file() and path.name not in names]
    return {str(path.relative_to(output)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def formats(folder: Path) -> Path:
    """The output of an unbroken run with formats, and outputs to convert and to replace."""
    assert run(*job(folder, folder / "formats", *FORMATS))[0] == 3
    assert run(*job(folder, folder / "older", "--seed", "7", *FORMATS))[0] == 3
    flags = ("--val-fraction", "0.1", "--doc-separator", "<|endoftext|>", *FORMATS)
    assert run("tokenize", folder / "in" / "a.txt", "-o", folder / "first", *flags)[0] == 0
    assert run(*job(folder, folder / "plain", "--shard-tokens", "100K"))[0] == 3
    return folder / "formats"


FORMAT_CASES = [
    *((None, fault) for fault in WITH_FORMATS),
    *(("older", fault) for fault in REPLACING_FORMATS),
    *(("first", fault) for fault in EXTENDING_FORMATS),
]


@pytest.mark.parametrize(("before", "fault"), FORMAT_CASES)
def test_a_kill_of_a_job_with_formats_costs_nothing(
    folder: Path, formats: Path, tmp_path: Path, before: str | None, fault: str
) -> None:
    output = tmp_path / "out"
    if before is not None:
        shutil.copytree(folder / before, output, copy_function=os.link)
    untouched = whole(folder / "older")
    command = job(folder, output, *FORMATS, *(["--overwrite"] if before == "older" else []))
    exit_code, said = run(*command, fault=fault)
    assert exit_code == -signal.SIGKILL, said
    exit_code, said = run(*command)
    assert exit_code == 3, said
    assert whole(output) == whole(formats)
    assert run("verify", output, "--full")[0] == 0
    # The copy had links to these.
    assert whole(folder / "older") == untouched


@pytest.mark.parametrize("fault", CONVERTING)
@pytest.mark.parametrize("place", ["beside", "elsewhere"])
def test_a_kill_of_a_conversion_costs_nothing(
    folder: Path, formats: Path, tmp_path: Path, place: str, fault: str
) -> None:
    source, output = tmp_path / "out", tmp_path / "to"
    shutil.copytree(folder / "plain", source)
    command: tuple[str | Path, ...] = ("convert", source, *FORMATS[:2])
    if place == "beside":
        # Some formats are there with other options, and are replaced.
        assert run(*command, "--shard-tokens", "30K")[0] == 0
    else:
        command = (*command, "-o", output)
        if fault == "one file deleted:2":
            pytest.skip("nothing is replaced")
    exit_code, said = run(*command, fault=fault)
    assert exit_code == -signal.SIGKILL, said
    if place == "beside" and fault.startswith(("one format", "small")):
        assert run("verify", source, "--full")[0] == 0
    exit_code, said = run(*command)
    assert exit_code == 0, said
    assert whole(output if place == "elsewhere" else source) == whole(formats)
    assert run("verify", output if place == "elsewhere" else source, "--full")[0] == 0


@pytest.mark.parametrize(
    "fault", ["one format file written", "intent of formats written", "one file published:3"]
)
def test_a_kill_of_an_import_costs_nothing(
    folder: Path, formats: Path, tmp_path: Path, fault: str
) -> None:
    flags = ("--from", "megatron", formats, "-t", "gpt2", "--eot", "append", "--format", "olmo")
    assert run("convert", *flags, "-o", tmp_path / "fresh")[0] == 0
    output = tmp_path / "out"
    assert run("convert", *flags, "-o", output, fault=fault)[0] == -signal.SIGKILL
    exit_code, said = run("convert", *flags, "-o", output)
    assert exit_code == 0, said
    assert whole(output) == whole(tmp_path / "fresh")


def test_every_fault_point_is_tested() -> None:
    sources = (ROOT / "src" / "penstok").rglob("*.py")
    named = {
        name
        for path in sources
        for name in re.findall(r'fault_point\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    }
    folders = [ROOT / "tests" / name for name in ("crash", "e2e")]
    paths = [path for folder in folders for path in folder.glob("*.py")]
    tests = "".join(path.read_text(encoding="utf-8") for path in paths)
    assert len(named) > 15
    assert [name for name in sorted(named) if f'"{name}"' not in tests] == []


@pytest.mark.sampled
def test_killed_while_it_resumes_from_a_kill(folder: Path, tmp_path: Path) -> None:
    pairs = random.Random(4)
    for number in range(rounds(12)):
        output = tmp_path / str(number)
        for fault in pairs.sample(FRESH, 2):
            run(*job(folder, output), fault=fault)
        assert run(*job(folder, output))[0] == 3
        assert contents(output) == contents(folder / "unbroken")
        shutil.rmtree(output)


@pytest.mark.sampled
def test_kills_at_random_lose_nothing(folder: Path, tmp_path: Path) -> None:
    kills = 0
    chance = random.Random(2026)
    output = tmp_path / "out"
    while kills < NUM_KILLS:
        workers = str(chance.randint(1, 4))
        with start(*job(folder, output, "-j", workers)) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=chance.uniform(0.2, 0.9))
            is_killed = process.poll() is None
            process.kill()
        kills += is_killed
        if not is_killed and (output / "manifest.json").exists():
            assert contents(output) == contents(folder / "unbroken")
            shutil.rmtree(output)


def fresh_of(folder: Path, inputs: list[Path]) -> dict[str, bytes]:
    """Return the bytes of a fresh run on some inputs."""
    output = folder / "fresh" / "-".join(path.stem for path in inputs)
    if not output.exists():
        assert run("tokenize", *inputs, "-o", output, *FLAGS)[0] == 0
    return contents(output)


FLAGS = ("--val-fraction", "0.1", "--doc-separator", "<|endoftext|>")


@pytest.mark.parametrize("num_killed", [1, 2])
def test_inputs_are_added_to_finished_tokens_not_to_those_of_a_killed_run(
    folder: Path, tmp_path: Path, num_killed: int
) -> None:
    """A run that was to overwrite the output was killed; its tokens must not be used."""
    output, inputs = tmp_path / "out", [folder / "in" / "a.txt", folder / "in" / "b.txt"]
    assert run("tokenize", inputs[0], "-o", output, *FLAGS)[0] == 0
    flags = ("-o", output, *FLAGS, "--overwrite", "-j", "1")
    killed = run("tokenize", *inputs[:num_killed], *flags, fault="journal on disk:2")
    assert killed[0] == -signal.SIGKILL
    exit_code, said = run("tokenize", *inputs, "-o", output, *FLAGS)
    assert exit_code == 0, said
    assert contents(output) == fresh_of(folder, inputs)
    assert run("verify", output, "--full")[0] == 0


def test_old_tokens_of_the_same_size_are_never_published(folder: Path, tmp_path: Path) -> None:
    output, first, second = tmp_path / "out", tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("the cat sat<|endoftext|>" * 20_000)
    second.write_text("the dog sat<|endoftext|>" * 20_000)
    assert run("tokenize", first, "-o", output, *FLAGS)[0] == 0
    command = ("tokenize", second, "-o", output, *FLAGS, "--overwrite")
    assert run(*command, fault="one file deleted")[0] == -signal.SIGKILL
    (output / ".penstok" / "tasks" / "00000" / "train.bin.partial").unlink()
    exit_code, said = run(*command)
    assert exit_code == 0, said
    assert contents(output) == fresh_of(folder, [second])


def test_files_of_somebody_else_are_not_replaced_without_asking(
    folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert run(*job(folder, output), fault="journal on disk:2")[0] == -signal.SIGKILL
    (output / "train.bin").write_text("mine")
    exit_code, said = run(*job(folder, output))
    assert exit_code == 5
    assert "`train.bin` exists and is not from" in said
    assert (output / "train.bin").read_text() == "mine"
    (output / "train.bin").unlink()
    assert run(*job(folder, output), fault="intent written")[0] == -signal.SIGKILL
    (output / "train_shard_00000.bin").write_text("mine")
    assert run(*job(folder, output))[0] == 3
    assert (output / "train_shard_00000.bin").read_text() == "mine"


def test_a_foreign_shard_is_refused_before_a_finished_output_is_reopened(
    folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    make_shorter(folder, output)
    (output / "train_shard_00000.bin").write_text("mine")
    before = contents(output)
    exit_code, said = run(*job(folder, output))
    assert exit_code == 5
    assert "`train_shard_00000.bin` is not from this job" in said
    assert contents(output) == before
    assert (output / "manifest.json").exists()


def test_a_run_keeps_its_lock_after_it_has_completed_the_commit_of_another(
    folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    first, both = folder / "in" / "a.txt", [folder / "in" / "a.txt", folder / "in" / "b.txt"]
    killed = run("tokenize", first, "-o", output, *FLAGS, fault="intent written")
    assert killed[0] == -signal.SIGKILL
    journal = output / ".penstok" / "tasks" / "00000.jsonl"
    killed_at = journal.stat().st_mtime_ns
    process = start("tokenize", *both, "-o", output, *FLAGS, "-j", "1")
    # Only who holds the lock completes the commit; before that, the other run might take it.
    wait_for(lambda: not (output / ".penstok" / "intent.json").exists())
    # The journal of the killed run is there; the one to wait for is that of the reopened job.
    wait_for(lambda: journal.exists() and journal.stat().st_mtime_ns != killed_at)
    assert (output / ".penstok" / "lock").exists() or process.poll() is not None
    exit_code, said = run("tokenize", *both, "-o", output, *FLAGS)
    assert exit_code in (0, 7), said
    assert process.communicate(timeout=120)[1] is not None
    assert process.returncode == 0
    assert contents(output) == fresh_of(folder, both)


def test_other_piped_text_is_not_taken_for_a_committed_job(folder: Path, tmp_path: Path) -> None:
    output, more = tmp_path / "out", tmp_path / "more.txt"
    more.write_bytes((folder / "in" / "a.txt").read_bytes() + b"and more")
    command = ("tokenize", "-", "-o", output, *FLAGS)
    killed = run(*command, fault="intent written", stdin=folder / "in" / "a.txt")
    assert killed[0] == -signal.SIGKILL
    assert run(*command, stdin=more)[0] == 5
    exit_code, said = run(*command, "--overwrite", stdin=more)
    assert exit_code == 0, said
    assert contents(output) == fresh_of(folder, [more])
