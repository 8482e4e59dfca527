"""Laws of conversions: they undo each other, and formats do not depend on how a job was run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, given, settings
from support import rounds

import penstok

# Each example is a few jobs: to shrink one would take minutes.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
SEPARATOR = "<|endoftext|>"
TEXTS = st.lists(st.text("ab \n.é字", min_size=1, max_size=30), min_size=1, max_size=12)
WORDS = st.sampled_from(["append", "prepend"])
DTYPES = st.sampled_from(["uint16", "uint32"])
SHARDS = st.none() | st.integers(2, 30)
# Formats whose files are the same for any shards of the tokens.
COPIED = "llmc,torchtitan,litdata,mds,parquet"
ROWS: dict[str, Any] = {"sequence_length": 8}
COMMON: dict[str, Any] = {
    "doc_separator": SEPARATOR,
    "engine": "tiktoken",
    "val_fraction": 0.3,
    "workers": 1,
}


def tree(folder: Path) -> dict[str, bytes]:
    """Return all files but the records."""
    names = ("manifest.json", "segments.jsonl", "skipped.jsonl")
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in paths if path.name not in names
    }


def write(folder: Path, texts: list[str]) -> Path:
    path = folder / "in.txt"
    path.write_text("a" + f"{SEPARATOR}b".join(texts), encoding="utf-8")
    return path


def sources(folder: Path, name: str, split: str) -> list[str]:
    """Return the files of a split as a user would type them."""
    kinds = {
        "raw": f"{split}*.bin",
        "megatron": f"{split}*.idx",
        "llmc": f"llmc/tokens_{split}_*.bin",
    }
    kinds |= {"olmo": f"olmo/{split}*.npy", "datatrove": f"datatrove/{split}*.ds"}
    return [str(path) for path in sorted(folder.glob(kinds[name])) if path.stat().st_size]


@pytest.mark.parametrize("name", ["raw", "megatron", "llmc", "olmo", "datatrove"])
@given(TEXTS, WORDS, DTYPES, SHARDS)
@settings(max_examples=rounds(40), phases=PHASES)
def test_what_is_exported_is_imported_with_the_same_bytes(
    name: Any, texts: list[str], eot: Any, dtype: Any, shard_tokens: int | None
) -> None:
    if name == "llmc":
        # It moves the end-of-text id to the front.
        eot = "prepend"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        out, back = folder / "out", folder / "back"
        job = {**COMMON, "eot": eot, "dtype": dtype, "shard_tokens": shard_tokens}
        penstok.tokenize(write(folder, texts), out, **job)
        if name != "raw":
            penstok.convert(out, format=name)
        train, val = (sources(out, name, split) for split in ("train", "val"))
        if not train:
            return
        told = {"dtype": dtype, "eot": eot} if name in ("raw", "olmo") else {"eot": eot}
        penstok.convert(train, val=val, from_=name, tokenizer="gpt2", output=back, **told)
        assert not penstok.verify(back, full=True).findings
        for split in ("train", "val"):
            before = b"".join(path.read_bytes() for path in sorted(out.glob(f"{split}*.bin")))
            after = b"".join(path.read_bytes() for path in sorted(back.glob(f"{split}*.bin")))
            assert after == before
        found, expected = (penstok.open(each).manifest.splits for each in (back, out))
        assert found["train"].documents == expected["train"].documents
        if name != "raw" and len(train) == len(list(back.glob("train*.bin"))):
            penstok.convert(back, format=name)
            again = [Path(path).read_bytes() for path in sources(back, name, "train")]
            assert again == [Path(path).read_bytes() for path in train]


@given(TEXTS, SHARDS, st.integers(1, 3))
@settings(max_examples=rounds(40), phases=PHASES)
def test_formats_do_not_depend_on_shards_workers_or_when_they_are_written(
    texts: list[str], shard_tokens: int | None, workers: int
) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        path = write(folder, texts)
        one, two = folder / "one", folder / "two"
        penstok.tokenize(path, one, **COMMON, format=COPIED, **ROWS)
        penstok.tokenize(path, two, **{**COMMON, "workers": workers, "shard_tokens": shard_tokens})
        penstok.convert(two, format=COPIED, **ROWS)
        for name in COPIED.split(","):
            assert tree(one / name) == tree(two / name), name


@given(TEXTS, st.integers(1, 3))
@settings(max_examples=rounds(15), phases=PHASES)
def test_formats_of_parts_are_those_of_one_run(texts: list[str], num_parts: int) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        path = write(folder, texts)
        one, parts = folder / "one", folder / "parts"
        penstok.tokenize(path, one, **COMMON, format=COPIED, **ROWS)
        for part in range(1, num_parts + 1):
            job = {**COMMON, "format": COPIED, "task_size": 64, **ROWS}
            penstok.tokenize_part(path, parts, part=part, num_parts=num_parts, **job)
        penstok.finish(parts)
        for name in COPIED.split(","):
            assert tree(one / name) == tree(parts / name), name
