"""Hints about `--task-size`: given where tasks would keep more workers busy, and only there."""

from __future__ import annotations

import random
import re
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compressed import compress

from penstok.errors import UsageError
from penstok.jobs.job import prepare
from penstok.jobs.settings import JobSettings
from penstok.types import Compression, replace

TEXT = random.Random(1).randbytes(700_000).hex("\n", 4).encode()
UNPACKED = random.Random(2).randbytes(1_500_000).hex("\n", 4).encode()
OWN = "every worker reads its own"


@pytest.fixture(autouse=True)
def small_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are worth tasks from 2 MiB on, not from 128 MiB."""
    monkeypatch.setattr("penstok.jobs.task_hints.MIN_TASK_BYTES", 1 << 20)


def hints(folder: Path, **settings: Any) -> str:
    chosen = {"unit_bytes": 1 << 20, "memory_bytes": 4 << 30, **settings}
    with closing(
        prepare(JobSettings(inputs=(str(folder),), output=folder / "out", **chosen))
    ) as job:
        return " ".join(job.hints)


def write_streams(folder: Path, kind: Compression, number: int = 12) -> Path:
    suffix = {"gzip": "gz", "zstd": "zst", "bzip2": "bz2", "xz": "xz"}[kind]
    data = compress(TEXT, kind)
    for idx in range(number):
        (folder / f"{idx}.txt.{suffix}").write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("kind", "workers", "is_given"),
    [
        ("gzip", 3, True),
        ("gzip", 2, False),
        ("zstd", 2, False),
        ("xz", 2, True),
        ("bzip2", 2, True),
    ],
)
def test_tasks_are_suggested_where_one_thread_cannot_feed_the_workers(
    tmp_path: Path, kind: Compression, workers: int, is_given: bool
) -> None:
    """A thread that decompresses gzip feeds two workers, one that decompresses xz not even one."""
    said = hints(write_streams(tmp_path, kind), workers=workers)
    assert (OWN in said) == is_given, said
    assert not is_given or f"`--task-size {4 - workers}MiB`" in said


def test_the_size_gives_each_worker_two_tasks_but_is_not_larger_than_on_a_cluster(
    tmp_path: Path,
) -> None:
    inputs = (str(write_streams(tmp_path, "gzip")),)
    settings = JobSettings(inputs=inputs, output=tmp_path / "out", memory_bytes=4 << 30)
    with closing(prepare(settings)) as job:
        workers = replace(job.workers, number=3)
        for num_files, size, expected in [(4, 100, 64), (20, 9, 30), (110_000, 40, 272)]:
            sources = [replace(job.plan.sources[0], num_bytes=size << 20)] * num_files
            large = replace(job, workers=workers, plan=replace(job.plan, sources=sources))
            assert f"`--task-size {expected}MiB`" in " ".join(large.hints)


def test_tasks_are_not_suggested_where_they_are_refused(tmp_path: Path) -> None:
    folder = write_streams(tmp_path, "gzip")
    assert OWN in hints(folder, workers=3)
    assert OWN not in hints(folder, workers=3, limit_bytes=5 << 20)
    assert OWN not in hints(folder, workers=3, shard_tokens=1 << 20)


def test_tasks_are_not_suggested_for_one_stream_beside_other_files(tmp_path: Path) -> None:
    (tmp_path / "large.txt.gz").write_bytes(compress(UNPACKED * 3, "gzip"))
    for idx in range(6):
        (tmp_path / f"{idx}.txt").write_bytes(UNPACKED)
    assert OWN not in hints(tmp_path, workers=3)


def test_tasks_are_not_suggested_for_members_of_one_compressed_archive(tmp_path: Path) -> None:
    """Each task would decompress the archive from its start."""
    members = tmp_path / "members"
    members.mkdir()
    folder = tmp_path / "in"
    folder.mkdir()
    with tarfile.open(folder / "all.tar.gz", "w:gz") as archive:
        for path in write_streams(members, "gzip").iterdir():
            archive.add(path, path.name)
    assert OWN not in hints(folder, workers=3)


def test_tasks_are_not_suggested_where_memory_is_too_small_for_them(tmp_path: Path) -> None:
    """Each task has a ring of its own; without tasks the workers share one."""
    folder = write_streams(tmp_path, "gzip")
    settings = {"workers": 3, "unit_bytes": 16 << 20}
    with pytest.raises(UsageError) as too_small:
        hints(folder, memory_bytes=100 << 20, **settings)
    found = re.search(r"--memory (\d+)MiB", too_small.value.next_step)
    assert found is not None
    least = int(found[1]) << 20
    assert OWN not in hints(folder, memory_bytes=least, **settings)
    assert OWN in hints(folder, memory_bytes=2 * least, **settings)


def test_a_size_that_gives_more_tasks_is_named_before_the_job_runs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(UNPACKED)
    assert "1 task for 2 workers: `--task-size 1MiB` gives 4" in hints(
        tmp_path, workers=2, task_bytes=1 << 40
    )
    assert "task" not in hints(tmp_path, workers=2, task_bytes=1 << 20)


def test_a_task_that_is_smaller_than_a_unit_is_explained(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(UNPACKED)
    said = hints(tmp_path, workers=2, task_bytes=16 << 10)
    assert "`--task-size 16KiB` is less than a unit, 1MiB" in said
