"""Laws for text that is too long to keep together: forced cuts and spans."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from support import EOT, EXAMPLES, few, hostile_runs, reference, run_units

from penstok import readers
from penstok.readers import borders, spans, text

SIZES = list(itertools.product([64, 301, 1000, 1 << 20], [37, 256, 1 << 20]))


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything that is giant small, in the same proportions."""
    for module in (borders, spans):
        monkeypatch.setattr(module, "MAX_RUN_BYTES", 128)
    monkeypatch.setattr(borders, "_PATIENCE_BYTES", 48)
    monkeypatch.setattr(text, "HEAD_BYTES", 16)
    monkeypatch.setattr(spans, "HEAD_BYTES", 16)
    monkeypatch.setattr(spans, "_SPAN_BYTES", 32)
    monkeypatch.setattr(readers, "GIANT_DOCUMENT_BYTES", 0)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("seed", few(range(6), 2))
@pytest.mark.parametrize(
    "options",
    [
        {"doc_separator": "|"},
        {"docs_by": "line"},
        {"docs_by": "file"},
        {"doc_separator": "|", "strip": True},
        {"docs_by": "file", "strip": True},
    ],
)
def test_forced_cuts_do_not_depend_on_sizes(
    tmp_path: Path, seed: int, options: dict[str, Any]
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(hostile_runs(seed), encoding="utf-8")
    results = [
        run_units(
            [path],
            tmp_path / f"out{idx}",
            unit_bytes=unit_bytes,
            block_bytes=block_bytes,
            val_fraction=0.3,
            **options,
        )
        for idx, (unit_bytes, block_bytes) in enumerate(SIZES)
    ]
    assert all(result == results[0] for result in results)
    ids, counts = results[0]
    assert counts.forced_cuts > 0
    # Whatever was cut, no character is lost.
    decoded = reference().decode(
        [token for split in ids.values() for token in split if token != EOT]
    )
    kept = path.read_text(encoding="utf-8")
    # (But for white space at the ends of documents, where it was asked to go.)
    dropped = "| \n" if "strip" in options else "|\n"
    gone = str.maketrans("", "", dropped)
    assert sorted(decoded.translate(gone)) == sorted(kept.translate(gone))


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("name", ["english.txt", "chinese.txt", "hindi.txt"])
def test_spans_do_not_depend_on_sizes(tmp_path: Path, name: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes((EXAMPLES / name).read_bytes()[:6000].decode(errors="ignore").encode())
    results = [
        run_units(
            [path],
            tmp_path / f"out{idx}",
            unit_bytes=unit_bytes,
            block_bytes=block_bytes,
            val_fraction=0.3,
            docs_by="file",
        )
        for idx, (unit_bytes, block_bytes) in enumerate(SIZES)
    ]
    assert all(result == results[0] for result in results)
    ids, counts = results[0]
    assert counts.documents > 10
    assert sum(split.count(EOT) for split in ids.values()) == counts.documents
    whole = path.read_text(encoding="utf-8")
    expected = reference().encode_ordinary(whole)
    assert sorted(token for split in ids.values() for token in split if token != EOT) == sorted(
        expected
    )
    for split in ids.values():
        assert split[-1] == EOT
        for passage in reference().decode(split[:-1]).split("<|endoftext|>"):
            assert passage in whole


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("eot", ["append", "prepend", "none"])
@pytest.mark.parametrize(("val_fraction", "full"), [(0.0, "train"), (1.0, "val")])
def test_a_giant_document_in_one_split_stays_whole(
    tmp_path: Path, eot: str, val_fraction: float, full: str
) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes((EXAMPLES / "german.txt").read_bytes())
    ids, counts = run_units(
        [path],
        tmp_path / "out",
        unit_bytes=500,
        val_fraction=val_fraction,
        docs_by="file",
        eot=eot,
    )
    whole = reference().encode_ordinary(path.read_text(encoding="utf-8"))
    assert ids[full] == {"append": [*whole, EOT], "prepend": [EOT, *whole], "none": whole}[eot]
    assert counts.documents == 1
    assert counts.special_text_documents == 1
