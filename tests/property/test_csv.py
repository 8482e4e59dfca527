"""CSV: kernel, fallback and Python's own reader agree; units of any size give the same output."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from csv_cases import extract, find_records, random_csv
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import few, rounds, run_units

from penstok.inputs import buffered_stream, feed
from penstok.readers.csv.records import CsvCode
from penstok.types import Counts

ODD = 'aé世😀 \n\r\t,""\u2028'
texts = st.text(st.sampled_from(ODD), max_size=30) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30
)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(texts, min_size=width, max_size=width), min_size=1, max_size=8)
)


def spell(rows: list[list[str]], delimiter: str, random: Random) -> str:
    """Spell rows as CSV in one of the ways there are."""

    def field(text: str, *, is_alone: bool) -> str:
        needs = text.startswith('"') or any(sign in text for sign in (delimiter, "\n", "\r"))
        if needs or (is_alone and not text) or random.random() < 0.3:
            return '"' + text.replace('"', '""') + '"'
        return text

    spelled = ""
    for row in rows:
        spelled += delimiter.join(field(text, is_alone=len(row) == 1) for text in row)
        spelled += random.choice(["\n", "\n", "\r\n", "\n\n", "\r\n\r\n"])
    return spelled.rstrip("\n") if random.random() < 0.3 and spelled[-2] != "\r" else spelled


@given(tables, st.sampled_from([",", "\t"]), st.integers(0, 2**32))
@settings(max_examples=rounds(300))
def test_valid_csv_gives_what_python_finds_in_it(
    rows: list[list[str]], delimiter: str, seed: int
) -> None:
    spelled = spell(rows, delimiter, Random(seed))
    read = [row for row in csv.reader(io.StringIO(spelled, newline=""), delimiter=delimiter) if row]
    assert read == rows
    column = seed % len(rows[0])
    found = extract(spelled.encode(), column, len(rows[0]), delimiter.encode())
    assert found.texts == [row[column].encode() for row in rows]
    assert set(found.codes) == {CsvCode.OK}


@pytest.mark.parametrize("seed", few(range(20), 5))
def test_kernel_and_fallback_agree_on_anything(seed: int) -> None:
    random = Random(seed)
    for _ in range(300):
        data = random_csv(random, 40)
        num_columns = random.randint(1, 3)
        delimiter = random.choice([b",", b"\t", b";", b"|"])
        extract(data, random.randrange(num_columns), num_columns, delimiter)
        extract(data, 0, num_columns, delimiter, stop=random.randrange(50))
        wanted = [random.randrange(len(data) + 1) for _ in range(4)]
        sizes = [random.randint(1, 9) for _ in range(5)]
        found = find_records(data, wanted, sizes, delimiter)
        assert found == find_records(data, wanted, [len(data) + 1], delimiter)


@given(st.binary(max_size=200), st.integers(1, 3), st.lists(st.integers(0, 200), min_size=1))
@settings(max_examples=rounds(200))
def test_kernel_and_fallback_agree_on_any_bytes(
    data: bytes, num_columns: int, wanted: list[int]
) -> None:
    found = extract(data, num_columns - 1, num_columns)
    assert found.consumed == len(data)
    starts = find_records(data, [min(at, len(data)) for at in wanted], [7], b",")
    assert set(found.records) - {0} <= {*starts, *find_records(data, found.records, [5], b",")}


# ---- Units ----


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered_stream, "_PIECE_BYTES", 64)
    monkeypatch.setattr(feed, "LONGEST_WINDOW_BYTES", 4096)


def run_sizes(
    folder: Path, data: bytes, sizes: list[int], **options: Any
) -> list[tuple[dict[str, list[int]], Counts]]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "a.csv").write_bytes(data)
    (folder / "a.csv.gz").write_bytes(gzip.compress(data))
    return [
        run_units(
            [folder / name],
            folder / f"out-{name}-{unit_bytes}",
            unit_bytes=unit_bytes,
            block_bytes=1 + unit_bytes // 3,
            val_fraction=0.3,
            **options,
        )
        for unit_bytes in sizes
        for name in ("a.csv", "a.csv.gz")
    ]


@pytest.mark.usefixtures("small_pieces")
@settings(max_examples=rounds(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(texts, texts), max_size=12),
    st.booleans(),
    st.integers(1, 90),
    st.integers(0, 2**32),
)
def test_units_of_any_size_give_the_same(
    tmp_path: Path, rows: list[tuple[str, str]], has_mark: bool, unit_bytes: int, seed: int
) -> None:
    table = [["text", "the\nother"], *map(list, rows), ["last", ""]]
    data = b"\xef\xbb\xbf" * has_mark + spell(table, ",", Random(seed)).encode()
    results = run_sizes(tmp_path / "case", data, [unit_bytes, 17, 1 << 20])
    assert all(result == results[0] for result in results)
    assert results[0][1].documents == 1 + sum(1 for text, _ in rows if text)
    assert results[0][1].input_bytes == len(data)
    assert results[0][1].byte_order_marks == has_mark


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", range(6))
def test_bad_records_are_the_same_in_units_of_any_size(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    data = b"text,b\n" + b"good,1\n".join(random_csv(random, 30) + b'"\n' for _ in range(20))
    results = run_sizes(
        tmp_path / "case", data, [1 << 20, 7, 64, 301], on_error="skip", invalid_utf8="ignore"
    )
    assert all(result == results[0] for result in results)
    assert results[0][1].skipped_records > 0
