"""The sample is spread evenly, and the texts for the library are short."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.output.store.folder import write_file
from penstok.training.sample import Sample
from penstok.training.trainer import _divide


def write_corpus(folder: Path, kind: str, texts: list[str]) -> None:
    """Write texts as one file, or as many small ones."""
    step = 100 if kind == "many" else len(texts)
    for start in range(0, len(texts), step):
        some = texts[start : start + step]
        content = "\n".join(json.dumps({"text": text}) for text in some).encode()
        if kind == "gzip":
            (folder / "one.jsonl.gz").write_bytes(gzip.compress(content))
        elif kind == "parquet":
            pq.write_table(pa.table({"text": some}), folder / "one.parquet", row_group_size=20_000)
        else:
            (folder / f"{start}.jsonl").write_bytes(content)


@pytest.mark.parametrize("kind", ["one", "many", "gzip", "parquet"])
def test_a_sample_takes_the_same_share_of_every_tenth(kind: str, tmp_path: Path) -> None:
    texts = [f"{number} " + "word " * 20 for number in range(60_000)]
    write_corpus(tmp_path, kind, texts)
    settings = JobSettings(inputs=(str(tmp_path),))
    sample = Sample(make_plan(settings), settings, 2_000_000)
    taken = [int(text.split()[0]) for batch in sample.iter_texts() for text in batch]
    assert sample.text_bytes == sum(len(texts[number]) for number in taken)
    assert 1_800_000 < sample.text_bytes < 2_300_000
    tenths = [sum(1 for number in taken if number // 6000 == tenth) for tenth in range(10)]
    assert max(tenths) < 1.5 * min(tenths), tenths
    assert taken == sorted(set(taken))


def test_a_sample_that_is_larger_than_the_text_is_all_of_it(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text(f"text {number} " * 1000 * number)
    settings = JobSettings(inputs=(str(tmp_path),))
    sample = Sample(make_plan(settings), settings, 10**9)
    taken = b"".join(text for batch in sample.iter_texts() for text in batch)
    assert taken.decode() == "".join(f"text {number} " * 1000 * number for number in range(20))


def test_a_file_that_is_refused_does_not_replace_the_old_one(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        assert (path.suffix, path.read_text()) == (".json", "new")
        raise InterruptedError

    (tmp_path / "my.json").write_text("old")
    with pytest.raises(InterruptedError):
        write_file(tmp_path / "my.json", "new", refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["my.json"]
    assert (tmp_path / "my.json").read_text() == "old"
    write_file(tmp_path / "my.json", "new", lambda _: None)
    assert (tmp_path / "my.json").read_text() == "new"


@pytest.mark.parametrize(
    "text",
    ["", "word " * 5000, "字" * 5000, "ab" * 9000, " " * 9000, "line\n" * 5000, "é" + "👍" * 3000],
    ids=lambda text: repr(text[:6]),
)
def test_texts_are_divided_into_short_ones_between_characters(text: str) -> None:
    pieces = list(_divide(text.encode()))
    assert "".join(pieces) == text
    assert max(len(piece.encode()) for piece in pieces) <= 2048
    assert len(pieces) <= len(text.encode()) / 1024 + 1
