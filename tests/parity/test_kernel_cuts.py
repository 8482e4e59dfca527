"""The kernel and the cuts agree: text divided at cuts, all of them or some, has the same ids."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity.kernel_cases import ISAS, LARGE_TABLE, TINY_TABLE, engine, gpt2, hostile_document
from support import EXAMPLES, HOSTILE_CHARACTERS, rounds
from vocabularies import train, write_json

from penstok import _kernel
from penstok.engines.kernel import KernelEngine
from penstok.tokenizers import load_tokenizer
from penstok.tokenizers.cuts import ByteLevelCuts, _free_junctions
from penstok.types import Block

RULE = ByteLevelCuts(gpt2())


def find_cuts(data: bytes) -> list[int]:
    return [int(cut) for cut in np.flatnonzero(RULE.mask(np.frombuffer(data, np.uint8)))]


def encode_divided(isa: str, table_bytes: int, data: bytes, cuts: list[int]) -> list[int]:
    """Encode the text between cuts separately, as parts of one document."""
    edges = np.array([0, *cuts, len(data)], np.int64)
    inside = np.zeros(len(edges) - 1, np.bool_)
    block = Block(memoryview(data), edges[:-1], edges[1:], inside, inside, edges[1:])
    return engine(isa, table_bytes).encode(block).tolist()  # type: ignore[no-any-return]


def check_every_cut(data: bytes, rng: random.Random) -> int:
    """Divide at every cut, then at random ones, with every engine; return the number of cuts."""
    cuts = find_cuts(data)
    some = [[cut for cut in cuts if rng.random() < share] for share in (0.5, 0.05)]
    for isa in ISAS:
        for table_bytes in (TINY_TABLE, LARGE_TABLE):
            whole = encode_divided(isa, table_bytes, data, [])
            for chosen in (cuts, *some):
                assert encode_divided(isa, table_bytes, data, chosen) == whole
    return len(cuts)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.txt")), ids=lambda path: path.stem)
def test_every_cut_of_real_text(path: Path) -> None:
    data = path.read_bytes()
    assert check_every_cut(data, random.Random(1)) > len(data) / 30


@pytest.mark.slow
def test_every_cut_of_hostile_documents() -> None:
    rng = random.Random(2)
    found = sum(check_every_cut(hostile_document(rng).encode(), rng) for _ in range(1500))
    assert found > 10_000


@settings(max_examples=rounds(400))
@given(st.text(st.sampled_from(HOSTILE_CHARACTERS), max_size=80), st.randoms())
def test_every_cut_of_hostile_characters(text: str, rng: random.Random) -> None:
    check_every_cut(text.encode(), rng)


def test_cuts_take_the_free_junctions_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_tokenizer("gpt2")
    pairs = "".join(a + b for a in HOSTILE_CHARACTERS for b in HOSTILE_CHARACTERS)
    text = np.frombuffer(pairs.encode(), np.uint8)
    monkeypatch.setattr("penstok.tokenizers.cuts._last_table", [])
    expected = ByteLevelCuts(tokenizer).mask(text)
    monkeypatch.setattr("penstok.tokenizers.cuts._last_table", [])
    KernelEngine(tokenizer, "append")
    monkeypatch.setattr("penstok.tokenizers.cuts._free_junctions", None)
    np.testing.assert_array_equal(ByteLevelCuts(tokenizer).mask(text), expected)


@pytest.mark.parametrize("size", [None, 4000])
def test_the_tables_of_free_junctions_are_the_same(size: int | None, tmp_path: Path) -> None:
    path = "gpt2" if size is None else write_json(tmp_path, train(size).to_str())
    tokenizer = load_tokenizer(path)
    encoder = _kernel.Encoder(tokenizer.ranks, tokenizer.eot_id, table_bytes=TINY_TABLE)
    free = _free_junctions(tokenizer.ranks)
    assert 0 < free.sum() < 1 << 16
    pairs = [encoder.is_free_junction(pair >> 8, pair & 255) for pair in range(1 << 16)]
    np.testing.assert_array_equal(free, pairs)
