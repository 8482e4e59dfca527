"""Runs of the real program with small units, for the tests that kill it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
from warm import children_of

# A process that exists no more, or only until somebody asks for its exit code.
ENDED = "ended"

# The program with units of 200 kB instead of 16 MiB, so that a few megabytes keep workers busy, and
# a checkpoint after every unit instead of every second, so that a machine of any speed reaches the
# same fault points. With TEST_PAUSE it stops at its fault point until it gets SIGCONT. With
# TEST_BY_TASK a job in a folder is divided into tasks, as on a cluster, and this machine does them.
# With TEST_SLOW_FOLDER every other call about a file in that folder waits up to 20 ms before, as if
# the folder were far away: what runs at once then meets between any two calls.
SMALL_UNITS = """
import io, os, random, signal, sys, time, penstok.faults, penstok.jobs.settings as s
import penstok.output.ledger.journal as journal, penstok.verification.ledger_repair as r
from penstok.cli import main
journal._SYNC_BYTES = journal._MAX_UNSYNCED_BYTES = 1
defaults = s.JobSettings.__init__.__kwdefaults__
defaults["unit_bytes"] = r.DEFAULT_UNIT_BYTES = int(os.environ.get("TEST_UNIT_BYTES", 200_000))
defaults["block_bytes"] = 50_000
if os.environ.get("TEST_PAUSE"):
    penstok.faults._SIGNAL = signal.SIGSTOP
if os.environ.get("TEST_BY_TASK"):
    s.JobSettings.is_by_task = property(lambda self: True)
def slowed(call):
    def wait_and_call(*given, **named):
        names = [each for each in given if isinstance(each, (str, os.PathLike))]
        if any(slow in os.fspath(name) for name in names) and random.random() < 0.5:
            time.sleep(random.random() * 0.02)
        return call(*given, **named)
    return wait_and_call
if slow := os.environ.get("TEST_SLOW_FOLDER"):
    calls = "stat lstat mkdir open rename replace link unlink rmdir listdir scandir"
    for name in calls.split():
        setattr(os, name, slowed(getattr(os, name)))
    io.open = slowed(io.open)
sys.argv[0] = "penstok"
main()
"""


def write_corpus(path: Path, num_documents: int) -> Path:
    """Write some 2 kB a document."""
    documents = (f"document {idx}: " + "word " * 400 for idx in range(num_documents))
    path.write_text("<|endoftext|>".join(documents))
    return path


def command_line(*arguments: str | Path) -> list[str]:
    command = [sys.executable, "-c", SMALL_UNITS, *map(str, arguments)]
    return [*command, "--engine", "tiktoken"] if arguments[0] == "tokenize" else command


def start(
    *arguments: str | Path,
    fault: str = "",
    stdin: Path | None = None,
    pauses: bool = False,
    slow_folder: Path | None = None,
) -> subprocess.Popen[str]:
    """Start it; `stdin` is piped in, as another program would. At the fault it dies or pauses."""
    faults = {"PENSTOK_FAULT": fault, "TEST_PAUSE": "1" if pauses else ""}
    faults["TEST_SLOW_FOLDER"] = str(slow_folder or "")
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            command_line(*arguments),
            stdin=reading,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **faults},
        )
    finally:
        os.close(reading)
    Thread(target=_pour, args=(stdin, writing), daemon=True).start()
    return process


def _pour(path: Path | None, file: int) -> None:
    with open(file, "wb") as pipe, contextlib.suppress(BrokenPipeError):
        if path is not None:
            with path.open("rb") as source:
                shutil.copyfileobj(source, pipe)


def run(*arguments: str | Path, fault: str = "", stdin: Path | None = None) -> tuple[int, str]:
    """Run to the end; return the exit code and what was said."""
    process = start(*arguments, fault=fault, stdin=stdin)
    _, said = process.communicate(timeout=120)
    assert "Traceback" not in said, said
    return process.returncode, said


def start_paused(*arguments: str | Path, fault: str) -> subprocess.Popen[str]:
    """Start it and wait until it has stopped at a fault point; `process.send_signal(SIGCONT)`."""
    process = start(*arguments, fault=fault, pauses=True)
    wait_until_paused(process)
    return process


def wait_until_paused(process: subprocess.Popen[str]) -> None:
    """Wait until SIGSTOP has reached a process, or it has ended."""
    ends = (psutil.STATUS_STOPPED, ENDED)
    wait_for(lambda: process.poll() is not None or status_of(process.pid) in ends)


def status_of(pid: int) -> str:
    """Return what a process does, as `psutil` names it; `ENDED` if that is nothing any more."""
    try:
        status = str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        status = ENDED
    return ENDED if status == psutil.STATUS_ZOMBIE else status


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the worker processes of a running job."""
    return children_of(process.pid)


def watch_peak(process: subprocess.Popen[Any]) -> int:
    """Watch a process and its children until it ends; return the largest sum of their peaks.

    What a process has for some milliseconds only would be seen in some runs, and not in others.
    """
    peak = 0
    root = psutil.Process(process.pid)
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            peak = max(peak, sum(map(own_peak, [root, *root.children(recursive=True)])))
        time.sleep(0.02)
    return peak


def own_peak(process: psutil.Process) -> int:
    """Return the most memory that a process has had; what it has now where that is not known."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return int(process.memory_info().rss)
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) << 10 if found is not None else 0


def token_files(output: Path) -> dict[str, bytes]:
    """Return the token files of a job, without what is beside them."""
    return {path.name: path.read_bytes() for path in sorted(output.glob("*.bin"))}


def contents(output: Path) -> dict[str, bytes]:
    """Return all that a job made which depends on inputs and settings alone."""
    paths = [*output.glob("*.bin"), *output.glob("*_documents.npy")]
    return {path.name: path.read_bytes() for path in sorted(paths)}
