"""The document index as a file: its bytes, its division among shards, and what is refused."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from penstok.errors import DamageError
from penstok.output import documents
from penstok.output.documents import (
    DocumentFinder,
    IndexRecord,
    check_index,
    describe_index,
    iter_entries,
    iter_indexes,
    npy_header,
)
from penstok.output.layout import Layout
from penstok.output.spools import ENTRY_TYPES, SpoolError, has_origins, has_starts
from penstok.types import EotPosition, Split


def write_spool(folder: Path, *starts: int) -> Path:
    path = folder / "train_documents.spool"
    path.write_bytes(np.array(starts, "<u8").tobytes())
    return path


def write_origins(folder: Path, *origins: tuple[int, int]) -> Path:
    path = folder / "train_origins.spool"
    path.write_bytes(np.array(list(origins), ENTRY_TYPES["origins"]).tobytes())
    return path


def layout_of(folder: Path, sizes: list[int], *, has_origins: bool = False) -> Layout:
    """Make a layout with files of any size."""
    starts = list(accumulate(sizes[:-1], initial=0))
    every: dict[Split, list[int]] = {"train": starts, "val": starts}
    return Layout(str(folder), 2, None, every, work="", has_origins=has_origins)


def divided(spool: Path, num_documents: int, sizes: list[int]) -> list[tuple[int, bool, list[int]]]:
    found = []
    layout = layout_of(spool.parent, sizes)
    for index in iter_indexes(layout, "train", sum(sizes), num_documents):
        data = b"".join(index.content)
        spool.with_name("index.npy").write_bytes(data)
        entries = np.load(spool.with_name("index.npy"))
        assert entries.dtype == np.uint64
        found.append((index.num_documents, index.continues, entries.tolist()))
    return found


@pytest.mark.parametrize("small_pieces", [False, True])
def test_a_spool_is_divided_among_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: bool
) -> None:
    if small_pieces:
        monkeypatch.setattr(documents, "_READ_ENTRIES", 2)
    spool = write_spool(tmp_path, 0, 3, 10, 11, 25, 77)
    assert divided(spool, 5, [30]) == [(5, False, [0, 3, 10, 11, 25, 30])]
    assert divided(spool, 5, [10, 10, 4, 0, 6]) == [
        (2, False, [0, 3, 10]),
        (2, False, [0, 1, 10]),
        (0, True, [0, 4]),
        (0, False, [0]),
        (1, True, [0, 1, 6]),
    ]
    assert divided(spool, 0, [0]) == [(0, False, [0])]
    spool.unlink()
    assert divided(spool, 0, [4]) == [(0, True, [0, 4])]


def test_origins_are_divided_like_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_READ_ENTRIES", 2)
    rows = [(0, 0), (0, 70), (2, 0), (2, 5), (2, 1 << 40)]
    write_spool(tmp_path, 0, 3, 10, 11, 25)
    write_origins(tmp_path, *rows, (9, 9))
    sizes = [10, 10, 4, 6]
    layout, found = layout_of(tmp_path, sizes, has_origins=True), []
    for index in iter_indexes(layout, "train", sum(sizes), len(rows)):
        data = b"".join(index.content)
        record = index.to_record(len(data), xxhash.xxh3_128_hexdigest(data))
        assert record.bytes == record.expected_bytes
        path = tmp_path / record.path
        path.write_bytes(data)
        check_index(path, record)
        if index.kind == "origins":
            loaded = np.load(path)
            assert loaded.dtype == ENTRY_TYPES["origins"]
            pieces = [piece.tolist() for piece in iter_entries(path, "origins")]
            assert [row for piece in pieces for row in piece] == loaded.tolist()
            found.append(loaded.tolist())
            with pytest.raises(DamageError, match="not a document index"):
                list(iter_entries(path))
    # The third file begins with the rest of a document, which has no row there.
    assert found == [rows[:2], rows[2:4], [], rows[4:]]


@pytest.mark.parametrize(
    ("rows", "why"),
    [([(0, 0), (0, 9)], "ends too early"), ([(0, 0), (1, 9), (0, 0)], "not in order")],
)
def test_damaged_origins_are_refused(tmp_path: Path, rows: list[tuple[int, int]], why: str) -> None:
    write_spool(tmp_path, 0, 3, 10)
    write_origins(tmp_path, *rows)
    layout = layout_of(tmp_path, [20], has_origins=True)
    _, index = iter_indexes(layout, "train", 20, 3)
    with pytest.raises(SpoolError, match=why):
        b"".join(index.content)


def test_origins_of_a_unit_that_were_never_written_are_noticed(tmp_path: Path) -> None:
    spool = write_origins(tmp_path, (0, 0), (0, 4), (1, 7), (1, 9), (0, 0), (0, 0))
    assert has_origins(spool, 0, 2, 0, 0)
    assert has_origins(spool, 2, 2, 1, 7)
    assert not has_origins(spool, 2, 2, 1, 8)
    assert not has_origins(spool, 1, 2, 0, 0)
    assert not has_origins(spool, 4, 2, 0, 0)
    assert not has_origins(spool, 4, 3, 1, 0)
    assert has_origins(tmp_path / "missing", 0, 0, 0, 0)
    assert not has_origins(tmp_path / "missing", 0, 1, 0, 0)


def test_documents_without_tokens_are_kept(tmp_path: Path) -> None:
    """Without end-of-text ids a text can have no id at all, also the last one."""
    spool = write_spool(tmp_path, 0, 0, 5, 5, 9, 9)
    assert divided(spool, 6, [9]) == [(6, False, [0, 0, 5, 5, 9, 9, 9])]
    assert divided(spool, 6, [5, 4]) == [(2, False, [0, 0, 5]), (4, False, [0, 0, 4, 4, 4])]
    assert divided(write_spool(tmp_path, 0, 0), 2, [0]) == [(2, False, [0, 0, 0])]


@pytest.mark.parametrize(
    ("starts", "num_documents", "why"),
    [
        ([0, 7, 5], 3, "not in order"),
        ([0, 7], 3, "ends too early"),
        ([0, 7, 31], 3, "after the last token"),
    ],
)
def test_a_damaged_spool_is_refused(
    tmp_path: Path, starts: list[int], num_documents: int, why: str
) -> None:
    with pytest.raises(SpoolError, match=why):
        divided(write_spool(tmp_path, *starts), num_documents, [30])


def test_what_was_never_written_to_a_spool_is_noticed(tmp_path: Path) -> None:
    spool = write_spool(tmp_path, 0, 3, 0, 0, 8, 9)
    assert has_starts(spool, 0, 2, 0, 5)
    assert not has_starts(spool, 1, 2, 3, 9)
    assert not has_starts(spool, 0, 3, 0, 9)
    assert has_starts(spool, 4, 2, 8, 9)
    assert has_starts(spool, 4, 2, 5, 9)
    assert not has_starts(spool, 4, 2, 9, 12)
    assert not has_starts(spool, 4, 2, 5, 8)
    assert not has_starts(spool, 4, 3, 5, 20)
    assert not has_starts(tmp_path / "missing", 0, 1, 0, 9)
    assert not has_starts(write_spool(tmp_path, 0, 0, 0), 0, 3, 0, 9)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("has_kernel", [True, False])
@pytest.mark.parametrize("eot", ["append", "prepend"])
@pytest.mark.parametrize("find_tokens", [7, 100, 1000])
def test_starts_are_found_in_tokens(
    monkeypatch: pytest.MonkeyPatch,
    dtype: Any,
    has_kernel: bool,
    eot: EotPosition,
    find_tokens: int,
) -> None:
    if not has_kernel:
        monkeypatch.setattr(documents, "find_kernel_function", lambda _: None)
    monkeypatch.setattr(documents, "_FIND_TOKENS", find_tokens)
    monkeypatch.setattr(documents, "_FIND_ENDS", 3)
    chance = np.random.default_rng(1)
    ids = chance.integers(0, 5, 400).astype(dtype)
    ids[-1 if eot == "append" else 0] = 4
    finder = DocumentFinder(4, eot)
    found = np.flatnonzero(ids == 4)
    far = 1 << 40
    expected = [0, *(found[:-1] + 1)] if eot == "append" else found.tolist()
    for step in (1, 3, 64, 400):
        pieces = [ids[at : at + step] for at in range(0, 400, step)]
        starts = list(finder.iter_starts(pieces, far))
        assert {each.dtype for each in starts} == {np.dtype(np.uint64)}
        assert np.concatenate(starts).tolist() == [far + each for each in expected]
        first = np.concatenate([*finder.iter_first_starts(pieces, far, 9)])
        assert first.tolist() == [far + each for each in expected[:9]]
        assert first.dtype == np.uint64
    assert list(finder.iter_first_starts([ids], 0, 0)) == []


def test_the_last_document_of_a_unit_may_have_no_token_there() -> None:
    finder = DocumentFinder(9, "append")
    starts = finder.iter_first_starts([np.array([1, 9, 2, 9], np.uint16)], 10, 3)
    assert np.concatenate(list(starts)).tolist() == [10, 12, 14]
    starts = finder.iter_first_starts([np.array([1, 9, 2, 9], np.uint16)], 10, 1, continues=True)
    assert np.concatenate(list(starts)).tolist() == [12]


def test_an_index_is_described_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train_documents.npy"
    data = npy_header(4) + np.array([0, 4, 4, 9], "<u8").tobytes()
    path.write_bytes(data)
    assert np.concatenate(list(iter_entries(path))).tolist() == np.load(path).tolist()
    record = describe_index(path, 9)
    digest = xxhash.xxh3_128_hexdigest(data)
    assert record == IndexRecord("documents", path.name, len(data), digest, 3, continues=False)
    check_index(path, record)
    for wrong, why in (
        (data[:-8], "ends too early"),
        (data + bytes(8), "is not the index of"),
        (b"\0" * len(data), "is not a document index"),
        (npy_header(4) + np.array([0, 5, 4, 9], "<u8").tobytes(), "is not a document index"),
        (npy_header(4) + np.array([1, 4, 4, 9], "<u8").tobytes(), "is not a document index"),
        (npy_header(4) + np.array([0, 4, 4, 8], "<u8").tobytes(), "is not the index of"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(DamageError, match=why):
            describe_index(path, 9)
        with pytest.raises(DamageError, match=r"instead of|mismatch"):
            check_index(path, record)
    path.unlink()
    for check in (lambda: describe_index(path, 9), lambda: check_index(path, record)):
        with pytest.raises(DamageError, match="is missing"):
            check()
