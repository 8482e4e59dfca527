"""Law: the document index says where tiktoken's ids of each document start, however work is cut."""

from __future__ import annotations

import shutil
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specs import worker_spec
from support import (
    EOT,
    EXAMPLES,
    HEAD_BYTES,
    HOSTILE_CHARACTERS,
    expected_splits,
    make_worker,
    rounds,
    run_units_and,
)

from penstok import readers
from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.jobs.tasks import divide_tasks, plan_of_task
from penstok.output.layout import Layout
from penstok.output.ledger.reader import Start
from penstok.output.offsets import Offsets
from penstok.output.store.folder import FolderTaskFiles
from penstok.readers import borders, spans, text
from penstok.types import SPLITS, Split

Starts = dict[str, list[int]]

hostile_text = st.text(st.sampled_from(HOSTILE_CHARACTERS), max_size=200)
sizes = st.integers(1, 400)
eots = st.sampled_from(["append", "prepend", "none"])
law = settings(max_examples=rounds(80), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["as shipped", "impatient"])
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a law as shipped, and with units that end inside any document of some length."""
    if request.param == "as shipped":
        return HEAD_BYTES
    monkeypatch.setattr(borders, "_PATIENCE_BYTES", 48)
    monkeypatch.setattr(text, "HEAD_BYTES", 16)
    return 16


@pytest.fixture
def spans_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every file a giant document, and a giant document small."""
    for module in (borders, spans):
        monkeypatch.setattr(module, "MAX_RUN_BYTES", 128)
    monkeypatch.setattr(borders, "_PATIENCE_BYTES", 48)
    monkeypatch.setattr(spans, "HEAD_BYTES", 16)
    monkeypatch.setattr(spans, "_SPAN_BYTES", 32)
    monkeypatch.setattr(readers, "GIANT_DOCUMENT_BYTES", 0)


def read_indexes(folder: Path, layout: Layout, offsets: Offsets) -> Starts:
    """Seal the indexes, and join those of shards by what the manifest says of each."""
    files = FolderTaskFiles(folder, layout)
    staged = files.seal_indexes(offsets.tokens, offsets.documents)
    starts: Starts = {}
    for split in SPLITS:
        before, starts[split] = 0, []
        shards = list(layout.iter_shards(split, offsets.tokens[split]))
        for index, (_, num_tokens) in zip(staged[split], shards, strict=True):
            path = folder / layout.work / f"{index.record.path}.partial"
            entries = np.load(path).tolist()
            assert path.stat().st_size == index.record.bytes
            assert entries[0] == 0
            assert entries[-1] == num_tokens
            assert len(entries) == index.record.documents + index.record.continues + 1
            starts[split] += [before + each for each in entries[index.record.continues : -1]]
            before += num_tokens
        assert len(starts[split]) == offsets.documents[split]
    return starts


def run_case(tmp_path: Path, data: bytes, **options: Any) -> Starts:
    folder = tmp_path / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "text.txt").write_bytes(data)
    output = folder / "out"
    return run_units_and(
        lambda layout, offsets: read_indexes(output, layout, offsets),
        [folder / "text.txt"],
        output,
        **options,
    )


def expected_starts(documents: list[bytes], *, eot: str = "append", **options: Any) -> Starts:
    """Encode whole documents one by one, and add up their lengths."""
    starts: Starts = {}
    whole = [expected_splits([document], eot=eot, **options) for document in documents if document]
    for split in SPLITS:
        # A document's ids are never none, so the other split is the one that it is not in.
        lengths = [len(each[split]) for each in whole if each[split]]
        starts[split] = list(accumulate(lengths, initial=0))[:-1]
    return starts


@law
@given(
    st.lists(hostile_text, min_size=1, max_size=12),
    st.sampled_from(["<|endoftext|>", "\n\n", "aa", "字"]),
    sizes,
    sizes,
    st.none() | st.integers(1, 60),
    eots,
)
def test_starts_are_where_the_reference_says(
    tmp_path: Path,
    patience: int,
    texts: list[str],
    separator: str,
    unit_bytes: int,
    block_bytes: int,
    shard_tokens: int | None,
    eot: str,
) -> None:
    data = (separator.join(texts) + separator + "end").removeprefix("\ufeff").encode()
    found = run_case(
        tmp_path,
        data,
        doc_separator=separator,
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        shard_tokens=shard_tokens,
        val_fraction=0.4,
        eot=eot,
    )
    documents = data.split(separator.encode())
    assert found == expected_starts(documents, eot=eot, val_fraction=0.4, head_bytes=patience)


@law
@given(st.lists(hostile_text, min_size=1, max_size=12), sizes, sizes, st.integers(1, 600), eots)
def test_starts_do_not_depend_on_tasks(
    tmp_path: Path,
    patience: int,
    texts: list[str],
    unit_bytes: int,
    block_bytes: int,
    task_bytes: int,
    eot: str,
) -> None:
    data = ("|".join(texts) + "|end").removeprefix("\ufeff").encode()
    folder = tmp_path / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "text.txt").write_bytes(data)
    job = JobSettings(
        inputs=(str(folder / "text.txt"),),
        output=folder / "out",
        engine="tiktoken",
        doc_separator="|",
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        val_fraction=0.4,
        eot=eot,  # type: ignore[arg-type]
    )
    plan, spec = make_plan(job), worker_spec(job)
    worker = make_worker(spec)
    found: Starts = {split: [] for split in SPLITS}
    before: dict[Split, int] = dict.fromkeys(SPLITS, 0)
    for task in divide_tasks(plan, task_bytes):
        part = plan_of_task(plan, task)
        start = Start(source_idx=task.first_source, position=task.start)
        open_split: Split = "train"
        if task.start:
            open_split = worker.find_open_split(next(part.iter_units(start)), unit_bytes)
        offsets = Offsets.of_task(open_split)
        layout = spec.layout.of_task(task.number, str(folder / "out"), f"task{task.number}", None)
        files = FolderTaskFiles(folder / "out", layout)
        worker.write_to(files.layout)
        for unit in part.iter_units(start, {}, task.stop):
            worker.write(offsets.grant(unit, worker.encode(unit)))
        own = read_indexes(folder / "out", layout, offsets)
        for split in SPLITS:
            found[split] += [before[split] + each for each in own[split]]
            before[split] += offsets.tokens[split]
    worker._sink.close()
    assert found == expected_starts(
        data.split(b"|"), eot=eot, val_fraction=0.4, head_bytes=patience
    )


@law
@given(
    st.lists(st.binary(max_size=60) | hostile_text.map(str.encode), max_size=8), sizes, sizes, eots
)
def test_starts_of_repaired_text(
    tmp_path: Path, patience: int, texts: list[bytes], unit_bytes: int, block_bytes: int, eot: str
) -> None:
    data = b"start" + b"|".join(texts)
    found = run_case(
        tmp_path,
        data,
        doc_separator="|",
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        val_fraction=0.4,
        eot=eot,
    )
    assert found == expected_starts(
        data.split(b"|"), eot=eot, val_fraction=0.4, head_bytes=patience
    )


def without_eot(starts: Starts) -> Starts:
    """Move starts to where they are without one end-of-text id per document."""
    return {
        split: [start - number for number, start in enumerate(values)]
        for split, values in starts.items()
    }


def starts_of_ids(folder: Path, layout: Layout, offsets: Offsets) -> Starts:
    """Find the documents in the tokens, and compare with the index."""
    starts: Starts = {}
    for split in SPLITS:
        path = layout.partial_path(split, 0)
        ids = np.fromfile(path, np.uint16) if offsets.tokens[split] else np.empty(0, np.uint16)
        ends = (np.flatnonzero(ids == EOT) + 1).tolist()
        starts[split] = [0, *ends][: len(ends)]
    assert read_indexes(folder, layout, offsets) == starts
    return starts


def run_all_eots(path: Path, output: Path, **options: Any) -> Starts:
    """Run with each place of end-of-text ids; compare the indexes, and one with the tokens."""
    found: dict[str, Starts] = {}
    for eot in ("append", "prepend", "none"):
        shutil.rmtree(output, ignore_errors=True)
        look = partial(starts_of_ids if eot == "append" else read_indexes, output)
        found[eot] = run_units_and(look, [path], output, eot=eot, **options)
    assert found["prepend"] == found["append"]
    assert found["none"] == without_eot(found["append"])
    return found["append"]


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("unit_bytes", [*range(1, 40), 1000])
def test_a_document_whose_first_bytes_are_removed_is_not_lost(
    tmp_path: Path, unit_bytes: int
) -> None:
    """It can begin in a unit in which it has no token."""
    path = tmp_path / "text.txt"
    path.write_bytes(b"one two|" + b"\xff" * 70 + b" three|four|" + b"five " * 30 + b"|six")
    found = run_all_eots(
        path,
        tmp_path / "out",
        doc_separator="|",
        unit_bytes=unit_bytes,
        block_bytes=7,
        invalid_utf8="ignore",
        val_fraction=0,
    )
    assert len(found["train"]) == 5


@pytest.mark.usefixtures("spans_everywhere")
@pytest.mark.parametrize("name", ["english.txt", "chinese.txt", "hindi.txt"])
@pytest.mark.parametrize(("unit_bytes", "block_bytes"), [(64, 37), (301, 256), (1 << 20, 1 << 20)])
def test_spans_of_a_giant_document_have_starts(
    tmp_path: Path, name: str, unit_bytes: int, block_bytes: int
) -> None:
    path, output = tmp_path / "text.txt", tmp_path / "out"
    path.write_bytes((EXAMPLES / name).read_bytes()[:6000].decode(errors="ignore").encode())
    found = run_all_eots(
        path,
        output,
        docs_by="file",
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        val_fraction=0.3,
    )
    assert len(found["val"]) > 2
