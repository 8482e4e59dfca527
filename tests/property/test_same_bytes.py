"""Law: output depends on inputs and settings alone, and equals the reference on each document."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import EXAMPLES, HEAD_BYTES, HOSTILE_CHARACTERS, expected_splits, rounds, run_units

from penstok.readers import borders, text
from penstok.types import Counts

hostile_text = st.text(st.sampled_from(HOSTILE_CHARACTERS), max_size=200)
separators = st.sampled_from(
    ["<|endoftext|>", "\n\n", "\n", "aa", "abab", " - ", "---", "字", "字字", "\n \n", "aabaa"]
)
sizes = st.integers(1, 400)
law = settings(max_examples=rounds(80), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["as shipped", "impatient"])
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a law twice: as shipped, and with units that end inside any document of some length.

    Returns how much of a document decides its split.
    """
    if request.param == "as shipped":
        return HEAD_BYTES
    monkeypatch.setattr(borders, "_PATIENCE_BYTES", 48)
    monkeypatch.setattr(text, "HEAD_BYTES", 16)
    return 16


def run_case(tmp_path: Path, data: bytes, **options: Any) -> tuple[dict[str, list[int]], Counts]:
    """Tokenize `data` in a fresh folder; one test tries many cases in the same one."""
    folder = tmp_path / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "text.txt").write_bytes(data)
    return run_units([folder / "text.txt"], folder / "out", **options)


@law
@given(st.lists(hostile_text, min_size=1, max_size=12), separators, sizes, sizes, st.booleans())
def test_separated_documents_equal_the_reference(
    tmp_path: Path,
    patience: int,
    texts: list[str],
    separator: str,
    unit_bytes: int,
    block_bytes: int,
    ends_with_separator: bool,
) -> None:
    data = (separator.join(texts) + separator * ends_with_separator + "end").encode()
    ids, counts = run_case(
        tmp_path,
        data,
        doc_separator=separator,
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        val_fraction=0.4,
    )
    documents = data.split(separator.encode())
    if data.startswith(b"\xef\xbb\xbf"):
        documents = data[3:].split(separator.encode())
    assert ids == expected_splits(documents, val_fraction=0.4, head_bytes=patience)
    assert counts.input_bytes == len(data)
    assert counts.documents == sum(map(bool, documents))
    special = b"<|endoftext|>"
    holding = 0 if separator.encode() == special else sum(special in text for text in documents)
    assert counts.special_text_documents == holding


@law
@given(
    st.lists(hostile_text, min_size=1, max_size=12),
    sizes,
    sizes,
    st.sampled_from(["append", "prepend", "none"]),
)
def test_lines_equal_the_reference(
    tmp_path: Path, patience: int, texts: list[str], unit_bytes: int, block_bytes: int, eot: str
) -> None:
    data = "\n".join(texts).removeprefix("\ufeff").encode() + b"\nend"
    ids, _ = run_case(
        tmp_path,
        data,
        docs_by="line",
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        val_fraction=0.4,
        eot=eot,
    )
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    assert ids == expected_splits(lines, val_fraction=0.4, eot=eot, head_bytes=patience)


@law
@given(st.lists(st.binary(max_size=60) | hostile_text.map(str.encode), max_size=8), sizes, sizes)
def test_invalid_utf8_is_repaired_like_each_whole_document(
    tmp_path: Path, patience: int, texts: list[bytes], unit_bytes: int, block_bytes: int
) -> None:
    data = b"start" + b"|".join(texts)
    ids, counts = run_case(
        tmp_path,
        data,
        doc_separator="|",
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        val_fraction=0.4,
    )
    documents = data.split(b"|")
    assert ids == expected_splits(documents, val_fraction=0.4, head_bytes=patience)
    replaced = sum(text.decode(errors="replace").count("\ufffd") for text in documents)
    assert counts.invalid_utf8 == replaced - data.count("\ufffd".encode())


@law
@given(st.lists(st.binary(max_size=60) | hostile_text.map(str.encode), max_size=8), sizes, sizes)
def test_invalid_utf8_is_ignored_like_in_each_whole_document(
    tmp_path: Path, patience: int, texts: list[bytes], unit_bytes: int, block_bytes: int
) -> None:
    data = b"start" + b"|".join(texts)
    ids, _ = run_case(
        tmp_path,
        data,
        doc_separator="|",
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        val_fraction=0,
        invalid_utf8="ignore",
    )
    cleaned = [text.decode(errors="ignore").encode() for text in data.split(b"|")]
    assert ids == expected_splits(cleaned, val_fraction=0)


@law
@given(st.lists(hostile_text, min_size=1, max_size=8), sizes, sizes)
def test_stripped_documents_equal_the_reference(
    tmp_path: Path, patience: int, texts: list[str], unit_bytes: int, block_bytes: int
) -> None:
    white = "".join(map(chr, [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)]))
    white += "\u2028\u2029\u202f\u205f\u3000"
    data = ("x" + "|".join(texts)).encode()
    ids, _ = run_case(
        tmp_path,
        data,
        doc_separator="|",
        unit_bytes=unit_bytes,
        block_bytes=block_bytes,
        strip=True,
        val_fraction=0.4,
    )
    documents = [text.decode().strip(white).encode() for text in data.split(b"|")]

    def head(document: bytes) -> bytes:
        start = document[:patience]
        return start.decode(errors="surrogateescape").rstrip(white).encode(errors="surrogateescape")

    assert ids == expected_splits(documents, val_fraction=0.4, head=head)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit_bytes", "block_bytes"),
    list(itertools.product([999, 5_000, 1 << 20], [333, 4_096, 1 << 20])),
)
def test_real_text_is_the_same_for_all_sizes(
    tmp_path: Path, unit_bytes: int, block_bytes: int
) -> None:
    paths = sorted(EXAMPLES.glob("*.txt"))
    documents = [doc for path in paths for doc in path.read_bytes().split(b"<|endoftext|>")]
    ids, counts = run_units(
        paths, tmp_path / "out", unit_bytes=unit_bytes, block_bytes=block_bytes, val_fraction=0.2
    )
    assert ids == expected_splits(documents, val_fraction=0.2)
    assert counts.documents == len(documents)


@pytest.mark.slow
@pytest.mark.parametrize("shard_tokens", [1, 7, 1000, 10**9])
def test_shards_joined_are_the_unsharded_files(tmp_path: Path, shard_tokens: int) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes((EXAMPLES / "english.txt").read_bytes()[:3000])
    options = {"unit_bytes": 500, "block_bytes": 200, "val_fraction": 0.3}
    plain, _ = run_units([text], tmp_path / "plain", **options)
    sharded, _ = run_units([text], tmp_path / "shards", shard_tokens=shard_tokens, **options)
    assert sharded == plain
