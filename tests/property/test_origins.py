"""Law: the origin of a document points at its text, whatever the format, sizes and engine."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from csv_cases import write_csv
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_cases import write_rows
from specs import worker_spec
from support import (
    HOSTILE_CHARACTERS,
    few,
    hostile_runs,
    iter_fed,
    make_worker,
    reference,
    rounds,
)

from penstok import readers
from penstok.inputs.feed import make_feed
from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.output.offsets import Offsets
from penstok.output.token_runs import TokenRun, TokenSpool
from penstok.readers import borders, spans, text
from penstok.readers.formats import open_scanner
from penstok.types import SPLITS, Segment, Split, replace

hostile_text = st.text(st.sampled_from(HOSTILE_CHARACTERS), max_size=120)
texts = st.lists(hostile_text, min_size=1, max_size=12)
separators = st.sampled_from(["<|endoftext|>", "\n\n", "aa", "abab", "字", "\n \n"])
sizes = st.integers(1, 400)
engines = st.sampled_from(["tiktoken", "kernel"])
# What `--strip` strips.
SPACE = " \n\r\t\v\f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
law = settings(max_examples=rounds(60), suppress_health_check=[HealthCheck.function_scoped_fixture])


class Traced(NamedTuple):
    """A document of an output: its input, where it is there, and its text as it was encoded."""

    input: int
    position: int
    text: bytes


class RecordingSink:
    """Takes what a worker writes, and checks that it comes in order."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {split: [] for split in SPLITS}
        self.entries: dict[tuple[str, str], list[Any]] = {
            (split, kind): [] for split in SPLITS for kind in ("documents", "origins")
        }

    def write(self, split: Split, offset: int, tokens: TokenRun) -> list[Segment]:
        assert offset == len(self.tokens[split])
        for piece in tokens.iter_pieces():
            self.tokens[split] += piece.tolist()
        return []

    def open_spool(self, dtype: str) -> TokenSpool:
        return TokenSpool(None, dtype)

    def write_entries(self, split: Split, kind: str, num_before: int, entries: Any) -> None:
        assert num_before == len(self.entries[split, kind])
        for piece in entries:
            self.entries[split, kind] += piece.tolist()

    def begin_fields(self, unit_idx: int) -> None:
        return None

    def close(self) -> None: ...


def trace(path: Path, output: Path, engine: str = "tiktoken", **options: Any) -> list[Traced]:
    """Run the units of a job in this process; return its documents in the order of the input."""
    job = JobSettings(
        inputs=(os.fspath(path),), output=output, provenance=True, val_fraction=0.4, **options
    )
    plan, sink, offsets = make_plan(job), RecordingSink(), Offsets()
    feed = make_feed(
        plan.sources,
        1,
        plan.unit_bytes,
        open_scanner=open_scanner,
        on_error=job.on_error,
        give_back=False,
    )
    ring = None if feed is None else feed.ring.file
    worker = make_worker(replace(worker_spec(job, engine), ring=ring))
    worker._sink = sink
    with closing(feed) if feed else nullcontext():
        for unit in plan.iter_units() if feed is None else iter_fed(feed, plan):
            worker.write(offsets.grant(unit, worker.encode(unit)))
            if feed is not None:
                feed.release(unit)
    found = []
    for split in SPLITS:
        starts, origins = sink.entries[split, "documents"], sink.entries[split, "origins"]
        assert len(starts) == len(origins) == offsets.documents[split]
        assert origins == sorted(origins)
        ends = [*starts, len(sink.tokens[split])][1:]
        for start, end, origin in zip(starts, ends, origins, strict=True):
            # The last id is that of the end of the text.
            decoded = reference().decode_bytes(sink.tokens[split][start : end - 1])
            found.append(Traced(origin[0], origin[1], decoded))
    return sorted(found)


def write_case(tmp_path: Path, name: str, data: bytes) -> Path:
    folder = tmp_path / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder / name


@pytest.fixture(params=["as shipped", "impatient"])
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a law twice: as shipped, and with units that end inside any document of some length."""
    if request.param == "impatient":
        monkeypatch.setattr(borders, "_PATIENCE_BYTES", 48)
        monkeypatch.setattr(text, "HEAD_BYTES", 16)


def expected_documents(data: bytes, separator: bytes, *, strip: bool) -> list[Traced]:
    """Divide text as the contract says it in words."""
    at = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    found = []
    for document in data[at:].split(separator):
        kept = document
        if separator == b"\n" and at + len(document) < len(data):
            kept = document.removesuffix(b"\r")
        start = at
        if strip:
            start += len(kept) - len(kept.decode().lstrip(SPACE).encode())
            kept = kept.decode().strip(SPACE).encode()
        if kept:
            found.append(Traced(0, start, kept))
        at += len(document) + len(separator)
    return found


@law
@given(texts, separators, sizes, sizes, engines, st.booleans(), st.sampled_from(["", ".gz"]))
@pytest.mark.usefixtures("patience")
def test_origins_of_separated_documents_are_their_bytes(
    tmp_path: Path,
    documents: list[str],
    separator: str,
    unit_bytes: int,
    block_bytes: int,
    engine: str,
    strip: bool,
    suffix: str,
) -> None:
    data = separator.join([*documents, "end"]).encode()
    path = write_case(tmp_path, f"text.txt{suffix}", data)
    options = {"unit_bytes": unit_bytes, "block_bytes": block_bytes, "strip": strip}
    found = trace(path, tmp_path / "out", engine, doc_separator=separator, **options)
    assert found == expected_documents(data, separator.encode(), strip=strip)


@law
@given(texts, sizes, sizes, engines, st.booleans())
@pytest.mark.usefixtures("patience")
def test_origins_of_lines_are_their_bytes(
    tmp_path: Path,
    lines: list[str],
    unit_bytes: int,
    block_bytes: int,
    engine: str,
    strip: bool,
) -> None:
    data = "\n".join([*lines, "end"]).encode()
    path = write_case(tmp_path, "text.txt", data)
    options = {"unit_bytes": unit_bytes, "block_bytes": block_bytes, "strip": strip}
    found = trace(path, tmp_path / "out", engine, docs_by="line", **options)
    assert found == expected_documents(data, b"\n", strip=strip)


@law
@given(
    st.lists(st.binary(max_size=40) | hostile_text.map(str.encode), max_size=8),
    sizes,
    sizes,
    engines,
    st.sampled_from(["replace", "ignore"]),
)
@pytest.mark.usefixtures("patience")
def test_origins_stay_in_step_where_invalid_utf8_is_repaired(
    tmp_path: Path,
    pieces: list[bytes],
    unit_bytes: int,
    block_bytes: int,
    engine: str,
    policy: str,
) -> None:
    data = b"start|" + b"|".join(pieces)
    path = write_case(tmp_path, "text.txt", data)
    options = {"unit_bytes": unit_bytes, "block_bytes": block_bytes, "invalid_utf8": policy}
    found = trace(path, tmp_path / "out", engine, doc_separator="|", **options)
    expected = [
        Traced(0, position, raw.decode(errors=policy).encode())
        for _, position, raw in expected_documents(data, b"|", strip=False)
    ]
    whole = [each for each in expected if each.text]
    # A document of several pieces is kept even if nothing is left of it.
    assert [each for each in found if each.text] == whole
    assert set(found) <= set(expected)


@pytest.mark.parametrize("seed", few(range(6), 2))
@pytest.mark.parametrize("strip", [False, True])
def test_origins_of_spans_are_where_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, strip: bool
) -> None:
    monkeypatch.setattr(spans, "_SPAN_BYTES", 64)
    monkeypatch.setattr(readers, "GIANT_DOCUMENT_BYTES", 0)
    data = ("  " + hostile_runs(seed)).encode()
    (tmp_path / "text.txt").write_bytes(data)
    results = [
        trace(
            tmp_path / "text.txt",
            tmp_path / "out",
            docs_by="file",
            strip=strip,
            unit_bytes=unit_bytes,
            block_bytes=block_bytes,
        )
        for unit_bytes, block_bytes in [(300, 100), (1000, 37), (1 << 20, 1 << 20)]
    ]
    assert all(result == results[0] for result in results)
    assert len(results[0]) > 1
    assert b"".join(each.text for each in results[0]) == (
        data.decode().strip(SPACE).encode() if strip else data
    )
    for each in results[0]:
        assert data[each.position :].startswith(each.text)


@law
@given(
    st.lists(hostile_text | st.just("") | st.none(), min_size=1, max_size=12),
    sizes,
    sizes,
    engines,
    st.booleans(),
    st.sampled_from(["", ".gz"]),
)
def test_origins_of_json_lines_are_the_bytes_of_the_lines(
    tmp_path: Path,
    documents: list[str | None],
    unit_bytes: int,
    block_bytes: int,
    engine: str,
    strip: bool,
    suffix: str,
) -> None:
    lines = [json.dumps({"id": idx, "text": each}) for idx, each in enumerate(documents)]
    data = "\n".join(["\ufeff{}", *lines[:3], "", "  ", *lines[3:], "{broken"]).encode()
    data += b'\n{"text": "end"}'
    path = write_case(tmp_path, f"a.jsonl{suffix}", data)
    options = {"unit_bytes": unit_bytes, "block_bytes": block_bytes, "strip": strip}
    found = trace(path, tmp_path / "out", engine, on_error="skip", **options)
    for each in found:
        value = json.loads(data[each.position :].partition(b"\n")[0])["text"]
        assert each.text == (value.strip(SPACE) if strip else value).encode()
    kept = [each.strip(SPACE) if strip and each else each for each in documents]
    assert [each.text.decode() for each in found] == [*filter(None, kept), "end"]


@law
@given(texts, sizes, sizes, engines, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_origins_of_csv_are_the_bytes_of_the_records(
    tmp_path: Path,
    documents: list[str],
    unit_bytes: int,
    block_bytes: int,
    engine: str,
    end: str,
    has_bad: bool,
) -> None:
    rows = [[str(idx), each] for idx, each in enumerate(documents)]
    rows = [["id", "text"], *rows, *([["bad"]] if has_bad else []), ["9", 'a "quoted"\nend, here']]
    # Python may leave a carriage return without quotes, unless lines end with one.
    data = write_csv(rows, end="\r\n" if "\r" in "".join(documents) else end)
    path = write_case(tmp_path, "a.csv", data)
    options = {"unit_bytes": unit_bytes, "block_bytes": block_bytes, "on_error": "skip"}
    found = trace(path, tmp_path / "out", engine, **options)
    assert [each.text.decode() for each in found] == [*filter(None, documents), rows[-1][1]]
    for each in found:
        rest = io.StringIO(data[each.position :].decode(), newline="")
        assert next(csv.reader(rest))[1].encode() == each.text


@law
@given(
    st.lists(hostile_text | st.none(), min_size=1, max_size=30),
    sizes,
    sizes,
    st.integers(1, 9),
    st.sampled_from([".parquet", ".arrow", ".feather"]),
)
def test_origins_of_rows_are_their_numbers(
    tmp_path: Path,
    documents: list[str | None],
    unit_bytes: int,
    block_bytes: int,
    group: int,
    suffix: str,
) -> None:
    folder = tmp_path / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    table = pa.table({"text": pa.array([*documents, "end"], pa.string())})
    path = write_rows(folder / f"a{suffix}", table, row_group_size=group)
    options = {"unit_bytes": unit_bytes, "block_bytes": block_bytes, "on_error": "skip"}
    found = trace(path, tmp_path / "out", "tiktoken", **options)
    expected = [(idx, each) for idx, each in enumerate([*documents, "end"]) if each]
    assert [(each.position, each.text.decode()) for each in found] == expected


def test_positions_cost_nothing_unless_they_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    job = JobSettings(inputs=(str(tmp_path / "a.txt"),), output=tmp_path / "out", docs_by="line")
    worker = make_worker(worker_spec(job))
    for unit in make_plan(job).iter_units():
        blocks = list(worker._readers.choose(unit).iter_blocks(unit))
        assert blocks
        assert all(block.positions is None for block in blocks)
        assert np.concatenate([block.starts for block in blocks]).tolist() == [0, 4]
