"""Law: what is read once, through a ring, gives what the same bytes in a file give."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import HOSTILE_CHARACTERS, few, hostile_runs, rounds, run_units

from penstok import readers
from penstok.inputs import buffered_stream, feed
from penstok.readers import borders, spans, text
from penstok.types import Counts

RULES: list[dict[str, Any]] = [
    {"doc_separator": "|"},
    {"doc_separator": "|", "strip": True},
    {"docs_by": "line"},
    {"docs_by": "file"},
    {"docs_by": "file", "strip": True},
]
SIZES = [(64, 37), (301, 256), (1000, 1 << 20), (1 << 20, 100)]


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything small in the same proportions: what is giant, and how far a window shows."""
    scale = (1 << 20) // 128
    for module in (borders, spans):
        monkeypatch.setattr(module, "MAX_RUN_BYTES", 128)
    monkeypatch.setattr(borders, "_PATIENCE_BYTES", 128)
    monkeypatch.setattr(text, "HEAD_BYTES", 8)
    monkeypatch.setattr(spans, "HEAD_BYTES", 8)
    monkeypatch.setattr(spans, "_SPAN_BYTES", 8)
    monkeypatch.setattr(readers, "GIANT_DOCUMENT_BYTES", 128)
    for name in ("_BEHIND_BYTES", "_AHEAD_BYTES", "_NEAR_BYTES", "_MAX_CARRIED_BYTES"):
        monkeypatch.setattr(buffered_stream, name, getattr(buffered_stream, name) // scale)
    monkeypatch.setattr(buffered_stream, "_PIECE_BYTES", 64)
    monkeypatch.setattr(feed, "LONGEST_WINDOW_BYTES", 2048)


def run_both(
    folder: Path, name: str, data: bytes, **options: Any
) -> list[tuple[dict[str, list[int]], Counts]]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / name).write_bytes(data)
    (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    return [
        run_units([folder / chosen], folder / f"out-{chosen}", val_fraction=0.3, **options)
        for chosen in (name, f"{name}.gz")
    ]


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("seed", few(range(8), 2))
@pytest.mark.parametrize("rule", RULES)
def test_a_stream_gives_what_the_file_gives(
    tmp_path: Path, seed: int, rule: dict[str, Any]
) -> None:
    data = hostile_runs(seed).encode()
    for unit_bytes, block_bytes in SIZES:
        plain, fed = run_both(
            tmp_path / "case",
            "text.txt",
            data,
            unit_bytes=unit_bytes,
            block_bytes=block_bytes,
            **rule,
        )
        assert fed == plain


@pytest.mark.usefixtures("small_limits")
@settings(max_examples=rounds(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.sampled_from(HOSTILE_CHARACTERS), max_size=200), max_size=12),
    st.sampled_from(["|", "\n", "字", "ab"]),
    st.integers(30, 400),
    st.integers(1, 400),
)
def test_any_text_gives_the_same(
    tmp_path: Path, texts: list[str], separator: str, unit_bytes: int, block_bytes: int
) -> None:
    data = (separator.join(texts) + "end").encode()
    plain, fed = run_both(
        tmp_path / "case",
        "text.txt",
        data,
        doc_separator=separator,
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
    )
    assert fed == plain


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("unit_bytes", [30, 64, 301, 1 << 20])
@pytest.mark.parametrize("ends_with_line_feed", [True, False])
def test_json_lines_give_the_same(
    tmp_path: Path, unit_bytes: int, ends_with_line_feed: bool
) -> None:
    chance = random.Random(unit_bytes)
    lines = [
        "" if chance.random() < 0.1 else json.dumps({"text": "word " * chance.randrange(60)})
        for _ in range(60)
    ]
    data = "\n".join(lines).encode() + b"\n" * ends_with_line_feed
    plain, fed = run_both(tmp_path / "case", "lines.jsonl", data, unit_bytes=unit_bytes)
    assert fed == plain


@pytest.mark.parametrize("num_units", [1, 2, 3])
def test_content_that_ends_where_a_unit_does(tmp_path: Path, num_units: int) -> None:
    data = b'{"text": "abc"}\n' * 64 * num_units
    plain, fed = run_both(tmp_path / "case", "lines.jsonl", data, unit_bytes=16 * 64)
    assert fed == plain
    assert plain[1].input_bytes == len(data)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("limit_bytes", few([100, 1, 999, 5000], 2))
@pytest.mark.parametrize("rule", RULES)
def test_a_limit_ends_both_at_the_same_place(
    tmp_path: Path, limit_bytes: int, rule: dict[str, Any]
) -> None:
    data = hostile_runs(3).encode()
    plain, fed = run_both(
        tmp_path / "case", "text.txt", data, unit_bytes=301, limit_bytes=limit_bytes, **rule
    )
    assert fed == plain
