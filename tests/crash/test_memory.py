"""The memory of the whole process tree stays within `--memory`, whatever the text."""

from __future__ import annotations

import random
import string
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow


def peak_bytes(process: subprocess.Popen[bytes]) -> int:
    """Watch a process and its children until it ends; return their largest sum."""
    peak = 0
    root = psutil.Process(process.pid)
    while process.poll() is None:
        total = 0
        try:
            for one in [root, *root.children(recursive=True)]:
                total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        peak = max(peak, total)
        time.sleep(0.02)
    assert process.returncode == 0
    return peak


def run(path: Path, output: Path, *flags: str) -> int:
    command = [sys.executable, "-m", "penstock", "tokenize", str(path), "-o", str(output), "-q"]
    return peak_bytes(subprocess.Popen([*command, *flags]))


def unique_words(size: int) -> str:
    chance = random.Random(1)
    words = ("".join(chance.choices(string.ascii_letters, k=9)) for _ in range(size // 10))
    return " ".join(words)


def random_han(size: int) -> str:
    chance = random.Random(2)
    return "".join(map(chr, chance.choices(range(0x4E00, 0x9FFF), k=size // 3)))


@pytest.mark.parametrize(
    ("make_text", "size", "flags"),
    [
        (unique_words, 40_000_000, []),
        (random_han, 12_000_000, []),
        (lambda size: "a" * size, 12_000_000, []),
        (lambda size: "x\n" * (size // 2), 4_000_000, ["--docs-by", "line"]),
        (unique_words, 24_000_000, ["--memory", "512MiB"]),
    ],
    ids=["unique words", "random Han", "one word", "one-letter lines", "little memory"],
)
def test_memory_holds(
    tmp_path: Path, make_text: Callable[[int], str], size: int, flags: list[str]
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(make_text(size), encoding="utf-8")
    limit = 512 << 20 if "512MiB" in flags else 1 << 30
    assert run(path, tmp_path / "out", *flags) < limit


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    text = unique_words(48_000_000)
    peaks = []
    for size in (len(text) // 3, len(text)):
        path = tmp_path / f"{size}.txt"
        path.write_text(text[:size])
        peaks.append(run(path, tmp_path / f"out{size}", "-j", "1"))
    # The engine's word cache fills within the first unit; after that nothing may grow.
    assert peaks[1] < peaks[0] * 1.15
