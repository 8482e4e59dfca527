"""Vocabularies from files: every engine gives tiktoken's ids, and the file's own library's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
from parity.kernel_cases import ISAS, TINY_TABLE, block_of, hostile_document
from vocabularies import example_texts, train, write_json

from penstok.engines import load_engine
from penstok.engines.kernel import KernelEngine
from penstok.tokenizers import Tokenizer, load_tokenizer

SMALL, MEDIUM, LARGE = 300, 4000, 70_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


def load(folder: Path, size: int) -> Tokenizer:
    return load_tokenizer(write_json(folder, train(size).to_str(), f"{size}.json"))


def documents(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [*example_texts(), *(hostile_document(rng) for _ in range(400))]


def reference_ids(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    encoding = tiktoken.Encoding(
        name="from a file",
        pat_str=tokenizer.pattern,
        mergeable_ranks=tokenizer.ranks,
        special_tokens={},
    )
    return [i for text in texts for i in (*encoding.encode_ordinary(text), tokenizer.eot_id)]


def ids_of(engine: Any, texts: list[str]) -> Any:
    return engine.encode(block_of([text.encode() for text in texts]))


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, MEDIUM, LARGE])
def test_every_engine_gives_the_ids_of_the_reference(folder: Path, size: int) -> None:
    tokenizer, texts = load(folder, size), documents(size)
    expected = reference_ids(tokenizer, texts)
    engines = [load_engine(name, tokenizer, "append") for name in ("tiktoken", "fastokens")]
    engines += [KernelEngine(tokenizer, "append", isa=isa) for isa in ISAS]
    engines += [KernelEngine(tokenizer, "append", isa=isa, table_bytes=TINY_TABLE) for isa in ISAS]
    for engine in engines:
        ids = ids_of(engine, texts)
        assert ids.tolist() == expected, engine.name
        if engine.name == "kernel":
            assert ids.dtype == (np.uint16 if size <= 1 << 16 else np.uint32)
    if size == LARGE:
        assert max(expected) > 1 << 16


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, MEDIUM, LARGE])
def test_the_ids_are_those_of_the_library_that_made_the_file(folder: Path, size: int) -> None:
    tokenizer, library = load(folder, size), train(size)
    texts = documents(size + 1)
    # The library finds special tokens in text; Penstok never does.
    texts = [text.replace(tokenizer.eot_text, "") for text in texts]
    expected = [i for text in texts for i in (*library.encode(text).ids, tokenizer.eot_id)]
    assert ids_of(KernelEngine(tokenizer, "append"), texts).tolist() == expected


@pytest.mark.slow
def test_several_vocabularies_work_side_by_side(folder: Path) -> None:
    tokenizers = [load_tokenizer("gpt2"), *(load(folder, size) for size in (SMALL, MEDIUM, LARGE))]
    engines = [KernelEngine(tokenizer, "append") for tokenizer in tokenizers]
    for seed in range(5):
        rng = random.Random(seed)
        texts = [hostile_document(rng) for _ in range(100)]
        for tokenizer, engine in zip(tokenizers, engines, strict=True):
            assert ids_of(engine, texts).tolist() == reference_ids(tokenizer, texts)
