"""Laws for small corpora: val gets the document with the smallest hash, the same for any sizes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from compressed import compress
from specs import worker_spec
from support import make_worker, reference, rounds

from penstok import readers
from penstok.jobs import few_documents
from penstok.jobs.few_documents import find_val_hash
from penstok.jobs.plan import make_plan
from penstok.jobs.settings import JobSettings
from penstok.kernel import find_kernel_function
from penstok.readers import spans, text
from penstok.types import Block, replace
from penstok.worker.splits import Hasher, SmallestHash


def settings_of(*inputs: Path, **more: Any) -> JobSettings:
    return JobSettings(
        inputs=tuple(map(os.fspath, inputs)), **{"engine": "tiktoken", "val_fraction": 1e-6, **more}
    )


def search(job: JobSettings) -> str | None:
    return find_val_hash(make_plan(job), worker_spec(job))


def smallest_of(documents: list[bytes], seed: int = 0) -> str:
    return f"{min(xxhash.xxh3_64_intdigest(each[:65536], seed) for each in documents):016x}"


def block_of(texts: list[bytes]) -> Block:
    ends = np.cumsum([len(each) for each in texts])
    starts = np.concatenate(([0], ends[:-1]))
    whole = np.ones(len(texts), np.bool_)
    return Block(memoryview(b"".join(texts)), starts, ends, whole, whole, ends)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("seed", range(rounds(10)))
def test_the_smallest_hash_is_found_in_any_blocks(seed: int, *, is_compiled: bool) -> None:
    chance = random.Random(seed)
    kernel = find_kernel_function("hash_documents") if is_compiled else None
    # Up to 300 different texts; one of them is often that of most documents.
    kinds = chance.choice((1, 2, 3, 300))
    texts = [b"%d" % min(chance.randrange(kinds), chance.randrange(kinds)) for _ in range(200)]
    texts += [b"x"] * chance.choice((0, 150, 900))
    chance.shuffle(texts)
    found = SmallestHash(Hasher(seed, kernel))
    at = 0
    while at < len(texts):
        size = chance.randrange(1, 100)
        found.add(block_of(texts[at : at + size]))
        at += size
    assert f"{found.value:016x}" == smallest_of(texts, seed)
    rare = [each for each in texts if texts.count(each) <= len(texts) / 2]
    chosen = found.choose()
    assert (chosen and f"{chosen:016x}") == (smallest_of(rare, seed) if rare else None)


@pytest.mark.parametrize("suffix", ["txt", "txt.gz", "jsonl", "jsonl.gz", "csv", "parquet"])
def test_every_format_gives_the_same_document(tmp_path: Path, suffix: str) -> None:
    documents = [f"document {idx}, " + "words " * (idx * 50) for idx in range(40)]
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"text": documents}), path)
    else:
        content = {
            "txt": "<|endoftext|>".join(documents),
            "jsonl": "\n".join(json.dumps({"text": each}) for each in documents),
            "csv": "text\n" + "\n".join(f'"{each}"' for each in documents),
        }[suffix.split(".")[0]].encode()
        path.write_bytes(compress(content, "gzip") if suffix.endswith("gz") else content)
    expected = smallest_of([each.encode() for each in documents])
    for unit_bytes, block_bytes in ((1 << 24, 1 << 21), (1000, 300), (4096, 1 << 21)):
        job = settings_of(path, unit_bytes=unit_bytes, block_bytes=block_bytes)
        assert search(job) == expected
    # The fraction decides: it gives val documents, none at all, or all of them.
    assert search(settings_of(path, val_fraction=0.5)) is None
    assert search(settings_of(path, val_fraction=0)) is None
    assert search(settings_of(path, val_fraction=1)) is None


def test_a_document_goes_to_val_exactly_when_it_has_the_hash(tmp_path: Path) -> None:
    documents = [f"number {idx % 20}" for idx in range(30)]
    path = tmp_path / "a.txt"
    path.write_text("|".join(documents))
    job = settings_of(path, doc_separator="|", output=tmp_path / "out", unit_bytes=50)
    plan, spec = make_plan(job), worker_spec(job)
    val_hash = find_val_hash(plan, spec)
    worker = make_worker(replace(spec, rules=replace(spec.rules, val_hash=val_hash)))
    encoded = [worker.encode(unit) for unit in plan.iter_units()]
    chosen = min(documents, key=lambda each: xxhash.xxh3_64_intdigest(each.encode(), 0))
    assert sum(each.documents["val"] for each in encoded) == documents.count(chosen)
    num_tokens = len(reference().encode_ordinary(chosen)) + 1
    assert sum(each.tokens["val"] for each in encoded) == documents.count(chosen) * num_tokens


@pytest.mark.parametrize("seed", range(rounds(10)))
def test_a_giant_document_gives_one_span_to_val(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(text, "HEAD_BYTES", 16)
    monkeypatch.setattr(spans, "HEAD_BYTES", 16)
    monkeypatch.setattr(spans, "_SPAN_BYTES", 32)
    monkeypatch.setattr(readers, "GIANT_DOCUMENT_BYTES", 0)
    path = tmp_path / "a.txt"
    path.write_text(" ".join(map(str, random.Random(seed).sample(range(9999), 200))))
    found = set()
    for unit_bytes in (64, 301, 1 << 20):
        job = settings_of(path, docs_by="file", unit_bytes=unit_bytes, output=tmp_path / "out")
        plan, spec = make_plan(job), worker_spec(job)
        monkeypatch.setattr(few_documents, "_UNIT_BYTES", unit_bytes)
        val_hash = find_val_hash(plan, spec)
        worker = make_worker(replace(spec, rules=replace(spec.rules, val_hash=val_hash)))
        encoded = [worker.encode(unit) for unit in plan.iter_units()]
        assert sum(each.documents["val"] for each in encoded) == 1
        assert sum(each.tokens["train"] for each in encoded) > 0
        found.add((val_hash, sum(each.tokens["val"] for each in encoded)))
    assert len(found) == 1


def test_train_is_never_left_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for documents in (["only one"], ["the same"] * 5, ["one", "", ""]):
        path.write_text("|".join(documents))
        assert search(settings_of(path, doc_separator="|")) is None
    path.write_text("one|two")
    assert search(settings_of(path, doc_separator="|")) == smallest_of([b"one", b"two"])


def test_duplicates_do_not_move_most_of_the_corpus_to_val(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for common, rare in (("same line", "other"), ("other", "same line")):
        path.write_text("|".join([common] * 5 + [rare]))
        job = settings_of(path, doc_separator="|", output=tmp_path / "out")
        plan, spec = make_plan(job), worker_spec(job)
        val_hash = find_val_hash(plan, spec)
        assert val_hash == smallest_of([rare.encode()])
        worker = make_worker(replace(spec, rules=replace(spec.rules, val_hash=val_hash)))
        encoded = [worker.encode(unit) for unit in plan.iter_units()]
        assert [sum(each.documents[name] for each in encoded) for name in ("train", "val")] == [
            5,
            1,
        ]


def test_a_large_corpus_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    plain.write_text("a|b" * 1000)
    packed.write_bytes(compress(b"a|b" * 1000, "gzip"))
    for path, limit in ((plain, 2999), (packed, 2999)):
        job = settings_of(path, doc_separator="|", val_fraction=1e-9)
        monkeypatch.setattr(few_documents, "_MAX_LOCAL_BYTES", 3000)
        assert search(job) is not None
        monkeypatch.setattr(few_documents, "_MAX_LOCAL_BYTES", limit)
        assert search(job) is None
    # What is larger than that is not even opened.
    plan = make_plan(settings_of(plain, doc_separator="|"))
    plain.unlink()
    assert find_val_hash(plan, worker_spec(settings_of(packed))) is None
