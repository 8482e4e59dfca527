"""Who is compared: how each is started, and what is read from its report."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpora import Text

PLAIN = "plain script"
GIGATOKEN = "gigatoken in memory"
FASTOKENS = "fastokens in memory"
KERNEL = "kernel in memory"
PORTABLE = "kernel, portable"
ONE_WORKER = "penstok -j 1"
TWO_WORKERS = "penstok -j 2"
FASTOKENS_WORKER = "penstok -j 1, fastokens"
# The same with no more cores than workers: what parent and readers do is not done beside them.
ONE_CORE = "penstok, one core"
TWO_CORES = "penstok, two cores"

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Run:
    """One contender on one text, once."""

    contender: str
    text: str
    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    num_tokens: int
    # The engine's calls alone, where a contender has nothing else to do.
    encode_cpu_seconds: float | None
    # Of the files written, where a contender reports them.
    digests: list[str]


def run_contender(name: str, text: Text, folder: Path) -> Run:
    """Run a contender in a fresh process; what it writes is deleted afterwards."""
    output = folder / "output"
    output.mkdir()
    try:
        measurement = measure(_COMMANDS[name](text.path, output), _NUM_CORES.get(name))
    finally:
        shutil.rmtree(output)
    report = measurement.report
    return Run(
        contender=name,
        text=text.name,
        cpu_seconds=measurement.cpu_seconds,
        wall_seconds=measurement.wall_seconds,
        peak_bytes=measurement.peak_bytes,
        num_tokens=_count_tokens(report),
        encode_cpu_seconds=report.get("encode_cpu_seconds"),
        digests=[file["digest"] for file in _files(report)],
    )


def _count_tokens(report: dict[str, Any]) -> int:
    files = _files(report)
    return sum(file["tokens"] for file in files) if files else int(report["tokens"])


def _files(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [file for split in report.get("splits", {}).values() for file in split["files"]]


def _plain(text: Path, output: Path) -> list[str]:
    return [sys.executable, str(_HERE / "plain_script.py"), str(text), str(output / "train.bin")]


def _in_memory(engine: str) -> Callable[[Path, Path], list[str]]:
    def command(text: Path, output: Path) -> list[str]:
        return [sys.executable, str(_HERE / "in_memory.py"), engine, str(text)]

    return command


def _penstok(num_workers: int, engine: str = "auto") -> Callable[[Path, Path], list[str]]:
    def command(text: Path, output: Path) -> list[str]:
        job = ["tokenize", str(text), "-o", str(output / "tokens"), "-j", str(num_workers)]
        job += ["--engine", engine]
        manners = ["--priority", "normal", "--no-progress", "--json"]
        return [sys.executable, "-m", "penstok", *job, *manners]

    return command


_COMMANDS: dict[str, Callable[[Path, Path], list[str]]] = {
    PLAIN: _plain,
    GIGATOKEN: _in_memory("gigatoken"),
    FASTOKENS: _in_memory("fastokens"),
    KERNEL: _in_memory("kernel"),
    PORTABLE: _in_memory("portable"),
    FASTOKENS_WORKER: _penstok(1, "fastokens"),
    ONE_WORKER: _penstok(1),
    TWO_WORKERS: _penstok(2),
    ONE_CORE: _penstok(1),
    TWO_CORES: _penstok(2),
}
_NUM_CORES = {ONE_CORE: 1, TWO_CORES: 2}
CONTENDERS = tuple(name for name in _COMMANDS if name not in _NUM_CORES)
