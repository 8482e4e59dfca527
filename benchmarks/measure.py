"""One command in a fresh process: its CPU time, wall time and peak memory, children included."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_SAMPLE_SECONDS = 0.05
# Finding children means looking at every process of the machine, so it is done less often: twice
# a second is soon enough to see a new worker grow.
_SAMPLES_PER_SEARCH = 10
_SHOWN_ERROR_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a command used, and the last line of its output."""

    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    report: dict[str, Any]


def measure(command: list[str], num_cores: int | None = None) -> Measurement:
    """Run a command to its end; its last line on standard output must be a JSON object.

    Args:
        command: What to run.
        num_cores: How many cores it and its children have, where the system can say so; all of
            them if this is None.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        with limited_cores(num_cores):
            process = subprocess.Popen(command, stdout=output, stderr=errors, env=_environment())
        with process, _PeakWatch(process.pid) as watch:
            # The times cover every descendant that was waited for, which Penstok does.
            _, status, usage = os.wait4(process.pid, 0)
            wall_seconds = time.perf_counter() - started
            process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if process.returncode != 0:
            message = errors.read().decode(errors="replace")[-_SHOWN_ERROR_CHARACTERS:]
            raise SystemExit(f"error: exit {process.returncode} from {command}\n{message}")
        output.seek(0)
        report = json.loads(output.read().splitlines()[-1])
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Measurement(cpu_seconds, wall_seconds, watch.peak_bytes, report)


@contextmanager
def limited_cores(num_cores: int | None) -> Iterator[None]:
    """Use this many cores only; threads and processes that are started here stay there too."""
    cores = os.sched_getaffinity(0) if num_cores and hasattr(os, "sched_getaffinity") else set()
    if cores:
        os.sched_setaffinity(0, sorted(cores)[:num_cores])
    try:
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, cores)


def _environment() -> dict[str, str]:
    """Leave out variables that would change the flags of `penstok`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOK_")}


class _PeakWatch:
    """Samples the resident memory of a process and its descendants; use it in a `with`.

    The sum counts pages that processes share once for each, so it is never too low for that.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _PeakWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        tree: list[Any] = []
        for sample in count():
            if sample % _SAMPLES_PER_SEARCH == 0:
                tree = _find_tree(self._pid)
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, tree)))
            if self._ended.wait(_SAMPLE_SECONDS):
                return


def _find_tree(pid: int) -> list[Any]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident_bytes(process: Any) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
