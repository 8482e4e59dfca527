"""The one way of measuring: contenders take turns, in steps as short as they have.

A contender is a whole command, which is one step, or an engine in a process of its own that
encodes one block of text per request. It computes no figures; `figures` does that
from the usage of every contender in every turn. `contenders` says who they are.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING, Any, Protocol

import psutil
from usage import Usage, from_rusage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from corpora import Text

_ENGINES = Path(__file__).resolve().with_name("engines.py")
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_SAMPLE_SECONDS = 0.01  # a command on 100 MB takes a third of a second, its worker less
_SHOWN_ERROR_CHARACTERS = 2000
_NOT_PASSED_ON = ("PYTHONDONTWRITEBYTECODE",)


class Contender(Protocol):
    """Somebody who takes part in turns.

    Attributes:
        name: Who it is.
        text: The name of the text it works on.
        steps: The steps of a turn in which it takes part.
    """

    name: str
    text: str
    steps: range

    def start_turn(self) -> None:
        """Forget everything that was seen in earlier turns; this is not measured."""

    def run(self, step: int) -> Usage:
        """Do one step and return what it used."""


Samples = dict[tuple[str, str], list[Usage]]


# With fewer turns an interval says nothing.
LEAST_TURNS = 5


@dataclass(frozen=True, slots=True)
class Effort:
    """How many turns are taken: five at least, and then as many as are wanted or there is time for.

    Attributes:
        max_seconds: The time that they may take.
        num_turns: How many are wanted, if they are long.
        max_turns: At most so many are taken of short ones.
        work_seconds: They are long enough if any two contenders work for so long together.
    """

    max_seconds: float
    num_turns: int = 10
    max_turns: int = 20
    work_seconds: float = 5.0

    def is_enough(self, samples: Samples, elapsed_seconds: float) -> bool:
        """Tell whether the turns taken so far are enough."""
        num_turns = min(map(len, samples.values()))
        if num_turns < LEAST_TURNS:
            return False
        work = sorted(sum(used.cpu_seconds for used in turns) for turns in samples.values())
        is_long = num_turns >= self.num_turns and sum(work[:2]) >= self.work_seconds
        return is_long or num_turns >= self.max_turns or elapsed_seconds >= self.max_seconds


def take_turns(
    contenders: Sequence[Contender], effort: Effort, say: Callable[[str], None]
) -> Samples:
    """Let contenders alternate step by step, in another order each time.

    So a busy moment of the machine hits all of them, and none always follows the same one.
    """
    samples: Samples = {(each.name, each.text): [] for each in contenders}
    started = time.perf_counter()
    for turn in count():
        for each in contenders:
            each.start_turn()
        totals = dict.fromkeys(samples, Usage())
        for step in range(max(each.steps.stop for each in contenders)):
            for each in rotated(contenders, turn + step):
                if step in each.steps:
                    totals[each.name, each.text] += each.run(step)
        for key, usage in totals.items():
            samples[key].append(usage)
        say(f"turn {turn + 1}")
        if effort.is_enough(samples, time.perf_counter() - started):
            break
    return samples


def rotated(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """Return all of them in another order for each number: begun elsewhere, or backwards."""
    backwards, begin = number % 2, number // 2 % len(contenders)
    order = [*contenders[begin:], *contenders[:begin]]
    return order[::-1] if backwards else order


@dataclass(slots=True)
class Command:
    """A command in a fresh process, or several at once; its whole process tree is measured.

    Attributes:
        commands: What is run, all at the same time; OUTPUT in a word is replaced by a new folder.
            The last line of standard output must be a JSON object, unless there is no text.
        num_bytes: The size of the text.
        num_cores: How many cores it has; all if this is None.
        is_self_timed: It reports what a part of it used, and only that counts.
        digests: Of all files that were reported, for every run.
    """

    name: str
    text: str
    commands: list[list[str]]
    num_bytes: int = 0
    num_cores: int | None = None
    is_self_timed: bool = False
    steps: range = range(1)
    digests: set[tuple[str, ...]] = field(default_factory=set)
    forced_cuts: int = 0

    def start_turn(self) -> None:
        """Every run is a fresh process."""

    def run(self, step: int) -> Usage:
        """Run it to its end; what it writes is deleted afterwards."""
        return self._run()[0]

    def peak_bytes(self) -> int:
        """Run it once more, watched, and return the most memory that all its processes had."""
        return self._run(is_watched=True)[1]

    def _run(self, *, is_watched: bool = False) -> tuple[Usage, int]:
        with (
            tempfile.TemporaryDirectory(prefix="penstok-bench-output-") as output,
            adopted_orphans(),
        ):
            commands = [
                [word.replace("OUTPUT", output) for word in command] for command in self.commands
            ]
            started = time.perf_counter()
            with limited_cores(self.num_cores):
                running = [
                    _Process(command, Path(output, f"report-{number}"))
                    for number, command in enumerate(commands)
                ]
            with _PeakWatch([each.pid for each in running], is_watched=is_watched) as watch:
                usage = Usage()
                for each in running:
                    usage += each.wait()
                wall_seconds = time.perf_counter() - started
            reports = [each.read_report() for each in running] if self.num_bytes else []
        whole = replace(usage, wall_seconds=wall_seconds, num_bytes=self.num_bytes)
        return self._with_reports(whole, reports), watch.peak_bytes

    def _with_reports(self, usage: Usage, reports: list[dict[str, Any]]) -> Usage:
        files = [
            file
            for report in reports
            for split in report.get("splits", {}).values()
            for file in split["files"]
        ]
        if files:
            self.digests.add(tuple(file["digest"] for file in files))
            self.forced_cuts += reports[0]["counts"]["forced_cuts"]
        num_tokens = sum(file["tokens"] for file in files) if files else 0
        num_tokens += sum(report.get("tokens", 0) for report in reports)
        if self.is_self_timed:
            usage = Usage(*reports[0]["usage"])
        return replace(usage, num_tokens=num_tokens)


class EngineProcess:
    """An engine alone, pinned to one core: text in memory, in blocks, nothing written."""

    def __init__(
        self, name: str, engine: str, text: Text, tokenizer: str = "gpt2", stride: int = 1
    ) -> None:
        """Load the text; with a stride, every so many blocks only, for a slow engine."""
        self.name, self.text = name, text.name
        self._process = subprocess.Popen(
            [sys.executable, str(_ENGINES), engine, str(text.path), tokenizer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
        )
        self.steps = range(0, int(self._ask("blocks")), stride)

    def start_turn(self) -> None:
        """Make a new engine, which has seen no text."""
        self._ask("load")

    def run(self, step: int) -> Usage:
        """Encode one block."""
        return Usage(*self._ask(str(step)))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, request: str) -> Any:
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("the engine was started without pipes")
        try:
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            code = self._process.wait()
            raise SystemExit(f"error: exit {code} from engine {self.name}") from None


@contextmanager
def adopted_orphans() -> Iterator[None]:
    """Be the parent of processes whose parent ends first, so that they are measured too.

    A fork server outlives the command that started it, for a moment; nobody else waits for it.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: 0
    prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SUBREAPER, 0, 0, 0, 0)


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


class _Process:
    """A running command, in a process group of its own."""

    def __init__(self, command: list[str], report: Path) -> None:
        self._command, self._report, self._errors = command, report, report.with_suffix(".errors")
        with self._report.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=_environment(),
                start_new_session=True,
            )
        self.pid = self._process.pid

    def wait(self) -> Usage:
        """Wait for all processes of the group: first the command, then any that outlive it."""
        usage = Usage()
        pid = self.pid
        try:
            while True:
                ended, status, used = os.wait4(pid, 0)
                usage += from_rusage(used, 0.0, 0, 0)
                if ended == self.pid:
                    self._process.returncode = os.waitstatus_to_exitcode(status)
                    pid = -self.pid
        except ChildProcessError:
            pass
        except BaseException:
            os.killpg(self.pid, SIGKILL)
            raise
        if self._process.returncode != 0:
            shown = " ".join(self._command)
            message = self._errors.read_text(errors="replace")[-_SHOWN_ERROR_CHARACTERS:]
            raise SystemExit(f"error: exit {self._process.returncode} from {shown}\n{message}")
        return usage

    def read_report(self) -> dict[str, Any]:
        """Return the last line of the output."""
        report: dict[str, Any] = json.loads(self._report.read_bytes().splitlines()[-1])
        return report


def _environment() -> dict[str, str]:
    """Leave out variables that would change the flags of `penstok`, or recompile its modules."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PENSTOK_") and name not in _NOT_PASSED_ON
    }


class _PeakWatch:
    """Samples the resident memory of processes and their descendants; use it in a `with`.

    The sum counts pages that processes share once for each, so it is never too low for that. It
    takes time itself, so it does not watch the runs that are measured.
    """

    def __init__(self, pids: list[int], *, is_watched: bool) -> None:
        self.peak_bytes = 0
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch) if is_watched else None

    def __enter__(self) -> _PeakWatch:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            tree = [process for pid in self._pids for process in _find_tree(pid)]
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, tree)))


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
