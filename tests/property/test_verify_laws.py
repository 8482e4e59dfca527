"""Laws of verify: a shorter unit is a prefix; no ledger or manifest makes it crash or grow."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specs import worker_spec
from support import HOSTILE_CHARACTERS, ROOT, make_worker, rounds

import penstok
from penstok.errors import DamageError, EngineError, PenstokError
from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.output.layout import Layout
from penstok.output.offsets import Offsets
from penstok.output.store.folder import FolderStore
from penstok.types import SPLITS, FinishedUnit, WrittenUnit, replace
from penstok.verification.findings import Report

BAD_OUTPUTS = ROOT / "tests" / "data" / "bad_outputs"
SEPARATOR = "<|endoftext|>"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws")


documents = st.lists(
    st.builds(
        lambda text, times: text * times,
        st.text(HOSTILE_CHARACTERS, min_size=1, max_size=40),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=rounds(60), suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=documents,
    rule=st.sampled_from(["separator", "line", "file"]),
    unit_bytes=st.integers(200, 3000),
    cut=st.floats(0.01, 1),
    eot=st.sampled_from(["append", "prepend", "none"]),
    strip=st.booleans(),
    shard_tokens=st.sampled_from([None, 97]),
)
def test_a_unit_cut_short_is_a_prefix_in_each_split(
    place: Path,
    texts: list[str],
    rule: Any,
    unit_bytes: int,
    cut: float,
    eot: Any,
    strip: bool,
    shard_tokens: int | None,
) -> None:
    source, output = place / "text.txt", place / "out"
    shutil.rmtree(output, ignore_errors=True)
    source.write_bytes((SEPARATOR if rule == "separator" else "\n").join(texts).encode())
    job = JobSettings(
        inputs=(os.fspath(source),),
        output=output,
        val_fraction=0.4,
        unit_bytes=unit_bytes,
        block_bytes=150,
        docs_by=rule,
        doc_separator=SEPARATOR if rule == "separator" else None,
        eot=eot,
        strip=strip,
        shard_tokens=shard_tokens,
    )
    with (
        # Everything that is giant made small, in the same proportions.
        mock.patch("penstok.readers.borders.MAX_RUN_BYTES", 128),
        mock.patch("penstok.readers.spans.MAX_RUN_BYTES", 128),
        mock.patch("penstok.readers.borders._PATIENCE_BYTES", 48),
        mock.patch("penstok.readers.text.HEAD_BYTES", 16),
        mock.patch("penstok.readers.spans.HEAD_BYTES", 16),
        mock.patch("penstok.readers.spans._SPAN_BYTES", 32),
        mock.patch("penstok.readers.GIANT_DOCUMENT_BYTES", 500),
    ):
        _check_prefixes(job, cut)


def _check_prefixes(job: JobSettings, cut: float) -> None:
    layout = Layout(str(job.output), 2, job.shard_tokens)
    worker, offsets, done = make_worker(worker_spec(job)), Offsets(), []
    store = FolderStore(layout.folder)
    with store.lock():
        for unit in make_plan(job).iter_units():
            encoded = worker.encode(unit)
            grant = offsets.grant(unit, encoded)
            done.append(FinishedUnit(unit, encoded, grant, worker.write(grant)))
        sizes = {
            layout.file_name(split, shard): num_tokens * layout.token_bytes
            for split in SPLITS
            for shard, num_tokens in layout.iter_shards(split, offsets.tokens[split])
        }
        store.take_aside([])
        store.put_back(sizes)
    comparer = make_worker(worker_spec(job, sink="compare"))
    for finished in done:
        unit = finished.unit
        end = unit.start + max(round((unit.end - unit.start) * cut), 1)
        short = comparer.encode(replace(unit, end=end))
        assert comparer.write(finished.offsets) == WrittenUnit(unit.index, ())
        assert short.counts.tokens <= finished.encoded.counts.tokens
    # The comparison can fail: another first id is found, and only that.
    first = next((each for each in done if each.written.segments), None)
    if first is not None:
        segment = first.written.segments[0]
        path = layout.final_path(segment.split, segment.shard)
        content = bytearray(path.read_bytes())
        content[segment.offset_tokens * 2] ^= 1
        path.write_bytes(content)
        comparer = make_worker(worker_spec(job, sink="compare"))
        comparer.encode(first.unit)
        (found,) = comparer.write(first.offsets).segments
        assert (found.split, found.shard) == (segment.split, segment.shard)
        assert (found.offset_tokens, found.num_tokens) == (segment.offset_tokens, 1)


@pytest.fixture(scope="module")
def made(place: Path) -> Path:
    """A job of two inputs, some units and some shards, and what stands in its ledger."""
    for number in range(2):
        (place / f"{number}.txt").write_text(SEPARATOR.join(f"text {idx}" for idx in range(60)))
    penstok.tokenize(
        [place / "0.txt", place / "1.txt"],
        place / "made",
        engine="tiktoken",
        unit_bytes=400,
        shard_tokens=150,
        val_fraction=0.3,
        workers=1,
    )
    return place / "made"


def seal(content: Any) -> bytes:
    body = json.dumps(content, separators=(",", ":")).encode()
    return body[:-1] + b',"check":"' + xxhash.xxh3_64_hexdigest(body).encode() + b'"}\n'


def look_everywhere(folder: Path) -> Report | None:
    """Look in every way; anything but a report or an error of ours is a bug.

    Returns what a quick look says; None if that is an error.
    """
    reports: list[Report | None] = []
    no_workers = EngineError("no workers here")
    with (
        mock.patch("penstok.verification.proof.make_executor", side_effect=no_workers),
        mock.patch("penstok.verification.repair.make_executor", side_effect=no_workers),
        mock.patch("penstok.verification.ledger_repair.make_executor", side_effect=no_workers),
    ):
        for wanted in ({}, {"full": True}, {"source": True}, {"repair": True}):
            reports.append(None)
            with contextlib.suppress(PenstokError):
                reports[-1] = penstok.verify(folder, workers=1, **wanted)
    return reports[0]


values = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 7, 2**31, 2**61, 2**62, 2**63, 2**64, 10**30]),
    st.floats(),
    st.sampled_from(["", "train", "val", "../x", "\0", "\ud800", "uint32", "0" * 32, "gpt2"]),
    st.lists(st.integers(-1, 9), max_size=3),
    st.dictionaries(st.sampled_from(["train", "documents"]), st.integers(-2, 9), max_size=2),
)


def places_in(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    found = [path] if path else []
    for key, value in pairs:
        found += places_in(value, (*path, key))
    return found


def put(content: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        content = content[key]
    content[path[-1]] = value


FUZZ = settings(
    max_examples=rounds(120),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@FUZZ
@given(data=st.data())
def test_ledgers_with_right_checksums_and_wrong_contents(made: Path, data: st.DataObject) -> None:
    folder = made.parent / "sealed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made, folder)
    lines = [json.loads(line) for line in (folder / "segments.jsonl").read_bytes().splitlines()]
    for content in lines:
        del content["check"]
    original = json.loads(json.dumps(lines))
    for _ in range(data.draw(st.integers(1, 3))):
        idx = data.draw(st.sampled_from([0, 1, 2, 3, len(lines) // 2, len(lines) - 1]))
        paths = places_in(lines[idx])
        if paths:
            put(lines[idx], data.draw(st.sampled_from(paths)), data.draw(values))
    (folder / "segments.jsonl").write_bytes(b"".join(map(seal, lines)))
    report = look_everywhere(folder)
    # What may differ and pass shapes no byte: a flag of a document nobody asks for.
    flags = {"carried_special", "open_special", "open"}
    if report is not None and report.is_whole:
        for line, content in zip(original, lines, strict=True):
            differing = {key for key in content if line[key] != content[key]}
            assert differing <= flags


@FUZZ
@given(
    name=st.sampled_from(["segments.jsonl", "manifest.json"]),
    place_at=st.floats(0, 1),
    removed=st.integers(0, 40),
    added=st.binary(max_size=40),
)
def test_any_other_byte_in_the_records_is_found(
    made: Path, name: str, place_at: float, removed: int, added: bytes
) -> None:
    folder = made.parent / "raw"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made, folder)
    before = (folder / name).read_bytes()
    at = round(len(before) * place_at)
    after = before[:at] + added + before[at + removed :]
    (folder / name).write_bytes(after)
    report = look_everywhere(folder)
    assert report is None or report.is_whole == (before == after)


@pytest.mark.parametrize("case", sorted(BAD_OUTPUTS.iterdir()), ids=lambda case: case.name)
def test_known_bad_outputs_never_pass_and_need_little_memory(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input.txt").write_text("one<|endoftext|>two words<|endoftext|>three")
    os.utime(tmp_path / "input.txt", (1.7e9, 1.7e9))
    shutil.copytree(case, tmp_path / "out")
    for wanted in ({}, {"full": True}):
        with contextlib.suppress(DamageError):
            assert not penstok.verify(tmp_path / "out", **wanted).is_whole
    tracemalloc.start()
    look_everywhere(tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
