"""A repair that is killed anywhere is finished by the next, with the original bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import penstok as library
from penstok.output.layout import WORK
from penstok.output.store.lock import take_lock

pytestmark = [pytest.mark.crash, pytest.mark.slow]

# The program with units of 200 kB instead of 16 MiB.
SMALL_UNITS = """
import sys, penstok.jobs.settings as s
from penstok.cli import main
defaults = s.JobSettings.__init__.__kwdefaults__
defaults["unit_bytes"], defaults["block_bytes"] = 200_000, 50_000
sys.argv[0] = "penstok"
main()
"""
# Every place at which a repair can be killed and something would be half.
FAULTS = [
    "one damaged file taken aside",
    "one damaged file taken aside:2",
    "small file written:2",
    "small file written",
    "worker wrote some tokens",
    "worker wrote some tokens:3",
    "damaged units written",
    "one file repaired",
    "one file repaired:2",
]


def penstok(*arguments: str | Path, fault: str = "", shell: str = "") -> tuple[int, str]:
    """Run the program; return its exit code and all it said."""
    command = [sys.executable, "-c", SMALL_UNITS, *map(str, arguments)]
    if shell:
        command = ["sh", "-c", f'{shell}; exec "$@"', "sh", *command]
    environment = {**os.environ, "PENSTOK_FAULT": fault}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    documents = (f"document {idx}: " + f"word {idx % 97} " * 300 for idx in range(700))
    (folder / "corpus.txt").write_text("<|endoftext|>".join(documents))
    (folder / "picture.txt").write_bytes(b"\x89PNG")
    inputs = [folder / "corpus.txt", folder / "picture.txt"]
    flags = ["--val-fraction", "0.2", "--on-error", "skip", "-j", "1"]
    code, said = penstok("tokenize", *inputs, "-o", folder / "out", *flags)
    assert code == 3, said
    return folder


@pytest.fixture
def output(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "out", tmp_path / "out"))


def damage_all(output: Path) -> None:
    """Flip bytes of train, shorten val, lose manifest and list."""
    with (output / "train.bin").open("r+b") as file:
        for place in (5_000, 600_001):
            file.seek(place)
            file.write(b"\xa5\x5a\xa5")
    os.truncate(output / "val.bin", 70_001)
    (output / "manifest.json").unlink()
    (output / "skipped.jsonl").unlink()


def lose_lines(output: Path) -> None:
    path = output / "segments.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"{}\n", *lines[4:-3], *lines[-2:]]))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_killed_repair_is_finished_by_the_next(made: Path, output: Path, fault: str) -> None:
    damage_all(output)
    code, said = penstok("verify", output, "--repair", "-j", "1", fault=fault)
    # A worker that is killed is replaced; one that is killed again stops the repair.
    assert code == (1 if fault.startswith("worker") else -signal.SIGKILL), said
    for name in ("train.bin", "val.bin"):
        if (output / name).exists() and fault != "one damaged file taken aside":
            assert (output / name).read_bytes() == (made / "out" / name).read_bytes()
    assert not library.verify(output).is_whole
    code, said = penstok("verify", output, "--repair", "-j", "1")
    assert code == 0, said
    assert contents(output) == contents(made / "out")
    assert not (output / WORK).exists()


def test_a_repair_killed_before_its_mark_goes_is_finished(made: Path, output: Path) -> None:
    (output / WORK).mkdir()
    (output / WORK / "repairing").touch()
    (output / "train.bin").rename(output / WORK / "train.bin.partial")
    code, said = penstok("verify", output, "--repair", "--json")
    assert code == 0, said
    # What was mended before the kill is not mended again.
    assert '"units_repaired": 0' in said
    assert contents(output) == contents(made / "out")


def test_a_killed_rebuild_of_the_ledger_is_finished_by_the_next(made: Path, output: Path) -> None:
    lose_lines(output)
    damaged = contents(output)
    fault = "small file written"
    code, said = penstok("verify", output, "--repair", "-j", "1", fault=fault)
    assert code == -signal.SIGKILL, said
    assert contents(output) == damaged
    with (output / "train.bin").open("r+b") as file:
        file.write(b"\x01\x02")
    code, said = penstok("verify", output, "--repair", "-j", "1")
    assert code == 0, said
    assert "segments.jsonl, train.bin" in said
    assert contents(output) == contents(made / "out")


def test_random_kills_of_a_repair_lose_nothing(made: Path, output: Path) -> None:
    damage_all(output)
    chance = random.Random(5)
    command = [sys.executable, "-c", SMALL_UNITS, "verify", str(output), "--repair", "-j", "2"]
    for _ in range(4):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(0.4 + chance.random())
        process.kill()
        process.wait()
    code, said = penstok("verify", output, "--repair", "--full")
    assert code == 0, said
    assert contents(output) == contents(made / "out")


def test_a_full_disk_stops_a_repair_that_the_next_finishes(made: Path, output: Path) -> None:
    (output / "train.bin").unlink()
    code, said = penstok("verify", output, "--repair", "-j", "1", shell="ulimit -f 512")
    assert code == 8, said
    assert "raise the limit with `ulimit -f unlimited`" in said
    assert not (output / "train.bin").exists()
    code, said = penstok("verify", output, "--repair", "-j", "1")
    assert code == 0, said
    assert contents(output) == contents(made / "out")


def test_a_repair_waits_for_no_other_run(output: Path) -> None:
    lock = take_lock(output / WORK / "lock")
    code, said = penstok("verify", output, "--repair")
    assert code == 7, said
    assert penstok("verify", output, "--full")[0] == 0  # Looking needs no lock.
    os.close(lock)


def test_a_repair_keeps_out_of_a_job_that_goes_on(made: Path, output: Path) -> None:
    with (output / "train.bin").open("r+b") as file:
        file.write(b"\x01\x02")
    flags = ["-o", str(output), "-j", "1", "--overwrite", "--seed", "9"]
    fault = "journal on disk:2"
    code, said = penstok("tokenize", made / "corpus.txt", *flags, fault=fault)
    assert code == -signal.SIGKILL, said
    partial = (output / WORK / "tasks" / "00000" / "train.bin.partial").read_bytes()
    code, said = penstok("verify", output, "--repair")
    assert code == 5, said
    assert "unfinished" in said
    assert (output / WORK / "tasks" / "00000" / "train.bin.partial").read_bytes() == partial
    assert penstok("verify", output, "--full")[0] == 6


def test_an_unfinished_job_is_no_pass_and_says_what_to_type(made: Path, tmp_path: Path) -> None:
    for fault in ("journal on disk:2", "one file published:3"):
        output = tmp_path / fault[:10]
        flags = ["-o", str(output), "-j", "1"]
        code, said = penstok("tokenize", made / "corpus.txt", *flags, fault=fault)
        assert code == -signal.SIGKILL, said
        for repair in ([], ["--repair"]):
            code, said = penstok("verify", output, *repair)
            assert code == 6, said
            assert "run the command that was started here again" in said


def test_a_rerun_that_notices_damage_names_a_command_that_works(made: Path, output: Path) -> None:
    os.truncate(output / "train.bin", 100)
    inputs = [made / "corpus.txt", made / "picture.txt"]
    flags = ["--val-fraction", "0.2", "--on-error", "skip"]
    code, said = penstok("tokenize", *inputs, "-o", output, *flags)
    assert code == 5
    (command,) = [part for part in said.split("`") if part.startswith("penstok verify")]
    code, said = penstok(*command.split()[1:])
    assert code == 0, said
    code, said = penstok("tokenize", *inputs, "-o", output, *flags)
    assert "nothing to do" in said


def test_findings_as_json_lines(output: Path) -> None:
    damage_all(output)
    code, said = penstok("verify", output, "--full", "--json", "-q")
    assert code == 6
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    *findings, summary = [line for line in lines if line["type"] != "status"]
    assert {line["type"] for line in findings} == {"finding"}
    kinds = {"manifest", "skipped", "file", "tokens", "index"}
    assert {line["kind"] for line in findings} == kinds
    assert summary["type"] == "summary"
    assert summary["findings"] == len(findings)
    assert not summary["is_whole"]
    assert summary["exit_code"] == 6
    (first, *_) = [line for line in findings if line["kind"] == "tokens"]
    assert first["input"].endswith("corpus.txt")
    assert first["start"] <= 5_000 < first["end"]


def test_text_from_a_ledger_reaches_no_terminal_unescaped(tmp_path: Path) -> None:
    name = tmp_path / "a\x1b[31mred\nline.txt"
    name.write_text("some words " * 30)
    assert penstok("tokenize", name, "-o", tmp_path / "out")[0] == 0
    with (tmp_path / "out" / "train.bin").open("r+b") as file:
        file.write(b"\x00\x00")
    code, said = penstok("verify", tmp_path / "out")
    assert code == 6
    assert "\\x1b[31mred" in said
    assert "\x1b" not in said


def test_a_long_list_is_cut_and_counted(tmp_path: Path) -> None:
    for idx in range(60):
        (tmp_path / f"{idx}.txt").write_text(f"document {idx}")
    inputs = sorted(tmp_path.glob("*.txt"))
    assert penstok("tokenize", *inputs, "-o", tmp_path / "out", "--val-fraction", "0")[0] == 0
    size = (tmp_path / "out" / "train.bin").stat().st_size
    (tmp_path / "out" / "train.bin").write_bytes(bytes(size))
    code, said = penstok("verify", tmp_path / "out", "--full")
    assert code == 6
    assert said.count("unit ") == 20
    assert "and 40 more" in said


def test_finish_leaves_files_that_are_being_repaired(made: Path, output: Path) -> None:
    with (output / "train.bin").open("r+b") as file:
        file.write(b"\x01\x02")
    fault = "one damaged file taken aside"
    code, said = penstok("verify", output, "--repair", "-j", "1", fault=fault)
    assert code == -signal.SIGKILL, said
    penstok("finish", output)
    assert penstok("verify", output, "--repair", "-j", "1")[0] == 0
    assert contents(output) == contents(made / "out")
