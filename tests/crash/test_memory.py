"""The memory of the whole process tree stays within `--memory`, whatever the text."""

from __future__ import annotations

import random
import string
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import watch_peak
from specs import worker_spec
from support import few

from penstok.errors import EngineError
from penstok.executors.processes import ProcessExecutor
from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.output.offsets import Offsets
from penstok.output.store.folder import FolderStore
from penstok.quantities import parse_bytes
from penstok.types import FinishedUnit
from penstok.worker.memory import MemoryShare

pytestmark = [pytest.mark.cold, pytest.mark.slow]


def run(path: Path, output: Path, *flags: str) -> int:
    command = [sys.executable, "-m", "penstok", "tokenize", str(path), "-o", str(output), "-q"]
    process = subprocess.Popen([*command, *flags])
    peak = watch_peak(process)
    assert process.returncode == 0
    return peak


def unique_words(size: int) -> str:
    chance = random.Random(1)
    words = ("".join(chance.choices(string.ascii_letters, k=9)) for _ in range(size // 10))
    return " ".join(words)


def random_han(size: int) -> str:
    chance = random.Random(2)
    return "".join(map(chr, chance.choices(range(0x4E00, 0x9FFF), k=size // 3)))


@pytest.mark.parametrize(
    ("make_text", "size", "flags"),
    few(
        [
            (random_han, 12_000_000, []),
            (lambda size: "x\n" * (size // 2), 4_000_000, ["--docs-by", "line"]),
            (lambda size: "a" * size, 6_000_000, ["--engine", "fastokens", "--memory", "512MiB"]),
            (lambda size: "a" * size, 12_000_000, []),
            (unique_words, 40_000_000, []),
            (unique_words, 24_000_000, ["--memory", "300MiB"]),
            (unique_words, 24_000_000, ["--engine", "fastokens"]),
            (unique_words, 24_000_000, ["--engine", "fastokens", "--memory", "512MiB"]),
        ],
        3,
    ),
    ids=[
        *("random Han", "one-letter lines", "fastokens, one word", "one word", "unique words"),
        *("little memory", "fastokens", "fastokens, little memory"),
    ],
)
def test_memory_holds(
    tmp_path: Path, make_text: Callable[[int], str], size: int, flags: list[str]
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(make_text(size), encoding="utf-8")
    limit = parse_bytes(dict(pairwise(flags)).get("--memory", "1GiB"), "--memory")
    assert run(path, tmp_path / "out", *flags) < limit


def test_memory_holds_if_long_texts_repeat(tmp_path: Path) -> None:
    """A dictionary stores each text once: a unit can be far longer than anybody could foresee."""
    texts = [unique_words(120_000) + str(number) for number in range(30)] * 100
    path = tmp_path / "text.parquet"
    options = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 24}
    pq.write_table(pa.table({"text": texts}), path, **options)
    assert run(path, tmp_path / "out", "-j", "1", "--memory", "440MiB") < 440 << 20


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_memory_holds_if_pages_are_large(tmp_path: Path, use_dictionary: bool) -> None:
    """pyarrow ends a page after 1,024 rows at the earliest, and compresses it with snappy."""
    text = unique_words(120_000)
    texts = [f"{number} {text}" for number in range(1000)]
    path = tmp_path / "text.parquet"
    pq.write_table(pa.table({"text": texts}), path, use_dictionary=use_dictionary)
    assert run(path, tmp_path / "out", "-j", "1", "--memory", "440MiB") < 200 << 20


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    text = unique_words(48_000_000)
    peaks = []
    for size in (len(text) // 3, len(text)):
        path = tmp_path / f"{size}.txt"
        path.write_text(text[:size])
        peaks.append(run(path, tmp_path / f"out{size}", "-j", "1"))
    # The engine's word cache fills within the first unit; after that nothing may grow.
    assert peaks[1] < peaks[0] * 1.15


@pytest.mark.thorough
@pytest.mark.parametrize("eot", ["append", "none"])
def test_memory_does_not_grow_with_the_number_of_documents(tmp_path: Path, eot: str) -> None:
    peaks = []
    # Both are more than one unit.
    for num_lines in (10_000_000, 30_000_000):
        path = tmp_path / f"{num_lines}.txt"
        path.write_text("x\n" * num_lines)
        output = tmp_path / f"out{num_lines}"
        flags = ("--docs-by", "line", "--eot", eot, "-j", "1", "--val-fraction", "0")
        peaks.append(run(path, output, *flags))
        assert (output / "train_documents.npy").stat().st_size == 128 + 8 * (num_lines + 1)
    assert peaks[1] < 1.1 * peaks[0]


def run_with_share(path: Path, output: Path, limit_bytes: int) -> tuple[list[FinishedUnit], int]:
    """Run fastokens, whose caches grow, in small units with a share as given."""
    job = JobSettings(
        inputs=(str(path),),
        output=output,
        val_fraction=0.1,
        unit_bytes=500_000,
        block_bytes=100_000,
    )
    plan = make_plan(job)
    share = MemoryShare(limit_bytes, block_bytes=0)
    spec = worker_spec(job, "fastokens", share=share, give_back=True)
    offsets = Offsets()
    with FolderStore(spec.layout.folder).lock() as lock:
        executor = ProcessExecutor(
            spec,
            num_workers=2,
            batch_bytes=job.unit_bytes,
            priority="low",
            lock_file=lock.file,
        )
        with executor:
            finished = list(executor.run(plan.iter_units(), offsets, lambda: None))
    return finished, executor.num_replaced


@pytest.mark.thorough
def test_workers_that_are_full_are_replaced_and_nothing_differs(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(unique_words(16_000_000))
    unlimited, num_replaced = run_with_share(path, tmp_path / "out", 1 << 40)
    assert num_replaced == 0
    # What an engine starts with differs from machine to machine: find a share that just fits it.
    for limit_mib in range(120, 400, 20):
        try:
            finished, num_replaced = run_with_share(path, tmp_path / "out", limit_mib << 20)
        except EngineError as error:
            assert "needs too much memory" in str(error)  # noqa: PT017 the loop goes on
            continue
        break
    else:
        pytest.fail("no share fits")
    assert num_replaced >= 1
    assert finished == unlimited
