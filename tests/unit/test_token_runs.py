"""Runs of tokens that are too long for memory: what is on disk meanwhile changes no byte."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from specs import worker_spec
from support import make_worker

from penstok.errors import InputError, WriteError
from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.output.offsets import Offsets
from penstok.output.segments import SinkKind
from penstok.output.token_runs import TokenRun, TokenSpool
from penstok.types import EotPosition, Segment
from penstok.worker import unit_tokens

RUN = np.random.default_rng(3).integers(0, 1 << 16, 900_000).astype(np.uint16)


@pytest.fixture
def few_in_memory(monkeypatch: pytest.MonkeyPatch) -> list[TokenSpool]:
    """Hold hardly any tokens in memory; return the files that are opened for the others."""
    monkeypatch.setattr(unit_tokens, "_MAX_HELD_TOKENS", 100)
    opened = []
    create = TokenSpool.__init__

    def watch(spool: TokenSpool, folder: Path | None, dtype: str) -> None:
        create(spool, folder, dtype)
        opened.append(spool)

    monkeypatch.setattr(TokenSpool, "__init__", watch)
    return opened


def joined(pieces: Iterator[NDArray[Any]]) -> list[int]:
    return [token for piece in pieces for token in piece.tolist()]


@pytest.mark.parametrize("num_spooled", [0, 1, 600_000, 900_000])
def test_a_range_may_be_on_disk_in_memory_or_both(num_spooled: int, tmp_path: Path) -> None:
    spool = TokenSpool(tmp_path, "uint16")
    for piece in np.array_split(RUN[:num_spooled], 3):
        spool.append(piece)
    run = TokenRun(RUN[num_spooled:], spool)
    assert len(run) == len(RUN)
    assert joined(run.iter_pieces()) == RUN.tolist()
    for first, count in ((0, 1), (0, 600_001), (599_999, 2), (599_998, 5), (700_000, 0), (3, 9)):
        assert joined(run.iter_pieces(first, count)) == RUN[first : first + count].tolist()
    assert list(tmp_path.iterdir()) == []  # it has no name
    spool.close()


def write_corpus(folder: Path) -> Path:
    chance = random.Random(4)
    path = folder / "text.txt"
    documents = (" ".join(f"word{chance.randrange(900)}" for _ in range(60)) for _ in range(90))
    path.write_text("<|endoftext|>".join([*documents, "long " * 9000, "end"]))
    return path


def run_units(path: Path, output: Path, sink: SinkKind, **options: Any) -> list[Segment]:
    """Run a job in this process, and return what its sink made of the tokens."""
    options |= {"unit_bytes": 40_000, "block_bytes": 5000, "val_fraction": 0.2}
    job = JobSettings(inputs=(str(path),), output=output, **options)
    spec, plan, offsets = worker_spec(job, sink=sink), make_plan(job), Offsets()
    (output / ".penstok").mkdir(parents=True, exist_ok=True)
    worker = make_worker(spec)
    segments: list[Segment] = []
    for unit in plan.iter_units():
        segments += worker.write(offsets.grant(unit, worker.encode(unit))).segments
    return segments


def read_all(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((output / ".penstok").iterdir())}


@pytest.mark.parametrize("eot", ["append", "prepend", "none"])
@pytest.mark.parametrize("shard_tokens", [None, 1000])
def test_what_was_on_disk_gives_the_same_files_and_segments(
    eot: EotPosition, shard_tokens: int | None, tmp_path: Path, few_in_memory: list[TokenSpool]
) -> None:
    path = write_corpus(tmp_path)
    options: dict[str, Any] = {"eot": eot, "shard_tokens": shard_tokens}
    found = run_units(path, tmp_path / "spooled", "write", **options)
    digests = run_units(path, tmp_path / "digests", "digest", **options)
    assert few_in_memory
    assert all(spool._file.closed for spool in few_in_memory)
    with pytest.MonkeyPatch.context() as usual:
        usual.setattr(unit_tokens, "_MAX_HELD_TOKENS", 1 << 20)
        num_opened = len(few_in_memory)
        expected = run_units(path, tmp_path / "held", "write", **options)
    assert len(few_in_memory) == num_opened
    assert found == digests == expected
    assert read_all(tmp_path / "spooled") == read_all(tmp_path / "held")


def test_what_was_on_disk_is_compared_with_the_output(
    tmp_path: Path, few_in_memory: list[TokenSpool]
) -> None:
    path = write_corpus(tmp_path)
    run_units(path, tmp_path, "write")
    for split in ("train", "val"):
        (tmp_path / ".penstok" / f"{split}.bin.partial").rename(tmp_path / f"{split}.bin")
    assert run_units(path, tmp_path, "compare") == []
    tokens = np.fromfile(tmp_path / "train.bin", np.uint16)
    tokens[[2000, 2345]] ^= 1
    tokens.tofile(tmp_path / "train.bin")
    (differing,) = run_units(path, tmp_path, "compare")
    assert (differing.split, differing.offset_tokens, differing.num_tokens) == ("train", 2000, 346)
    assert few_in_memory


def test_tokens_that_are_only_counted_are_not_written(
    tmp_path: Path, few_in_memory: list[TokenSpool]
) -> None:
    assert run_units(write_corpus(tmp_path), tmp_path / "out", "count") == []
    assert not few_in_memory


def test_the_file_of_a_unit_that_fails_is_closed(
    tmp_path: Path, few_in_memory: list[TokenSpool], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_corpus(tmp_path)
    append = TokenSpool.append

    def fail(spool: TokenSpool, tokens: NDArray[Any]) -> None:
        if spool.num_tokens:
            raise InputError("it is gone", where=str(path))
        append(spool, tokens)

    monkeypatch.setattr(TokenSpool, "append", fail)
    with pytest.raises(InputError, match="it is gone"):
        run_units(path, tmp_path / "out", "write")
    assert few_in_memory
    assert all(spool._file.closed for spool in few_in_memory)


def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    class FullFile:
        def write(self, data: memoryview) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None: ...

    spool = TokenSpool(tmp_path, "uint16")
    spool.close()
    spool._file = FullFile()  # type: ignore[assignment]
    with pytest.raises(WriteError, match="the disk is full") as raised:
        spool.append(RUN)
    assert raised.value.where == str(tmp_path)
